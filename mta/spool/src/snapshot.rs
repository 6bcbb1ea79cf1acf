//! Snapshots of the index and of the caller's state, written in slices to two files in turn.
//!
//! Must never complete a snapshot before everything that its slices say is durable in the log too.

mod slices;

use crate::format::snapshot::SnapshotHeader;
use crate::format::{BLOCK, aligned};
use crate::io::{File, IoDone, IoWork};
use crate::recover::Loaded;
use crate::retire::BackgroundJob;
use crate::{Alarm, Spool};
use mail::{Instant, Now};
use std::time::Duration;

/// Pause after a failed snapshot.
const RETRY_SECONDS: u64 = 30;

/// The complete snapshots and the one that is being made.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Generation of the newest that is complete.
    newest: u64,
    /// The newest covers the records before this one.
    newest_start: u64,
    /// Both snapshots cover the records before this one.
    covered: u64,
    /// Bytes of the newest.
    bytes: u64,
    /// Bytes of the log since the last snapshot was begun.
    log_bytes: u64,
    /// The files that have their blocks, so that a full disk does not prevent a snapshot.
    prepared: [bool; 2],
    /// Room is short: make a snapshot as soon as it helps.
    hurry: bool,
    retry_at: Option<Instant>,
    making: Option<Making>,
    completed: u64,
}

impl Snapshots {
    /// The snapshots that recovery found.
    pub(crate) fn of(loaded: &Loaded) -> Snapshots {
        Snapshots {
            newest: loaded.snapshot,
            newest_start: loaded.snapshot_start,
            covered: loaded.older_start,
            bytes: loaded.snapshot_bytes,
            log_bytes: loaded.tail_bytes,
            ..Snapshots::default()
        }
    }

    /// Generation of the newest that is complete.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The record up to which segments may be used again: both snapshots cover what is before it, or
    /// the newest alone does if `one_will_do`.
    pub(crate) fn covered(&self, one_will_do: bool) -> u64 {
        if one_will_do { self.newest_start } else { self.covered }
    }

    pub(crate) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// How many were completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// When the next attempt may begin after a failed one.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Makes a snapshot as soon as it helps.
    pub(crate) fn hurry(&mut self) {
        self.hurry = true;
    }

    /// Counts bytes that were written to the log.
    pub(crate) fn log_grew(&mut self, bytes: u32) {
        self.log_bytes += u64::from(bytes);
    }
}

/// A snapshot that is being made.
struct Making {
    header: SnapshotHeader,
    /// Ids up to this one are in the slices so far.
    after: u64,
    /// Ids above this one came later and are in the log.
    end: u64,
    /// The slice that was asked for holds every message whose record is durable up to this record. A
    /// message that becomes durable before the caller answers is not in it, whatever its id.
    position: u64,
    stage: Awaits,
    /// All records up to this one must be durable before the snapshot is complete,
    needs: u64,
    /// and all groups up to this ticket, some of which may be in no batch yet.
    needs_ticket: u64,
}

/// What a snapshot waits for.
enum Awaits {
    /// The file needs its blocks.
    Allocate,
    /// Its header must say that it is being written.
    Announce,
    /// The caller's state of the messages of a slice.
    ExpectBlobs,
    /// An encoded slice must be written; the last one is the table.
    Slice(Vec<u8>, bool),
    /// The written slices must be synced, once the log has caught up.
    Sync,
    /// The header must say that the snapshot is complete.
    Complete,
    /// A request is under way, which ends this step.
    Busy(Step),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Allocate,
    Announce,
    Slice,
    Table,
    Sync,
    Complete,
}

impl Spool {
    /// Makes a snapshot as soon as possible. Called before an orderly end, so that the next start is quick.
    pub fn snapshot_now(&mut self) {
        self.supply.look();
        self.snapshots.hurry();
    }

    /// The next request of the snapshot that is being made, or of a new one if it is due.
    pub(crate) fn snapshot_step(&mut self, now: Now) -> Option<IoWork> {
        if self.snapshots.making.is_none() {
            self.begin_snapshot(now)?;
        }
        let frontier = self.frontier();
        let caught_up = self.has_caught_up();
        let making = self.snapshots.making.as_mut()?;
        let file = File::Snapshot((making.header.generation % 2) as u8);
        let (step, work) = match std::mem::replace(&mut making.stage, Awaits::ExpectBlobs) {
            Awaits::Allocate => {
                let bytes = allocation(self.snapshots.bytes, self.settings.segment_bytes);
                (Step::Allocate, IoWork::Create { file, bytes, keep_free: 0 })
            }
            Awaits::Announce => (Step::Announce, header_work(file, &making.header)),
            Awaits::Slice(buffer, table) => {
                let offset = making.header.bytes;
                making.header.bytes += buffer.len() as u64;
                making.header.slices += 1;
                let step = if table { Step::Table } else { Step::Slice };
                (step, IoWork::Write { file, offset, buffer, sync: false })
            }
            Awaits::Sync if caught_up && frontier >= making.needs => {
                (Step::Sync, IoWork::Sync { file })
            }
            Awaits::Complete => {
                making.header.complete = true;
                (Step::Complete, header_work(file, &making.header))
            }
            other => {
                making.stage = other;
                return None;
            }
        };
        making.stage = Awaits::Busy(step);
        Some(work)
    }

