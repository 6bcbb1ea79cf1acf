//! Everything that is text: addresses, notices, headers, settings, mailboxes.
//!
//! Must never read a file: settings and mailboxes are given as bytes.

pub mod addresses;
pub mod mailbox;
pub mod notices;
pub mod settings;
