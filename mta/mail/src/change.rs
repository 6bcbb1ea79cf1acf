//! A change of a queued message's state: what the spool records, in the order it happened.
//!
//! Must never hold what can be rebuilt: only what has to survive a restart.

use crate::{MessageId, Report, Wall};
use serde::{Deserialize, Serialize};

/// One durable change. Recipients are named by their index in the envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum Change {
    /// These recipients have their mail: they are never tried again.
    Delivered { message: MessageId, recipients: Vec<u32> },
    /// These recipients will never get it. Recorded in one batch with the bounce, if one is due.
    Failed { message: MessageId, recipients: Vec<u32> },
    /// These recipients are tried again at `due`; `attempts` have been made so far.
    Due { message: MessageId, recipients: Vec<u32>, due: Wall, attempts: u16, report: Report },
    /// A delay notice has been queued for these recipients, in the same batch.
    DelayNoticed { message: MessageId, recipients: Vec<u32> },
    /// Not to be tried until released.
    Hold { message: MessageId },
    /// Tried again at once.
    Release { message: MessageId },
    /// An operator's priority, -100 (last) to 100 (first).
    Priority { message: MessageId, priority: i8 },
    /// Nothing is left to do: body and record may go.
    Retire { message: MessageId },
}

impl Change {
    /// The message it is about.
    pub fn message(&self) -> MessageId {
        match self {
            Change::Delivered { message, .. }
            | Change::Failed { message, .. }
            | Change::Due { message, .. }
            | Change::DelayNoticed { message, .. }
            | Change::Hold { message }
            | Change::Release { message }
            | Change::Priority { message, .. }
            | Change::Retire { message } => *message,
        }
    }
}
