//! The requests of the machine to its driver, and the events for the log.
//!
//! Must never make a request without a bound, because a driver handles all requests at once.

use crate::MailboxAlarm;
use crate::place::DeliveryUser;
use crate::waiting::DeliveryBatch;
use crate::workers::WorkerId;
use bytes::Bytes;
use link::LinkError;
use link::send::Times;
use mail::{Address, MessageId, Outcome, ReversePath, Timestamp};

/// A request to the driver, or an event for the log.
#[derive(Debug)]
pub enum Output<M> {
    /// The bytes of the stream were refused: the driver closes the stream and asks for a new one.
    HangUp(LinkError),
    /// The driver adds bytes to the message of an attempt, and answers with one of
    /// [`crate::Input::Staged`], [`crate::Input::StagedLast`] and [`crate::Input::StageFailed`].
    Stage {
        /// The attempt.
        attempt: u64,
        /// The sender of the message.
        sender: ReversePath,
        /// The bytes, with lines that end in CRLF.
        bytes: Bytes,
        /// True if the message is complete with these bytes.
        last: bool,
    },
    /// The driver drops the staged pieces of this attempt's message.
    Unstage {
        /// The attempt.
        attempt: u64,
    },
    /// The driver looks up an account of the system and answers with [`crate::Input::Home`].
    FindHome {
        /// The number of the request.
        lookup: u64,
        /// The account.
        account: Box<str>,
    },
    /// The driver starts a worker.
    StartWorker {
        /// The number of the worker.
        worker: WorkerId,
        /// The user that it runs as.
        user: DeliveryUser,
    },
    /// The driver gives a batch to a worker, and answers with [`crate::Input::BatchDone`] or
    /// [`crate::Input::WorkerEnded`]. A worker has one batch at a time.
    Deliver {
        /// The worker.
        worker: WorkerId,
        /// The batch.
        batch: DeliveryBatch<M>,
    },
    /// The driver stops a worker, whether or not it has a batch. There is no answer.
    EndWorker {
        /// The worker.
        worker: WorkerId,
    },
    /// An event for the log.
    Log(LocalEvent),
}

/// An event for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalEvent {
    /// An attempt has ended for one recipient.
    Attempt(Box<AttemptEnd>),
    /// Another user may write to a mailbox, so its mail waits.
    Alarm {
        /// The mailbox.
        mailbox: Box<str>,
        /// The owner and the mode that were found.
        alarm: MailboxAlarm,
    },
}

/// The end of an attempt for one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// The message.
    pub message: MessageId,
    /// Its sender.
    pub sender: ReversePath,
    /// The recipient.
    pub recipient: Address,
    /// When the message arrived at this host, and when the attempt became due.
    pub times: Times,
    /// When the queue process gave the attempt to this process.
    pub taken: Timestamp,
    /// When the outcome was known.
    pub ended: Timestamp,
    /// The outcome.
    pub outcome: Outcome,
}
