//! Recovery: from whatever the disk holds to the state that was promised.
//!
//! Must never write, so that twice equals once; what has to be written comes with the next
//! commit. Must never let one damaged record cost another.

mod fold;
mod scan;
mod snapshot;
mod survey;

use crate::File;
use crate::index::Index;
use crate::segments::Segments;
use mail::{Change, Envelope, MessageId, TransactionId};
use world::{Disk, DiskError};

/// What the caller is told at the start, in the order in which it happened. Of a message that ends in the log the caller
/// is told nothing.
#[derive(Debug)]
pub enum Replay<'a> {
    /// A live message as the snapshot has it, with the caller's state of then.
    Snapshot {
        /// Its queue id.
        message: MessageId,
        /// What the caller gave to `snapshot_slice`.
        blob: &'a [u8],
        /// Length of its body.
        body_bytes: u64,
    },
    /// A message that came after the snapshot.
    Accepted {
        /// Its queue id.
        message: MessageId,
        /// What brought it.
        transaction: TransactionId,
        /// Who to whom.
        envelope: Envelope,
        /// Length of its body.
        body_bytes: u64,
    },
    /// A change of a message that was told before.
    Change(Change),
}

/// Why a spool cannot be opened. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The settings cannot work.
    #[error("settings: {0}")]
    Settings(&'static str),
    /// Another process has it.
    #[error("another process is using this spool")]
    Locked,
    /// The directory is empty, and the settings do not allow to make a spool.
    #[error("there is no spool here, and none may be made: is a file system not mounted?")]
    Missing,
    /// Files of a spool, but no marker that says which version.
    #[error("the spool's file `format` is missing or damaged")]
    NoMarker,
    /// Written by a newer version.
    #[error("the spool has format {0}, which is newer than this program")]
    Newer(u32),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Something that was durable and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: &'static str,
    /// Messages that it concerns, as far as can be told.
    pub messages: Vec<MessageId>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// A new spool was made.
    pub created: bool,
    /// Live messages.
    pub messages: u64,
    /// Generation of the snapshot that was used; 0 for none.
    pub snapshot: u64,
    /// Records read from the log.
    pub replayed: u64,
    /// Commits that were under way when the power went, and are not whole: never promised, set
    /// aside, no alarm.
    pub torn: Vec<u64>,
    /// What was promised and is damaged: an alarm.
    pub damage: Vec<Damage>,
    /// Names in the directory that are none of ours.
    pub strangers: Vec<String>,
    /// Segments in use.
    pub segments: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

/// Everything that recovery finds out.
#[derive(Default)]
pub(crate) struct Loaded {
    /// As the settings have it.
    pub segment_bytes: u32,
    /// What had to be read of the log because no snapshot covers it: segments count whole, since
    /// each restart begins a new one, and many restarts in a row must not make each slower.
    pub tail_bytes: u64,
    pub segments: Segments,
    pub index: Index,
    pub recent: Vec<(TransactionId, MessageId)>,
    pub last_message: u64,
    pub last_record: u64,
    pub last_commit: u64,
    pub last_epoch: u64,
    pub snapshot: u64,
    pub snapshot_start: u64,
    pub snapshot_bytes: u64,
    /// The other snapshot, if it is complete too, starts here.
    pub older_start: u64,
    /// Commits that are not whole, to be voided.
    pub voids: Vec<u64>,
    pub report: OpenReport,
}

/// Reads everything. With `settle`, snapshots and tail segments are synced first, so that what is
/// read is what is on the medium; without, nothing but reads is done.
pub(crate) fn load(
    disk: &dyn Disk,
    segment_bytes: u32,
    settle: bool,
    replay: &mut dyn FnMut(Replay<'_>),
) -> Result<Loaded, OpenError> {
    let mut survey = survey::survey(disk, segment_bytes)?;
    let mut loaded = Loaded { segment_bytes, ..Loaded::default() };
    loaded.report.strangers = std::mem::take(&mut survey.strangers);
    loaded.report.damage = std::mem::take(&mut survey.damage);
    if settle {
        for which in (0..2).filter(|which| survey.snapshots[usize::from(*which)].is_some()) {
            scan::settled(disk, &File::Snapshot(which).to_string(), &mut loaded.report);
        }
    }
    let chosen = snapshot::choose(disk, &survey, &mut loaded.report)?;
    let tail = survey.tail(chosen.as_ref());
    let before = loaded.report.bytes_read;
    let scanned = scan::scan_all(disk, &survey, &tail, settle, &mut loaded.report);
    loaded.tail_bytes = loaded.report.bytes_read - before;
    fold::fold(disk, loaded, &survey, chosen, scanned, replay)
}

/// Scans every log segment in use and reports what is damaged there, for the checker.
pub(crate) fn scan_everything(
    disk: &dyn Disk,
    segment_bytes: u32,
    report: &mut OpenReport,
) -> Result<(), OpenError> {
    let survey = survey::survey(disk, segment_bytes)?;
    let chosen = snapshot::choose(disk, &survey, &mut OpenReport::default())?;
    let all = survey.in_use(chosen.as_ref());
    let scanned = scan::scan_all(disk, &survey, &all, false, report);
    let start = chosen.as_ref().map_or(1, |chosen| chosen.header.start_commit);
    fold::report_damage(&scanned, start, report);
    Ok(())
}
