//! What the machine is told.
//! Must never carry a time: each input is handed over together with one.

use crate::MailboxAlarm;
use crate::workers::WorkerId;
use bytes::BytesMut;
use mail::{Outcome, Reply};
use std::path::PathBuf;

/// What the machine is told. `M` is the driver's handle of a staged message.
#[derive(Debug)]
pub enum Input<'a, M> {
    /// A new stream to a queue process is there.
    Connected,
    /// Bytes have come over the stream; those that the machine has taken are gone afterwards.
    Received(&'a mut BytesMut),
    /// The stream has ended.
    Disconnected,
    /// The answer to [`crate::Output::Stage`], unless the piece was the last one.
    Staged {
        /// As in the output.
        attempt: u64,
    },
    /// The answer to [`crate::Output::Stage`] for the last piece.
    StagedLast {
        /// As in the output.
        attempt: u64,
        /// The whole message.
        message: M,
    },
    /// The answer to [`crate::Output::Stage`] if the message cannot be staged; the driver forgets it.
    StageFailed {
        /// As in the output.
        attempt: u64,
        /// Why, as the sender of the message will read it.
        reply: Reply,
    },
    /// The answer to [`crate::Output::FindHome`].
    Home {
        /// As in the output.
        lookup: u64,
        /// The home of the account; `None` if there is no such account.
        home: Option<PathBuf>,
    },
    /// A worker has delivered its batch.
    BatchDone {
        /// As in the output.
        worker: WorkerId,
        /// What became of each delivery, in the order of the batch.
        outcomes: Vec<Outcome>,
        /// What an administrator has to be told.
        alarms: Vec<MailboxAlarm>,
    },
    /// A worker could not be started, or has died.
    WorkerEnded {
        /// As in the output.
        worker: WorkerId,
        /// Why.
        why: Box<str>,
    },
    /// The process is to end: begins no more deliveries but those of attempts that have begun.
    Drain,
    /// The time of [`crate::LocalDelivery::next_wakeup`] has come.
    Timeout,
}
