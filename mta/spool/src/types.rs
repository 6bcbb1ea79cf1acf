//! What goes into the spool and what comes out, beside I/O.
//!
//! Must never hold a decision: these are the words of the conversation with the queue.

use crate::Io;
use mail::{Change, Durable, Envelope, MessageId, Refusal, TransactionId};
use world::DiskError;

/// A message to be kept; its body was staged under `transaction`.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// Names the staged body, and is answered by [`Output::Durable`].
    pub transaction: TransactionId,
    /// Who to whom.
    pub envelope: Envelope,
    /// Header lines of ours that go before the body.
    pub prefix: Vec<u8>,
}

/// New messages and changes that become durable together or not at all: a failed recipient's
/// outcome and its bounce.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Messages of our own making. Unlike a client's they are not refused when a disk fails, but
    /// written again elsewhere.
    pub messages: Vec<NewMessage>,
    /// In this order.
    pub changes: Vec<Change>,
}

/// Names a submitted group; comes back as [`Output::Recorded`]. Not in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One slice of a snapshot: give it back by [`crate::Spool::snapshot_slice`] with the state of
/// these messages.
#[derive(Debug)]
pub struct SnapshotSlice {
    pub(crate) generation: u64,
    pub(crate) number: u32,
    pub(crate) after: u64,
    pub(crate) through: u64,
    /// The messages whose state is wanted; may be empty.
    pub messages: Vec<MessageId>,
}

impl SnapshotSlice {
    /// Ends the slice after this number of its messages, but not before the first, because their state is long.
    /// The rest are asked for in the next slice.
    pub fn end_after(&mut self, messages: usize) {
        if messages < self.messages.len() {
            self.messages.truncate(messages.max(1));
            self.through = self.messages[self.messages.len() - 1].0;
        }
    }
}

/// What the spool wants or has to say.
#[derive(Debug)]
pub enum Output {
    /// To be executed; its end goes to `handle`.
    Io(Io),
    /// The message survives a power cut from here on.
    Durable(Durable),
    /// The group survives a power cut from here on.
    Recorded(Ticket),
    /// The message was not kept and will not come back.
    Refused {
        /// Whose message.
        transaction: TransactionId,
        /// Why.
        refusal: Refusal,
    },
    /// For the log and the operator.
    Alarm(Alarm),
    /// The caller's state of these messages is wanted for the snapshot.
    SnapshotWanted(SnapshotSlice),
}

/// Something an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Alarm {
    /// A commit failed; its segment is not written any more.
    #[error("a commit failed, its segment is set aside: {0}")]
    CommitFailed(DiskError),
    /// Several commits failed in a row: nothing is accepted until one succeeds.
    #[error("the spool cannot be written: {0}")]
    Broken(DiskError),
    /// Commits succeed again.
    #[error("the spool can be written again")]
    Healthy,
    /// No room for another segment: new mail is refused, queued mail drains.
    #[error("no room for another segment: {0}")]
    Full(DiskError),
    /// There is room again.
    #[error("there is room for segments again")]
    Room,
    /// Something off the path failed and will be tried again later.
    #[error("{0}")]
    Background(DiskError),
    /// A live message cannot be read.
    #[error("message {message} is damaged: {what}")]
    Damaged {
        /// Which.
        message: MessageId,
        /// How it was found.
        what: &'static str,
    },
}

/// Figures for status and measurements; counts are since the start of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live messages.
    pub messages: u64,
    /// Bytes of segments that live messages need.
    pub live_bytes: u64,
    /// Segments in existence.
    pub segments: u64,
    /// Of these, ready to be written.
    pub segments_ready: u64,
    /// Bytes of the segments.
    pub segment_bytes: u64,
    /// Bytes staged or gathered and not yet durable.
    pub staged_bytes: u64,
    /// Commits that came back well.
    pub commits: u64,
    /// Messages that became durable.
    pub messages_committed: u64,
    /// Bytes written by commits, padding included.
    pub commit_bytes: u64,
    /// The most messages in one commit.
    pub batch_messages_max: u64,
    /// Syncs asked for, of every kind.
    pub syncs: u64,
    /// Segments that were recycled.
    pub recycled: u64,
    /// Segments used before they were zeroed.
    pub zeroing_fallbacks: u64,
    /// Messages copied forward out of nearly empty segments.
    pub copied_forward: u64,
    /// Snapshots completed.
    pub snapshots: u64,
    /// Commits that failed.
    pub commits_failed: u64,
    /// New mail is refused for lack of room.
    pub full: bool,
    /// New mail is refused because the disk fails.
    pub broken: bool,
}
