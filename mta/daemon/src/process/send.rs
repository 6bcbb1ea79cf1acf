//! The send process: takes attempts from queue, carries them over kept connections to next hops,
//! and says what became of each recipient.
//!
//! Must never touch a file, and never lose an attempt: each ends with a result, or is still under
//! way when queue asks.
//!
//! One thread. A task for each connection drives a `delivery::OutboundSession`; one task talks to queue; one
//! ticks. They share the [`Office`](office::Office).
//!
//! | accepts | from | does |
//! |---|---|---|
//! | `Attempt`, `Chunk`, `ChunkBad`, `Recorded` | queue | tries, goes on, gives up, forgets |
//! | [`Order::Queue`] | its starter | talks to this queue process from now on |
//! | [`Order::Drain`] | its starter | ends what is under way, then itself |

mod journal;
mod line;
mod office;
mod queue_end;
pub mod role;
mod sockets;

use crate::resolve::Resolver;
use delivery::route::Rules;
use link::streams::Loss;
use office::Office;
use smtp::client::Config;
pub use sockets::Sockets;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How coarse deadlines are.
const TICK: Duration = Duration::from_millis(250);

/// What a send process is told at its start.
pub struct Setup {
    /// Both ends of a conversation must be the same build.
    pub build: u64,
    /// Drawn at random: names this life of the process.
    pub life: u64,
    /// Attempts taken at once.
    pub attempts_max: u32,
    /// Connections at once, over all next hops.
    pub connections_max: usize,
    /// How long a connection without work is kept.
    pub idle: Duration,
    /// How we speak to next hops.
    pub client: Arc<Config>,
    /// How next hops are found.
    pub rules: Arc<Rules>,
    /// How much one attempt may try.
    pub limits: delivery::Limits,
    /// Where Unix sockets of next hops are.
    pub sockets: Arc<Sockets>,
    /// Answers questions of the DNS.
    pub resolver: Resolver,
    /// Hears what became of each attempt, for the log.
    pub journal: Box<dyn Journal>,
}

/// Hears what happens, to write it down. Must not block.
pub trait Journal {
    /// An attempt has ended: told once for each, before queue is told.
    fn ended(&mut self, ended: &Ended<'_>);
    /// Something to be looked at.
    fn trouble(&mut self, what: &str);
    /// The stream to queue of this name has ended: another is wanted.
    fn lost(&mut self, stream: u64, loss: Loss);
}

/// The end of one attempt.
#[derive(Debug)]
pub struct Ended<'a> {
    /// As queue gave it; its recipients are in `recipients`.
    pub attempt: &'a link::send::Attempt,
    /// In the order of the outcomes.
    pub recipients: &'a [mail::Recipient],
    /// One for each.
    pub outcomes: &'a [mail::Outcome],
    /// When it came from queue, when it went onto a connection, when it ended.
    pub times: Times,
}

/// The stations of an attempt in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// From queue.
    pub taken: mail::Now,
    /// Onto a connection that was open, or was about to be opened.
    pub begun: mail::Now,
    /// The outcome was known.
    pub ended: mail::Now,
}

/// What the starter of the process says while it runs.
#[derive(Debug)]
pub enum Order {
    /// A stream to the queue process, and its name; replaces the former one.
    Queue(u64, UnixStream),
    /// Take nothing new, end what is under way, end.
    Drain,
}

/// Runs until drained. To be called where `spawn_local` may be: in a `LocalRuntime` or a `LocalSet`.
pub async fn run(setup: Setup, orders: mpsc::Receiver<Order>) {
    let office = Rc::new(Office::new(setup));
    let ticks = tokio::task::spawn_local(tick(Rc::clone(&office)));
    queue_end::serve(office, orders).await;
    ticks.abort();
}

async fn tick(office: Rc<Office>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        office.wake_due();
    }
}
