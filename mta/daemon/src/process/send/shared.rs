//! What the tasks of the send process share: the connection pool, and how it wakes them.
//!
//! Must never hold a borrow of the pool across an await.

use super::{Journal, Setup, connection};
use crate::io::stream::{Stream, loss};
use crate::process::queue_link::QueueLink;
use crate::resolve::Resolver;
use bytes::BytesMut;
use mail::{Instant, Now};
use send::{ConnectionId, ConnectionPool, Input, Output, PooledConnection};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{Error, Result};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use tokio::sync::Notify;
use world::Clock as _;
use world::real;
use world::real::faults::{self, Point};

/// Number of octets read from a next hop at once. Replies are short.
const READ_BYTES: usize = 4 * 1024;

/// The waker of a connection's task.
#[derive(Debug, Default)]
pub struct TaskWaker {
    waker: RefCell<Option<Waker>>,
    /// The deadline of the connection.
    pub due: Cell<Option<Instant>>,
}

impl TaskWaker {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Keeps the waker for the next wake.
    pub fn set(&self, waker: &Waker) {
        let mut place = self.waker.borrow_mut();
        match &mut *place {
            Some(old) => old.clone_from(waker),
            None => *place = Some(waker.clone()),
        }
    }
}

/// What the tasks share. There is one thread, so it has cells and no locks.
pub struct Shared {
    pub pool: RefCell<ConnectionPool>,
    pub sockets: Arc<super::Sockets>,
    pub resolver: Resolver,
    journal: RefCell<Box<dyn Journal>>,
    /// Buffer for the replies of next hops, one for all connections.
    pub scratch: RefCell<[u8; READ_BYTES]>,
    wakers: RefCell<HashMap<ConnectionId, Rc<TaskWaker>>>,
    /// Is notified when the pool has frames for the queue process.
    frames: Notify,
    /// Is notified when a drain may be over.
    pub drained: Notify,
}

impl Shared {
    pub fn new(setup: Setup) -> Shared {
        let Setup { pool, sockets, resolver, journal } = setup;
        Shared {
            pool: RefCell::new(ConnectionPool::new(pool)),
            sockets,
            resolver,
            journal: RefCell::new(journal),
            scratch: RefCell::new([0; READ_BYTES]),
            wakers: RefCell::default(),
            frames: Notify::new(),
            drained: Notify::new(),
        }
    }

    pub fn now(&self) -> Now {
        real::Clock.now()
    }

    /// Tells the pool something that is not from the queue process, and does what the pool asks for.
    pub fn handle(self: &Rc<Self>, input: Input<'_>) {
        let _ = self.tell(input);
    }

    fn tell(self: &Rc<Self>, input: Input<'_>) -> Result<()> {
        let handled = self.pool.borrow_mut().handle(input, self.now());
        self.advance();
        handled.map_err(Error::other)
    }

    /// Does what the pool asks for. Called after each use of the pool.
    pub fn advance(self: &Rc<Self>) {
        loop {
            let output = self.pool.borrow_mut().poll();
            match output {
                Some(Output::Open(connection)) => self.open(connection),
                Some(Output::Wake(id)) => {
                    self.wakers.borrow().get(&id).iter().for_each(|waker| waker.wake());
                }
                Some(Output::Ended(ended)) => {
                    faults::reach(Point::OutcomeKnown);
                    self.journal.borrow_mut().ended(&ended);
                }
                None => break,
            }
        }
        if self.pool.borrow().queue().has_output() {
            self.frames.notify_one();
        }
        if self.is_drained() {
            self.drained.notify_one();
        }
    }

    fn open(self: &Rc<Self>, connection: Box<PooledConnection>) {
        let waker = Rc::new(TaskWaker::default());
        self.wakers.borrow_mut().insert(connection.id(), Rc::clone(&waker));
        tokio::task::spawn_local(connection::run(Rc::clone(self), waker, connection));
    }

    /// Forgets a connection whose task has ended.
    pub fn forget(&self, id: ConnectionId) {
        self.wakers.borrow_mut().remove(&id);
    }

    /// Wakes the connections and the pool whose deadline has come.
    pub fn tick(self: &Rc<Self>) {
        let now = self.now().monotonic;
        for waker in self.wakers.borrow().values() {
            if waker.due.get().is_some_and(|due| due <= now) {
                waker.wake();
            }
        }
        let due = self.pool.borrow().next_wakeup();
        if due.is_some_and(|due| due <= now) {
            self.handle(Input::Timeout);
        }
    }

    /// Returns true if a drain is over.
    pub fn is_drained(&self) -> bool {
        let pool = self.pool.borrow();
        pool.is_draining() && pool.is_drained(self.now().monotonic)
    }
}

impl QueueLink for Rc<Shared> {
    fn connected(&self) {
        self.handle(Input::Connected);
    }

    fn received(&self, input: &mut BytesMut) -> Result<()> {
        self.tell(Input::Received(input))
    }

    fn disconnected(&self) {
        self.handle(Input::Disconnected);
    }

    fn write(&self, stream: &mut Stream) -> Result<bool> {
        let is_written = stream.write(self.pool.borrow_mut().transmit());
        if self.is_drained() {
            self.drained.notify_one();
        }
        is_written
    }

    fn frames(&self) -> &Notify {
        &self.frames
    }

    fn lost(&self, number: u64, error: &Error) {
        let mut journal = self.journal.borrow_mut();
        journal.trouble(&format!("the conversation with queue ended: {error}"));
        journal.lost(number, loss(error));
    }
}
