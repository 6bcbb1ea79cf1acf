//! The part of Posthaste that touches the system: processes, privileges, sockets, DNS, mailbox files and the
//! command line.
//!
//! Must never decide what a machine could decide: the daemon only drives machines.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
pub mod host;
pub mod io;
pub mod jail;
pub mod log;
pub mod mailbox;
pub mod process;
pub mod resolve;
