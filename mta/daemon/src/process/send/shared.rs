//! What the tasks of the send process share: the connection pool, and what it asks to have done.
//!
//! Must never hold a borrow of the pool across an await.

use super::{Journal, Setup, connection};
use crate::resolve::Resolver;
use mail::{Instant, Now};
use send::{ConnectionId, ConnectionPool, Input, Output, PooledConnection};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use tokio::sync::Notify;
use world::Clock as _;
use world::real;
use world::real::faults::{self, Point};

/// How the task of a connection is woken.
#[derive(Debug, Default)]
pub struct Slot {
    waker: RefCell<Option<Waker>>,
    /// When the connection wants to be woken.
    pub due: Cell<Option<Instant>>,
}

impl Slot {
    fn wake(&self) {
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

/// One thread, so cells and no locks.
pub struct Shared {
    pub pool: RefCell<ConnectionPool>,
    pub sockets: Arc<super::Sockets>,
    pub resolver: Resolver,
    journal: RefCell<Box<dyn Journal>>,
    slots: RefCell<HashMap<ConnectionId, Rc<Slot>>>,
    /// The pool has frames for queue, or a drain may be over.
    pub to_queue: Notify,
}

impl Shared {
    pub fn new(setup: Setup) -> Shared {
        let Setup { pool, sockets, resolver, journal } = setup;
        Shared {
            pool: RefCell::new(ConnectionPool::new(pool)),
            sockets,
            resolver,
            journal: RefCell::new(journal),
            slots: RefCell::default(),
            to_queue: Notify::new(),
        }
    }

    pub fn now(&self) -> Now {
        real::Clock.now()
    }

    pub fn journal(&self) -> impl std::ops::DerefMut<Target = Box<dyn Journal>> {
        self.journal.borrow_mut()
    }

    /// Tells the pool something, and does what it asks for.
    pub fn handle(self: &Rc<Self>, input: Input) {
        self.pool.borrow_mut().handle(input, self.now());
        self.carry_out();
    }

    /// Does what the pool asks for. To be called after each use of the pool.
    pub fn carry_out(self: &Rc<Self>) {
        loop {
            let output = self.pool.borrow_mut().poll();
            match output {
                Some(Output::Open(connection)) => self.open(connection),
                Some(Output::Wake(id)) => {
                    self.slots.borrow().get(&id).iter().for_each(|slot| slot.wake());
                }
                Some(Output::Ended(ended)) => {
                    faults::reach(Point::OutcomeKnown);
                    self.journal().ended(&ended);
                }
                None => break,
            }
        }
        let pool = self.pool.borrow();
        // At the beginning of time no drain has run out of time: only its work counts.
        if pool.queue().has_output() || pool.is_drained(Instant::ZERO) {
            self.to_queue.notify_one();
        }
    }

    fn open(self: &Rc<Self>, connection: Box<PooledConnection>) {
        let slot = Rc::new(Slot::default());
        self.slots.borrow_mut().insert(connection.id(), Rc::clone(&slot));
        tokio::task::spawn_local(connection::run(Rc::clone(self), slot, connection));
    }

    /// The task of this connection is over.
    pub fn forget(&self, id: ConnectionId) {
        self.slots.borrow_mut().remove(&id);
    }

    /// Wakes the connections whose time has come, and the pool.
    pub fn tick(self: &Rc<Self>) {
        let now = self.now().monotonic;
        for slot in self.slots.borrow().values() {
            if slot.due.get().is_some_and(|due| due <= now) {
                slot.wake();
            }
        }
        let due = self.pool.borrow().next_wakeup();
        if due.is_some_and(|due| due <= now) {
            self.handle(Input::Timeout);
            self.to_queue.notify_one();
        }
    }

    /// True if the time of a drain is over.
    pub fn drain_time_is_over(&self) -> bool {
        let pool = self.pool.borrow();
        pool.is_draining() && pool.drain_time_is_over(self.now().monotonic)
    }

    /// True if a drain is over.
    pub fn is_drained(&self) -> bool {
        let pool = self.pool.borrow();
        pool.is_draining() && pool.is_drained(self.now().monotonic)
    }
}
