//! The scheduler's state, and how a message and its destinations come into it.
//!
//! Must never scan: every event touches what it is about and nothing else.

use crate::age::Aged;
use crate::chance::Chance;
use crate::clock::{Clock, wall_seconds};
use crate::destination::{Destination, GOES_ON, IDLE, IN_TURN, PARKED};
use crate::due::Wheel;
use crate::group::To;
use crate::members::MemberList;
use crate::memory::reports::REPORT_BYTES_MAX;
use crate::memory::shards::{Shards, hash_with};
use crate::memory::{IdIndex, NONE, Reports, Slab, Symbols};
use crate::message::{MANY, Many, Message, NULL_SENDER, Recipient, RecipientGroup};
use crate::order::Key;
use crate::output::{Arrival, ArrivingRecipient, AttemptId, DestinationId, Output, Record};
use crate::poll::FLIGHT_BITS;
use crate::sender_queues::SenderQueues;
use crate::settings::{DestinationLimits, Settings};
use mail::{MessageId, NextHop, Now};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use view::HeldBy;
use view::Order;
use view::State;

/// Destinations without mail whose pace is remembered.
const DESTINATIONS_IDLE_MAX: usize = 1024;

/// What went wrong; the caller's fault each time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// The id is in the queue already.
    #[error("message {0} is in the queue already")]
    Duplicate(MessageId),
    /// A message without recipients.
    #[error("message {0} has no recipients")]
    NoRecipients(MessageId),
    /// A snapshot of a message that cannot be read.
    #[error("a message's snapshot is damaged or of an unknown version")]
    BadSnapshot,
}

/// Who is tried when, and how many at once.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) settings: Settings,
    /// All limits in use; destinations name them by index.
    pub(crate) limits: Vec<DestinationLimits>,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,

    pub(crate) ids: IdIndex,
    pub(crate) messages: Slab<Message>,
    pub(crate) singles: Slab<Recipient>,
    pub(crate) many: Slab<Many>,
    pub(crate) groups: Slab<RecipientGroup>,
    pub(crate) member_lists: Slab<MemberList>,
    pub(crate) symbols: Symbols,
    pub(crate) reports: Reports,

    pub(crate) destinations: Slab<Destination>,
    destination_table: Shards,
    destinations_idle: VecDeque<u32>,
    /// Those whose name does not say whose mail they take.
    pub(crate) routed_destinations: BTreeSet<u32>,

    pub(crate) retries: Wheel,
    pub(crate) ages: Wheel,
    /// When destinations are looked at again, in nanoseconds.
    pub(crate) timers: BinaryHeap<Reverse<(u64, u32)>>,
    pub(crate) sender_queues: SenderQueues,
    /// Destinations that may have an attempt: those with a light sender's mail, then all.
    pub(crate) turns: [VecDeque<u32>; 2],
    pub(crate) light_run: u8,
    /// Those whose next hop has just taken mail, quickly: their connection is used again before it is another's turn.
    pub(crate) going_on: VecDeque<u32>,
    /// Those whose turn had come when too many others were in flight of whom nobody knows
    /// whether they answer.
    pub(crate) parked: [VecDeque<u32>; 2],
    /// The same in an order other than `fair`.
    pub(crate) standing: BTreeSet<(Key, u32)>,
    pub(crate) number: u32,
    pub(crate) routed: VecDeque<u32>,
    /// Read again from the log as done: retired at the next `poll` unless the log does it.
    pub(crate) done: VecDeque<MessageId>,

    pub(crate) flights: Slab<Flight>,
    /// Attempts in flight whose message has been held, deleted or given up since.
    pub(crate) unwanted: VecDeque<AttemptId>,
    pub(crate) flight_number: u64,
    pub(crate) in_flight: u32,
    pub(crate) suspects_in_flight: u32,
    /// To destinations that had not answered when the attempt began.
    pub(crate) doubtful_in_flight: u32,
    pub(crate) paused: bool,
    pub(crate) notices_paused: bool,
    /// Messages that have come to a mark of age of which their senders are being told.
    pub(crate) aged: VecDeque<Aged>,
    pub(crate) records: VecDeque<Record>,
    pub(crate) counts: Counts,
    /// While the log is read again: the group that the last `Due` made.
    pub(crate) last_due: Option<(u32, u32, i64)>,
}