    /// Makes the files once in each process, before they are needed.
    pub(crate) fn prepare_snapshot(&mut self, now: Now) -> Option<(BackgroundJob, IoWork)> {
        if self.snapshots.retry_at.is_some_and(|at| now.monotonic < at) {
            return None;
        }
        let which = self.snapshots.prepared.iter().position(|prepared| !prepared)? as u8;
        let bytes = allocation(self.snapshots.bytes, self.settings.segment_bytes);
        let file = File::Snapshot(which);
        Some((BackgroundJob::Prepare(which), IoWork::Create { file, bytes, keep_free: 0 }))
    }

    pub(crate) fn snapshot_prepared(
        &mut self,
        which: u8,
        result: Result<(), world::DiskError>,
        now: Now,
    ) {
        match result {
            Ok(()) => self.snapshots.prepared[usize::from(which)] = true,
            Err(error) => {
                self.snapshots.retry_at = Some(now.monotonic + Duration::from_secs(RETRY_SECONDS));
                self.alarm(Alarm::Background(error));
            }
        }
    }

    /// Whether all groups that the slices may know of are in batches.
    fn has_caught_up(&mut self) -> bool {
        let Some(making) = self.snapshots.making.as_mut() else { return false };
        let known = making.needs_ticket;
        if self.groups.has_ticket_up_to(known) {
            return false;
        }
        if known > 0 {
            making.needs = making.needs.max(self.ids.last_record());
            making.needs_ticket = 0;
        }
        true
    }

    /// Begins a snapshot if enough log was written since the last one, or if room is short and a snapshot
    /// would help.
    fn begin_snapshot(&mut self, now: Now) -> Option<()> {
        if self.snapshots.retry_at.is_some_and(|at| now.monotonic < at) {
            return None;
        }
        if !self.snapshots.prepared.iter().all(|prepared| *prepared) {
            return None;
        }
        self.snapshots.retry_at = None;
        let written = self.snapshots.log_bytes;
        let by_size = self.settings.snapshot_log_factor * self.snapshots.bytes;
        let enough = self.settings.snapshot_log_bytes.max(by_size);
        // A torn commit leaves records beyond the end of the log. No snapshot covers its segment before
        // new records are written, however many snapshots are made.
        let (covered, reach) = (self.snapshots.covered, self.frontier() + 1);
        let helps = self.segments.count(|s| s.is_dead(reach) && !s.is_covered(covered)) > 0;
        let hurry = self.snapshots.hurry && (helps || written > 0);
        if written < enough && !hurry {
            return None;
        }
        self.snapshots.hurry = self.supply.is_full();
        self.snapshots.log_bytes = 0;
        let header = SnapshotHeader {
            generation: self.snapshots.newest + 1,
            complete: false,
            start_record: self.frontier() + 1,
            start_commit: self.streams.log().start_commit(),
            slices: 0,
            bytes: BLOCK as u64,
            last_message: self.ids.last_message(),
            last_epoch: 0,
        };
        let (stage, end) = (Awaits::Allocate, self.ids.last_message());
        self.snapshots.making =
            Some(Making { header, after: 0, end, position: 0, stage, needs: 0, needs_ticket: 0 });
        Some(())
    }

    /// A request of the snapshot has ended.
    pub(crate) fn snapshot_stepped(&mut self, done: IoDone, now: Now) {
        let Some(making) = self.snapshots.making.as_mut() else { return };
        let Awaits::Busy(step) = making.stage else { return };
        if let Err(error) = done.result {
            // The other snapshot is unchanged; this one is begun again later.
            self.snapshots.making = None;
            self.snapshots.retry_at = Some(now.monotonic + Duration::from_secs(RETRY_SECONDS));
            return self.alarm(Alarm::Background(error));
        }
        match step {
            Step::Allocate => making.stage = Awaits::Announce,
            Step::Announce | Step::Slice => self.ask_slice(),
            Step::Table => making.stage = Awaits::Sync,
            Step::Sync => making.stage = Awaits::Complete,
            Step::Complete => self.snapshot_complete(),
        }
    }

    fn snapshot_complete(&mut self) {
        let Some(making) = self.snapshots.making.take() else { return };
        let snapshots = &mut self.snapshots;
        snapshots.covered = snapshots.newest_start;
        snapshots.newest_start = making.header.start_record;
        snapshots.newest = making.header.generation;
        snapshots.bytes = making.header.bytes;
        snapshots.completed += 1;
    }
}

/// Bytes to allocate for the next snapshot: somewhat more than the last one took.
fn allocation(last_bytes: u64, segment_bytes: u32) -> u64 {
    let least = u64::from(segment_bytes / 8);
    aligned((last_bytes * 5 / 4).max(least) as usize, BLOCK) as u64
}

fn header_work(file: File, header: &SnapshotHeader) -> IoWork {
    let mut buffer = header.encode().to_vec();
    buffer.resize(BLOCK, 0);
    IoWork::Write { file, offset: 0, buffer, sync: true }
}
