//! What the queue asks its driver for.
//!
//! Must never name a file, a socket or a thread.

use crate::reads::Read;
use mail::MessageId;

/// What the driver must do or log.
#[derive(Debug)]
pub enum Output {
    /// A request for [`spool::execute`]; its result goes to [`crate::Queue::io_done`].
    Io(spool::Io),
    /// A request for [`crate::perform`]; its result goes to [`crate::Queue::read_done`].
    Read(Read),
    /// An event for the log.
    Log(LogEvent),
    /// The answer to a question of the command line that needed a read or a commit, with the number of the question.
    Answer(u64, link::admin::Answer),
}

/// An event for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEvent {
    /// A notice was queued about a message.
    Bounce {
        /// The message that the notice is about.
        about: MessageId,
        /// The id of the notice.
        notice: MessageId,
        /// What the notice says.
        kind: scheduler::NoticeKind,
        /// The address that the notice goes to.
        to: String,
        /// The number of recipients that the notice is about.
        recipients: usize,
    },
    /// A failure without a notice.
    Silent {
        /// The message that failed.
        message: MessageId,
        /// The recipients that failed, and why there is no notice.
        silent: scheduler::Silent,
    },
    /// A message has left the queue.
    Retire {
        /// The id of the message.
        message: MessageId,
    },
    /// An alarm of the spool.
    Alarm(spool::Alarm),
    /// A write or sync has failed, and no attempt begins until one works. If the machine crashes before that, the
    /// recipients counted here may receive duplicates.
    WritesFail {
        /// Recipients of attempts that sending processes have.
        in_flight: u64,
        /// Recipients whose outcome is known and not durable.
        unsynced: u64,
    },
    /// A write has worked again.
    WritesWork,
    /// A message could not be read and is held.
    Damaged {
        /// The id of the message.
        message: MessageId,
        /// The damage that the spool found.
        text: String,
    },
}