/// An attempt in flight.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// 0: none.
    pub attempt: u64,
    pub group: u32,
    pub epoch: u8,
    pub suspect: bool,
    /// Nobody knew whether the destination answers.
    pub doubtful: bool,
    /// Monotonic nanoseconds.
    pub began: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub recipients: u64,
    pub active: u64,
    pub deferred: u64,
    pub held: u64,
}

impl Scheduler {
    /// An empty queue. `seed` is all the chance there is.
    pub fn new(settings: Settings, seed: u64, now: Now) -> Self {
        let mut chance = Chance::new(seed);
        Scheduler {
            settings,
            limits: Vec::new(),
            clock: Clock::new(now),
            ids: IdIndex::default(),
            messages: Slab::new(),
            singles: Slab::new(),
            many: Slab::new(),
            groups: Slab::new(),
            member_lists: Slab::new(),
            symbols: Symbols::new(chance.bits()),
            reports: Reports::new(chance.bits(), REPORT_BYTES_MAX),
            destinations: Slab::new(),
            destination_table: Shards::new(chance.bits()),
            destinations_idle: VecDeque::new(),
            routed_destinations: BTreeSet::new(),
            retries: Wheel::new(),
            ages: Wheel::new(),
            timers: BinaryHeap::new(),
            sender_queues: SenderQueues::new(chance.bits()),
            turns: Default::default(),
            light_run: 0,
            parked: Default::default(),
            going_on: VecDeque::new(),
            standing: BTreeSet::new(),
            number: 0,
            routed: VecDeque::new(),
            done: VecDeque::new(),
            flights: Slab::new(),
            unwanted: VecDeque::new(),
            // Names of a former life, which may still be under way, are not given again.
            flight_number: chance.bits() >> (FLIGHT_BITS + 1),
            in_flight: 0,
            suspects_in_flight: 0,
            doubtful_in_flight: 0,
            paused: false,
            notices_paused: false,
            aged: VecDeque::new(),
            records: VecDeque::new(),
            counts: Counts::default(),
            last_due: None,
            chance,
        }
    }

    /// Takes a promised message into the queue.
    pub fn arrive(&mut self, arrival: &Arrival, now: Now) -> Result<(), SchedulerError> {
        self.clock.set(now);
        let message = self.open_message(arrival)?;
        for (at, members) in self.by_destination(message, arrival.recipients) {
            let group = self.new_group(message, at, members);
            let to = self.first_state(group);
            self.enter(group, to);
        }
        self.count_in(message);
        self.start_age(message, arrival.arrived);
        Ok(())
    }

    /// The next hop of a destination that has messages or had some lately.
    pub fn hop(&self, destination: DestinationId) -> Option<&NextHop> {
        self.destinations.get(destination.0).map(|found| &found.hop)
    }

    /// What a destination is given at most.
    pub fn limits(&self, destination: DestinationId) -> DestinationLimits {
        let found = self.destinations.get(destination.0);
        found.map_or(self.settings.default, |found| self.limits[usize::from(found.limits)])
    }

    /// Whether a message is in the queue.
    pub fn contains(&self, message: MessageId) -> bool {
        self.ids.get(message).is_some()
    }

