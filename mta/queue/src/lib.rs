//! The queue process without its I/O: it connects the spool, the scheduler and the links to the other processes.
//!
//! `daemon` drives it with sockets and threads, and the simulator with a simulated disk and clock. Must never touch a
//! clock, a socket or a file.
//!
//! | step | code |
//! |---|---|
//! | stage, commit | `intake`: takes a message from a receiving process into the spool and returns its `Durable` |
//! | schedule | [`Queue::advance`]: hands the scheduler's attempts to the sending processes |
//! | record, bounce | `record`: stores outcomes and the notices about them, each pair in one group |
//! | retire | the scheduler's last change of a message |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod dispatch;
mod intake;
mod message_cache;
mod notice;
mod output;
mod parts;
mod queue;
mod reads;
mod record;
mod restore;
mod settings;
mod slots;

pub use dispatch::SenderKey;
pub use output::{LogEvent, Output};
pub use parts::Parts;
pub use queue::{Counters, Queue, SLICE_RECIPIENTS_MAX};
pub use reads::{NOTICE_BYTES_MAX, Read, ReadDone, ReadFor, perform};
pub use restore::Restore;
pub use settings::{MESSAGE_CACHE_BYTES_MAX, Settings};
