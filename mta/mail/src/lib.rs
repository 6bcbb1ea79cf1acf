//! The types that all crates share: address, envelope, recipient, reply, verdict, outcome, change, promise.
//!
//! Must never do I/O, read a clock, or grow a `util` module.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod address;
pub mod bounce;
pub mod change;
pub mod domain;
pub mod envelope;
pub mod hop;
pub mod id;
pub mod mail_from;
pub mod memory;
pub mod now;
pub mod outcome;
pub mod promise;
pub mod reply;
pub mod trace;
pub mod verdict;

pub use address::{Address, AddressError, ReversePath};
pub use bounce::{Bounce, Notice, bounce};
pub use change::Change;
pub use domain::Domain;
pub use envelope::{BodyKind, Envelope, Notify, Origin, Protocol, Recipient, Ret};
pub use hop::{Host, NextHop};
pub use id::{MessageId, TransactionId};
pub use mail_from::MailFrom;
pub use memory::allocation_bytes;
pub use now::{Instant, Now, Timestamp};
pub use outcome::{Outcome, Report, Stage};
pub use promise::Durable;
pub use reply::{Enhanced, Reply};
pub use verdict::{Refusal, Verdict};
