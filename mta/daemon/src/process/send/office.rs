//! What the tasks of the send process share: attempts that wait, by next hop, and who works on
//! them.
//!
//! Must never hold a borrow of itself across an await.

use super::{Ended, Setup, Times};
use bytes::Bytes;
use link::send::{Attempt, SenderEnd, SenderEvent};
use link::streams::Loss;
use mail::{Instant, NextHop, Now, Outcome};
use smtp::client::Message;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use world::real;
use world::real::faults::{self, Point};
use world::{Chance as _, Clock as _};

/// One attempt on its way.
#[derive(Debug)]
pub struct Job {
    /// As it came; its recipients have moved into the message.
    pub attempt: Box<Attempt>,
    /// Their indices in the envelope.
    pub indices: Vec<u32>,
    pub taken: Now,
}

/// A job that no connection has yet.
#[derive(Debug)]
pub struct Waiting {
    pub job: Job,
    pub message: Box<Message>,
}

/// A next hop with work or connections.
#[derive(Debug, Default)]
struct Destination {
    waiting: VecDeque<Waiting>,
    /// Open or being opened.
    connections: u32,
    /// Of these, how many have been greeted.
    greeted: u32,
    /// Of these, the ones without work; the last is taken first, so that the others may end.
    idle: Vec<Rc<Slot>>,
}

/// While others wait for a place, an idle connection has this long to be given its next message: queue has to hear of
/// the last one's end first.
pub const IDLE_GRACE: Duration = Duration::from_millis(20);

/// The post box of one connection's task.
#[derive(Debug, Default)]
pub struct Slot {
    waker: RefCell<Option<Waker>>,
    /// When it wants to be woken.
    pub due: Cell<Option<Instant>>,
    /// What queue said about a fetch: `None` inside is "damaged".
    pub chunk: RefCell<Option<(u64, Option<Bytes>)>>,
    /// The bytes asked for and not come yet, to ask a new queue process again.
    pub fetching: Cell<Option<(u64, mail::MessageId, u64, u32)>>,
    /// Its place is needed for another next hop.
    pub must_end: Cell<bool>,
    /// Its number among the idle, and since when.
    idle: Cell<Option<(u64, Instant)>>,
}

impl Slot {
    /// Its task goes on at the next turn.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// The task sleeps until `wake`.
    pub fn sleep(&self, waker: &Waker) {
        let mut place = self.waker.borrow_mut();
        match &mut *place {
            Some(old) => old.clone_from(waker),
            None => *place = Some(waker.clone()),
        }
    }
}

/// The common ground. One thread, so cells and no locks.
pub struct Office {
    pub setup: Setup,
    pub end: RefCell<SenderEnd>,
    /// The queue task has something to write.
    pub to_queue: Notify,
    /// Some attempt or connection has ended.
    pub ended: Notify,
    journal: RefCell<Box<dyn super::Journal>>,
    destinations: RefCell<HashMap<NextHop, Destination>>,
    /// Addresses of next hops that did not take us in.
    pub dead: delivery::DeadAddresses,
    /// Next hops that wait for a connection because there were too many over all.
    starved: RefCell<VecDeque<NextHop>>,
    slots: RefCell<HashMap<u64, Rc<Slot>>>,
    slot_next: Cell<u64>,
    /// Connections without work, the longest idle first.
    idle: RefCell<BTreeMap<u64, Rc<Slot>>>,
    idle_next: Cell<u64>,
    /// Which slot has an attempt that fetches.
    fetchers: RefCell<HashMap<u64, Rc<Slot>>>,
    connections: Cell<usize>,
    pub draining: Cell<bool>,
}

impl Office {
    pub fn new(mut setup: Setup) -> Office {
        let end = SenderEnd::new(setup.build, setup.life, setup.attempts_max);
        let journal = std::mem::replace(&mut setup.journal, Box::new(Nobody));
        Office {
            setup,
            end: RefCell::new(end),
            to_queue: Notify::new(),
            ended: Notify::new(),
            journal: RefCell::new(journal),
            destinations: RefCell::default(),
            dead: delivery::DeadAddresses::default(),
            starved: RefCell::default(),
            slots: RefCell::default(),
            slot_next: Cell::new(0),
            idle: RefCell::default(),
            idle_next: Cell::new(0),
            fetchers: RefCell::default(),
            connections: Cell::new(0),
            draining: Cell::new(false),
        }
    }

    pub fn now(&self) -> Now {
        real::Clock.now()
    }

    pub fn chance(&self) -> u64 {
        real::Chance.u64()
    }

    pub fn trouble(&self, what: &str) {
        self.journal.borrow_mut().trouble(what);
    }

    pub fn lost(&self, stream: u64, loss: Loss) {
        self.journal.borrow_mut().lost(stream, loss);
    }

