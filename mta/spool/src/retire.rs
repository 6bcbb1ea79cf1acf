//! The supply of segments: made and zeroed ahead, recycled when dead, and removed when there are too
//! many.
//!
//! Must never stand in the way of a commit: all of it runs in the background.

mod room;

use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{BLOCK, SECTOR};
use crate::io::{Class, File, Io, IoDone, IoWork};
use crate::log_stream::Active;
use crate::segments::{Segment, State};
use crate::zeros::Pace;
use crate::{Alarm, Spool};
use mail::{Instant, Now};
use world::DiskError;

/// Upper bound on the zeros that wait to be synced, in bytes: a commit's sync has to wait for what the disk has been given
/// before it, and a whole segment of 64 MiB is 30 to 45 ms.
const ZEROS_UNSYNCED_MAX: u32 = 4 << 20;

/// What is being done about segments.
#[derive(Default)]
pub(crate) struct Supply {
    /// Something has happened since the background last found nothing to do.
    look: bool,
    /// There was no room for the last segment.
    full: bool,
    /// When the next attempt to make a segment may begin.
    retry_at: Option<Instant>,
    /// The segment whose header is being written, and the request that does it.
    activating: Option<(u64, SegmentKind, Active)>,
    /// The one background request.
    background: Option<(u64, BackgroundJob)>,
    pace: Pace,
    recycled: u64,
    /// Segments used before they were zeroed.
    zeroing_fallbacks: u64,
}

impl Supply {
    pub(crate) fn new() -> Supply {
        Supply { look: true, ..Supply::default() }
    }

    /// Has the background look for work at the next poll.
    pub(crate) fn look(&mut self) {
        self.look = true;
    }

    /// Whether there is no room for another segment.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// A commit of this many bytes has ended. Zeros may have waited for that.
    pub(crate) fn committed(&mut self, bytes: u64, now: Now) {
        self.look |= self.pace.committed(bytes, now);
    }

    /// The times at which to look for work although nothing happened.
    pub(crate) fn wakeups(&self) -> impl Iterator<Item = Instant> + use<> {
        self.retry_at.into_iter().chain(self.pace.wakeup())
    }

    /// Segments that were recycled, and those used before they were zeroed.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.recycled, self.zeroing_fallbacks)
    }
}

