//! Finds the batches of a segment, whole and damaged, block by block.
//!
//! Must never accept a batch of another epoch or without the segment's nonce: a sender may put
//! anything into a body.

use super::survey::Survey;
use super::{Damage, OpenReport};
use crate::File;
use crate::format::batch::{BATCH_HEADER, BatchHeader, RecordKind, Records, is_whole};
use crate::format::message::peek_id;
use crate::format::segment::SegmentHeader;
use crate::format::{BLOCK, aligned};
use mail::MessageId;
use world::Disk;

/// Size of the pieces in which a segment is read again if reading it as a whole failed.
const PIECE: usize = 64 << 10;

/// All batches that were found, with their records except chunks.
#[derive(Default)]
pub(super) struct Scanned {
    pub batches: Vec<FoundBatch>,
    /// Payloads of the records, one after the other.
    pub arena: Vec<u8>,
}

/// A batch whose header is intact.
pub(super) struct FoundBatch {
    pub slot: u32,
    pub offset: u32,
    pub header: BatchHeader,
    pub whole: bool,
    pub records: Vec<FoundRecord>,
    /// Places of damaged records, each with the message that it may be about.
    pub bad: Vec<(u64, Option<MessageId>)>,
}

/// An intact record other than a chunk.
pub(super) struct FoundRecord {
    pub kind: RecordKind,
    pub sequence: u64,
    /// Offset of its header in the segment.
    pub offset: u32,
    payload: (usize, usize),
}

impl Scanned {
    pub(super) fn payload(&self, record: &FoundRecord) -> &[u8] {
        &self.arena[record.payload.0..record.payload.1]
    }
}

/// Scans these segments in the order of their epochs.
pub(super) fn scan_all(
    disk: &dyn Disk,
    survey: &Survey,
    slots: &[u32],
    settle: bool,
    report: &mut OpenReport,
) -> Scanned {
    let mut scanned = Scanned::default();
    let mut buffer = Vec::new();
    for slot in slots {
        let Some(found) = survey.segments.get(slot) else { continue };
        let Some(header) = found.header else { continue };
        let name = File::Segment(*slot).to_string();
        if settle {
            settled(disk, &name, report);
        }
        let bytes = found.bytes.min(u64::from(header.bytes)) as usize;
        buffer.clear();
        buffer.resize(bytes, 0);
        read(disk, &name, &mut buffer, report);
        report.bytes_read += bytes as u64;
        scan(&buffer, &header, &mut scanned);
    }
    scanned
}

/// Syncs a file and drops its cache, so that what is read is on the medium. After a failed write-back
/// the cache shows bytes that the medium lacks, and after a process was killed it shows bytes that a
/// power cut may still take.
pub(super) fn settled(disk: &dyn Disk, name: &str, report: &mut OpenReport) {
    let settled = disk.sync(name).and_then(|_| disk.forget_cache(name));
    if settled.is_err() {
        let what = "the file cannot be synced";
        report.damage.push(Damage { file: name.into(), offset: 0, what, messages: Vec::new() });
    }
}

/// Reads what can be read. The rest stays zero and is reported.
fn read(disk: &dyn Disk, name: &str, buffer: &mut [u8], report: &mut OpenReport) {
    if disk.read_at(name, 0, buffer).is_ok() {
        return;
    }
    let mut at = 0;
    for piece in buffer.chunks_mut(PIECE) {
        if disk.read_at(name, at, piece).is_err() {
            piece.fill(0);
            let what = "bytes cannot be read";
            let messages = Vec::new();
            report.damage.push(Damage { file: name.into(), offset: at, what, messages });
        }
        at += piece.len() as u64;
    }
}

fn scan(bytes: &[u8], segment: &SegmentHeader, into: &mut Scanned) {
    let mut at = BLOCK;
    while at + BATCH_HEADER <= bytes.len() {
        let header = BatchHeader::decode(&bytes[at..]).filter(|header| {
            let ours = header.epoch == segment.epoch && header.nonce == segment.nonce;
            ours && header.slot == segment.slot && header.length as usize >= BATCH_HEADER
        });
        let Some(header) = header else {
            at += BLOCK;
            continue;
        };
        let end = (at + header.length as usize).min(bytes.len());
        let batch = found(&bytes[at..end], at as u32, header, segment, &mut into.arena);
        into.batches.push(batch);
        at += aligned(header.length as usize, BLOCK);
    }
}

fn found(
    batch: &[u8],
    offset: u32,
    header: BatchHeader,
    segment: &SegmentHeader,
    arena: &mut Vec<u8>,
) -> FoundBatch {
    let whole = is_whole(batch, &header);
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    for record in Records::new(batch, segment.epoch) {
        match record {
            Ok(record) if record.kind == RecordKind::Chunk => {}
            Ok(record) => {
                let start = arena.len();
                arena.extend_from_slice(record.payload);
                records.push(FoundRecord {
                    kind: record.kind,
                    sequence: record.sequence,
                    offset: offset + record.offset as u32,
                    payload: (start, arena.len()),
                });
            }
            Err(place) => {
                let payload = place.offset + crate::format::batch::RECORD_HEADER;
                let id = batch.get(payload..).and_then(peek_id);
                bad.push((u64::from(offset) + place.offset as u64, id));
            }
        }
    }
    FoundBatch { slot: segment.slot, offset, header, whole, records, bad }
}