    /// Nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.connections.get() == 0
    }

    /// What queue said.
    pub fn event(self: &Rc<Self>, event: SenderEvent) {
        match event {
            SenderEvent::Attempt { attempt, body } => self.enqueue(attempt, body),
            SenderEvent::Chunk { attempt, offset, bytes } => {
                self.chunk(attempt, offset, Some(bytes));
            }
            SenderEvent::ChunkBad { attempt } => self.chunk(attempt, u64::MAX, None),
        }
    }

    fn chunk(&self, attempt: u64, offset: u64, bytes: Option<Bytes>) {
        let Some(slot) = self.fetchers.borrow().get(&attempt).cloned() else { return };
        let asked = slot.fetching.get().map(|(_, _, offset, _)| offset);
        // An answer that came twice, over a former stream and again, counts once.
        if bytes.is_none() || asked == Some(offset) {
            slot.fetching.set(None);
            slot.chunk.replace(Some((attempt, bytes)));
            slot.wake();
        }
    }

    /// Asks queue for bytes of a body, on behalf of a slot.
    pub fn fetch(&self, slot: &Rc<Slot>, attempt: &Attempt, offset: u64, bytes: u32) {
        slot.fetching.set(Some((attempt.id, attempt.message, offset, bytes)));
        self.fetchers.borrow_mut().insert(attempt.id, Rc::clone(slot));
        self.end.borrow_mut().fetch(attempt.id, attempt.message, offset, bytes);
        self.to_queue.notify_one();
    }

    /// A new queue process has not heard what was asked of the former one.
    pub fn fetch_again(&self) {
        let mut end = self.end.borrow_mut();
        for slot in self.fetchers.borrow().values() {
            if let Some((attempt, message, offset, bytes)) = slot.fetching.get() {
                end.fetch(attempt, message, offset, bytes);
            }
        }
    }

    fn enqueue(self: &Rc<Self>, mut attempt: Box<Attempt>, body: Option<Bytes>) {
        faults::reach_with(Point::Attempt, || attempt.message.0);
        let (indices, recipients) = std::mem::take(&mut attempt.recipients).into_iter().unzip();
        let message = Box::new(Message {
            from: attempt.from.clone(),
            recipients,
            body_bytes: attempt.body.bytes,
            content: body,
        });
        let waiting = Waiting { job: Job { attempt, indices, taken: self.now() }, message };
        let mut destinations = self.destinations.borrow_mut();
        let hop = &waiting.job.attempt.route.hop;
        if let Some(destination) = destinations.get_mut(hop) {
            let most = waiting.job.attempt.route.connections_max.max(1);
            let idle = destination.idle.pop();
            if idle.is_some() || destination.connections >= most {
                destination.waiting.push_back(waiting);
                return idle.iter().for_each(|slot| {
                    self.leave_idle(slot);
                    slot.wake();
                });
            }
        }
        let hop = hop.clone();
        destinations.entry(hop.clone()).or_default().waiting.push_back(waiting);
        drop(destinations);
        self.open(&hop);
    }

    /// Opens a connection to this next hop if something waits there and the limits allow it. A process
    /// that drains begins nothing: what queue gave it before it heard of that goes to the next one.
    pub fn open(self: &Rc<Self>, hop: &NextHop) {
        if self.draining.get() {
            return;
        }
        let mut destinations = self.destinations.borrow_mut();
        let Some(destination) = destinations.get_mut(hop) else { return };
        let Some(first) = destination.waiting.front() else { return };
        let most = first.job.attempt.route.connections_max.max(1);
        if destination.connections >= most {
            return;
        }
        if self.connections.get() >= self.setup.connections_max {
            self.starved.borrow_mut().push_back(hop.clone());
            drop(destinations);
            return self.make_room();
        }
        let Some(first) = destination.waiting.pop_front() else { return };
        destination.connections += 1;
        drop(destinations);
        self.connections.set(self.connections.get() + 1);
        let (number, slot) = (self.slot_next.get(), Rc::new(Slot::default()));
        self.slot_next.set(number + 1);
        self.slots.borrow_mut().insert(number, Rc::clone(&slot));
        tokio::task::spawn_local(super::line::run(
            Rc::clone(self),
            hop.clone(),
            number,
            slot,
            first,
        ));
    }

    /// A connection's task is over.
    pub fn closed(self: &Rc<Self>, hop: &NextHop, number: u64, was_greeted: bool) {
        if let Some(slot) = self.slots.borrow_mut().remove(&number) {
            self.not_idle(hop, &slot);
        }
        self.connections.set(self.connections.get() - 1);
        {
            let mut destinations = self.destinations.borrow_mut();
            if let Some(destination) = destinations.get_mut(hop) {
                destination.connections -= 1;
                destination.greeted -= u32::from(was_greeted);
                if destination.connections == 0 && destination.waiting.is_empty() {
                    destinations.remove(hop);
                }
            }
        }
        self.ended.notify_one();
        self.open(hop);
        while !self.draining.get() && self.connections.get() < self.setup.connections_max {
            let Some(hop) = self.starved.borrow_mut().pop_front() else { return };
            self.open(&hop);
        }
    }

    /// The next work for a connection that is open.
    pub fn next(&self, hop: &NextHop) -> Option<Waiting> {
        if self.draining.get() {
            return None;
        }
        self.destinations.borrow_mut().get_mut(hop)?.waiting.pop_front()
    }

    /// Another next hop waits for a place.
    pub fn is_starved(&self) -> bool {
        !self.starved.borrow().is_empty()
    }

    /// The connection has nothing to do.
    pub fn idle(&self, hop: &NextHop, slot: &Rc<Slot>, since: Instant) {
        if slot.idle.get().is_some() {
            return;
        }
        if let Some(destination) = self.destinations.borrow_mut().get_mut(hop) {
            destination.idle.push(Rc::clone(slot));
        }
        let number = self.idle_next.get();
        self.idle_next.set(number + 1);
        slot.idle.set(Some((number, since)));
        self.idle.borrow_mut().insert(number, Rc::clone(slot));
        if self.is_starved() {
            self.make_room();
        }
    }

    /// It does, or it is over.
    pub fn not_idle(&self, hop: &NextHop, slot: &Rc<Slot>) {
        if let Some(destination) = self.destinations.borrow_mut().get_mut(hop) {
            destination.idle.retain(|other| !Rc::ptr_eq(other, slot));
        }
        self.leave_idle(slot);
    }

    fn leave_idle(&self, slot: &Slot) {
        if let Some((number, _)) = slot.idle.take() {
            self.idle.borrow_mut().remove(&number);
        }
    }

    /// Ends the connection that has been idle for longest, unless its next message may be on the way.
    fn make_room(&self) {
        let now = self.now().monotonic;
        let longest = self.idle.borrow().first_key_value().map(|(_, slot)| Rc::clone(slot));
        let Some(slot) = longest else { return };
        if slot.idle.get().is_some_and(|(_, since)| now.since(since) >= IDLE_GRACE) {
            self.leave_idle(&slot);
            slot.must_end.set(true);
            slot.wake();
        }
    }

    /// A peer took us in: whoever fails there later fails alone.
    pub fn greeted(&self, hop: &NextHop) {
        if let Some(destination) = self.destinations.borrow_mut().get_mut(hop) {
            destination.greeted += 1;
        }
    }

    /// A message that another connection is to take at once: the first in the line.
    pub fn put_back(&self, hop: &NextHop, waiting: Waiting) {
        if let Some(destination) = self.destinations.borrow_mut().get_mut(hop) {
            destination.waiting.push_front(waiting);
        }
    }

    /// A next hop that no connection reached: what waits for it would fail alike.
    pub fn fail_waiting(&self, hop: &NextHop, outcome: &Outcome) {
        let waiting = match self.destinations.borrow_mut().get_mut(hop) {
            Some(destination) if destination.greeted == 0 => {
                std::mem::take(&mut destination.waiting)
            }
            _ => return,
        };
        for Waiting { job, message } in waiting {
            let outcomes = vec![outcome.clone(); message.recipients.len()];
            self.result(job, &message, outcomes, self.now());
        }
    }

    /// Says what became of an attempt: to the log, then to queue.
    pub fn result(&self, job: Job, message: &Message, outcomes: Vec<Outcome>, begun: Now) {
        faults::reach(Point::OutcomeKnown);
        let Job { attempt, indices, taken } = job;
        let times = Times { taken, begun, ended: self.now() };
        let recipients = &message.recipients;
        let ended = Ended { attempt: &attempt, recipients, outcomes: &outcomes, times };
        self.journal.borrow_mut().ended(&ended);
        self.fetchers.borrow_mut().remove(&attempt.id);
        let outcomes = indices.into_iter().zip(outcomes).collect();
        let result = link::send::Result { attempt: attempt.id, message: attempt.message, outcomes };
        self.end.borrow_mut().result(result);
        self.to_queue.notify_one();
    }

    /// Wakes the connections whose time has come.
    pub fn wake_due(&self) {
        let now = self.now().monotonic;
        for slot in self.slots.borrow().values() {
            if slot.due.get().is_some_and(|due| due <= now) {
                slot.wake();
            }
        }
    }

    /// Everybody looks around: there is an end in sight.
    pub fn wake_all(&self) {
        self.slots.borrow().values().for_each(|slot| slot.wake());
    }
}

/// Stands in the setup while the office has the journal.
struct Nobody;

impl super::Journal for Nobody {
    fn ended(&mut self, _: &Ended<'_>) {}
    fn trouble(&mut self, _: &str) {}

    fn lost(&mut self, _: u64, _: Loss) {}
}
