//! Segments for the streams: made and zeroed ahead, recycled when dead, removed when there are too
//! many, and emptied by copying forward when little in them is alive.
//!
//! Must never stand in the way of a commit: all of it runs in the background.

use crate::batch::{Batch, MessageItem};
use crate::commit::{Active, LogStream};
use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{BLOCK, SECTOR};
use crate::io::{Class, File, Io, IoDone, Work};
use crate::segments::{Segment, State};
use crate::zeros::Pace;
use crate::{Alarm, Refusal, Spool};
use mail::{Instant, Now};
use std::time::Duration;

pub(crate) use crate::forward::Mover;

/// Zeros that may wait to be synced, in bytes: a commit's sync has to wait for what the disk has been given before it, and
/// a whole segment of 64 MiB is 30 to 45 ms.
const ZEROS_UNSYNCED_MAX: u32 = 4 << 20;
/// How long a failed attempt to make a segment rests.
const RETRY_SECONDS: u64 = 2;

/// What is being done about segments.
#[derive(Default)]
pub(crate) struct Supply {
    /// Something has happened since the background last found nothing to do.
    pub look: bool,
    /// There was no room for the last one.
    pub full: bool,
    /// When the next attempt may be made.
    pub retry_at: Option<Instant>,
    pub activating: Option<(u64, SegmentKind, Active)>,
    pub background: Option<(u64, BackgroundJob)>,
    pub pace: Pace,
}

/// What the one background I/O is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundJob {
    Create(u32),
    Zero(u32),
    Grow(u32),
    Remove(u32),
    Prepare(u8),
    Snapshot,
    Move,
}

