//! Chooses the newest snapshot that is whole and reads it slice by slice, because a snapshot of ten
//! million messages takes a gigabyte.
//!
//! Must never mix two snapshots, nor use one with a bad slice.

use super::survey::Survey;
use super::{Damage, OpenError, OpenReport};
use crate::File;
use crate::format::BLOCK;
use crate::format::snapshot::{
    SLICE_HEADER, SliceHeader, SnapshotFound, SnapshotHeader, Table, TableSegment,
};
use std::collections::BTreeMap;
use world::{Disk, DiskError, Errno};

/// A snapshot that was read once and is whole.
pub(super) struct Chosen {
    pub header: SnapshotHeader,
    pub table: Table,
    /// Bytes of the file that belong to the snapshot.
    pub bytes: u64,
    /// The name of its file.
    name: String,
    /// Offsets and lengths of the slices of messages.
    slices: Vec<(u64, usize)>,
    /// The first record that the other snapshot does not cover; 0 if that snapshot is not complete.
    pub older_start: u64,
    by_slot: BTreeMap<u32, TableSegment>,
}

impl Chosen {
    /// Reads the slices of messages again, one at a time. All were whole when the snapshot was chosen,
    /// so a slice that is not whole now is an error of the disk.
    pub(super) fn each_slice(
        &self,
        disk: &dyn Disk,
        mut then: impl FnMut(SliceHeader, &[u8]),
    ) -> Result<(), DiskError> {
        let mut bytes = Vec::new();
        for (at, length) in &self.slices {
            bytes.resize(*length, 0);
            disk.read_at(&self.name, *at, &mut bytes)?;
            let changed = || DiskError::new("read_at", &self.name, Errno::IO);
            let (slice, payload) = SliceHeader::decode(&bytes).ok_or_else(changed)?;
            then(slice, payload);
        }
        Ok(())
    }

    pub(super) fn listed(&self, slot: u32) -> Option<&TableSegment> {
        self.by_slot.get(&slot)
    }

    pub(super) fn listed_in_tail(&self, slot: u32) -> bool {
        self.listed(slot).is_some_and(|listed| listed.last_record >= self.header.start_record)
    }
}

pub(super) fn choose(
    disk: &dyn Disk,
    survey: &Survey,
    report: &mut OpenReport,
) -> Result<Option<Chosen>, OpenError> {
    let mut headers = Vec::new();
    for which in 0..2u8 {
        if let Some(length) = survey.snapshots[usize::from(which)] {
            match head(disk, which, length)? {
                SnapshotFound::Header(header) if header.complete => headers.push((which, header)),
                SnapshotFound::Header(_) | SnapshotFound::Never => {}
                SnapshotFound::Newer(version) => return Err(OpenError::Newer(version)),
                SnapshotFound::Damaged => {
                    note(report, which, "the snapshot's header is damaged");
                }
            }
        }
    }
    headers.sort_by_key(|(_, header)| std::cmp::Reverse(header.generation));
    let mut chosen = None;
    for (at, (which, header)) in headers.iter().enumerate() {
        match read(disk, *which, *header, report) {
            Some(mut found) => {
                found.older_start = headers.get(at + 1).map_or(0, |(_, h)| h.start_record);
                chosen = Some(found);
                break;
            }
            None => note(report, *which, "the snapshot has a damaged slice"),
        }
    }
    let used = chosen.as_ref().map_or(0, |found| found.header.generation);
    let headers = survey.segments.values().filter_map(|found| found.header);
    if headers.map(|header| header.snapshot).max().unwrap_or(0) > used {
        note(report, (used % 2) as u8 ^ 1, "the newest snapshot is missing");
    }
    report.snapshot = used;
    Ok(chosen)
}

fn head(disk: &dyn Disk, which: u8, length: u64) -> Result<SnapshotFound, OpenError> {
    let mut bytes = vec![0; BLOCK.min(length as usize)];
    match disk.read_at(&File::Snapshot(which).to_string(), 0, &mut bytes) {
        Ok(()) => Ok(SnapshotHeader::decode(&bytes)),
        Err(_) => Ok(SnapshotFound::Damaged),
    }
}

fn read(
    disk: &dyn Disk,
    which: u8,
    header: SnapshotHeader,
    report: &mut OpenReport,
) -> Option<Chosen> {
    let name = File::Snapshot(which).to_string();
    let length = disk.list().ok()?.into_iter().find(|entry| entry.name == name)?.bytes;
    let size = header.bytes.min(length);
    report.bytes_read += size;
    let (mut at, mut slices, mut table) = (BLOCK as u64, Vec::new(), None);
    let mut bytes = Vec::new();
    for number in 0..header.slices {
        read_slice(disk, &name, at..size, &mut bytes)?;
        let (slice, payload) = SliceHeader::decode(&bytes)?;
        if slice.generation != header.generation || slice.number != number {
            return None;
        }
        match slice.table {
            true => table = Some(Table::decode(payload)?),
            false => slices.push((at, bytes.len())),
        }
        at += slice.slice_bytes() as u64;
    }
    let table = table?;
    let by_slot = table.segments.iter().map(|segment| (segment.slot, *segment)).collect();
    Some(Chosen { header, table, bytes: size, name, slices, older_start: 0, by_slot })
}

/// Reads the slice at the start of `within`, and nothing beyond the end of `within`.
fn read_slice(
    disk: &dyn Disk,
    name: &str,
    within: std::ops::Range<u64>,
    bytes: &mut Vec<u8>,
) -> Option<()> {
    let left = usize::try_from(within.end.checked_sub(within.start)?).ok()?;
    bytes.resize(SLICE_HEADER.min(left), 0);
    disk.read_at(name, within.start, bytes).ok()?;
    bytes.resize(SliceHeader::peek_bytes(bytes)?.min(left), 0);
    disk.read_at(name, within.start, bytes).ok()
}

fn note(report: &mut OpenReport, which: u8, what: &'static str) {
    let file = File::Snapshot(which).to_string();
    report.damage.push(Damage { file, offset: 0, what, messages: Vec::new() });
}
