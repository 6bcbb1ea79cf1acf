//! Verifies a whole spool directory: reads every record and every live body.
//!
//! Must never write, lock or repair. On a directory that a running spool writes, it may report damage
//! that does not exist; check a copy instead.

use crate::format::MARKER;
use crate::open::read_marker;
use crate::read::{ReadError, ReadPlan, read_chunk, read_message};
use crate::recover::{self, Loaded};
use crate::{File, OpenError, OpenReport, Replay};
use mail::MessageId;
use std::collections::BTreeSet;
use world::Disk;

pub use crate::recover::Damage;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What an opening would report, with damage in old segments as well.
    pub opening: OpenReport,
    /// Number of live messages whose envelope and body are whole.
    pub whole: u64,
    /// The other live messages, each with the reason.
    pub damaged: Vec<(MessageId, String)>,
    /// Bytes of verified bodies.
    pub body_bytes: u64,
}

impl CheckReport {
    /// Whether no promised data is damaged.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.opening.damage.is_empty()
    }
}

/// Checks everything. `segment_bytes` is the size of segments in the settings.
pub fn check(disk: &dyn Disk, segment_bytes: u32) -> Result<CheckReport, OpenError> {
    let entries = disk.list()?;
    let marker = entries.iter().find(|entry| entry.name == MARKER);
    let text = marker.and_then(|entry| read_marker(disk, entry.bytes));
    match text.and_then(|text| crate::format::marker_version(&text)) {
        Some(version) if version > crate::format::VERSION => return Err(OpenError::Newer(version)),
        Some(_) => {}
        None if entries.iter().any(|entry| File::parse(&entry.name).is_some()) => {
            return Err(OpenError::NoMarker);
        }
        None => return Err(OpenError::Missing),
    }
    let loaded = recover::load(disk, segment_bytes, false, &mut |_: Replay<'_>| {})?;
    let mut report = CheckReport { opening: loaded.report.clone(), ..CheckReport::default() };
    let mut everything = OpenReport::default();
    recover::scan_everything(disk, segment_bytes, &mut everything)?;
    let place = |damage: &Damage| (damage.file.clone(), damage.offset);
    let mut known: BTreeSet<_> = report.opening.damage.iter().map(place).collect();
    let new = everything.damage.into_iter().filter(|damage| known.insert(place(damage)));
    report.opening.damage.extend(new);
    report.opening.bytes_read += everything.bytes_read;
    let ids: Vec<_> = loaded.index.above(0).map(|(message, _)| message).collect();
    for message in ids {
        match verify(disk, &loaded, message) {
            Ok(bytes) => {
                report.whole += 1;
                report.body_bytes += bytes;
            }
            Err(error) => report.damaged.push((message, error.to_string())),
        }
    }
    Ok(report)
}

fn verify(disk: &dyn Disk, loaded: &Loaded, message: MessageId) -> Result<u64, ReadError> {
    let Some(place) = loaded.index.get(message) else { return Ok(0) };
    let segment = loaded.segments.get(place.slot);
    let (epoch, segment_bytes) = segment.map_or((0, 0), |segment| (segment.epoch, segment.bytes));
    let plan = ReadPlan { message, place, epoch, segment_bytes, held: Vec::new() };
    let stored = read_message(disk, &plan)?;
    for chunk in &stored.chunks {
        read_chunk(disk, chunk)?;
    }
    Ok(stored.body_bytes)
}
