//! The ready groups of each destination: a queue for each sender, and the queues in a ring, so that a sender with a million
//! messages and a sender with ten take turns.
//!
//! Must never know about time or concurrency.

use crate::destinations::destination::{CLASSES, Destination};
use crate::due::Links;
use crate::memory::shards::{Shards, hash_with};
use crate::memory::{NONE, Slab};
use crate::store::message::RecipientGroup;

/// Groups of a higher class in a row before one of a lower class.
const RUN_MAX: u8 = 8;

/// Key of a queue: destination, sender, class.
pub(crate) type SenderQueueKey = (u32, u32, u8);

#[derive(Debug)]
pub(crate) struct SenderQueues {
    queues: Slab<SenderQueue>,
    table: Shards,
}

#[derive(Debug)]
struct SenderQueue {
    key: SenderQueueKey,
    first: u32,
    last: u32,
    /// Links in the ring of its class.
    ring: Links,
}

impl Default for SenderQueue {
    fn default() -> Self {
        SenderQueue { key: (NONE, NONE, 0), first: NONE, last: NONE, ring: Links::default() }
    }
}

impl SenderQueues {
    pub fn new(seed: u64) -> Self {
        SenderQueues { queues: Slab::new(), table: Shards::new(seed) }
    }

    /// Forgets all queues. The caller must empty the rings of the destinations.
    pub fn clear(&mut self) {
        *self = SenderQueues::new(self.table.seed());
    }

    /// Puts a group at the end of its queue. A new queue becomes the last one in its ring, or with `soon` the next one.
    pub fn push(
        &mut self,
        groups: &mut Slab<RecipientGroup>,
        destination: &mut Destination,
        key: SenderQueueKey,
        at: u32,
        soon: bool,
    ) {
        let queue = match self.at_turn(destination, key).or_else(|| self.find(key)) {
            Some(queue) => queue,
            None => self.open(destination, key, soon),
        };
        let last = std::mem::replace(&mut self.queues[queue].last, at);
        groups[at].links = Links { prev: last, next: NONE };
        groups[at].place = queue;
        match last {
            NONE => self.queues[queue].first = at,
            last => groups[last].links.next = at,
        }
    }

    /// Takes a group out of its queue, at any position.
    pub fn remove(
        &mut self,
        groups: &mut Slab<RecipientGroup>,
        destination: &mut Destination,
        at: u32,
    ) {
        let queue = groups[at].place;
        let links = std::mem::take(&mut groups[at].links);
        match links.prev {
            NONE => self.queues[queue].first = links.next,
            prev => groups[prev].links.next = links.next,
        }
        match links.next {
            NONE => self.queues[queue].last = links.prev,
            next => groups[next].links.prev = links.prev,
        }
        if self.queues[queue].first == NONE {
            self.close(destination, queue);
        }
    }

    /// Returns the group whose turn it is and passes the turn on. The group stays in its queue.
    pub fn next(&mut self, destination: &mut Destination) -> Option<u32> {
        let class = choose(destination)?;
        let queue = destination.rings[class];
        if destination.let_in > 0 {
            destination.let_in -= 1;
            destination.let_in_run = destination.let_in_run.saturating_add(1);
        } else {
            destination.let_in_run = 0;
        }
        destination.rings[class] = self.queues[queue].ring.next;
        Some(self.queues[queue].first)
    }

    /// Returns the sender whose turn comes next.
    pub fn next_sender(&self, destination: &Destination) -> Option<u32> {
        let queue = destination.rings.into_iter().find(|queue| *queue != NONE)?;
        Some(self.queues[queue].key.1)
    }

    /// Returns the queue whose turn it is, if it has this key: most destinations have mail of one sender.
    fn at_turn(&self, destination: &Destination, key: SenderQueueKey) -> Option<u32> {
        let queue = destination.rings[usize::from(key.2)];
        (queue != NONE && self.queues[queue].key == key).then_some(queue)
    }

    fn find(&self, key: SenderQueueKey) -> Option<u32> {
        self.table.find(self.table.hash(key), |at| self.queues[at].key == key)
    }

    fn open(&mut self, destination: &mut Destination, key: SenderQueueKey, soon: bool) -> u32 {
        let queue = self.queues.insert(SenderQueue { key, ..SenderQueue::default() });
        let (queues, seed, hash) = (&self.queues, self.table.seed(), self.table.hash(key));
        self.table.insert(hash, queue, |at| hash_with(seed, queues[at].key));
        let ring = &mut destination.rings[usize::from(key.2)];
        if *ring == NONE {
            self.queues[queue].ring = Links { prev: queue, next: queue };
            *ring = queue;
            return queue;
        }
        let (next, prev) = (*ring, self.queues[*ring].ring.prev);
        self.queues[queue].ring = Links { prev, next };
        self.queues[prev].ring.next = queue;
        self.queues[next].ring.prev = queue;
        // New queues must not let waiting ones starve.
        if soon && destination.let_in + destination.let_in_run < RUN_MAX {
            *ring = queue;
            destination.let_in += 1;
        }
        queue
    }

    fn close(&mut self, destination: &mut Destination, queue: u32) {
        let SenderQueue { key, ring, .. } = self.queues[queue];
        self.table.remove(self.table.hash(key), queue);
        let turn = &mut destination.rings[usize::from(key.2)];
        if ring.next == queue {
            *turn = NONE;
        } else {
            self.queues[ring.prev].ring.next = ring.next;
            self.queues[ring.next].ring.prev = ring.prev;
            if *turn == queue {
                *turn = ring.next;
            }
        }
        self.queues.remove(queue);
    }
}

/// Chooses the highest class with mail, but every `RUN_MAX + 1`th time a lower one.
fn choose(destination: &mut Destination) -> Option<usize> {
    let has = destination.rings.map(|queue| queue != NONE);
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
