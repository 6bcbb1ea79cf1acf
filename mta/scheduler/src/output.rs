//! Inputs and outputs of the scheduler: new messages in, attempts and records out.
//!
//! Must never hold a byte of mail.

use mail::{Address, Change, MessageId, NextHop, Notify, Report, ReversePath, Timestamp};
use view::HeldBy;

/// A new message, which has been promised.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Queue id, not in the queue yet.
    pub message: MessageId,
    /// Time at which its last byte was received.
    pub arrived: Timestamp,
    /// Size in bytes, including the headers that we added.
    pub bytes: u64,
    /// Address given to MAIL FROM.
    pub sender: &'a ReversePath,
    /// Recipients in the order of the envelope, so that their indexes are those of the envelope.
    pub recipients: &'a [ArrivingRecipient<'a>],
    /// Holder of the message, if it is held from the start.
    pub held: Option<HeldBy>,
    /// Priority from -100 (last) to 100 (first); 0 by default.
    pub priority: i8,
}

/// One recipient of a new message, with its route.
#[derive(Clone, Copy, Debug)]
pub struct ArrivingRecipient<'a> {
    /// Address given to RCPT TO.
    pub address: &'a Address,
    /// Next hop of its mail.
    pub hop: &'a NextHop,
    /// Value of NOTIFY.
    pub notify: Notify,
}

/// Name of a destination while it has mail. `Scheduler::hop` returns its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationId(pub u32);

/// Name of one attempt; never used twice by one incarnation of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u64);

/// What the driver must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this attempt, then call `outcome`, `attempt_lost` or `attempt_cut_short`.
    Attempt(PlannedAttempt),
    /// Make this record durable, in one batch.
    Record(MessageChanges),
}

/// One attempt: recipients of one message for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedAttempt {
    /// Name of the attempt.
    pub attempt: AttemptId,
    /// Queue id of the message.
    pub message: MessageId,
    /// Destination of the recipients.
    pub destination: DestinationId,
    /// Indexes of the recipients; at least one.
    pub recipients: Vec<u32>,
    /// Number of earlier attempts at these recipients.
    pub attempts_before: u16,
}

/// Changes of one message and the notices that they require. All of it goes into one batch, so that neither a failure without
/// its bounce nor a bounce without its failure survives a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageChanges {
    /// Queue id of the message.
    pub message: MessageId,
    /// Changes in the order in which they must be applied; `Retire` is the last one.
    pub changes: Vec<Change>,
    /// Notices to the sender, which must be built and stored in the same batch.
    pub notices: Vec<PlannedNotice>,
    /// Failures without a notice, for the log.
    pub silent: Vec<Silent>,
}

/// A notice to the sender about some recipients (RFC 3461 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedNotice {
    /// Kind of the notice.
    pub kind: NoticeKind,
    /// Recipients by index, each with its report.
    pub recipients: Vec<(u32, Report)>,
}

/// What a notice says of its recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// Permanent failure: action `failed`.
    Failed,
    /// Waited too long: action `failed` with 5.4.7.
    Expired,
    /// Still waiting: action `delayed`.
    Delayed,
    /// Relayed to a server that sends no notices: action `relayed`.
    Relayed,
    /// Delivered to the mailbox: action `delivered`.
    Delivered,
}

/// Failures without a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Reason why nobody is notified.
    pub why: SilentBecause,
    /// Recipients by index, each with its report.
    pub recipients: Vec<(u32, Report)>,
}

/// Reason why nobody is notified of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SilentBecause {
    /// The sender is `<>`, which is never answered: a double bounce (RFC 5321 6.1).
    NullSender,
    /// NOTIFY lacks FAILURE (RFC 3461 4.1).
    NotifyHasNoFailure,
    /// An operator deleted the message.
    Deleted,
    /// The message has a trace header that says that the recipient has had it before. Its sender may be forged.
    Loop,
}

impl MessageChanges {
    /// An empty record.
    pub(crate) fn new(message: MessageId) -> Self {
        MessageChanges { message, changes: Vec::new(), notices: Vec::new(), silent: Vec::new() }
    }

    /// Adds recipients that have failed.
    pub(crate) fn fail(&mut self, failed: impl Iterator<Item = u32>) {
        match self.changes.last_mut() {
            Some(Change::Failed { recipients, .. }) => recipients.extend(failed),
            _ => {
                let recipients = failed.collect();
                self.changes.push(Change::Failed { message: self.message, recipients });
            }
        }
    }

    /// Adds recipients to the notice of this kind.
    pub(crate) fn tell(&mut self, kind: NoticeKind, told: Vec<(u32, Report)>) {
        match self.notices.iter_mut().find(|notice| notice.kind == kind) {
            Some(notice) => notice.recipients.extend(told),
            None => self.notices.push(PlannedNotice { kind, recipients: told }),
        }
    }

    /// Adds recipients whose failure is not notified.
    pub(crate) fn keep_silent(&mut self, why: SilentBecause, untold: Vec<(u32, Report)>) {
        match self.silent.iter_mut().find(|silent| silent.why == why) {
            Some(silent) => silent.recipients.extend(untold),
            None => self.silent.push(Silent { why, recipients: untold }),
        }
    }

    /// Returns true if another record can be appended to this one: both hold deliveries of the same message and nothing else,
    /// but for a `Retire` at the end of the other.
    pub(crate) fn takes(&self, other: &MessageChanges) -> bool {
        let delivered = |change: &Change| matches!(change, Change::Delivered { .. });
        let of_other =
            |change: &Change| delivered(change) || matches!(change, Change::Retire { .. });
        let plain = |record: &MessageChanges| record.notices.is_empty() && record.silent.is_empty();
        self.message == other.message
            && plain(self)
            && plain(other)
            && self.changes.iter().all(delivered)
            && other.changes.iter().all(of_other)
    }

    /// Appends another record.
    pub(crate) fn append(&mut self, other: MessageChanges) {
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

    /// Returns true if there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.notices.is_empty() && self.silent.is_empty()
    }
}
