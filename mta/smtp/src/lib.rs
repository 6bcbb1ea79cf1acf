//! Both ends of the conversation with the world, without I/O: bytes in, replies and events out.
//!
//! Must never read a clock, touch a socket, or say `250` after data without a `Durable`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod client;
pub mod command;
pub mod framing;
pub mod params;
pub mod server;
pub mod xtext;
