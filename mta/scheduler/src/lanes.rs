//! The ready ones of each destination: a lane for each sender, the lanes in a ring, so that a
//! sender with a million messages and one with ten take turns.
//!
//! Must never know about time or concurrency.

use crate::destination::{CLASSES, Destination};
use crate::due::Links;
use crate::message::Job;
use crate::store::shards::{Shards, hash_with};
use crate::store::{NONE, Slab};

/// So many of a higher class go before one of a lower.
const RUN_MAX: u8 = 8;

/// Which lane: destination, sender, class.
pub(crate) type LaneKey = (u32, u32, u8);

#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Slab<Lane>,
    table: Shards,
}

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    first: u32,
    last: u32,
    /// In the ring of its class.
    ring: Links,
}

impl Default for Lane {
    fn default() -> Self {
        Lane { key: (NONE, NONE, 0), first: NONE, last: NONE, ring: Links::default() }
    }
}

impl Lanes {
    pub fn new(seed: u64) -> Self {
        Lanes { lanes: Slab::new(), table: Shards::new(seed) }
    }

    /// Forgets all lanes; the rings of the destinations are their own to empty.
    pub fn clear(&mut self) {
        *self = Lanes::new(self.table.seed());
    }

    /// Puts a job at the end of its lane. A new lane is the last in its ring, or with `soon` the
    /// next one.
    pub fn push(
        &mut self,
        jobs: &mut Slab<Job>,
        destination: &mut Destination,
        key: LaneKey,
        at: u32,
        soon: bool,
    ) {
        let lane = match self.at_turn(destination, key).or_else(|| self.find(key)) {
            Some(lane) => lane,
            None => self.open(destination, key, soon),
        };
        let last = std::mem::replace(&mut self.lanes[lane].last, at);
        jobs[at].links = Links { prev: last, next: NONE };
        jobs[at].place = lane;
        match last {
            NONE => self.lanes[lane].first = at,
            last => jobs[last].links.next = at,
        }
    }

    /// Takes a job out of its lane, wherever it stands.
    pub fn remove(&mut self, jobs: &mut Slab<Job>, destination: &mut Destination, at: u32) {
        let lane = jobs[at].place;
        let links = std::mem::take(&mut jobs[at].links);
        match links.prev {
            NONE => self.lanes[lane].first = links.next,
            prev => jobs[prev].links.next = links.next,
        }
        match links.next {
            NONE => self.lanes[lane].last = links.prev,
            next => jobs[next].links.prev = links.prev,
        }
        if self.lanes[lane].first == NONE {
            self.close(destination, lane);
        }
    }

    /// The job whose turn it is, still in its lane; the turn passes on.
    pub fn next(&mut self, destination: &mut Destination) -> Option<u32> {
        let class = choose(destination)?;
        let lane = destination.rings[class];
        if destination.let_in > 0 {
            destination.let_in -= 1;
            destination.let_in_run = destination.let_in_run.saturating_add(1);
        } else {
            destination.let_in_run = 0;
        }
        destination.rings[class] = self.lanes[lane].ring.next;
        Some(self.lanes[lane].first)
    }

    /// The sender whose turn comes next.
    pub fn next_sender(&self, destination: &Destination) -> Option<u32> {
        let lane = destination.rings.into_iter().find(|lane| *lane != NONE)?;
        Some(self.lanes[lane].key.1)
    }

    /// Its lane, where it is the one whose turn it is: most destinations have mail of one sender.
    fn at_turn(&self, destination: &Destination, key: LaneKey) -> Option<u32> {
        let lane = destination.rings[usize::from(key.2)];
        (lane != NONE && self.lanes[lane].key == key).then_some(lane)
    }

    fn find(&self, key: LaneKey) -> Option<u32> {
        self.table.find(self.table.hash(key), |at| self.lanes[at].key == key)
    }

    fn open(&mut self, destination: &mut Destination, key: LaneKey, soon: bool) -> u32 {
        let lane = self.lanes.insert(Lane { key, ..Lane::default() });
        let (lanes, seed, hash) = (&self.lanes, self.table.seed(), self.table.hash(key));
        self.table.insert(hash, lane, |at| hash_with(seed, lanes[at].key));
        let ring = &mut destination.rings[usize::from(key.2)];
        if *ring == NONE {
            self.lanes[lane].ring = Links { prev: lane, next: lane };
            *ring = lane;
            return lane;
        }
        let (next, prev) = (*ring, self.lanes[*ring].ring.prev);
        self.lanes[lane].ring = Links { prev, next };
        self.lanes[prev].ring.next = lane;
        self.lanes[next].ring.prev = lane;
        // Lanes that wait must not starve behind ever new ones.
        if soon && destination.let_in + destination.let_in_run < RUN_MAX {
            *ring = lane;
            destination.let_in += 1;
        }
        lane
    }

    fn close(&mut self, destination: &mut Destination, lane: u32) {
        let Lane { key, ring, .. } = self.lanes[lane];
        self.table.remove(self.table.hash(key), lane);
        let turn = &mut destination.rings[usize::from(key.2)];
        if ring.next == lane {
            *turn = NONE;
        } else {
            self.lanes[ring.prev].ring.next = ring.next;
            self.lanes[ring.next].ring.prev = ring.prev;
            if *turn == lane {
                *turn = ring.next;
            }
        }
        self.lanes.remove(lane);
    }
}

/// The highest class that has something, but every `RUN_MAX + 1`th time a lower one.
fn choose(destination: &mut Destination) -> Option<usize> {
    let has = destination.rings.map(|lane| lane != NONE);
    for class in 0..CLASSES {
        let lower = has[class + 1..].iter().any(|has| *has);
        match (has[class], lower) {
            (false, _) => continue,
            (true, false) => return Some(class),
            (true, true) if destination.runs[class] < RUN_MAX => {
                destination.runs[class] += 1;
                return Some(class);
            }
            (true, true) => destination.runs[class] = 0,
        }
    }
    None
}
