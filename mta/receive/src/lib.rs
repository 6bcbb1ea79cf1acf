//! The receive process without its I/O: one [`Gateway`] for the process, one [`InboundSession`] for each connection.
//!
//! How a driver runs them:
//! ```text
//! let mut gateway = Gateway::new(..);
//! // The stream to the queue process:
//! gateway.handle(Input::Received(&mut bytes), now)?;
//! while let Some(output) = gateway.poll(now) { wake clients, log alarms }
//! write what gateway.transmit() holds
//!
//! // A connection, until Output::Close:
//! let mut client = gateway.admit(&listener, address, now)?;
//! loop {
//!     while let Some(output) = client.poll(&mut gateway, now) { log it, or close }
//!     write client.transmit(); client.transmitted(n); if n > 0, poll again
//!     read at most client.read_bytes_max(&gateway) bytes, then client.handle(..)
//!     wait for bytes, room to write, client.next_wakeup() or SessionOutput::Wake
//! }
//! client.release(&mut gateway);
//! ```
//! After each call of a client the gateway may have frames to write and clients to wake.
//!
//! Must never touch a socket, a clock or a file, and never say `250` to a body without a `Durable`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod clients;
mod gateway;
mod inbound;
mod memory;
mod output;
mod queue_client;
mod settings;

#[cfg(test)]
mod tests;

pub use clients::ClientId;
pub use gateway::{Gateway, Input};
pub use inbound::{InboundSession, Input as SessionInput, READ_BYTES_MAX};
pub use memory::{MESSAGE_BYTES_MIN, SESSION_BYTES_MIN};
pub use output::{Output, Promised, SessionOutput};
pub use settings::{Listener, Settings};
