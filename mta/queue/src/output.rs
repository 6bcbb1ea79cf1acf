//! What the queue asks its driver for.
//!
//! Must never name a file, a socket or a thread.

use crate::reads::Read;
use mail::MessageId;

/// What the driver is to do or to log.
#[derive(Debug)]
pub enum Output {
    /// To be done by [`spool::execute`]; the end goes to [`Queue::io_done`].
    Io(spool::Io),
    /// To be done by [`perform`]; the end goes to [`Queue::read_done`].
    Read(Read),
    /// For the log.
    Log(LogEvent),
    /// The answer to a question of the command line that needed a read.
    Answer(u64, link::admin::Answer),
}

/// What happened, for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEvent {
    /// A notice was queued about a message.
    Bounce {
        /// The message it is about.
        about: MessageId,
        /// The notice.
        notice: MessageId,
        /// What it says.
        kind: scheduler::NoticeKind,
        /// To whom.
        to: String,
        /// How many recipients it is about.
        recipients: usize,
    },
    /// A failure that nobody is told.
    Silent {
        /// The message.
        message: MessageId,
        /// What nobody is told, and why.
        silent: scheduler::Silent,
    },
    /// A message has left the queue.
    Retire {
        /// Which.
        message: MessageId,
    },
    /// The spool's alarm.
    Alarm(spool::Alarm),
    /// A write or sync has failed. Until one works no attempt begins; these may be made twice if the
    /// machine ends before.
    WritesFail {
        /// Recipients that are with sending processes.
        in_flight: u64,
        /// Recipients whose outcome is known, but not durable.
        unsynced: u64,
    },
    /// A write has worked again.
    WritesWork,
    /// A body could not be read: the message is held.
    Damaged {
        /// Which.
        message: MessageId,
        /// What the spool found.
        text: String,
    },
}
