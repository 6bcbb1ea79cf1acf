//! `Durable`: the proof that a message will survive a power cut. Only its holder may say `250`.
//!
//! `Durable::proven` is called in two places only, which `cargo xtask tidy` lists: in `spool`
//! when the sync of the message's batch has come back, and in `link` where an answer of the
//! queue process is decoded against a transaction that is outstanding there.
//!
//! Must never be made on any other evidence.

use crate::{MessageId, TransactionId};

/// One message is durable. Not `Clone`, not `Copy`, not serializable: it is spent by the `250`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a promise that is not said leaves the client waiting"]
pub struct Durable {
    message: MessageId,
    transaction: TransactionId,
}

impl Durable {
    /// To be called only by `spool` after the sync and by `link`'s decoder; tidy checks it.
    pub fn proven(message: MessageId, transaction: TransactionId) -> Self {
        Durable { message, transaction }
    }

    /// The queue id of the durable message.
    pub fn message(&self) -> MessageId {
        self.message
    }

    /// The transaction it answers.
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }
}
