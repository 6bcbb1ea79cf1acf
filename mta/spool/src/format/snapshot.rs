//! A snapshot: one header sector, then slices, each with its own position in the log.
//!
//! Must never be used in part: if one slice is bad, the other snapshot is used.

use super::message::MessagePlace;
use super::segment::SegmentKind;
use super::{BLOCK, Cursor, SECTOR, VERSION, are_counts, put32, put64, u32_at, u64_at};
use mail::{MessageId, TransactionId};

const MAGIC: &[u8; 8] = b"PHSNAPS\x01";
const SLICE: u32 = u32::from_le_bytes(*b"PHSL");
const CHECKSUM: usize = SECTOR - 4;

/// Bytes of a slice's header.
pub const SLICE_HEADER: usize = 64;

/// The header in the first sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Number of the snapshot.
    pub generation: u64,
    /// Whether all slices are written and durable.
    pub complete: bool,
    /// Records before this one are in the slices, or no longer matter.
    pub start_record: u64,
    /// Commits before this one are in the slices, or no longer matter.
    pub start_commit: u64,
    /// Number of slices, the table included.
    pub slices: u32,
    /// Bytes from the start of the file to the end of the last slice.
    pub bytes: u64,
    /// Ids up to this one are not handed out again.
    pub last_message: u64,
    /// Segments with an epoch up to this one are in the table or free.
    pub last_epoch: u64,
}

/// What the first sector of a snapshot file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFound {
    /// Zeros: never written.
    Never,
    /// A header.
    Header(SnapshotHeader),
    /// Written by a newer version.
    Newer(u32),
    /// None of these.
    Damaged,
}

impl SnapshotHeader {
    /// Encodes the sector.
    pub fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[..8].copy_from_slice(MAGIC);
        put32(&mut bytes, 8, VERSION);
        put32(&mut bytes, 12, u32::from(self.complete));
        put64(&mut bytes, 16, self.generation);
        put64(&mut bytes, 24, self.start_record);
        put64(&mut bytes, 32, self.start_commit);
        put64(&mut bytes, 40, self.bytes);
        put64(&mut bytes, 48, self.last_message);
        put32(&mut bytes, 56, self.slices);
        put64(&mut bytes, 64, self.last_epoch);
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM]);
        put32(&mut bytes, CHECKSUM, checksum);
        bytes
    }

    /// Decodes the sector.
    pub fn decode(bytes: &[u8]) -> SnapshotFound {
        let Some(bytes) = bytes.get(..SECTOR) else { return SnapshotFound::Never };
        if bytes.iter().all(|byte| *byte == 0) {
            return SnapshotFound::Never;
        }
        let whole = u32_at(bytes, CHECKSUM) == crc32c::crc32c(&bytes[..CHECKSUM]);
        if !whole || &bytes[..8] != MAGIC {
            return SnapshotFound::Damaged;
        }
        if u32_at(bytes, 8) > VERSION {
            return SnapshotFound::Newer(u32_at(bytes, 8));
        }
        let header = SnapshotHeader {
            complete: u32_at(bytes, 12) == 1,
            generation: u64_at(bytes, 16),
            start_record: u64_at(bytes, 24),
            start_commit: u64_at(bytes, 32),
            bytes: u64_at(bytes, 40),
            last_message: u64_at(bytes, 48),
            slices: u32_at(bytes, 56),
            last_epoch: u64_at(bytes, 64),
        };
        let SnapshotHeader { generation, start_record, start_commit, .. } = header;
        let counts =
            [generation, start_record, start_commit, header.last_message, header.last_epoch];
        // Both begin at 1.
        match are_counts(&counts) && start_record > 0 && start_commit > 0 {
            true => SnapshotFound::Header(header),
            false => SnapshotFound::Damaged,
        }
    }
}

/// The header of a slice. A slice of messages covers the ids after `after` up to `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceHeader {
    /// Length of the payload in bytes.
    pub length: u32,
    /// As in the snapshot's header.
    pub generation: u64,
    /// The slice holds what records up to this one say.
    pub position: u64,
    /// Ids above this one,
    pub after: u64,
    /// up to and including this one.
    pub through: u64,
    /// Counts from 0; the last slice is the table.
    pub number: u32,
    /// Checksum over the payload.
    pub checksum: u32,
    /// Holds the table of segments and transactions instead of messages.
    pub table: bool,
}

