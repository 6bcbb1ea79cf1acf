//! The framing of a message after DATA: lines end in CRLF, a dot at the start of a line is doubled, and a line with a
//! single dot ends the message (RFC 5321 4.5.2 and 4.1.1.4).
//!
//! Must never accept anything but CRLF.CRLF as the end of the message. Must never change any other byte, except that
//! [`BareLf::Normalize`] adds a CR.

mod stuffer;
#[cfg(test)]
mod tests;
mod unstuffer;

pub use stuffer::Stuffer;
pub use unstuffer::{BareLf, Flaw, GROWTH_BYTES_MAX, Taken, Unstuffer};
