//! A sending process without its I/O: takes attempts from the queue process, carries them over
//! pooled connections to next hops, and returns an outcome for each recipient.
//!
//! Must never look up a name, open a connection, read a clock or draw a random number: the driver
//! does this and reports what came of it.
//!
//! There is one [`ConnectionPool`] for each process and one [`PooledConnection`] for each
//! connection. The pool hands out each connection once, in [`Output::Open`]; from then on the
//! driver owns the connection and lends it the pool for the length of one call.

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