impl Spool {
    /// Whether so many bytes may still be taken from outside, with the reserve left untouched.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        // Of a batch under way the bytes are with the disk.
        let own = |batch: &Batch| batch.own_bytes.min(batch.buffer.len() as u64);
        let add = |(all, own_bytes), batch: &Batch| {
            (all + batch.buffer.len() as u64, own_bytes + own(batch))
        };
        let (gathered, own) = self.log.batches().fold((0, 0), add);
        let bulk: usize = self.bulk.batches().map(|batch| batch.buffer.len()).sum();
        if gathered + bulk as u64 - own > self.settings.staged_bytes_max {
            return false;
        }
        !self.supply.full || self.ready_bytes() >= self.settings.reserve_bytes + gathered + bytes
    }

    fn ready_bytes(&self) -> u64 {
        let left = |active: &Option<Active>| active.map_or(0, |a| u64::from(a.bytes - a.offset));
        let spare = |s: &Segment| s.state == State::Ready;
        let ready = self.segments.count(spare) as u64;
        let usable = u64::from(self.settings.segment_bytes) - BLOCK as u64;
        left(&self.log.active) + left(&self.log.next) + ready * usable
    }

    /// The next segment's header, written and synced before anything is written behind it.
    pub(crate) fn activate(&mut self, now: Now) -> Option<Io> {
        if self.supply.activating.is_some()
            || self.broken.as_ref().is_some_and(|broken| now.monotonic < broken.retry_at)
        {
            return None;
        }
        let kind = match (self.log.next.is_none(), wants_segment(&self.bulk)) {
            (true, _) => SegmentKind::Log,
            (false, true) if !self.supply.full => SegmentKind::Bulk,
            (false, true) => {
                self.refuse_bulk();
                return None;
            }
            (false, false) => return None,
        };
        let slot = self.segments.first(|segment| segment.state == State::Ready)?;
        let (active, header) = self.new_epoch(slot, kind);
        let id = self.next_io();
        self.supply.activating = Some((id, kind, active));
        self.usage.syncs += 1;
        let mut buffer = header.encode().to_vec();
        buffer.resize(BLOCK, 0);
        let work = Work::Write { file: File::Segment(slot), offset: 0, buffer, sync: true };
        Some(Io { id, class: Class::Commit, work })
    }

    /// Begins another use of a ready segment.
    pub(crate) fn new_epoch(&mut self, slot: u32, kind: SegmentKind) -> (Active, SegmentHeader) {
        self.last_epoch += 1;
        let epoch = self.last_epoch;
        let nonce = mixed(self.nonce_seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes = self.settings.segment_bytes;
        if let Some(segment) = self.segments.all.get_mut(&slot) {
            *segment = Segment { kind, epoch, nonce, ..Segment::new(State::Activating, bytes) };
        }
        let snapshot = self.snapshots.newest;
        let header = SegmentHeader { kind, slot, epoch, nonce, snapshot, bytes };
        (Active { slot, epoch, nonce, offset: BLOCK as u32, bytes }, header)
    }

    /// One thing to do while there is time.
    pub(crate) fn background(&mut self, now: Now) -> Option<Io> {
        let later = self.supply.retry_at.into_iter().chain(self.snapshots.retry_at);
        let later = later.chain(self.supply.pace.wakeup());
        let look = self.supply.look || later.min().is_some_and(|at| at <= now.monotonic);
        if self.supply.background.is_some() || !look {
            return None;
        }
        // Two snapshots should cover what goes; where nothing else helps, one will do.
        let stuck = self.supply.full && self.log.is_stuck();
        let snapshots = &self.snapshots;
        let covered = if stuck { snapshots.newest_start } else { snapshots.covered };
        let recycled = self.segments.recycle(covered, self.settings.segment_bytes);
        self.usage.recycled += recycled;
        if recycled > 0 && self.supply.full {
            self.room_again();
        }
        let (job, work) = (self.hurry())
            .or_else(|| self.prepare_snapshot(now))
            .or_else(|| self.zero(now))
            .or_else(|| self.snapshot_step(now).map(|work| (BackgroundJob::Snapshot, work)))
            .or_else(|| self.create(now))
            .or_else(|| self.remove())
            .or_else(|| self.forward_step().map(|work| (BackgroundJob::Move, work)))
            .or_else(|| {
                self.supply.look = false;
                None
            })?;
        let id = self.next_io();
        self.supply.background = Some((id, job));
        Some(Io { id, class: Class::Background, work })
    }

    /// A commit waits for a segment: do not zero it to the end.
    fn hurry(&mut self) -> Option<(BackgroundJob, Work)> {
        let waits = self.log.next.is_none() && self.supply.activating.is_none();
        let is_ready = |segment: &Segment| segment.state == State::Ready;
        if !waits || !self.log.is_stuck() || self.segments.first(is_ready).is_some() {
            return None;
        }
        let slot = self.segments.first(|s| matches!(s.state, State::Zeroing(_)))?;
        self.usage.zeroing_fallbacks += 1;
        let bytes = self.settings.segment_bytes.into();
        Some((BackgroundJob::Grow(slot), Work::Grow { file: File::Segment(slot), bytes }))
    }

    fn zero(&mut self, now: Now) -> Option<(BackgroundJob, Work)> {
        let slot = self.segments.first(|s| matches!(s.state, State::Zeroing(_)))?;
        let segment = self.segments.get(slot)?;
        let State::Zeroing(done) = segment.state else { return None };
        let bytes = self.settings.zero_slice_bytes.min(segment.bytes - done);
        let urgent = self.is_short_of_segments();
        if !self.supply.pace.may(bytes.into(), urgent, now) {
            return None;
        }
        let end = done + bytes;
        let sync = end == segment.bytes || end / ZEROS_UNSYNCED_MAX > done / ZEROS_UNSYNCED_MAX;
        self.usage.syncs += u64::from(sync);
        let work = Work::Zero { file: File::Segment(slot), offset: done.into(), bytes, sync };
        Some((BackgroundJob::Zero(slot), work))
    }

    /// The log has no segment after the one it writes, and has used up half of that; or large bodies have none.
    fn is_short_of_segments(&self) -> bool {
        let left = self.log.active.map_or(0, |active| active.bytes - active.offset);
        let log = self.log.next.is_none() && left < self.settings.segment_bytes / 2;
        let ready = self.segments.count(|segment| segment.state == State::Ready);
        ready == 0 && (log || wants_segment(&self.bulk) || self.supply.full)
    }

    fn create(&mut self, now: Now) -> Option<(BackgroundJob, Work)> {
        let ahead = |s: &Segment| matches!(s.state, State::Ready | State::Zeroing(_));
        let enough = self.segments.count(ahead) >= self.settings.spares;
        if enough || self.supply.retry_at.is_some_and(|at| now.monotonic < at) {
            return None;
        }
        self.supply.retry_at = None;
        let (slot, bytes) = (self.segments.free_slot(), self.settings.segment_bytes);
        self.segments.all.insert(slot, Segment::new(State::Creating, bytes));
        self.usage.syncs += 2;
        // Only outcomes are left to be written when it comes to this: they may take the last.
        let stuck = self.supply.full && self.log.is_stuck();
        let keep_free = if stuck { 0 } else { self.settings.keep_free_bytes };
        let file = File::Segment(slot);
        Some((BackgroundJob::Create(slot), Work::Create { file, bytes: bytes.into(), keep_free }))
    }

    /// Surplus, dead segments that failed, and dead ones of another size.
    fn remove(&mut self) -> Option<(BackgroundJob, Work)> {
        let covered = self.snapshots.covered;
        let ready = self.segments.count(|segment| segment.state == State::Ready);
        let surplus = ready > 2 * self.settings.spares + 2;
        let slot = match surplus {
            true => {
                let is_ready = |(_, s): &(&u32, &Segment)| s.state == State::Ready;
                self.segments.all.iter().rev().find(is_ready).map(|(slot, _)| *slot)
            }
            false => {
                let odd = self.settings.segment_bytes;
                let useless = |s: &Segment| s.state == State::Failed || s.bytes != odd;
                let settled = self.log.voids.is_empty() && self.log.failed.is_empty();
                // One that was never written has nothing that could come back.
                let gone = |s: &Segment| settled || s.epoch == 0;
                self.segments.first(|s| gone(s) && useless(s) && s.is_dead(covered))
            }
        }?;
        self.segments.set(slot, State::Removing);
        self.usage.syncs += 1;
        Some((BackgroundJob::Remove(slot), Work::Remove { file: File::Segment(slot) }))
    }

    /// The end of anything but a commit.
    pub(crate) fn finish_other(&mut self, done: IoDone, now: Now) {
        self.supply.look = true;
        if self.supply.activating.is_some_and(|(id, ..)| id == done.id) {
            self.activated(done, now);
        } else if let Some((_, job)) = self.supply.background.take_if(|(id, _)| *id == done.id) {
            self.finish_job(job, done, now);
        }
    }

    fn activated(&mut self, done: IoDone, now: Now) {
        let Some((_, kind, active)) = self.supply.activating.take() else { return };
        match done.result {
            Ok(_) => {
                self.segments.set(active.slot, State::Writing);
                self.stream(kind).next = Some(active);
                // With nothing to commit, no commit would prove that the disk works again.
                if self.failures > 0 && self.nothing_to_commit() {
                    self.works();
                }
            }
            Err(error) => {
                self.segments.fail(active.slot);
                self.failing(error, now);
            }
        }
    }

    fn finish_job(&mut self, job: BackgroundJob, done: IoDone, now: Now) {
        let result = done.result().map_err(world::DiskError::clone);
        match (job, result) {
            (BackgroundJob::Snapshot, _) => self.snapshot_stepped(done, now),
            (BackgroundJob::Prepare(which), result) => self.snapshot_prepared(which, result, now),
            (BackgroundJob::Move, _) => self.forward_stepped(done, now),
            (BackgroundJob::Create(slot), Ok(())) => self.segments.set(slot, State::Zeroing(0)),
            (BackgroundJob::Create(slot), Err(error)) => {
                self.segments.all.remove(&slot);
                self.no_segment(error, now);
            }
            (BackgroundJob::Zero(slot), Ok(())) => self.zeroed(slot),
            (BackgroundJob::Grow(slot), Ok(())) => {
                self.segments.set(slot, State::Ready);
                self.room_again();
            }
            (BackgroundJob::Zero(slot) | BackgroundJob::Grow(slot), Err(error)) => {
                self.segments.fail(slot);
                self.no_segment(error, now);
            }
            (BackgroundJob::Remove(slot), Ok(())) => {
                self.segments.all.remove(&slot);
            }
            (BackgroundJob::Remove(slot), Err(error)) => {
                self.segments.set(slot, State::Kept);
                self.alarm(Alarm::Background(error));
            }
        }
    }

    fn zeroed(&mut self, slot: u32) {
        let slice = self.settings.zero_slice_bytes;
        let Some(segment) = self.segments.all.get_mut(&slot) else { return };
        if let State::Zeroing(done) = segment.state {
            let done = done + slice.min(segment.bytes - done);
            let whole = done == segment.bytes;
            segment.state = if whole { State::Ready } else { State::Zeroing(done) };
            if whole {
                self.room_again();
            }
        }
    }

    /// Another segment cannot be had for now.
    fn no_segment(&mut self, error: world::DiskError, now: Now) {
        self.supply.retry_at = Some(now.monotonic + Duration::from_secs(RETRY_SECONDS));
        let refusal = if error.is_full() { Refusal::Full } else { Refusal::Broken };
        let ready = self.segments.count(|segment| segment.state == State::Ready);
        let stuck = self.log.next.is_none() && ready == 0 && self.log.is_stuck();
        match error.is_full() {
            true if !self.supply.full => self.alarm(Alarm::Full(error)),
            true => {}
            // What waits for the segment is as good as a commit that failed.
            false if stuck => self.failing(error, now),
            false => self.alarm(Alarm::Background(error)),
        }
        self.supply.full |= refusal == Refusal::Full;
        self.snapshots.hurry |= refusal == Refusal::Full;
        if stuck {
            self.refuse_gathered(refusal);
            // The record that voids what failed has no segment either: nobody waits for that.
            self.say_refused();
        }
    }

    fn room_again(&mut self) {
        if self.supply.full {
            self.supply.full = false;
            self.alarm(Alarm::Room);
        }
    }

    /// Large bodies do not get into the reserve.
    fn refuse_bulk(&mut self) {
        let mut batches = std::mem::take(&mut self.bulk.closed);
        let number = self.next_batch();
        let open = crate::batch::Batch::new(number, Vec::new());
        batches.push_back(std::mem::replace(&mut self.bulk.open, open));
        let mut lost = Vec::new();
        for batch in &batches {
            for item in &batch.items {
                if let crate::batch::BatchItem::Chunk { transaction, .. } = item {
                    lost.push(*transaction);
                }
            }
        }
        self.lose(&lost, Refusal::Full);
    }

    /// These bodies are incomplete for ever; who waits to be accepted is told so. None is our own:
    /// those never go to bulk.
    fn lose(&mut self, lost: &[mail::TransactionId], refusal: Refusal) {
        for transaction in lost {
            if let Some(staged) = self.staged.get_mut(transaction) {
                staged.lost = Some(refusal);
            }
        }
        let lost: std::collections::HashSet<_> = lost.iter().collect();
        let is_lost = |group: &crate::admit::Waiting| {
            group.messages.iter().any(|message| lost.contains(&message.transaction))
        };
        let waiting = std::mem::take(&mut self.waiting);
        let (gone, kept) = waiting.into_iter().partition(is_lost);
        self.waiting = kept;
        for group in gone {
            debug_assert!(group.client || group.moved, "a message of our own was in bulk");
            for message in group.messages {
                let transaction = message.transaction;
                self.unstage(transaction);
                if !group.moved {
                    self.outputs.push_back(crate::Output::Refused { transaction, refusal });
                }
            }
        }
    }

    /// A message has been copied forward, unless it ended meanwhile.
    pub(crate) fn moved(&mut self, item: MessageItem, slot: u32, offset: u32) {
        let transaction = item.transaction;
        if let Some(old) = self.index.get(item.message) {
            let extras = self.extras.remove(&item.message).map(Vec::from).unwrap_or_default();
            self.enter(item, slot, offset);
            self.release(old, &extras);
            self.usage.copied_forward += 1;
        }
        self.unstage(transaction);
    }
}

