//! The client's end of SMTP and LMTP: replies in, commands and outcomes out.
//!
//! Must never read a clock, open a connection or touch a file: the driver brings bytes and the time,
//! and writes what the session transmits.

mod body;
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
mod settings;
#[cfg(test)]
mod tests;
mod waits;

pub use body::BODY_CHUNK_BYTES_MAX;
pub use message::{INLINE_BODY_BYTES_MAX, OutboundMessage};
pub use offers::Offers;
pub use replies::{Garbage, ReplyReader};
pub use session::{Input, Output, Session};
pub use settings::{Dialect, Settings, Timeouts};
