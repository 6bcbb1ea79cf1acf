//! The queue process without its I/O: spool, scheduler and the conversations wired together.
//!
//! `daemon` drives it with sockets and threads, `sim` with a simulated disk and clock: what is
//! simulated is what runs. Must never touch a clock, a socket or a file.
//!
//! | verb | here |
//! |---|---|
//! | stage, commit | [`intake`]: from a receiving process into the spool, `Durable` back |
//! | schedule | [`Queue::advance`]: the scheduler's attempts to a sending process |
//! | record, bounce | [`record`]: outcomes and the notices they call for, in one group |
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