    /// Messages in the queue.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.ids.len() == 0
    }

    /// Takes new settings for what happens from now on. Looks at every destination once.
    pub fn reload(&mut self, settings: Settings, now: Now) {
        self.clock.set(now);
        let order = settings.order;
        self.settings = Settings { order: self.settings.order, ..settings };
        self.limits.clear();
        let live: Vec<u32> = self.live_destinations().collect();
        for at in live {
            let opened_by = self.destinations[at].opened_by;
            let domain = self.symbols.get(opened_by).to_owned();
            let limits = self.settings.limits_of(&self.destinations[at].hop, &domain);
            self.destinations[at].limits = self.limits_index(limits);
            self.refresh(at);
        }
        self.set_order(order);
    }

    pub(crate) fn live_destinations(&self) -> impl Iterator<Item = u32> + '_ {
        self.destinations.iter().filter(|(_, found)| found.opened_by != NONE).map(|(at, _)| at)
    }

    pub(crate) fn limits_at(&self, destination: u32) -> DestinationLimits {
        self.limits[usize::from(self.destinations[destination].limits)]
    }

    fn open_message(&mut self, arrival: &Arrival) -> Result<u32, SchedulerError> {
        if self.ids.get(arrival.message).is_some() {
            return Err(SchedulerError::Duplicate(arrival.message));
        }
        if arrival.recipients.is_empty() {
            return Err(SchedulerError::NoRecipients(arrival.message));
        }
        let null = matches!(arrival.sender, mail::ReversePath::Null);
        let many = arrival.recipients.len() > 1;
        let sender = self.symbols.intern(&arrival.sender.to_string());
        let all = arrival.recipients.iter().map(|one| {
            let symbols = &mut self.symbols;
            Recipient {
                local: symbols.texts.insert(one.address.local()),
                domain: symbols.intern(one.address.domain_text()),
                notify: one.notify,
                ..Recipient::default()
            }
        });
        let all: Vec<Recipient> = all.collect();
        let recipients = self.keep_recipients(all);
        let flags = if many { MANY } else { 0 } | if null { NULL_SENDER } else { 0 };
        let message = self.messages.insert(Message {
            id: arrival.message,
            arrived: wall_seconds(arrival.arrived),
            bytes: u32::try_from(arrival.bytes).unwrap_or(u32::MAX),
            sender,
            recipients,
            priority: arrival.priority.clamp(-100, 100),
            held: arrival.held.map_or(0, |held| held as u8),
            flags,
            ..Message::default()
        });
        self.ids.insert(arrival.message, message);
        Ok(message)
    }

    pub(crate) fn keep_recipients(&mut self, mut all: Vec<Recipient>) -> u32 {
        self.counts.recipients += all.len() as u64;
        if all.len() == 1 {
            return self.singles.insert(all.remove(0));
        }
        let left = all.len() as u32;
        self.many.insert(Many { recipients: all.into(), left, ..Many::default() })
    }

    /// By destination, in the order in which the destinations are named first.
    fn by_destination(
        &mut self,
        message: u32,
        recipients: &[ArrivingRecipient],
    ) -> Vec<(u32, Vec<u32>)> {
        let mut groups: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        for (index, one) in recipients.iter().enumerate() {
            let symbol = self.recipient_mut(message, index as u32).domain;
            let at = self.destination(one.hop, one.address.domain().as_str(), symbol);
            let place = *places.entry(at).or_insert(groups.len());
            if place == groups.len() {
                groups.push((at, Vec::new()));
            }
            groups[place].1.push(index as u32);
        }
        groups
    }

    /// Where a new group begins.
    pub(crate) fn first_state(&self, group: u32) -> To {
        let RecipientGroup { message, destination, .. } = self.groups[group];
        match &self.destinations[destination].hop {
            NextHop::Hold => To::Held,
            _ if self.messages[message].held != 0 => To::Held,
            NextHop::Discard | NextHop::Error(_) => To::Routed,
            _ => To::Ready,
        }
    }

    /// The destination of a next hop, opened where there is none. `symbol` names the recipient's domain, as the
    /// client wrote it.
    pub(crate) fn destination(
        &mut self,
        hop: &NextHop,
        recipient_domain: &str,
        symbol: u32,
    ) -> u32 {
        if let Some(at) = self.own_destination(hop, symbol) {
            return at;
        }
        let at = self.known(hop).unwrap_or_else(|| self.open_destination(hop, recipient_domain));
        self.note_routed(at, recipient_domain);
        at
    }

    /// Most mail goes to the MX hosts of its recipient's domain, and that domain's symbol knows them: nothing is
    /// looked up in what may be a hundred megabytes.
    fn own_destination(&self, hop: &NextHop, symbol: u32) -> Option<u32> {
        let NextHop::Mx(domain) = hop else { return None };
        let is_own = self.symbols.is(symbol, domain.as_str());
        is_own.then(|| self.symbols.destination_of(symbol)).flatten()
    }

    /// The destination of a next hop, if there is one.
    pub(crate) fn known(&self, hop: &NextHop) -> Option<u32> {
        if let NextHop::Mx(domain) = hop
            && let Some(at) = self.symbols.destination(domain.as_str())
        {
            return Some(at);
        }
        let is = |at| self.destinations[at].hop == *hop;
        self.destination_table.find(self.destination_table.hash(hop), is)
    }

    fn open_destination(&mut self, hop: &NextHop, recipient_domain: &str) -> u32 {
        let hash = self.destination_table.hash(hop);
        let limits = self.settings.limits_of(hop, recipient_domain);
        let index = self.limits_index(limits);
        let opened_by = self.symbols.intern(recipient_domain);
        let start = limits.start_connections.min(limits.connections);
        let at = self.destinations.insert(Destination::new(hop.clone(), opened_by, index, start));
        let (all, seed) = (&self.destinations, self.destination_table.seed());
        self.destination_table.insert(hash, at, |at| hash_with(seed, &all[at].hop));
        if self.is_its_domain(at) {
            self.symbols.set_destination(opened_by, at);
        }
        at
    }

    /// It is the MX hosts of the domain that opened it.
    fn is_its_domain(&self, destination: u32) -> bool {
        let found = &self.destinations[destination];
        matches!(&found.hop, NextHop::Mx(domain) if domain.as_str() == self.symbols.get(found.opened_by))
    }

    fn limits_index(&mut self, limits: DestinationLimits) -> u16 {
        let found = self.limits.iter().position(|other| *other == limits).unwrap_or_else(|| {
            self.limits.push(limits);
            self.limits.len() - 1
        });
        u16::try_from(found).expect("settings do not have 65,536 different limits")
    }

    /// A destination whose last group went: remembered for a while, the oldest of these
    /// forgotten.
    pub(crate) fn idle(&mut self, destination: u32) {
        let found = &mut self.destinations[destination];
        if found.groups > 0 || found.flags & IDLE != 0 {
            return;
        }
        found.flags |= IDLE;
        self.destinations_idle.push_back(destination);
        if self.destinations_idle.len() > DESTINATIONS_IDLE_MAX {
            let oldest = self.destinations_idle.pop_front().expect("one was pushed");
            self.destinations[oldest].flags &= !IDLE;
            self.forget(oldest);
        }
    }

    fn forget(&mut self, destination: u32) {
        let found = &mut self.destinations[destination];
        if found.groups > 0 {
            return;
        }
        if found.flags & (IN_TURN[0] | IN_TURN[1] | PARKED[0] | PARKED[1] | GOES_ON) != 0 {
            // Its turn comes first; until then it stays remembered.
            found.flags |= IDLE;
            self.destinations_idle.push_back(destination);
            return;
        }
        let hash = self.destination_table.hash(&found.hop);
        self.destination_table.remove(hash, destination);
        if self.is_its_domain(destination) {
            self.symbols.set_destination(self.destinations[destination].opened_by, NONE);
        }
        let found = self.destinations.remove(destination);
        self.routed_destinations.remove(&destination);
        self.symbols.release(found.opened_by);
        self.reports.release(found.last_failure);
    }

    pub(crate) fn state_of(&self, message: u32) -> State {
        let found = &self.messages[message];
        let (held, awake) = if found.has(MANY) {
            let many = &self.many[found.recipients];
            (many.held == many.groups, many.awake > 0)
        } else {
            let group = self.singles[found.recipients].group;
            let state = self.groups.get(group).map(|group| group.state).unwrap_or_default();
            (state == crate::message::GroupState::Held, state.is_awake())
        };
        match (found.held != 0 || held, awake) {
            (true, _) => State::Held,
            (false, true) => State::Active,
            (false, false) => State::Deferred,
        }
    }

    pub(crate) fn count_in(&mut self, message: u32) {
        let state = self.state_of(message);
        *self.count_of(state) += 1;
    }

    pub(crate) fn count_out(&mut self, message: u32) {
        let state = self.state_of(message);
        *self.count_of(state) -= 1;
    }

    fn count_of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Active => &mut self.counts.active,
            State::Deferred => &mut self.counts.deferred,
            State::Held => &mut self.counts.held,
        }
    }

    /// Deliveries of one message that come together are one record: of a list each is but a number.
    pub(crate) fn record(&mut self, record: Record) {
        if record.is_empty() {
            return;
        }
        match self.records.back_mut() {
            Some(last) if last.takes(&record) => last.append(record),
            _ => self.records.push_back(record),
        }
    }

    pub(crate) fn next_record(&mut self) -> Option<Output> {
        self.records.pop_front().map(Output::Record)
    }

    pub(crate) fn held_by(&self, message: u32, destination: u32) -> HeldBy {
        let route = matches!(self.destinations[destination].hop, NextHop::Hold);
        let held = self.messages[message].held_by();
        held.unwrap_or(if route { HeldBy::Route } else { HeldBy::Operator })
    }

    pub(crate) fn is_fair(&self) -> bool {
        self.settings.order == Order::Fair
    }
}
