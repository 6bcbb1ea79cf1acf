//! Facts in, verdict out: may this client connect, and may it send to this recipient, here, now?
//!
//! Must never ask anyone (no clock, DNS, file or socket), and must never read more into a local
//! part than its characters: `a%b@us`, `b!a@us` and `"a@b"@us` name mailboxes here or nothing.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod limits;
pub mod mailbox;
pub mod ownership;
pub mod route;
pub mod verdict;

pub use limits::{ConnectionLimits, Connections};
pub use mailbox::{NAME_BYTES_MAX, UnsafeMailbox, mailbox_name};
pub use ownership::{NotTheirs, Ownership};
pub use route::{Pattern, Route, Routes};
pub use verdict::{Accounts, Policy, Verdict};
