//! The client's end of SMTP and LMTP: replies in, commands and outcomes out.
//!
//! Must never read a clock, open a connection or touch a file: the driver brings bytes and the time,
//! and writes what the session transmits.

mod body;
mod config;
mod data;
mod delivery;
mod ending;
mod envelope;
mod greeting;
mod message;
mod offers;
mod replies;
mod scan;
mod session;
#[cfg(test)]
mod tests;
mod waits;

pub use body::BODY_CHUNK_BYTES_MAX;
pub use config::{Config, Dialect, Timeouts};
pub use message::{INLINE_BODY_BYTES_MAX, Message};
pub use offers::Offers;
pub use replies::{Garbage, ReplyReader};
pub use session::{Input, Output, Session};
