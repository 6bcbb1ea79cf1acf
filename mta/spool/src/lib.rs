//! The promise: appends messages to a log, commits them in groups, recovers them, and retires them.
//!
//! Must never make a `Durable` before a sync has come back, write into a segment that ended in damage,
//! or reach the disk except by [`Io`] values (recovery and reading are given a disk).
//!
//! The machine has the same shape as every other: [`Spool::handle`], [`Spool::poll`],
//! [`Spool::next_wakeup`]. The driver takes each [`Output::Io`], calls [`execute`] on a thread of its
//! choice, and hands the [`IoDone`] back.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admit;
mod batch;
pub mod check;
mod commit;
mod fail;
pub mod format;
mod forward;
mod ids;
mod index;
mod io;
mod log_stream;
mod open;
mod read;
mod recent;
pub mod recover;
mod retire;
mod rhythm;
mod segments;
mod settings;
mod snapshot;
mod spool;
mod stage;
mod types;
mod zeros;

pub use admit::{change_bytes, group_bytes_max};
pub use io::{Begun, Class, File, Io, IoDone, IoWork, Unsynced, begin, execute};
pub use mail::Refusal;
pub use open::open;
pub use read::{Chunk, Damaged, ReadError, ReadPlan, StoredMessage, read_chunk, read_message};
pub use recover::{Damage, OpenError, OpenReport, Replay};
pub use settings::{SEGMENT_BYTES_MIN, Settings};
pub use spool::Spool;
pub use stage::BODY_BYTES_MAX;
pub use types::{Alarm, Group, NewMessage, Output, SnapshotSlice, Ticket, Usage};