/// What the one background request is for.
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
    /// Writes and syncs the header of the next segment before anything is written behind it.
    pub(crate) fn activate(&mut self, now: Now) -> Option<Io> {
        if self.supply.activating.is_some() || self.failures.is_resting(now) {
            return None;
        }
        let kind = match (self.streams.log().has_next(), self.streams.bulk().wants_segment()) {
            (false, _) => SegmentKind::Log,
            (true, true) if !self.supply.full => SegmentKind::Bulk,
            (true, true) => {
                self.refuse_bulk();
                return None;
            }
            (true, false) => return None,
        };
        let slot = self.segments.first(|segment| segment.state == State::Ready)?;
        let (active, header) = self.new_epoch(slot, kind);
        let id = self.ids.next_io();
        self.supply.activating = Some((id, kind, active));
        let mut buffer = header.encode().to_vec();
        buffer.resize(BLOCK, 0);
        let work = IoWork::Write { file: File::Segment(slot), offset: 0, buffer, sync: true };
        Some(Io { id, class: Class::Commit, work })
    }

    /// Begins another use of a ready segment.
    fn new_epoch(&mut self, slot: u32, kind: SegmentKind) -> (Active, SegmentHeader) {
        let (epoch, nonce) = self.ids.next_epoch();
        let bytes = self.settings.segment_bytes;
        if let Some(segment) = self.segments.all.get_mut(&slot) {
            *segment = Segment { kind, epoch, nonce, ..Segment::new(State::Activating, bytes) };
        }
        let snapshot = self.snapshots.newest();
        let header = SegmentHeader { kind, slot, epoch, nonce, snapshot, bytes };
        (Active { slot, epoch, nonce, offset: BLOCK as u32, bytes }, header)
    }

    /// Returns one thing to do while there is time.
    pub(crate) fn background(&mut self, now: Now) -> Option<Io> {
        let wakeup = self.supply.wakeups().chain(self.snapshots.retry_at()).min();
        let look = self.supply.look || wakeup.is_some_and(|at| at <= now.monotonic);
        if self.supply.background.is_some() || !look {
            return None;
        }
        // Two snapshots should cover a segment that is used again. If nothing else helps, one will do.
        let stuck = self.supply.full && self.streams.log().is_stuck();
        let covered = self.snapshots.covered(stuck);
        let recycled = self.segments.recycle(covered, self.settings.segment_bytes);
        self.supply.recycled += recycled;
        if recycled > 0 {
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
        let id = self.ids.next_io();
        self.supply.background = Some((id, job));
        Some(Io { id, class: Class::Background, work })
    }

    /// A commit waits for a segment: uses the one that is being zeroed as it is.
    fn hurry(&mut self) -> Option<(BackgroundJob, IoWork)> {
        let log = self.streams.log();
        let waits = !log.has_next() && self.supply.activating.is_none() && log.is_stuck();
        if !waits || self.segments.first(|segment| segment.state == State::Ready).is_some() {
            return None;
        }
        let slot = self.segments.first(|s| matches!(s.state, State::Zeroing(_)))?;
        self.supply.zeroing_fallbacks += 1;
        let bytes = self.settings.segment_bytes.into();
        Some((BackgroundJob::Grow(slot), IoWork::Grow { file: File::Segment(slot), bytes }))
    }

    fn zero(&mut self, now: Now) -> Option<(BackgroundJob, IoWork)> {
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
        let work = IoWork::Zero { file: File::Segment(slot), offset: done.into(), bytes, sync };
        Some((BackgroundJob::Zero(slot), work))
    }

    /// Whether no segment is ready, and the log has none after the active one, of which half is used
    /// up, or large bodies have none.
    fn is_short_of_segments(&self) -> bool {
        let (log, bulk) = (self.streams.log(), self.streams.bulk());
        let short = !log.has_next() && log.active_room() < self.settings.segment_bytes / 2;
        let ready = self.segments.count(|segment| segment.state == State::Ready);
        ready == 0 && (short || bulk.wants_segment() || self.supply.full)
    }

    fn create(&mut self, now: Now) -> Option<(BackgroundJob, IoWork)> {
        let ahead = |s: &Segment| matches!(s.state, State::Ready | State::Zeroing(_));
        let enough = self.segments.count(ahead) >= self.settings.spares;
        if enough || self.supply.retry_at.is_some_and(|at| now.monotonic < at) {
            return None;
        }
        self.supply.retry_at = None;
        let (slot, bytes) = (self.segments.free_slot(), self.settings.segment_bytes);
        self.segments.all.insert(slot, Segment::new(State::Creating, bytes));
        // If the log is stuck on a full disk, only outcomes are left to write: they may take the last
        // blocks.
        let stuck = self.supply.full && self.streams.log().is_stuck();
        let keep_free = if stuck { 0 } else { self.settings.keep_free_bytes };
        let file = File::Segment(slot);
        Some((BackgroundJob::Create(slot), IoWork::Create { file, bytes: bytes.into(), keep_free }))
    }

    /// Removes surplus segments, dead segments that failed, and dead segments of another size.
    fn remove(&mut self) -> Option<(BackgroundJob, IoWork)> {
        let covered = self.snapshots.covered(false);
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
                let settled = self.streams.log().has_nothing_to_void();
                // A segment that was never written has nothing that could come back.
                let gone = |s: &Segment| settled || s.epoch == 0;
                self.segments.first(|s| gone(s) && useless(s) && s.is_dead(covered))
            }
        }?;
        self.segments.set(slot, State::Removing);
        Some((BackgroundJob::Remove(slot), IoWork::Remove { file: File::Segment(slot) }))
    }

    /// A request that is no commit has ended.
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
                self.streams.of(kind).set_next(active);
                // With nothing to commit, no commit would prove that the disk works again.
                if self.failures.is_failing() && self.streams.are_idle() {
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
        let result = done.result().map_err(DiskError::clone);
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
    fn a_log_without_a_next_segment_is_short_once_more_than_half_of_its_segment_is_used() {
        let mut spool = spool();
        let bytes = spool.settings.segment_bytes;
        let half = Active { slot: 0, epoch: 1, nonce: 1, offset: bytes / 2, bytes };
        spool.streams.log_mut().set_active(half);
        assert!(!spool.is_short_of_segments());
        spool.streams.log_mut().set_active(Active { offset: bytes / 2 + 1, ..half });
        assert!(spool.is_short_of_segments());
        spool.streams.log_mut().set_next(half);
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
