//! The send process: takes attempts from queue, carries them over kept connections to next hops,
//! and says what became of each recipient.
//!
//! Must never touch a file, and decides nothing about mail: the crate `send` does, which the
//! simulator drives as well.
//!
//! One thread. A task for each connection drives a [`PooledConnection`](::send::PooledConnection);
//! one task carries bytes from and to queue; one ticks. All use the [`ConnectionPool`](::send::ConnectionPool), borrowed for
//! the length of one call.
//!
//! | accepts | from | does |
//! |---|---|---|
//! | `Attempt`, `Chunk`, `ChunkBad`, `Recorded` | queue | tries, goes on, gives up, forgets |
//! | [`Order::Queue`] | its starter | talks to this queue process from now on |
//! | [`Order::Drain`] | its starter | ends what is under way, then itself |

mod connection;
mod journal;
mod queue_stream;
pub mod role;
mod shared;
mod sockets;

use crate::resolve::Resolver;
use link::streams::Loss;
use shared::Shared;
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
    /// The settings of the connection pool.
    pub pool: ::send::Settings,
    /// Where Unix sockets of next hops are.
    pub sockets: Arc<Sockets>,
    /// Answers questions of the DNS.
    pub resolver: Resolver,
    /// Hears what became of each attempt, for the log.
    pub journal: Box<dyn Journal>,
}

/// Hears what happens, to write it down. Must not block.
pub trait Journal {
    /// An attempt has ended: called once for each.
    fn ended(&mut self, ended: &::send::EndedAttempt);
    /// Something that an operator should look at.
    fn trouble(&mut self, what: &str);
    /// The stream to queue of this name has ended: another is wanted.
    fn lost(&mut self, stream: u64, loss: Loss);
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
    let shared = Rc::new(Shared::new(setup));
    let ticks = tokio::task::spawn_local(tick(Rc::clone(&shared)));
    queue_stream::serve(shared, orders).await;
    ticks.abort();
}

async fn tick(shared: Rc<Shared>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.tick();
    }
}
