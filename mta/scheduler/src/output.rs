//! What goes in with a new message and what comes out: attempts to make, changes to record.
//!
//! Must never hold a byte of mail.

use mail::{Address, Change, MessageId, NextHop, Notify, Report, ReversePath, Wall};
use view::HeldBy;

/// A message that has been promised.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its queue id, not in the queue yet.
    pub message: MessageId,
    /// When its last byte had been received.
    pub arrived: Wall,
    /// Its size, headers of ours included.
    pub bytes: u64,
    /// MAIL FROM.
    pub sender: &'a ReversePath,
    /// In the order of the envelope: an index here is an index there.
    pub recipients: &'a [ArrivingRecipient<'a>],
    /// To be held from the start.
    pub held: Option<HeldBy>,
    /// -100 (last) to 100 (first); 0 is usual.
    pub priority: i8,
}

/// One recipient of an arrival, routed.
#[derive(Clone, Copy, Debug)]
pub struct ArrivingRecipient<'a> {
    /// RCPT TO.
    pub address: &'a Address,
    /// Where its mail goes.
    pub hop: &'a NextHop,
    /// NOTIFY.
    pub notify: Notify,
}

/// Names a destination while it has messages; cheap to copy. `Scheduler::hop` tells which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationId(pub u32);

/// Names one attempt; never used twice in one life of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u64);

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Try this, then tell `outcome`, `attempt_lost` or `attempt_cut_short`.
    Attempt(Attempt),
    /// Make this durable, all of it in one batch.
    Record(Record),
}

/// One group to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its name.
    pub attempt: AttemptId,
    /// Which message.
    pub message: MessageId,
    /// Where to.
    pub destination: DestinationId,
    /// The recipients, by index; at least one.
    pub recipients: Vec<u32>,
    /// How many attempts these recipients had before.
    pub attempts_before: u16,
}

/// Changes of one message and the notices that they call for. They go into one batch, so that
/// neither a failure without its bounce nor a bounce without its failure survives a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which message.
    pub message: MessageId,
    /// In the order in which they are to be applied; `Retire` is last.
    pub changes: Vec<Change>,
    /// Messages to the sender, to be built and stored in the same batch.
    pub notices: Vec<Notice>,
    /// What the sender is not told; for the log.
    pub silent: Vec<Silent>,
}

/// One message to the sender about some recipients (RFC 3461 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it says.
    pub kind: NoticeKind,
    /// Which recipients, and the evidence.
    pub recipients: Vec<(u32, Report)>,
}

/// What a notice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// Refused for good: action `failed`.
    Failed,
    /// Waited too long: action `failed`, with 5.4.7.
    Expired,
    /// Still waiting: action `delayed`.
    Delayed,
    /// ProcessConfig to a server that tells nothing further: action `relayed`.
    Relayed,
    /// In the mailbox: action `delivered`.
    Delivered,
}

/// Failures that no one is told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Why.
    pub why: SilentBecause,
    /// Which recipients, and the evidence.
    pub recipients: Vec<(u32, Report)>,
}

/// Why a failure is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SilentBecause {
    /// A message from `<>` is never answered: a double bounce (RFC 5321 6.1).
    NullSender,
    /// NOTIFY has no FAILURE (RFC 3461 4.1).
    NotifyHasNoFailure,
    /// An operator deleted it.
    Deleted,
    /// The message says that its recipient here has had it: its sender may be forged, and its text too.
    Loop,
}

impl Record {
    /// A record without content yet.
    pub(crate) fn new(message: MessageId) -> Self {
        Record { message, changes: Vec::new(), notices: Vec::new(), silent: Vec::new() }
    }

    /// Adds recipients that will never get their mail.
    pub(crate) fn fail(&mut self, failed: impl Iterator<Item = u32>) {
        match self.changes.last_mut() {
            Some(Change::Failed { recipients, .. }) => recipients.extend(failed),
            _ => {
                let recipients = failed.collect();
                self.changes.push(Change::Failed { message: self.message, recipients });
            }
        }
    }

    /// Adds recipients of which the sender is told; of one kind there is one notice.
    pub(crate) fn tell(&mut self, kind: NoticeKind, told: Vec<(u32, Report)>) {
        match self.notices.iter_mut().find(|notice| notice.kind == kind) {
            Some(notice) => notice.recipients.extend(told),
            None => self.notices.push(Notice { kind, recipients: told }),
        }
    }

    /// Adds recipients of which nobody is told.
    pub(crate) fn keep_silent(&mut self, why: SilentBecause, untold: Vec<(u32, Report)>) {
        match self.silent.iter_mut().find(|silent| silent.why == why) {
            Some(silent) => silent.recipients.extend(untold),
            None => self.silent.push(Silent { why, recipients: untold }),
        }
    }

    /// Whether another record can be one with this: both say of one message that recipients have
    /// it, and no more than that, but that it may end with the other.
    pub(crate) fn takes(&self, other: &Record) -> bool {
        let delivered = |change: &Change| matches!(change, Change::Delivered { .. });
        let of_other =
            |change: &Change| delivered(change) || matches!(change, Change::Retire { .. });
        let plain = |record: &Record| record.notices.is_empty() && record.silent.is_empty();
        self.message == other.message
            && plain(self)
            && plain(other)
            && self.changes.iter().all(delivered)
            && other.changes.iter().all(of_other)
    }

    /// Makes one of two that belong together.
    pub(crate) fn append(&mut self, other: Record) {
        for change in other.changes {
            match (self.changes.last_mut(), change) {
                (
                    Some(Change::Delivered { recipients, .. }),
                    Change::Delivered { recipients: more, .. },
                ) => recipients.extend(more),
                (_, change) => self.changes.push(change),
            }
        }
    }

    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.notices.is_empty() && self.silent.is_empty()
    }
}
