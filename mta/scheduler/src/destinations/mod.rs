//! All destinations: one for each next hop that has mail, and some that had mail lately.
//!
//! Must never decide whose turn it is.

pub(crate) mod destination;
mod limits;

use crate::memory::shards::{Shards, hash_with};
use crate::memory::{NONE, Slab, Symbols};
use crate::settings::{DestinationLimits, Retry, Settings};
use crate::store::Store;
use destination::{Destination, DestinationHealth, GOES_ON, IDLE, IN_TURN, Moment, PARKED, ROUTED};
use limits::LimitTable;
use mail::{Domain, NextHop};
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Index, IndexMut};

/// Maximum number of destinations without mail whose pace is remembered.
const DESTINATIONS_IDLE_MAX: usize = 1024;

/// All destinations.
#[derive(Debug)]
pub(crate) struct DestinationTable {
    all: Slab<Destination>,
    /// Destinations by next hop.
    table: Shards,
    /// Destinations without mail, longest idle first.
    idle: VecDeque<u32>,
    /// Destinations that take mail for other domains than the one they are named after.
    routed: BTreeSet<u32>,
    limits: LimitTable,
    /// Schedule by which the probes of unreachable destinations are spaced.
    retry: Retry,
}

impl DestinationTable {
    /// No destinations. `seed` keeps strangers from choosing names that collide.
    pub fn new(settings: &Settings, seed: u64) -> Self {
        DestinationTable {
            all: Slab::new(),
            table: Shards::new(seed),
            idle: VecDeque::new(),
            routed: BTreeSet::new(),
            limits: LimitTable::new(settings),
            retry: settings.retry,
        }
    }

    /// Takes new settings.
    pub fn reload(&mut self, settings: &Settings, store: &Store) {
        self.limits = LimitTable::new(settings);
        self.retry = settings.retry;
        for at in self.live() {
            let found = &mut self.all[at];
            found.limits = self.limits.index_of(&found.hop, store.symbols.get(found.opened_by));
        }
    }

    /// Returns a destination, unless it has been forgotten.
    pub fn get(&self, at: u32) -> Option<&Destination> {
        self.all.get(at).filter(|found| found.opened_by != NONE)
    }

    /// Returns all destinations that are known.
    pub fn live(&self) -> Vec<u32> {
        let live = self.all.iter().filter(|(_, found)| found.opened_by != NONE);
        live.map(|(at, _)| at).collect()
    }

    /// Limits of a destination.
    pub fn limits_of(&self, at: u32) -> DestinationLimits {
        self.limits.at(self.all[at].limits)
    }

    /// Limits of destinations that the settings do not name.
    pub fn limits_default(&self) -> DestinationLimits {
        self.limits.default()
    }

    /// Returns true if a destination has ready mail and may begin an attempt now.
    pub fn may_begin(&self, at: u32, nanos: u64) -> bool {
        let found = &self.all[at];
        found.ready > 0
            && found.in_flight < found.allowed(&self.limits_of(at))
            && found.opens_at(nanos) == 0
    }

    /// Learns from an attempt that began in `epoch`; `chance` is in -1..=1. Returns true if the caller must replace
    /// `last_failure`.
    pub fn learn(
        &mut self,
        at: u32,
        health: DestinationHealth,
        epoch: u8,
        chance: f64,
        nanos: u64,
    ) -> bool {
        let limits = self.limits_of(at);
        let moment = Moment { limits: &limits, retry: &self.retry, chance, nanos };
        self.all[at].learn(health, epoch, &moment)
    }

    /// Returns the destination of a next hop, and opens it if there is none. `symbol` names the recipient's domain as
    /// the client wrote it.
    pub fn find_or_open(
        &mut self,
        store: &mut Store,
        hop: &NextHop,
        recipient_domain: &str,
        symbol: u32,
    ) -> u32 {
        if let Some(at) = own_destination(&store.symbols, hop, symbol) {
            return at;
        }
        let known = self.find(store, hop);
        let at = known.unwrap_or_else(|| self.open(&mut store.symbols, hop, recipient_domain));
        self.note_routed(at, recipient_domain);
        at
    }

