//! The inputs of the machine.
//!
//! Must never carry a time: each input is passed together with the time.

use crate::MailboxAlarm;
use crate::workers::WorkerId;
use bytes::BytesMut;
use mail::{Outcome, Reply};
use std::path::PathBuf;

/// An input of the machine. `M` is the driver's handle of a staged message.
#[derive(Debug)]
pub enum Input<'a, M> {
    /// A new stream to a queue process is connected.
    Connected,
    /// Bytes have arrived over the stream. The machine removes those that it has used.
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
        /// The reason, as the sender of the message will read it.
        reply: Reply,
    },
    /// The answer to [`crate::Output::FindHome`].
    Home {
        /// As in the output.
        lookup: u64,
        /// The home directory of the account, or `None` if there is no such account.
        home: Option<PathBuf>,
    },
    /// A worker has delivered its batch.
    BatchDone {
        /// As in the output.
        worker: WorkerId,
        /// The outcome of each delivery, in the order of the batch.
        outcomes: Vec<Outcome>,
        /// The mailboxes that an administrator must look at.
        alarms: Vec<MailboxAlarm>,
    },
    /// A worker could not be started, or has died.
    WorkerEnded {
        /// As in the output.
        worker: WorkerId,
        /// The reason.
        why: Box<str>,
    },
    /// The process must end. The machine begins no further deliveries, except those of attempts that have
    /// begun.
    Drain,
    /// The time of [`crate::LocalDelivery::next_wakeup`] has come.
    Timeout,
}
