//! A sending process without its I/O: takes attempts from the queue process, carries them over pooled connections to next
//! hops, and returns an outcome for each recipient.
//!
//! Must never look up a name, open a connection, read a clock or draw a random number: the driver does this and reports the
//! result.
//!
//! There is one [`ConnectionPool`] for each process and one [`PooledConnection`] for each connection. The pool returns each
//! new connection in [`Output::Open`]. The driver then owns the connection, and lends it the pool for one call at a time.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attempt;
mod connection;
mod hops;
mod pool;
mod settings;
#[cfg(test)]
mod tests;

pub use attempt::{EndedAttempt, OpenAttempt};
pub use connection::{ConnectionInput, ConnectionOutput, PooledConnection};
pub use pool::{ConnectionId, ConnectionPool, DRAIN_TIME_MAX, IDLE_GRACE, Input, Output};
pub use settings::Settings;
