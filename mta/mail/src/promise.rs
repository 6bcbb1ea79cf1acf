//! `Durable`: the proof that a message will survive a power cut. Only its holder may say `250`.
//!
//! Must never be made on any other evidence than a sync that came back, or the answer of the queue
//! process that has seen one.

use crate::{MessageId, TransactionId};
use synced::Synced;

/// The proof that one message is durable. It is spent by the `250`: neither `Clone` nor `Copy` nor
/// serializable.
///
/// The compiler guarantees that a `Durable` made by [`Durable::proven`] was preceded by a sync that
/// came back without an error: only the disks of crate `world` make a [`Synced`]. Which bytes that
/// sync covered is known to the caller, the spool's commit.
///
/// ```compile_fail
/// # use mail::{Durable, MessageId, TransactionId};
/// // The fields are private.
/// let transaction = TransactionId { incarnation: 1, number: 1 };
/// let durable = Durable { message: MessageId(1), transaction };
/// ```
///
/// ```compile_fail
/// # use mail::{Durable, MessageId, TransactionId};
/// // There is no proof without a sync.
/// let transaction = TransactionId { incarnation: 1, number: 1 };
/// let durable = Durable::proven((), MessageId(1), transaction);
/// ```
///
/// The process that answers clients has no disk. It trusts the queue process, and its decoder is
/// the one place that makes a `Durable` without a sync of its own:
///
/// ```
/// # use mail::{Durable, MessageId, TransactionId};
/// let transaction = TransactionId { incarnation: 1, number: 1 };
/// let durable = Durable::attested(MessageId(1), transaction);
/// assert_eq!(durable.message(), MessageId(1));
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a promise that is not said leaves the client waiting"]
pub struct Durable {
    message: MessageId,
    transaction: TransactionId,
}

impl Durable {
    /// The proof for one message of a batch. `synced` is what the sync of that batch returned; one
    /// sync covers every message of the batch, so it is borrowed.
    pub fn proven(_synced: &Synced, message: MessageId, transaction: TransactionId) -> Self {
        Durable { message, transaction }
    }

    /// The proof as another process gave it. Only the decoder in `link` calls this, for an answer
    /// of the queue process that fits an outstanding transaction; `cargo xtask tidy` checks it.
    pub fn attested(message: MessageId, transaction: TransactionId) -> Self {
        Durable { message, transaction }
    }

    /// The queue id of the durable message.
    pub fn message(&self) -> MessageId {
        self.message
    }

    /// The transaction that the proof answers.
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }
}
