//! Copying forward: the few live messages of an old segment are written again at the end of the
//! log, so that one message that waits for days does not keep a whole segment.
//!
//! Must never drop the old place before the new one is durable, nor copy a damaged message.

use crate::admit::{GroupOrigin, Ready, WaitingGroup};
use crate::batch::MessageItem;
use crate::format::BLOCK;
use crate::format::segment::SegmentKind;
use crate::io::{File, IoDone, IoWork};
use crate::read::{ReadPlan, StoredMessage};
use crate::segments::{Segment, State};
use crate::stage::StagedChunk;
use crate::{Alarm, Spool};
use bytes::Bytes;
use mail::{MessageId, Now, TransactionId};

/// Upper bound on the index entries that one step looks at.
const SCAN_MAX: usize = 4096;

/// The incarnation in the transaction of a copy. Receive processes draw theirs at random, and never this one.
const COPIES_INCARNATION: u64 = u64::MAX;

/// Which segment is being emptied, and how far.
#[derive(Default)]
pub(crate) struct Mover {
    /// The segment.
    victim: Option<u32>,
    /// The last message that was looked at.
    after: u64,
    /// The message that is being copied.
    job: Option<CopyJob>,
    last_number: u64,
    copied: u64,
}

impl Mover {
    /// How many messages have been copied.
    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }
}

struct CopyJob {
    plan: ReadPlan,
    stored: Option<StoredMessage>,
    transaction: TransactionId,
}

impl Spool {
    /// The next read, if something is worth copying.
    pub(crate) fn forward_step(&mut self) -> Option<IoWork> {
        if let Some(work) = self.next_chunk_read() {
            return Some(work);
        }
        if self.mover.victim.is_none() {
            self.mover.victim = Some(self.choose_victim()?);
            self.mover.after = 0;
        }
        let message = self.next_to_move()?;
        let plan = self.plan(message)?;
        if !plan.is_inside() {
            // Damaged: it stays where it is, and the next one is looked at the next time.
            self.unplan(plan);
            return None;
        }
        let work = plan.work();
        self.mover.last_number += 1;
        let transaction =
            TransactionId { incarnation: COPIES_INCARNATION, number: self.mover.last_number };
        self.mover.job = Some(CopyJob { plan, stored: None, transaction });
        Some(work)
    }

    /// Chooses an old segment that is covered by the snapshots and nearly empty.
    ///
    /// Each copy may take a block of its own. A segment with short messages is therefore no victim
    /// before they would fit into half a segment that way: otherwise a segment that holds nothing
    /// but copies would be a victim at once, and the copying would never end.
    fn choose_victim(&self) -> Option<u32> {
        if !self.has_room(u64::from(self.settings.segment_bytes) / 4) || self.failures.is_broken() {
            return None;
        }
        let (covered, divisor) =
            (self.snapshots.covered(false), self.settings.copy_forward_divisor);
        self.segments.first(|s: &Segment| {
            let blocks = u64::from(s.live) * BLOCK as u64;
            let little = s.live_bytes * u64::from(divisor) < u64::from(s.bytes)
                && blocks * 2 <= u64::from(s.bytes);
            s.state == State::Sealed && s.live > 0 && !s.stuck && little && s.is_covered(covered)
        })
    }

    /// The next message with anything in the victim. At the end of the index the victim is given up.
    fn next_to_move(&mut self) -> Option<MessageId> {
        let victim = self.mover.victim?;
        if !self.has_room(u64::from(self.settings.segment_bytes) / 4) {
            return None;
        }
        let mut last = None;
        for (message, place) in self.index.above(self.mover.after).take(SCAN_MAX) {
            last = Some(message);
            let has = self.index.extras(message).iter().any(|extra| extra.slot == victim);
            if place.slot == victim || has {
                self.mover.after = message.0;
                return Some(message);
            }
        }
        match last {
            Some(message) => self.mover.after = message.0,
            None => {
                self.mover.victim = None;
                if let Some(segment) = self.segments.all.get_mut(&victim) {
                    segment.stuck = true;
                }
            }
        }
        None
    }

