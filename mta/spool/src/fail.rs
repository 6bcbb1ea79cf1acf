//! What happens when a commit fails: its segment is never written again, its clients are told to
//! try later, and the rest of the batch is written elsewhere, after a record that voids the commit.
//!
//! Must never sync again what a failed sync was for, nor retry without a limit or a pause.

use crate::format::segment::SegmentKind;
use crate::log_stream::CommitInFlight;
use crate::{Alarm, Output, Refusal, Spool};
use mail::{Instant, Now, TransactionId};
use std::time::Duration;
use world::{DiskError, Errno};

/// Failures in a row after which the spool is broken: it accepts nothing and rests.
const FAILURES_MAX: u32 = 3;
/// The first rest before the next attempt to write. It is doubled each time,
const RETRY_SECONDS_MIN: u64 = 1;
/// up to this.
const RETRY_SECONDS_MAX: u64 = 30;

/// The failures since the last success, and what they mean for clients.
pub(crate) struct Failures {
    in_a_row: u32,
    /// The last failure was about a file that is deleted.
    deleted: bool,
    last_refusal: Refusal,
    broken: Option<Broken>,
    /// Clients who will be refused once it is certain that their message will not come back.
    refusing: Vec<(TransactionId, Refusal)>,
}

/// The disk fails again and again.
struct Broken {
    retry_at: Instant,
    pause: Duration,
}

impl Default for Failures {
    fn default() -> Self {
        let (in_a_row, deleted, last_refusal) = (0, false, Refusal::Broken);
        Failures { in_a_row, deleted, last_refusal, broken: None, refusing: Vec::new() }
    }
}

impl Failures {
    pub(crate) fn is_failing(&self) -> bool {
        self.in_a_row > 0
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Why a broken spool refuses what a client brings; `None` if it is not broken.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.broken.as_ref().map(|_| self.last_refusal)
    }

    /// When a broken spool tries to write again.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.broken.as_ref().map(|broken| broken.retry_at)
    }

    /// Whether a broken spool rests before its next attempt to write.
    pub(crate) fn is_resting(&self, now: Now) -> bool {
        self.retry_at().is_some_and(|at| now.monotonic < at)
    }

    fn count(&mut self, error: &DiskError) {
        self.in_a_row += 1;
        self.deleted = error.errno == Errno::MISSING;
        self.last_refusal = if error.is_full() { Refusal::Full } else { Refusal::Broken };
    }

    /// Breaks the spool, or lets it rest for twice as long as before.
    fn rest(&mut self, now: Now) {
        let pause = match &self.broken {
            Some(broken) => (broken.pause * 2).min(Duration::from_secs(RETRY_SECONDS_MAX)),
            None => Duration::from_secs(RETRY_SECONDS_MIN),
        };
        self.broken = Some(Broken { retry_at: now.monotonic + pause, pause });
    }
}

impl Spool {
    /// Whether the last commit that ended has failed, or the last attempt to begin a segment, and
    /// nothing has succeeded since. What is handed to the spool meanwhile may not become durable.
    pub fn is_failing(&self) -> bool {
        self.failures.is_failing()
    }

    /// Whether the last failure said that the spool's files are deleted: nothing that is queued will
    /// be found there again.
    pub fn is_deleted(&self) -> bool {
        self.failures.is_failing() && self.failures.deleted
    }

    /// Whether the disk fails again and again. What is handed in is kept in memory, so no new
    /// attempts should begin until [`Alarm::Healthy`].
    pub fn is_broken(&self) -> bool {
        self.failures.is_broken()
    }

    /// A commit came back with an error, or in vain.
    pub(crate) fn commit_failed(
        &mut self,
        flight: CommitInFlight,
        kind: SegmentKind,
        error: Option<DiskError>,
        now: Now,
    ) {
        self.usage.commits_failed += 1;
        self.segments.fail(flight.slot);
        self.streams.of(kind).fail(flight);
        if let Some(error) = error {
            self.failing(error, now);
        }
        if !self.streams.of(kind).has_doomed() {
            self.write_elsewhere(kind);
        }
    }

    /// Counts a failure. After too many in a row the spool refuses until one attempt succeeds.
    pub(crate) fn failing(&mut self, error: DiskError, now: Now) {
        self.failures.count(&error);
        if self.failures.in_a_row < FAILURES_MAX {
            self.alarm(Alarm::CommitFailed(error));
            return;
        }
        if !self.failures.is_broken() {
            self.alarm(Alarm::Broken(error));
        }
        self.failures.rest(now);
        self.refuse_gathered(self.failures.last_refusal);
        self.say_refused();
    }

    /// All failed batches of a stream have come back: they go to the front of its queue, without
    /// their clients' messages, behind a batch that voids their commits.
    fn write_elsewhere(&mut self, kind: SegmentKind) {
        // Nothing in bulk is live by itself, so nothing there needs to be voided.
        let voided = kind == SegmentKind::Log;
        let refused = self.streams.of(kind).requeue_failed(voided);
        self.refuse_later(refused, self.failures.last_refusal);
        if voided {
            self.streams.of(kind).push_void(&mut self.ids);
        }
        if self.failures.is_broken() {
            self.say_refused();
        }
    }

    /// A commit succeeded, or the header of a segment while nothing waits to be committed.
    pub(crate) fn works(&mut self) {
        self.failures.in_a_row = 0;
        if self.failures.broken.take().is_some() {
            self.alarm(Alarm::Healthy);
        }
    }

    /// A commit succeeded.
    pub(crate) fn commit_succeeded(&mut self, kind: SegmentKind, number: u64) {
        self.works();
        if self.streams.of(kind).voided(number) {
            self.say_refused();
        }
    }

    /// Takes the clients' messages out of what is gathered and was never written, and out of what
    /// waits.
    pub(crate) fn refuse_gathered(&mut self, refusal: Refusal) {
        let mut transactions = self.streams.log_mut().refuse_clients();
        transactions.extend(self.groups.refuse_clients());
        self.refuse_later(transactions, refusal);
        if !self.streams.log().is_voiding() {
            self.say_refused();
        }
    }

    /// Clients are told once it is certain that their message will not come back after all.
    fn refuse_later(&mut self, transactions: Vec<TransactionId>, refusal: Refusal) {
        for transaction in transactions {
            self.unstage(transaction);
            self.failures.refusing.push((transaction, refusal));
        }
    }

    pub(crate) fn say_refused(&mut self) {
        for (transaction, refusal) in std::mem::take(&mut self.failures.refusing) {
            self.say(Output::Refused { transaction, refusal });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock as _;

    #[test]
    fn each_pause_of_a_broken_disk_is_twice_the_last_up_to_the_longest() {
        let disk = world::sim::Disk::new(1);
        let (mut spool, _) =
            crate::open(&disk, crate::Settings::for_tests(), 1, &mut |_| {}).unwrap();
        let now = world::sim::Clock::starting(mail::Timestamp::from_micros(1)).now();
        let mut pauses = Vec::new();
        for _ in 0..FAILURES_MAX + 6 {
            spool.failing(DiskError::new("sync", "segment-00000000", Errno::IO), now);
            pauses.push(spool.failures.broken.as_ref().map_or(0, |broken| broken.pause.as_secs()));
        }
        assert_eq!(pauses[..2], [0, 0], "not before the third failure in a row");
        assert_eq!(pauses[2..], [RETRY_SECONDS_MIN, 2, 4, 8, 16, RETRY_SECONDS_MAX, 30]);
    }
}
