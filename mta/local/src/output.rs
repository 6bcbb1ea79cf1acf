//! What the machine asks of its driver, and what it reports for the log.
//! Must never ask for something that has no bound: a driver does all of it at once.

use crate::MailboxAlarm;
use crate::place::DeliveryUser;
use crate::waiting::DeliveryBatch;
use crate::workers::WorkerId;
use bytes::Bytes;
use link::LinkError;
use link::send::Times;
use mail::{Address, MessageId, Outcome, ReversePath, Timestamp};

/// What the machine asks of its driver.
#[derive(Debug)]
pub enum Output<M> {
    /// What came over the stream was refused: the driver closes the stream, and asks for a new one.
    HangUp(LinkError),
    /// The driver adds bytes to the message of an attempt, and answers with one of
    /// [`crate::Input::Staged`], [`crate::Input::StagedLast`] and [`crate::Input::StageFailed`].
    Stage {
        /// The attempt.
        attempt: u64,
        /// The sender of the message.
        sender: ReversePath,
        /// The bytes, lines ended by CRLF.
        bytes: Bytes,
        /// The message is whole with these.
        last: bool,
    },
    /// The driver forgets the message of this attempt, of which pieces are staged.
    Unstage {
        /// The attempt.
        attempt: u64,
    },
    /// The driver looks an account of the system up, and answers with [`crate::Input::Home`].
    FindHome {
        /// Names the question.
        lookup: u64,
        /// The account.
        account: Box<str>,
    },
    /// The driver starts a worker.
    StartWorker {
        /// Names the worker.
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
    /// The driver ends a worker, whether or not it has a batch. There is no answer.
    EndWorker {
        /// The worker.
        worker: WorkerId,
    },
    /// For the log.
    Log(LocalEvent),
}

/// What happened, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalEvent {
    /// An attempt has ended for one recipient.
    Attempt(Box<AttemptEnd>),
    /// Somebody else may write to a mailbox, so its mail waits.
    Alarm {
        /// The mailbox.
        mailbox: Box<str>,
        /// What was found.
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
    /// When the message came to this host, and when the attempt became due.
    pub times: Times,
    /// When the queue process gave the attempt to this process.
    pub taken: Timestamp,
    /// When the outcome was known.
    pub ended: Timestamp,
    /// What became of it.
    pub outcome: Outcome,
}
