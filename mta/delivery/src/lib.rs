//! One attempt to one outcome, without I/O: finds the addresses of a next hop, asks for a
//! connection, and drives the client session of `smtp` over it.
//!
//! Must never look anything up, open a connection or draw a random number itself.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod dead;
pub mod outbound_session;
pub mod resolve;
pub mod route;
#[cfg(test)]
mod tests;

pub use dead::DeadAddresses;
pub use outbound_session::{Input, Limits, OutboundSession, Output};
pub use resolve::{Answer, Answers, Question};
pub use route::{Choice, Ourselves, Rules, Search, Target, Unreachable, Where};
