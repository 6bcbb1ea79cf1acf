//! What the tasks of the receive process share: the gateway, and how it wakes them.
//!
//! Must never hold a borrow of the gateway across an await.

use crate::io::BUILD;
use crate::io::stream::{Stream, loss};
use crate::log::Log;
use crate::process::child::Orders;
use crate::process::queue_link::QueueLink;
use bytes::BytesMut;
use link::control::Role;
use mail::Instant;
use receive::{ClientId, Gateway, Input, Output, READ_BYTES_MAX};
use settings::ProcessConfig;
use std::cell::RefCell;
use std::io::{Error, ErrorKind, Result};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use world::{Clock, Rng};

/// Maximum time between two looks at the gateway's timer: a client may have made it earlier meanwhile.
const TIMER_WAIT_MAX: Duration = Duration::from_secs(1);

/// What the tasks share. There is one thread, so it has cells and no locks.
pub struct Shared {
    pub gateway: RefCell<Gateway>,
    /// The task of each client, by the client's number.
    wakers: RefCell<Vec<Waker>>,
    /// Buffer for the bytes that a client sends, one for all clients.
    pub scratch: RefCell<Box<[u8]>>,
    /// Is notified when the gateway has frames for the queue process.
    frames: Notify,
    /// Is notified when a connection has ended.
    pub gone: Notify,
    orders: Rc<Orders>,
    pub log: Log,
    pub clock: world::real::Clock,
}

impl Shared {
    pub fn new(config: &ProcessConfig, orders: Rc<Orders>, log: Log) -> Shared {
        let (clock, incarnation) = (world::real::Clock, world::real::Rng.u64());
        let policy = config.settings.policy(&config.environment);
        let settings = config.settings.gateway();
        let now = clock.now().monotonic;
        Shared {
            gateway: RefCell::new(Gateway::new((BUILD, incarnation), policy, settings, now)),
            wakers: RefCell::default(),
            scratch: RefCell::new(vec![0; READ_BYTES_MAX].into()),
            frames: Notify::new(),
            gone: Notify::new(),
            orders,
            log,
            clock,
        }
    }

    /// Sets the waker of a client's task.
    pub fn set_waker(&self, client: ClientId, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        if wakers.len() <= client.index() {
            wakers.resize(client.index() + 1, Waker::noop().clone());
        }
        wakers[client.index()].clone_from(waker);
    }

    /// Does what the gateway asks for. Called after each use of the gateway.
    pub fn advance(&self, gateway: &mut Gateway, now: Instant) {
        while let Some(output) = gateway.poll(now) {
            match output {
                Output::Wake(client) => {
                    self.wakers.borrow().get(client.index()).inspect(|waker| waker.wake_by_ref());
                }
                Output::WakeAll => self.wakers.borrow().iter().for_each(Waker::wake_by_ref),
                Output::QueueAbsent(absent) => {
                    let seconds = absent.as_secs();
                    let text =
                        format!("no conversation with queue for {seconds} s: clients get 451");
                    self.log.error(&text);
                }
                Output::MemoryShort(short) => self.log.warn(&format!(
                    "the memory of sessions has been short for {} s: {} requests got 421 or 452",
                    short.lasted.as_secs(),
                    short.refused
                )),
            }
        }
        if !gateway.transmit().is_empty() {
            self.frames.notify_one();
        }
    }

    /// Tells the gateway something, and does what it asks for.
    pub fn handle(&self, input: Input<'_>) -> Result<()> {
        let now = self.clock.now().monotonic;
        let mut gateway = self.gateway.borrow_mut();
        let handled = gateway.handle(input, now).map_err(Error::other);
        self.advance(&mut gateway, now);
        handled
    }

    pub fn reload(&self, config: &ProcessConfig) {
        let policy = config.settings.policy(&config.environment);
        let mut gateway = self.gateway.borrow_mut();
        gateway.reload(policy, config.settings.gateway());
        self.advance(&mut gateway, self.clock.now().monotonic);
    }

    /// Lets every client finish, and waits until all have.
    pub async fn drain(&self) {
        let _ = self.handle(Input::Shutdown);
        while !self.gateway.borrow().is_drained() {
            self.gone.notified().await;
        }
    }
}

/// Calls the gateway when it wants to be called. Never returns.
pub async fn keep_time(shared: Rc<Shared>) {
    loop {
        let now = shared.clock.now().monotonic;
        let wait = {
            let mut gateway = shared.gateway.borrow_mut();
            shared.advance(&mut gateway, now);
            gateway.next_wakeup().map_or(TIMER_WAIT_MAX, |at| at.since(now))
        };
        tokio::time::sleep(wait.min(TIMER_WAIT_MAX)).await;
    }
}

impl QueueLink for Rc<Shared> {
    fn connected(&self) {
        let _ = self.handle(Input::Connected);
    }

    fn received(&self, input: &mut BytesMut) -> Result<()> {
        self.handle(Input::Received(input))
    }

    fn disconnected(&self) {
        let _ = self.handle(Input::Disconnected);
    }

    fn write(&self, stream: &mut Stream) -> Result<bool> {
        stream.write(self.gateway.borrow_mut().transmit())
    }

    fn frames(&self) -> &Notify {
        &self.frames
    }

    fn lost(&self, number: u64, error: &Error) {
        if error.kind() != ErrorKind::UnexpectedEof {
            self.log.warn(&format!("conversation with queue ended: {error}"));
        }
        self.orders.say_lost(Role::Queue, 0, number, loss(error));
    }
}
