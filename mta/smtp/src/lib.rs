//! Both ends of SMTP and LMTP, without I/O: bytes in, replies, commands and events out.
//!
//! Must never read a clock, use a socket, or answer data with `250` without a `Durable`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod client;
pub mod command;
pub mod framing;
pub mod params;
pub mod server;
pub mod xtext;