impl SliceHeader {
    /// Writes header and checksums into a slice whose payload is in place, and pads it to a block.
    pub fn seal(mut self, slice: &mut Vec<u8>) {
        self.length = (slice.len() - SLICE_HEADER) as u32;
        self.checksum = crc32c::crc32c(&slice[SLICE_HEADER..]);
        put32(slice, 0, SLICE);
        put32(slice, 4, self.length);
        put64(slice, 8, self.generation);
        put64(slice, 16, self.position);
        put64(slice, 24, self.after);
        put64(slice, 32, self.through);
        put32(slice, 40, self.number);
        put32(slice, 44, u32::from(self.table));
        put32(slice, 56, self.checksum);
        let checksum = crc32c::crc32c(&slice[..60]);
        put32(slice, 60, checksum);
        slice.resize(super::aligned(slice.len(), BLOCK), 0);
    }

    /// Length of the padded slice that begins with this header.
    pub fn peek_bytes(head: &[u8]) -> Option<usize> {
        let head = head.get(..SLICE_HEADER)?;
        let whole = u32_at(head, 0) == SLICE && u32_at(head, 60) == crc32c::crc32c(&head[..60]);
        whole.then(|| super::aligned(SLICE_HEADER + u32_at(head, 4) as usize, BLOCK))
    }

    /// Decodes the slice that these bytes start with into its header and payload.
    pub fn decode(bytes: &[u8]) -> Option<(SliceHeader, &[u8])> {
        SliceHeader::peek_bytes(bytes)?;
        let head = bytes.get(..SLICE_HEADER)?;
        let header = SliceHeader {
            length: u32_at(head, 4),
            generation: u64_at(head, 8),
            position: u64_at(head, 16),
            after: u64_at(head, 24),
            through: u64_at(head, 32),
            number: u32_at(head, 40),
            checksum: u32_at(head, 56),
            table: u32_at(head, 44) == 1,
        };
        let payload = bytes.get(SLICE_HEADER..SLICE_HEADER + header.length as usize)?;
        let whole = crc32c::crc32c(payload) == header.checksum && are_counts(&[header.position]);
        whole.then_some((header, payload))
    }

    /// Length of the padded slice.
    pub fn slice_bytes(&self) -> usize {
        super::aligned(SLICE_HEADER + self.length as usize, BLOCK)
    }
}

/// Bytes that a message needs in another segment than its record's, or in the same one for chunks
/// that are not adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// The segment.
    pub slot: u32,
    /// Bytes in that segment.
    pub bytes: u32,
}

/// One live message in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its queue id.
    pub message: MessageId,
    /// The place of its record.
    pub place: MessagePlace,
    /// The places of its chunks.
    pub extras: Vec<Extra>,
    /// The caller's state.
    pub blob: &'a [u8],
}

/// Appends an entry to a slice's payload.
pub fn encode_entry(into: &mut Vec<u8>, entry: &Entry<'_>) {
    into.extend_from_slice(&entry.message.0.to_le_bytes());
    let place = entry.place;
    let extras = entry.extras.len() as u32;
    let blob = entry.blob.len() as u32;
    let numbers = [place.slot, place.offset, place.marked_length(), place.body_bytes, extras, blob];
    numbers.iter().for_each(|number| into.extend_from_slice(&number.to_le_bytes()));
    for extra in &entry.extras {
        into.extend_from_slice(&extra.slot.to_le_bytes());
        into.extend_from_slice(&extra.bytes.to_le_bytes());
    }
    into.extend_from_slice(entry.blob);
}

/// Iterates over the entries of a payload whose checksum was right, and stops at bytes that form no
/// entry.
pub fn entries(payload: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut cursor = Cursor(payload);
    std::iter::from_fn(move || decode_entry(&mut cursor))
}

/// Decodes the next entry.
fn decode_entry<'a>(cursor: &mut Cursor<'a>) -> Option<Entry<'a>> {
    let message = MessageId(cursor.u64().filter(|id| are_counts(&[*id]))?);
    let (slot, offset, marked) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
    let (body, extras, blob) = (cursor.u32()?, cursor.u32()? as usize, cursor.u32()? as usize);
    let length = marked & !(1 << 31);
    let place = MessagePlace::new(slot, offset, length, marked != length, body);
    let extra = |b: &[u8]| Extra { slot: u32_at(b, 0), bytes: u32_at(b, 4) };
    let extras = cursor.take(extras.checked_mul(8)?)?.chunks_exact(8).map(extra).collect();
    Some(Entry { message, place, extras, blob: cursor.take(blob)? })
}

/// The entry of one segment in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSegment {
    /// The segment.
    pub slot: u32,
    /// Its epoch when the snapshot was made.
    pub epoch: u64,
    /// Log or bulk.
    pub kind: SegmentKind,
    /// The last record in it; `u64::MAX` while records are still written to it.
    pub last_record: u64,
}

