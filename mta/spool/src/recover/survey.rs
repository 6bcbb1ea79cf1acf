//! Lists the files of a spool and reads the first sector of each.
//!
//! Must never open anything but regular files, nor trust a name over a header.

use super::snapshot::Chosen;
use super::{Damage, OpenError};
use crate::File;
use crate::format::batch::BatchHeader;
use crate::format::segment::{HeaderFound, SegmentHeader, SegmentKind};
use crate::format::{BLOCK, LOCK, MARKER};
use crate::segments::{Segment, State};
use std::collections::BTreeMap;
use world::{Disk, Entry};

/// All segments and the other files.
#[derive(Default)]
pub(super) struct Survey {
    pub segments: BTreeMap<u32, Found>,
    /// Lengths of the two snapshot files that exist.
    pub snapshots: [Option<u64>; 2],
    pub strangers: Vec<String>,
    pub damage: Vec<Damage>,
}

/// One segment file.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub bytes: u64,
    pub header: Option<SegmentHeader>,
    /// The state that it has unless a message needs it.
    pub state: State,
}

pub(super) fn survey(disk: &dyn Disk, segment_bytes: u32) -> Result<Survey, OpenError> {
    let mut survey = Survey::default();
    for entry in disk.list()? {
        match File::parse(&entry.name) {
            _ if entry.name == LOCK || entry.name == MARKER => {}
            Some(File::Segment(slot)) if entry.regular => {
                let found = survey.look(disk, slot, &entry, segment_bytes)?;
                survey.segments.insert(slot, found);
            }
            Some(File::Snapshot(which)) if entry.regular => {
                survey.snapshots[usize::from(which)] = Some(entry.bytes);
            }
            Some(File::Segment(slot)) => {
                // A link or a pipe with the name of a segment: the slot cannot be used.
                let taken = Found { bytes: 0, header: None, state: State::Kept };
                survey.segments.insert(slot, taken);
                survey.strangers.push(entry.name);
            }
            _ => survey.strangers.push(entry.name),
        }
    }
    survey.strangers.sort();
    Ok(survey)
}

impl Survey {
    fn look(
        &mut self,
        disk: &dyn Disk,
        slot: u32,
        entry: &Entry,
        segment_bytes: u32,
    ) -> Result<Found, OpenError> {
        let bytes = entry.bytes;
        let kept = Found { bytes, header: None, state: State::Kept };
        let mut head = vec![0; (2 * BLOCK).min(bytes as usize)];
        if disk.read_at(&entry.name, 0, &mut head).is_err() {
            self.damaged(&entry.name, "the first block cannot be read");
            return Ok(kept);
        }
        head.resize(2 * BLOCK, 0);
        let batch = BatchHeader::decode(&head[BLOCK..]).filter(|batch| batch.slot == slot);
        match SegmentHeader::decode(&head) {
            HeaderFound::Newer(version) => Err(OpenError::Newer(version)),
            HeaderFound::Unused if batch.is_none() => {
                // Even a complete file is synced again: the process that zeroed it may have been
                // killed before its sync, and a header that survives a power cut without the rest
                // of its segment would look like damage.
                let done = (bytes as u32).min(segment_bytes) / BLOCK as u32 * BLOCK as u32;
                let state = State::Zeroing(done);
                // A longer file belongs to another segment size and is removed.
                let odd = bytes > u64::from(segment_bytes);
                let state = if odd { State::Sealed } else { state };
                Ok(Found { bytes, header: None, state })
            }
            HeaderFound::Used(header) if header.slot != slot => {
                self.strangers.push(entry.name.clone());
                Ok(kept)
            }
            HeaderFound::Used(header) => {
                let truncated = bytes < u64::from(header.bytes);
                if truncated {
                    self.damaged(&entry.name, "the file is shorter than its segment");
                }
                let state = if truncated { State::Kept } else { State::Sealed };
                Ok(Found { bytes, header: Some(header), state })
            }
            HeaderFound::Unused | HeaderFound::Damaged => {
                self.damaged(&entry.name, "the segment's header is damaged");
                // The header of the first batch says enough to read the rest.
                let header = batch.map(|batch| SegmentHeader {
                    kind: SegmentKind::Log,
                    slot,
                    epoch: batch.epoch,
                    nonce: batch.nonce,
                    snapshot: 0,
                    bytes: bytes.min(u64::from(u32::MAX)) as u32,
                });
                Ok(Found { header, ..kept })
            }
        }
    }

    fn damaged(&mut self, name: &str, what: &'static str) {
        self.damage.push(Damage { file: name.into(), offset: 0, what, messages: Vec::new() });
    }

    /// The segments with records that are not in the snapshot.
    pub(super) fn tail(&self, chosen: Option<&Chosen>) -> Vec<u32> {
        let wanted = |slot: &u32| match chosen {
            None => true,
            Some(chosen) => self.is_new(*slot, chosen) || chosen.listed_in_tail(*slot),
        };
        self.logs().filter(wanted).collect()
    }

    /// All segments with records, in the snapshot or not.
    pub(super) fn in_use(&self, chosen: Option<&Chosen>) -> Vec<u32> {
        let wanted = |slot: &u32| match chosen {
            None => true,
            Some(chosen) => self.is_new(*slot, chosen) || chosen.listed(*slot).is_some(),
        };
        self.logs().filter(wanted).collect()
    }

    fn logs(&self) -> impl Iterator<Item = u32> + '_ {
        let log =
            |found: &Found| found.header.is_some_and(|header| header.kind == SegmentKind::Log);
        self.segments.iter().filter(move |(_, found)| log(found)).map(|(slot, _)| *slot)
    }

    /// Whether its epoch began after the snapshot's table was made.
    pub(super) fn is_new(&self, slot: u32, chosen: &Chosen) -> bool {
        let header = self.segments.get(&slot).and_then(|found| found.header);
        header.is_some_and(|header| header.epoch > chosen.header.last_epoch)
    }

    /// Returns the segment as the running spool keeps it. A segment that the table does not list and
    /// that did not begin later is free.
    pub(super) fn segment(&self, slot: u32, chosen: Option<&Chosen>, size: u32) -> Option<Segment> {
        let found = self.segments.get(&slot)?;
        let bytes = u32::try_from(found.bytes).unwrap_or(u32::MAX);
        let free = chosen.is_some_and(|c| !self.is_new(slot, c) && c.listed(slot).is_none());
        let state = match found.state {
            State::Sealed if free && bytes == size => State::Ready,
            state => state,
        };
        let bytes = if matches!(state, State::Zeroing(_)) { size } else { bytes };
        let mut segment = Segment::new(state, bytes);
        if let Some(header) = found.header.filter(|_| state != State::Ready) {
            segment.kind = header.kind;
            segment.nonce = header.nonce;
        }
        segment.epoch = found.header.map_or(0, |header| header.epoch);
        Some(segment)
    }
}