fn wants_segment(stream: &LogStream) -> bool {
    let gathered = !stream.open.is_empty() || !stream.closed.is_empty();
    let next = stream.closed.front().unwrap_or(&stream.open).buffer.len();
    let left = stream.active.map_or(0, |active| (active.bytes - active.offset) as usize);
    gathered && stream.next.is_none() && left < next + BLOCK
}

/// SplitMix64's last step: without the seed nobody can tell one nonce from another.
fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

const _: () = assert!(SECTOR < BLOCK);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn spool() -> Spool {
        let disk = world::sim::Disk::new(1);
        crate::open(&disk, Settings::for_tests(), 1, &mut |_| {}).unwrap().0
    }

    #[test]
    fn there_is_room_up_to_the_bound_of_what_is_staged_and_not_a_byte_beyond_it() {
        let mut spool = spool();
        spool.log.open.buffer.resize(5_000, 0);
        let gathered: usize = spool.log.batches().map(|batch| batch.buffer.len()).sum();
        let bulk: usize = spool.bulk.batches().map(|batch| batch.buffer.len()).sum();
        spool.settings.staged_bytes_max = (gathered + bulk) as u64;
        assert!(spool.has_room(1));
        spool.settings.staged_bytes_max -= 1;
        assert!(!spool.has_room(1));
    }

    #[test]
    fn a_log_without_a_next_segment_is_short_once_more_than_half_of_its_segment_is_used() {
        let mut spool = spool();
        let bytes = spool.settings.segment_bytes;
        let half = Active { slot: 0, epoch: 1, nonce: 1, offset: bytes / 2, bytes };
        spool.log.active = Some(half);
        assert!(!spool.is_short_of_segments());
        spool.log.active = Some(Active { offset: bytes / 2 + 1, ..half });
        assert!(spool.is_short_of_segments());
        spool.log.next = Some(half);
        assert!(!spool.is_short_of_segments());
    }

    #[test]
    fn a_segment_is_known_by_the_epoch_and_nonce_that_its_header_and_its_batches_have() {
        let mut spool = spool();
        spool.segments.all.insert(7, Segment::new(State::Ready, spool.settings.segment_bytes));
        let (active, header) = spool.new_epoch(7, SegmentKind::Log);
        let segment = &spool.segments.all[&7];
        assert_eq!((segment.epoch, segment.nonce), (active.epoch, active.nonce));
        assert_eq!((header.epoch, header.nonce), (active.epoch, active.nonce));
        assert_ne!(active.nonce, 0);
    }
}
