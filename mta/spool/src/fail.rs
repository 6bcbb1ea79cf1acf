//! What happens when a commit fails: its segment is never written again, its clients are told to
//! try later, and what else it held is written elsewhere, after a record that voids it.
//!
//! Must never sync again what a failed sync was for, nor try without end or pause.

use crate::batch::Batch;
use crate::commit::CommitInFlight;
use crate::format::batch::{RecordKind, encode_void};
use crate::format::segment::SegmentKind;
use crate::{Alarm, Output, Refusal, Spool};
use mail::{Instant, Now, TransactionId};
use std::time::Duration;
use world::{DiskError, Errno};

/// Failures in a row after which nothing is accepted for a while.
const FAILURES_MAX: u32 = 3;
/// The pauses between attempts then: this, doubled each time,
const RETRY_SECONDS_MIN: u64 = 1;
/// up to this.
const RETRY_SECONDS_MAX: u64 = 30;

/// The disk fails again and again.
pub(crate) struct Broken {
    pub retry_at: Instant,
    pause: Duration,
}

impl Spool {
    /// Whether the last commit that ended has failed, or the last attempt to begin a segment, and
    /// nothing has succeeded since. What is told to the spool meanwhile may not become durable.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether the last failure said that the spool's files are deleted: nothing of what is queued will
    /// be found there again.
    pub fn is_deleted(&self) -> bool {
        self.failures > 0 && self.deleted
    }

    /// Since when the disk has been at the oldest commit of the log that is under way.
    pub fn committing_since(&self) -> Option<Instant> {
        self.log.flights.iter().map(|flight| flight.began).min()
    }

    /// A flight came back with an error, or in vain.
    pub(crate) fn commit_failed(
        &mut self,
        flight: CommitInFlight,
        kind: SegmentKind,
        error: Option<DiskError>,
        now: Now,
    ) {
        self.usage.commits_failed += 1;
        let slot = flight.slot;
        self.segments.fail(slot);
        let stream = self.stream(kind);
        stream.active.take_if(|active| active.slot == slot);
        stream.flights.iter_mut().filter(|f| f.slot == slot).for_each(|f| f.doomed = true);
        stream.failed.push((flight.commit, flight.batch));
        if let Some(error) = error {
            self.failing(error, now);
        }
        if !self.stream(kind).flights.iter().any(|flight| flight.doomed) {
            self.write_elsewhere(kind);
        }
    }

    /// Counts a failure; too many in a row and the spool refuses until one attempt succeeds.
    pub(crate) fn failing(&mut self, error: DiskError, now: Now) {
        self.failures += 1;
        self.deleted = error.errno == Errno::MISSING;
        self.last_refusal = if error.is_full() { Refusal::Full } else { Refusal::Broken };
        if self.failures < FAILURES_MAX {
            self.alarm(Alarm::CommitFailed(error));
            return;
        }
        let (min, max) = (RETRY_SECONDS_MIN, RETRY_SECONDS_MAX);
        let pause = match &self.broken {
            Some(broken) => (broken.pause * 2).min(Duration::from_secs(max)),
            None => Duration::from_secs(min),
        };
        if self.broken.is_none() {
            self.alarm(Alarm::Broken(error));
        }
        self.broken = Some(Broken { retry_at: now.monotonic + pause, pause });
        self.refuse_gathered(self.last_refusal);
        self.say_refused();
    }

    /// All failed batches of a stream are here: back to the front of the queue, without their
    /// clients, behind a batch that voids them.
    fn write_elsewhere(&mut self, kind: SegmentKind) {
        let refusal = self.last_refusal;
        let stream = self.stream(kind);
        let mut failed = std::mem::take(&mut stream.failed);
        failed.sort_by_key(|(commit, _)| *commit);
        let old_void = stream.void_batch.take();
        let mut refused = Vec::new();
        for (commit, mut batch) in failed.into_iter().rev() {
            if kind == SegmentKind::Log {
                stream.voids.push(commit);
            }
            if old_void == Some(batch.number) {
                continue;
            }
            batch.urgent = true;
            refused.extend(batch.refuse_clients());
            stream.closed.push_front(batch);
        }
        let refused = refused.into_iter().map(|item| item.transaction).collect();
        self.refuse_later(refused, refusal);
        if kind == SegmentKind::Log {
            self.push_void();
        }
        if self.broken.is_some() {
            self.say_refused();
        }
    }

    /// Queues the batch that voids; it goes first and alone.
    pub(crate) fn push_void(&mut self) {
        let number = self.next_batch();
        let sequence = self.next_sequence();
        let stream = self.stream(SegmentKind::Log);
        let mut batch = Batch::new(number, stream.buffers.pop().unwrap_or_default());
        stream.voids.sort_unstable();
        batch.push(RecordKind::Void, sequence, &[&encode_void(&stream.voids)]);
        batch.urgent = true;
        stream.void_batch = Some(number);
        stream.closed.push_front(batch);
    }

    /// A commit came back well, or a segment's header where nothing waits to be committed.
    pub(crate) fn works(&mut self) {
        self.failures = 0;
        if self.broken.take().is_some() {
            self.alarm(Alarm::Healthy);
        }
    }

    /// A commit came back well.
    pub(crate) fn commit_succeeded(&mut self, kind: SegmentKind, number: u64) {
        self.works();
        let stream = self.stream(kind);
        if stream.void_batch == Some(number) {
            stream.void_batch = None;
            stream.voids.clear();
            self.say_refused();
        }
    }

    /// Takes the clients' messages out of what is gathered and was never written, and out of what
    /// waits.
    pub(crate) fn refuse_gathered(&mut self, refusal: Refusal) {
        let stream = &mut self.log;
        let batches = stream.closed.iter_mut().chain(std::iter::once(&mut stream.open));
        let refused: Vec<_> = batches.flat_map(Batch::refuse_clients).collect();
        let mut transactions: Vec<_> = refused.iter().map(|item| item.transaction).collect();
        self.waiting.retain(|waiting| {
            if waiting.client {
                transactions.extend(waiting.messages.iter().map(|message| message.transaction));
            }
            !waiting.client
        });
        self.refuse_later(transactions, refusal);
        if self.log.void_batch.is_none() {
            self.say_refused();
        }
    }

    /// Clients are told once it is certain that their message will not come back after all.
    fn refuse_later(&mut self, transactions: Vec<TransactionId>, refusal: Refusal) {
        for transaction in transactions {
            self.unstage(transaction);
            self.refusing.push((transaction, refusal));
        }
    }

    pub(crate) fn say_refused(&mut self) {
        for (transaction, refusal) in std::mem::take(&mut self.refusing) {
            self.outputs.push_back(Output::Refused { transaction, refusal });
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
        let now = world::sim::Clock::starting(mail::Wall::from_micros(1)).now();
        let mut pauses = Vec::new();
        for _ in 0..FAILURES_MAX + 6 {
            spool.failing(DiskError::new("sync", "segment-00000000", Errno::IO), now);
            pauses.push(spool.broken.as_ref().map_or(0, |broken| broken.pause.as_secs()));
        }
        assert_eq!(pauses[..2], [0, 0], "not before the third failure in a row");
        assert_eq!(pauses[2..], [RETRY_SECONDS_MIN, 2, 4, 8, 16, RETRY_SECONDS_MAX, 30]);
    }
}