    /// Returns the destination of a next hop, if there is one.
    pub fn find(&self, store: &Store, hop: &NextHop) -> Option<u32> {
        if let NextHop::Mx(domain) = hop
            && let Some(at) = store.symbols.destination(domain.as_str())
        {
            return Some(at);
        }
        let is = |at| self.all[at].hop == *hop;
        self.table.find(self.table.hash(hop), is)
    }

    fn open(&mut self, symbols: &mut Symbols, hop: &NextHop, recipient_domain: &str) -> u32 {
        let hash = self.table.hash(hop);
        let index = self.limits.index_of(hop, recipient_domain);
        let limits = self.limits.at(index);
        let opened_by = symbols.intern(recipient_domain);
        let start = limits.start_connections.min(limits.connections);
        let at = self.all.insert(Destination::new(hop.clone(), opened_by, index, start));
        let (all, seed) = (&self.all, self.table.seed());
        self.table.insert(hash, at, |at| hash_with(seed, &all[at].hop));
        if self.is_its_domain(symbols, at) {
            symbols.set_destination(opened_by, at);
        }
        at
    }

    /// Returns true if a destination is the MX hosts of the domain that opened it.
    fn is_its_domain(&self, symbols: &Symbols, at: u32) -> bool {
        let found = &self.all[at];
        matches!(&found.hop, NextHop::Mx(domain) if domain.as_str() == symbols.get(found.opened_by))
    }

    /// Notes that a destination takes mail for this domain, if it is not named after the domain.
    pub fn note_routed(&mut self, at: u32, recipient_domain: &str) {
        let found = &mut self.all[at];
        let own = |domain: &Domain| domain.as_str().eq_ignore_ascii_case(recipient_domain);
        if found.flags & ROUTED != 0 || matches!(&found.hop, NextHop::Mx(domain) if own(domain)) {
            return;
        }
        found.flags |= ROUTED;
        self.routed.insert(at);
    }

    /// Destinations that take mail for other domains than the one they are named after.
    pub fn routed(&self) -> &BTreeSet<u32> {
        &self.routed
    }

    /// Remembers a destination whose last group has gone, and forgets the one that has been idle longest if there are
    /// too many. Does nothing for a destination with mail.
    pub fn rest(&mut self, store: &mut Store, at: u32) {
        let found = &mut self.all[at];
        if found.groups > 0 || found.flags & IDLE != 0 {
            return;
        }
        found.flags |= IDLE;
        self.idle.push_back(at);
        if self.idle.len() > DESTINATIONS_IDLE_MAX {
            let oldest = self.idle.pop_front().expect("one was pushed");
            self.all[oldest].flags &= !IDLE;
            self.forget(store, oldest);
        }
    }

    fn forget(&mut self, store: &mut Store, at: u32) {
        let found = &mut self.all[at];
        if found.groups > 0 {
            return;
        }
        if found.flags & (IN_TURN[0] | IN_TURN[1] | PARKED[0] | PARKED[1] | GOES_ON) != 0 {
            // Its turn comes first; until then it stays remembered.
            found.flags |= IDLE;
            self.idle.push_back(at);
            return;
        }
        let hash = self.table.hash(&found.hop);
        self.table.remove(hash, at);
        if self.is_its_domain(&store.symbols, at) {
            store.symbols.set_destination(self.all[at].opened_by, NONE);
        }
        let found = self.all.remove(at);
        self.routed.remove(&at);
        store.symbols.release(found.opened_by);
        store.replace_report(found.last_failure, None);
    }
}

/// Returns the destination that the symbol of the recipient's domain leads to. Most mail goes to the MX hosts of that
/// domain: then nothing is looked up in what may be a hundred megabytes.
fn own_destination(symbols: &Symbols, hop: &NextHop, symbol: u32) -> Option<u32> {
    let NextHop::Mx(domain) = hop else { return None };
    let is_own = symbols.is(symbol, domain.as_str());
    is_own.then(|| symbols.destination_of(symbol)).flatten()
}

impl Index<u32> for DestinationTable {
    type Output = Destination;
    fn index(&self, at: u32) -> &Destination {
        &self.all[at]
    }
}

impl IndexMut<u32> for DestinationTable {
    fn index_mut(&mut self, at: u32) -> &mut Destination {
        &mut self.all[at]
    }
}
