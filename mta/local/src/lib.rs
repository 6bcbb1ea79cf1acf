//! The local process without its I/O: attempts from the queue process, delivered to the mailboxes and
//! programs of this machine.
//!
//! `daemon` drives the machine with sockets, files, a thread and worker processes; `sim` drives it
//! with simulated ones. Must never touch a clock, a socket, a file or a process.
//!
//! | step | here |
//! |---|---|
//! | an attempt comes | [`LocalDelivery`]; a large body is fetched in chunks (`fetch`) |
//! | its message is staged | [`Output::Stage`]; the driver writes the bytes |
//! | each recipient gets a place and a delivery user | `place`, [`DeliveryUser`] |
//! | recipients of one delivery user form a batch | `waiting`: while one batch is delivered, the next one gathers |
//! | a worker delivers the batch | `workers`: one for each user, bounded in number |
//! | each recipient gets an outcome, each attempt a result | `attempts` |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attempts;
mod fetch;
mod input;
mod machine;
mod outcome;
mod output;
mod place;
mod program;
mod template;
#[cfg(test)]
mod tests;
mod waiting;
mod workers;

pub use input::Input;
pub use machine::LocalDelivery;
pub use outcome::outcome;
pub use output::{AttemptEnd, LocalEvent, Output};
pub use place::{Deliver, DeliveryPlace, DeliveryUser, Format, Users};
pub use program::{PROGRAM_NAME_PREFIX, ProgramEnd, program_outcome};
pub use template::{Fill, Piece, Template};
pub use waiting::{DeliveryBatch, DeliveryItem};
pub use workers::WorkerId;

use policy::{Mailboxes, NotTheirs, Ownership};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The settings of the machine. The driver fills every field.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The value of `{state}`.
    pub state: String,
    /// Where mail is delivered.
    pub deliver: Deliver,
    /// Which local parts have a mailbox, as the settings say it.
    pub users: Users,
    /// The rule by which RCPT was answered. It is applied again here, where paths and arguments are
    /// made: an accepted message may have been queued for days.
    pub mailboxes: Mailboxes,
    /// The bounds.
    pub limits: LocalLimits,
}

/// The bounds of the machine.
#[derive(Clone, Copy, Debug)]
pub struct LocalLimits {
    /// Attempts that the queue process may hand over without a result.
    pub attempts_max: u32,
    /// Large messages that are fetched at once.
    pub fetches_max: usize,
    /// Deliveries of one batch.
    pub batch_items_max: usize,
    /// Worker processes at once.
    pub workers_max: usize,
    /// How long an idle worker is kept.
    pub worker_idle_max: Duration,
    /// How long a worker may take for a batch. After that it is ended, and the batch is deferred.
    pub batch_time_max: Duration,
    /// How long a drain waits for deliveries that have begun.
    pub drain_time_max: Duration,
}

/// What an administrator is told about a mailbox that somebody else may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailboxAlarm {
    /// The position in the batch of the first delivery to this mailbox.
    pub delivery: usize,
    /// Why nothing was written to it.
    pub why: NotTheirs,
    /// The owner and mode found; of a Maildir perhaps those of one of its three directories.
    pub found: Ownership,
}
