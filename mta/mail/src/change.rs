//! A change of a queued message's state. The spool records changes in the order in which they happened.
//!
//! Must never hold what can be rebuilt, only what must survive a restart.

use crate::{MessageId, Report, Timestamp};
use serde::{Deserialize, Serialize};

/// One durable change. Recipients are named by their index in the envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum Change {
    /// The mail of these recipients has been delivered. They are never tried again.
    Delivered { message: MessageId, recipients: Vec<u32> },
    /// Delivery to these recipients has failed for good. Recorded in one batch with the bounce, if one is due.
    Failed { message: MessageId, recipients: Vec<u32> },
    /// These recipients are tried again at `due`; `attempts` have been made so far.
    Due { message: MessageId, recipients: Vec<u32>, due: Timestamp, attempts: u16, report: Report },
    /// A delay notice about these recipients has been queued in the same batch.
    DelayNoticed { message: MessageId, recipients: Vec<u32> },
    /// The message is not tried until it is released.
    Hold { message: MessageId },
    /// The message is tried again at once.
    Release { message: MessageId },
    /// The priority that an operator set, from -100 (last) to 100 (first).
    Priority { message: MessageId, priority: i8 },
    /// Nothing is left to do. The body and the record may be deleted.
    Retire { message: MessageId },
}

impl Change {
    /// Returns the message that the change is about.
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
