//! The sending end of SMTP and LMTP: replies in, commands and outcomes out.
//!
//! Must never read a clock, open a connection or touch a file: whoever drives it gives it bytes
//! and the time, and writes what it asks to have written.

mod body;
mod config;
mod delivery;
mod message;
mod offers;
mod replies;
mod scan;
mod session;
#[cfg(test)]
mod tests;

pub use body::BODY_CHUNK_BYTES_MAX;
pub use config::{Config, Dialect, Timeouts};
pub use message::{INLINE_BODY_BYTES_MAX, Message};
pub use offers::Offers;
pub use replies::{Garbage, ReplyReader};
pub use session::{Input, Output, Session};
