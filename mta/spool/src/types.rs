//! The types of what goes into the spool and what comes out, except I/O.
//!
//! Must never hold a decision: the spool and the queue only exchange these.

use crate::Io;
use mail::{Change, Durable, Envelope, MessageId, Refusal, TransactionId};
use world::DiskError;

/// A message of our own to keep; its body was staged under `transaction`.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The transaction that staged the body; [`Output::Durable`] names it.
    pub transaction: TransactionId,
    /// Sender and recipients.
    pub envelope: Envelope,
    /// The trace header that goes before the body.
    pub prefix: Vec<u8>,
}

/// New messages and changes that become durable together or not at all, such as the outcome of a failed
/// recipient and its bounce.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Messages of our own making. When the disk fails they are not refused like those of clients, but
    /// written again elsewhere.
    pub messages: Vec<NewMessage>,
    /// Changes, recorded in this order.
    pub changes: Vec<Change>,
}

/// Identifies a submitted group. Comes back in [`Output::Recorded`], in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One slice of a snapshot, to be given back by [`crate::Spool::snapshot_slice`] with the caller's state of
/// these messages.
#[derive(Debug)]
pub struct SnapshotSlice {
    pub(crate) generation: u64,
    pub(crate) number: u32,
    pub(crate) after: u64,
    pub(crate) through: u64,
    /// The messages whose state is wanted. May be empty.
    pub messages: Vec<MessageId>,
}

impl SnapshotSlice {
    /// Ends the slice after this number of messages, but not before the first. The others come with the next
    /// slice. For a caller whose state of these messages is long.
    pub fn end_after(&mut self, messages: usize) {
        if messages < self.messages.len() {
            self.messages.truncate(messages.max(1));
            self.through = self.messages[self.messages.len() - 1].0;
        }
    }
}

/// What the spool asks for or reports.
#[derive(Debug)]
pub enum Output {
    /// A request to the disk. Its end goes to [`crate::Spool::handle`].
    Io(Io),
    /// The message survives a power cut from now on.
    Durable(Durable),
    /// The group survives a power cut from now on.
    Recorded(Ticket),
    /// The message was not kept and will not come back after a power cut.
    Refused {
        /// The transaction of the message.
        transaction: TransactionId,
        /// The reason.
        refusal: Refusal,
    },
    /// A message for the log and the operator.
    Alarm(Alarm),
    /// The snapshot needs the caller's state of these messages.
    SnapshotWanted(SnapshotSlice),
}

/// An event that an operator should know of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Alarm {
    /// A commit failed; its segment is no longer written.
    #[error("a commit failed, its segment is set aside: {0}")]
    CommitFailed(DiskError),
    /// Several commits failed in a row. Nothing is accepted until one succeeds.
    #[error("the spool cannot be written: {0}")]
    Broken(DiskError),
    /// Commits succeed again.
    #[error("the spool can be written again")]
    Healthy,
    /// There is no room for another segment. New mail is refused; queued mail is still delivered.
    #[error("no room for another segment: {0}")]
    Full(DiskError),
    /// There is room for segments again.
    #[error("there is room for segments again")]
    Room,
    /// Something that no message waits for failed and will be retried.
    #[error("{0}")]
    Background(DiskError),
    /// A live message cannot be read.
    #[error("message {message} is damaged: {what}")]
    Damaged {
        /// The message.
        message: MessageId,
        /// What was found.
        what: &'static str,
    },
}

/// Figures for status and measurements. Counts begin with the start of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of live messages.
    pub messages: u64,
    /// Bytes of segments that live messages need.
    pub live_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Number of segments that are ready to be written.
    pub segments_ready: u64,
    /// Bytes of all segments.
    pub segment_bytes: u64,
    /// Bytes that are staged or gathered and not yet handed to the disk.
    pub staged_bytes: u64,
    /// Commits that succeeded.
    pub commits: u64,
    /// Messages that became durable.
    pub messages_committed: u64,
    /// Bytes written by commits, padding included.
    pub commit_bytes: u64,
    /// Largest number of messages in one commit.
    pub batch_messages_max: u64,
    /// Syncs that were requested, of files and of the directory.
    pub syncs: u64,
    /// Segments that were recycled.
    pub recycled: u64,
    /// Segments that were used before they were completely zeroed.
    pub zeroing_fallbacks: u64,
    /// Messages copied forward out of nearly empty segments.
    pub copied_forward: u64,
    /// Snapshots completed.
    pub snapshots: u64,
    /// Commits that failed.
    pub commits_failed: u64,
    /// Whether new mail is refused for lack of room.
    pub full: bool,
    /// Whether new mail is refused because the disk fails.
    pub broken: bool,
}
