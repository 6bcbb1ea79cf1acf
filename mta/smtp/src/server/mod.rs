//! The server's end of SMTP and LMTP: one [`Session`] for each connection.
//!
//! How a driver runs it:
//! ```text
//! let server = Server::new(settings);
//! let mut session = Session::new(server, now);            // the greeting is in output()
//! loop {
//!     used += session.receive(&kept[used..], now);        // takes what it can use now
//!     match session.poll(now) {
//!         Some(event) => handle the event; call answer(), promise() or refuse() if it asks
//!         None => write output() to the client and clear it; stop after Close; wait for bytes
//!                 or for next_wakeup(); then call receive(), eof() or handle_timeout()
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