    /// A read has come back.
    pub(crate) fn forward_stepped(&mut self, done: IoDone, now: Now) {
        let Some(mut job) = self.mover.job.take() else { return };
        let IoWork::Read { buffer, .. } = done.work else { return };
        let bytes = Bytes::from(buffer);
        let went = match (done.result, &job.stored) {
            (Err(error), _) => {
                self.alarm(Alarm::Background(error));
                false
            }
            (Ok(_), None) => self.take_record(&mut job, bytes),
            (Ok(_), Some(_)) => self.take_chunk(&job, bytes),
        };
        let lost = self.staging.body(job.transaction).and_then(|staged| staged.lost());
        if lost.is_some() {
            // There is no room for the copy now.
            self.unstage(job.transaction);
            return self.unplan(job.plan);
        }
        if !went {
            return self.give_up(job);
        }
        self.keep_chunks(&job);
        let copied = self.copied_chunks(&job);
        if job.stored.as_ref().is_some_and(|stored| copied == stored.chunks.len()) {
            self.write_moved(job, now);
        } else {
            self.mover.job = Some(job);
        }
    }

    /// How many chunks of the message are copied, or stay where they are.
    fn copied_chunks(&self, job: &CopyJob) -> usize {
        self.staging.body(job.transaction).map_or(0, |staged| staged.chunks().len())
    }

    fn take_record(&mut self, job: &mut CopyJob, bytes: Bytes) -> bool {
        let Ok(stored) = job.plan.parse(&bytes) else { return false };
        self.staging.begin_copy(job.transaction, stored.body_bytes, stored.body.clone());
        job.stored = Some(stored);
        true
    }

    fn take_chunk(&mut self, job: &CopyJob, bytes: Bytes) -> bool {
        let Some(stored) = &job.stored else { return false };
        let Some(chunk) = stored.chunks.get(self.copied_chunks(job)) else { return false };
        if chunk.verify(&bytes).is_err() {
            return false;
        }
        let large = stored.body_bytes > u64::from(self.settings.bulk_body_bytes_min);
        let kind = if large { SegmentKind::Bulk } else { SegmentKind::Log };
        self.push_chunk(job.transaction, kind, &[bytes]);
        true
    }

    /// Chunks in other segments than the victim stay where they are.
    fn keep_chunks(&mut self, job: &CopyJob) {
        let Some(stored) = &job.stored else { return };
        if self.staging.body(job.transaction).is_none() {
            return;
        }
        for chunk in stored.chunks.iter().skip(self.copied_chunks(job)) {
            if self.mover.victim == Some(chunk.slot) {
                break;
            }
            let place = (chunk.slot, chunk.epoch, chunk.offset);
            let kept = StagedChunk::kept(chunk.length, chunk.checksum, place);
            self.staging.keep_chunk(job.transaction, kept);
            self.segments.hold(chunk.slot);
        }
    }

    fn next_chunk_read(&mut self) -> Option<IoWork> {
        let job = self.mover.job.as_ref()?;
        let copied = self.staging.body(job.transaction)?.chunks().len();
        let chunk = job.stored.as_ref()?.chunks.get(copied)?;
        let buffer = vec![0; chunk.length as usize];
        Some(IoWork::Read { file: File::Segment(chunk.slot), offset: chunk.offset.into(), buffer })
    }

    fn write_moved(&mut self, job: CopyJob, now: Now) {
        let Some(stored) = job.stored else { return };
        let ready = Ready {
            message: stored.message,
            transaction: job.transaction,
            original: stored.transaction,
            prefix: stored.prefix.to_vec(),
            envelope: crate::admit::encoded(&stored.envelope),
        };
        let group = WaitingGroup::of_message(ready, GroupOrigin::Copy);
        self.unplan(job.plan);
        if self.admit(group, now).is_err() {
            self.unstage(job.transaction);
        }
    }

    /// A copy is durable. The message has a new place, unless it ended meanwhile.
    pub(crate) fn moved(&mut self, item: MessageItem, slot: u32, offset: u32) {
        let transaction = item.transaction;
        if self.index.get(item.message).is_some() {
            if let Some((old, extras)) = self.enter(item, slot, offset) {
                self.release(old, &extras);
            }
            self.mover.copied += 1;
        }
        self.unstage(transaction);
    }

    fn give_up(&mut self, job: CopyJob) {
        self.unstage(job.transaction);
        let message = job.plan.message;
        self.unplan(job.plan);
        if self.contains(message) {
            self.alarm(Alarm::Damaged { message, what: "cannot be copied forward" });
        }
    }
}
