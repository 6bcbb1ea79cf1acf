//! The attempts under way, and the outcomes of their recipients so far.
//!
//! Must never keep an attempt's result back once its last recipient has an outcome.

use link::send::{Attempt, Result as AttemptResult, Times};
use mail::{Address, MessageId, Outcome, ReversePath, Timestamp};
use std::collections::BTreeMap;

/// The attempts without a result.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    open: BTreeMap<u64, OpenAttempt>,
}

/// An attempt of which at least one recipient has no outcome yet.
#[derive(Debug)]
struct OpenAttempt {
    message: MessageId,
    sender: ReversePath,
    times: Times,
    /// When the queue process gave the attempt to this process.
    taken: Timestamp,
    /// The recipients, until the message is staged.
    recipients: Vec<(u32, Address)>,
    outcomes: Vec<(u32, Outcome)>,
    /// The number of recipients without an outcome.
    missing: usize,
    /// A recipient has an outcome, or is in a batch.
    has_begun: bool,
}

/// What the log tells of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptFacts<'a> {
    /// The message.
    pub message: MessageId,
    /// Its sender.
    pub sender: &'a ReversePath,
    /// When the message came, and when the attempt became due.
    pub times: Times,
    /// When the queue process gave the attempt to this process.
    pub taken: Timestamp,
}

impl Attempts {
    /// An attempt has come: each of its recipients will get an outcome.
    pub fn begin(&mut self, attempt: Attempt, taken: Timestamp) {
        let open = OpenAttempt {
            message: attempt.message,
            sender: attempt.from.sender,
            times: attempt.times,
            taken,
            outcomes: Vec::with_capacity(attempt.recipients.len()),
            missing: attempt.recipients.len(),
            recipients: attempt.recipients.into_iter().map(|(i, r)| (i, r.address)).collect(),
            has_begun: false,
        };
        self.open.insert(attempt.id, open);
    }

    /// What the log tells of an attempt.
    pub fn facts(&self, attempt: u64) -> Option<AttemptFacts<'_>> {
        let open = self.open.get(&attempt)?;
        let OpenAttempt { message, sender, times, taken, .. } = open;
        Some(AttemptFacts { message: *message, sender, times: *times, taken: *taken })
    }

    /// The recipients of an attempt whose message is staged, or will never be; each time but the
    /// first there are none.
    pub fn take_recipients(&mut self, attempt: u64) -> Vec<(u32, Address)> {
        let open = self.open.get_mut(&attempt);
        open.map(|open| std::mem::take(&mut open.recipients)).unwrap_or_default()
    }

    /// A recipient of this attempt is in a batch.
    pub fn has_delivery(&mut self, attempt: u64) {
        if let Some(open) = self.open.get_mut(&attempt) {
            open.has_begun = true;
        }
    }

    /// Whether a recipient of this attempt has an outcome, or is in a batch.
    pub fn has_begun(&self, attempt: u64) -> bool {
        self.open.get(&attempt).is_some_and(|open| open.has_begun)
    }

    /// One recipient has its outcome. With the last one comes the attempt's result.
    pub fn outcome(&mut self, attempt: u64, index: u32, outcome: Outcome) -> Option<AttemptResult> {
        let open = self.open.get_mut(&attempt)?;
        open.outcomes.push((index, outcome));
        open.has_begun = true;
        open.missing = open.missing.saturating_sub(1);
        if open.missing > 0 { None } else { self.result(attempt) }
    }

    /// The result of an attempt, whether or not each recipient has an outcome; a recipient without
    /// one is deferred by the queue process.
    pub fn result(&mut self, attempt: u64) -> Option<AttemptResult> {
        let OpenAttempt { message, outcomes, .. } = self.open.remove(&attempt)?;
        Some(AttemptResult { attempt, message, outcomes })
    }

    /// The attempts with an outcome of one recipient, but not of all.
    pub fn partial(&self) -> Vec<u64> {
        let partial = self.open.iter().filter(|(_, open)| !open.outcomes.is_empty());
        partial.map(|(attempt, _)| *attempt).collect()
    }
}
