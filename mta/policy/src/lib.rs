//! Decides from given facts whether a client may connect, and whether it may send to a recipient.
//!
//! Must never use a clock, DNS, a file or a socket. Must never interpret the characters of a local part as a route:
//! `a%b@us`, `b!a@us` and `"a@b"@us` name mailboxes here or nothing.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod account;
pub mod limits;
pub mod mailbox;
pub mod memory;
pub mod ownership;
pub mod repeats;
pub mod route;
pub mod verdict;

pub use account::{Account, Home, Needs, Standing};
pub use limits::{Caller, ConnectionLimiter, ConnectionLimits, ConnectionPermit, client_network};
pub use mailbox::{
    Accounts, Mailboxes, NAME_BYTES_MAX, Names, NoMailbox, UnsafeMailbox, mailbox_name,
};
pub use memory::{MemoryBounds, Short, Shortage, StrangersHold};
pub use ownership::{Groups, NotTheirs, Ownership};
pub use repeats::Repeats;
pub use route::{Pattern, Route, Routes};
pub use verdict::{Client, Policy, Postmaster};