/// The content of the last slice: segments in use and the latest transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Segments in use.
    pub segments: Vec<TableSegment>,
    /// Oldest first.
    pub transactions: Vec<(TransactionId, MessageId)>,
}

impl Table {
    /// Appends the payload.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        into.extend_from_slice(&(self.transactions.len() as u32).to_le_bytes());
        for segment in &self.segments {
            into.extend_from_slice(&segment.slot.to_le_bytes());
            let kind = if segment.kind == SegmentKind::Log { 1u32 } else { 2 };
            into.extend_from_slice(&kind.to_le_bytes());
            into.extend_from_slice(&segment.epoch.to_le_bytes());
            into.extend_from_slice(&segment.last_record.to_le_bytes());
        }
        for (transaction, message) in &self.transactions {
            for number in [transaction.incarnation, transaction.number, message.0] {
                into.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// Decodes a payload whose checksum was right.
    pub fn decode(payload: &[u8]) -> Option<Table> {
        let mut cursor = Cursor(payload);
        let (segments, transactions) = (cursor.u32()? as usize, cursor.u32()? as usize);
        let segments = cursor.take(segments.checked_mul(24)?)?.chunks_exact(24);
        let segments = segments.map(|b| TableSegment {
            slot: u32_at(b, 0),
            kind: if u32_at(b, 4) == 1 { SegmentKind::Log } else { SegmentKind::Bulk },
            epoch: u64_at(b, 8),
            last_record: u64_at(b, 16),
        });
        let transactions = cursor.take(transactions.checked_mul(24)?)?.chunks_exact(24).map(|b| {
            let transaction = TransactionId { incarnation: u64_at(b, 0), number: u64_at(b, 8) };
            (transaction, MessageId(u64_at(b, 16)))
        });
        Some(Table { segments: segments.collect(), transactions: transactions.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sector_that_is_whole_and_no_snapshot_s_is_damaged() {
        let header = SnapshotHeader {
            complete: true,
            generation: 3,
            start_record: 1,
            start_commit: 1,
            bytes: 4_096,
            last_message: 9,
            slices: 1,
            last_epoch: 2,
        };
        let mut bytes = header.encode().to_vec();
        assert_eq!(SnapshotHeader::decode(&bytes), SnapshotFound::Header(header));
        bytes[0] ^= 1;
        assert_eq!(SnapshotHeader::decode(&bytes), SnapshotFound::Damaged, "its checksum is wrong");
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM]);
        put32(&mut bytes, CHECKSUM, checksum);
        assert_eq!(SnapshotHeader::decode(&bytes), SnapshotFound::Damaged, "its name is wrong");
    }

    #[test]
    fn an_entry_and_a_table_read_back_as_they_were_written() {
        let entry = Entry {
            message: MessageId(5),
            place: MessagePlace::new(1, 4096, 200, true, 77),
            extras: vec![Extra { slot: 2, bytes: 9 }],
            blob: b"state",
        };
        let mut bytes = Vec::new();
        encode_entry(&mut bytes, &entry);
        assert_eq!(decode_entry(&mut Cursor(&bytes)), Some(entry));
        let segment = TableSegment { slot: 1, epoch: 2, kind: SegmentKind::Bulk, last_record: 3 };
        let transaction = TransactionId { incarnation: 4, number: 5 };
        let table =
            Table { segments: vec![segment], transactions: vec![(transaction, MessageId(6))] };
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        assert_eq!(Table::decode(&bytes), Some(table));
    }

    #[test]
    fn a_header_whose_checksum_is_right_and_whose_counts_cannot_be_is_damaged() {
        let good = SnapshotHeader {
            complete: true,
            generation: 1,
            start_record: 1,
            start_commit: 1,
            slices: 0,
            bytes: 0,
            last_message: 0,
            last_epoch: 0,
        };
        assert_eq!(SnapshotHeader::decode(&good.encode()), SnapshotFound::Header(good));
        for bad in [
            SnapshotHeader { start_record: 0, ..good },
            SnapshotHeader { start_commit: 0, ..good },
            SnapshotHeader { generation: u64::MAX, ..good },
            SnapshotHeader { last_message: u64::MAX, ..good },
            SnapshotHeader { last_epoch: u64::MAX, ..good },
        ] {
            assert_eq!(SnapshotHeader::decode(&bad.encode()), SnapshotFound::Damaged, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn s131_garbage_snapshots_are_refused_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..1500)
        ) {
            prop_assert!(SliceHeader::decode(&bytes).is_none());
            let _ = Table::decode(&bytes);
            let _ = decode_entry(&mut Cursor(&bytes));
            let found = SnapshotHeader::decode(&bytes);
            prop_assert!(matches!(found, SnapshotFound::Damaged | SnapshotFound::Never));
        }
    }
}
