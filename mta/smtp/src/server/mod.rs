//! The receiving side of SMTP and LMTP: one `Session` a connection.
//!
//! How a driver runs it:
//! ```text
//! let server = Server::new(settings);
//! let mut session = Session::new(server, now);            // the greeting is in output()
//! loop {
//!     used += session.receive(&kept[used..], now);        // takes what it can use now
//!     match session.poll(now) {
//!         Some(event) => handle it; answer(), promise() or refuse() where it asks; go round
//!         None => write output() out and clear it; after Close end; wait for bytes or
//!                 next_wakeup(); then receive(), eof() or handle_timeout()
//!     }
//! }
//! ```
//! Must never read a clock, block, or hold more than one chunk of a message.

mod bdat;
mod body;
mod clock;
mod data;
mod delivered_to;
mod event;
mod header;
mod hello;
mod mail;
mod rcpt;
mod reading;
mod replies;
mod session;
mod settings;
mod telling;

#[cfg(test)]
mod tests;

pub use delivered_to::DeliveredTo;
pub use event::{BodyEnd, Event, Mail};
pub use header::HeaderScan;
pub use session::Session;
pub use settings::{Server, Settings};
