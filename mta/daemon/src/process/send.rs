//! The send process: takes attempts from queue, carries them over pooled connections to next hops, and reports the outcome
//! for each recipient.
//!
//! Must never touch a file, or decide about mail: the machine in `mta/send` does, and the simulator drives it as well.
//!
//! There is one thread. A task for each connection drives a [`PooledConnection`](::send::PooledConnection), one task carries
//! bytes from and to queue, and one task wakes the others at their times. All of them borrow the
//! [`ConnectionPool`](::send::ConnectionPool) for one call at a time.
//!
//! | accepts from | messages |
//! |---|---|
//! | master | `Settings`, `Peer`, `Drain` |
//! | queue | `Welcome`, `Attempt`, `Chunk`, `ChunkBad`, `Recorded` |
//! | next hops | SMTP or LMTP replies |

mod connection;
mod journal;
pub mod role;
mod shared;
mod sockets;

use super::queue_link::{self, NewStreams};
use crate::resolve::Resolver;
use ::send::Input;
use link::streams::Loss;
use shared::Shared;
pub use sockets::Sockets;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Time between two looks at the deadlines.
const TICK: Duration = Duration::from_millis(250);

/// What a send process needs at its start.
pub struct Setup {
    /// Settings of the connection pool.
    pub pool: ::send::Settings,
    /// Directories of the Unix sockets of next hops.
    pub sockets: Arc<Sockets>,
    /// Asks the DNS.
    pub resolver: Resolver,
    /// Receives the end of each attempt, for the log.
    pub journal: Box<dyn Journal>,
}

/// Receives what happens, to report it. Must not block.
pub trait Journal {
    /// An attempt has ended. Called once for each attempt.
    fn ended(&mut self, ended: &::send::EndedAttempt);
    /// There is a problem for an operator to look at.
    fn trouble(&mut self, what: &str);
    /// The stream to queue with this number has ended and was not replaced.
    fn lost(&mut self, stream: u64, loss: Loss);
}

/// Runs until it was told to drain and is drained. Must be called where `spawn_local` is allowed: in a `LocalRuntime` or a
/// `LocalSet`.
pub async fn run(setup: Setup, streams: NewStreams, drain: Arc<Notify>) {
    let shared = Rc::new(Shared::new(setup));
    let tasks = [
        tokio::task::spawn_local(tick(Rc::clone(&shared))),
        tokio::task::spawn_local(queue_link::serve(Rc::clone(&shared), streams)),
    ];
    drain.notified().await;
    shared.handle(Input::Drain);
    while !shared.is_drained() {
        shared.drained.notified().await;
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn tick(shared: Rc<Shared>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.tick();
    }
}
