//! Recovery: restores the promised state from what the disk holds.
//!
//! Must never write, so that a second recovery finds what the first one found; what must be written
//! comes with the next commit. Must never let one damaged record cost another.

mod damage;
mod fold;
mod scan;
mod snapshot;
mod survey;

use crate::File;
use crate::index::Index;
use crate::segments::Segments;
use mail::{Change, Envelope, MessageId, TransactionId};
use world::{Disk, DiskError};

/// What the caller is told while a spool is opened, in the order in which it happened. The caller
/// hears nothing about messages that end in the log.
#[derive(Debug)]
pub enum Replay<'a> {
    /// A live message in the snapshot, with the state that the caller gave.
    Snapshot {
        /// Its queue id.
        message: MessageId,
        /// The state, as given to [`crate::Spool::snapshot_slice`].
        blob: &'a [u8],
        /// Length of its body.
        body_bytes: u64,
    },
    /// A message that came after the snapshot.
    Accepted {
        /// Its queue id.
        message: MessageId,
        /// The transaction that brought it.
        transaction: TransactionId,
        /// Sender and recipients.
        envelope: Envelope,
        /// Length of its body.
        body_bytes: u64,
    },
    /// A change of a message that the caller has heard of.
    Change(Change),
}

/// Why a spool cannot be opened. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The settings cannot work.
    #[error("settings: {0}")]
    Settings(&'static str),
    /// Another process has locked it.
    #[error("another process is using this spool")]
    Locked,
    /// The directory is empty, and the settings do not allow a new spool.
    #[error("there is no spool here, and none may be made: is a file system not mounted?")]
    Missing,
    /// There are files of a spool, but no marker that says which version.
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
    /// The name of the file.
    pub file: String,
    /// Offset in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: &'static str,
    /// The messages that are affected, as far as they are known.
    pub messages: Vec<MessageId>,
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether a new spool was made.
    pub created: bool,
    /// Number of live messages.
    pub messages: u64,
    /// Generation of the snapshot that was used; 0 for none.
    pub snapshot: u64,
    /// Number of records read from the log.
    pub replayed: u64,
    /// Commits that were under way when the power went out and are not whole. They were never promised;
    /// they are set aside without an alarm.
    pub torn: Vec<u64>,
    /// Promised data that is damaged: raises an alarm.
    pub damage: Vec<Damage>,
    /// Names in the directory that do not belong to a spool.
    pub strangers: Vec<String>,
    /// Number of segments in use.
    pub segments: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

/// Everything that recovery finds out.
#[derive(Default)]
pub(crate) struct Loaded {
    /// The size of segments in the settings.
    pub segment_bytes: u32,
    /// Bytes of the log that no snapshot covers. Segments count whole: each restart begins a new one,
    /// and many restarts in a row must not make each of them slower.
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
    /// The first record that the other snapshot does not cover, if it is complete too.
    pub older_start: u64,
    /// Commits that are not whole and must be voided.
    pub voids: Vec<u64>,
    pub report: OpenReport,
}

/// Reads the newest snapshot and the log behind it. With `settle`, those files are synced first, so
/// that what is read is on the medium; without it, nothing is done but reading.
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

/// Scans every log segment in use and reports damage, for the checker.
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
    damage::report_damage(&scanned, start, report);
    Ok(())
}
