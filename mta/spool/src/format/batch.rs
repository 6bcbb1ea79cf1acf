//! Batches and the records in them.
//!
//! A batch is atomic: its header's checksum covers the checksum over all its records. Each record
//! has a checksum of its own, so that later damage to a durable batch costs only the records that it
//! hit.
//!
//! Must never read outside of the bytes it is given.

use super::{are_counts, put32, put64, u32_at, u64_at};

const MAGIC: u32 = u32::from_le_bytes(*b"PHBT");

/// Bytes of a batch's header.
pub const BATCH_HEADER: usize = 64;
/// Bytes of a record's header.
pub const RECORD_HEADER: usize = 32;
/// Records start at multiples of this offset in their batch.
pub const RECORD_ALIGN: usize = 8;

/// The first 64 bytes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Bytes of header and records, without the padding to the next block.
    pub length: u32,
    /// Counts the commits of the log.
    pub sequence: u64,
    /// All commits up to this one were durable when this one was written.
    pub durable: u64,
    /// As in the segment's header: which use of the segment the batch belongs to.
    pub epoch: u64,
    /// As in the segment's header.
    pub nonce: u64,
    /// Sequence of the first record.
    pub first_record: u64,
    /// Number of records.
    pub records: u32,
    /// As in the segment's header.
    pub slot: u32,
    /// Checksum over all records.
    pub checksum: u32,
}

impl BatchHeader {
    /// Writes the header into the first bytes of a batch.
    pub fn encode(&self, into: &mut [u8]) {
        put32(into, 0, MAGIC);
        put32(into, 4, self.length);
        put64(into, 8, self.sequence);
        put64(into, 16, self.durable);
        put64(into, 24, self.epoch);
        put64(into, 32, self.nonce);
        put64(into, 40, self.first_record);
        put32(into, 48, self.records);
        put32(into, 52, self.slot);
        put32(into, 56, self.checksum);
        let checksum = crc32c::crc32c(&into[..60]);
        put32(into, 60, checksum);
    }

    /// Decodes the header that these bytes start with; `None` if it is not intact.
    pub fn decode(bytes: &[u8]) -> Option<BatchHeader> {
        let bytes = bytes.get(..BATCH_HEADER)?;
        if u32_at(bytes, 0) != MAGIC || u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return None;
        }
        let header = BatchHeader {
            length: u32_at(bytes, 4),
            sequence: u64_at(bytes, 8),
            durable: u64_at(bytes, 16),
            epoch: u64_at(bytes, 24),
            nonce: u64_at(bytes, 32),
            first_record: u64_at(bytes, 40),
            records: u32_at(bytes, 48),
            slot: u32_at(bytes, 52),
            checksum: u32_at(bytes, 56),
        };
        let counts = [header.sequence, header.durable, header.epoch, header.first_record];
        // Commits are counted from 1.
        (are_counts(&counts) && header.sequence > 0).then_some(header)
    }
}

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A new message, which makes its chunks live.
    Message,
    /// A message that was live before, at its new place.
    Moved,
    /// A piece of a body.
    Chunk,
    /// A change of a message's state.
    Change,
    /// Commits whose batches do not count, even if they are found whole.
    Void,
}

impl RecordKind {
    const fn code(self) -> u8 {
        match self {
            RecordKind::Message => 1,
            RecordKind::Moved => 2,
            RecordKind::Chunk => 3,
            RecordKind::Change => 4,
            RecordKind::Void => 5,
        }
    }

    fn of(code: u8) -> Option<RecordKind> {
        use RecordKind::{Change, Chunk, Message, Moved, Void};
        [Message, Moved, Chunk, Change, Void].into_iter().find(|kind| kind.code() == code)
    }
}

/// One intact record inside a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its kind.
    pub kind: RecordKind,
    /// Its number; records are numbered in the order in which they were made.
    pub sequence: u64,
    /// Offset of its header in the batch.
    pub offset: usize,
    /// Its content.
    pub payload: &'a [u8],
    /// Checksum of the payload.
    pub checksum: u32,
}

/// Appends a record to a batch; returns the offset of its header and the checksum of its payload.
/// [`seal`] fills in the epoch.
pub fn append(
    into: &mut Vec<u8>,
    kind: RecordKind,
    sequence: u64,
    payload: &[&[u8]],
) -> (usize, u32) {
    let offset = into.len();
    into.resize(offset + RECORD_HEADER, 0);
    let mut checksum = 0;
    for part in payload {
        into.extend_from_slice(part);
        checksum = crc32c::crc32c_append(checksum, part);
    }
    let length = into.len() - offset - RECORD_HEADER;
    let header = &mut into[offset..offset + RECORD_HEADER];
    put32(header, 0, length as u32);
    put64(header, 8, sequence);
    header[24] = kind.code();
    put32(header, 28, checksum);
    let own = header_checksum(header);
    put32(header, 4, own);
    into.resize(super::aligned(into.len(), RECORD_ALIGN), 0);
    (offset, checksum)
}

/// Checksum over length, sequence, kind and the payload's checksum. The epoch is left out, because it
/// is known only when the batch gets its place; a reader compares it instead.
fn header_checksum(header: &[u8]) -> u32 {
    let checksum = crc32c::crc32c(&header[..4]);
    let checksum = crc32c::crc32c_append(checksum, &header[8..16]);
    crc32c::crc32c_append(checksum, &header[24..RECORD_HEADER])
}

/// Turns a record that has not been written into a chunk that nothing refers to, so that all other
/// records keep their places.
pub fn disarm(header: &mut [u8]) {
    header[24] = RecordKind::Chunk.code();
    let checksum = header_checksum(header);
    put32(header, 4, checksum);
}

/// Finishes a batch that has got its place: puts the epoch into each record, and computes the header.
pub fn seal(batch: &mut [u8], mut header: BatchHeader) {
    let mut at = BATCH_HEADER;
    while at + RECORD_HEADER <= batch.len() {
        put64(batch, at + 16, header.epoch);
        let length = u32_at(batch, at) as usize;
        at = super::aligned(at + RECORD_HEADER + length, RECORD_ALIGN);
    }
    header.length = batch.len() as u32;
    header.checksum = crc32c::crc32c(&batch[BATCH_HEADER..]);
    header.encode(batch);
}

/// Whether all records are as they were sealed.
pub fn is_whole(batch: &[u8], header: &BatchHeader) -> bool {
    batch.len() == header.length as usize
        && batch.len() >= BATCH_HEADER
        && crc32c::crc32c(&batch[BATCH_HEADER..]) == header.checksum
}

/// A record that is not intact, or bytes between records that form no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Offset in the batch.
    pub offset: usize,
    /// Where reading continues; the end of the batch if no further record is found.
    pub end: usize,
}

/// Returns the record of this epoch whose header starts at `at`, if it is intact.
pub fn record_at(bytes: &[u8], at: usize, epoch: u64) -> Option<Record<'_>> {
    let start = at.checked_add(RECORD_HEADER)?;
    let header = bytes.get(at..start)?;
    let payload = bytes.get(start..start.checked_add(u32_at(header, 0) as usize)?)?;
    let checksum = u32_at(header, 28);
    let intact = u32_at(header, 4) == header_checksum(header)
        && u64_at(header, 16) == epoch
        && are_counts(&[u64_at(header, 8)])
        && crc32c::crc32c(payload) == checksum;
    let kind = RecordKind::of(header[24]).filter(|_| intact)?;
    Some(Record { kind, sequence: u64_at(header, 8), offset: at, payload, checksum })
}

/// Iterates over the records of a batch and steps over damaged ones.
pub struct Records<'a> {
    batch: &'a [u8],
    at: usize,
    epoch: u64,
}

impl<'a> Records<'a> {
    /// Iterates over `batch`, which starts with its header, in a segment of this epoch.
    pub fn new(batch: &'a [u8], epoch: u64) -> Self {
        Records { batch, at: BATCH_HEADER, epoch }
    }

    /// Returns where to continue after a damaged record. If its header is intact, the length is known;
    /// otherwise the next intact header is searched for.
    fn resume(&self) -> usize {
        let header = self.batch.get(self.at..self.at + RECORD_HEADER);
        if let Some(header) = header.filter(|h| u32_at(h, 4) == header_checksum(h)) {
            let end = self.at + RECORD_HEADER + u32_at(header, 0) as usize;
            return super::aligned(end, RECORD_ALIGN).min(self.batch.len());
        }
        let mut at = self.at + RECORD_ALIGN;
        while at + RECORD_HEADER <= self.batch.len() {
            let header = &self.batch[at..at + RECORD_HEADER];
            let plausible =
                u64_at(header, 16) == self.epoch && RecordKind::of(header[24]).is_some();
            if plausible && u32_at(header, 4) == header_checksum(header) {
                return at;
            }
            at += RECORD_ALIGN;
        }
        self.batch.len()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BadRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.batch.len() {
            return None;
        }
        let offset = self.at;
        if let Some(record) = record_at(self.batch, offset, self.epoch) {
            self.at = super::aligned(offset + RECORD_HEADER + record.payload.len(), RECORD_ALIGN);
            return Some(Ok(record));
        }
        self.at = self.resume();
        Some(Err(BadRecord { offset, end: self.at }))
    }
}

/// Encodes a list of commits that do not count.
pub fn encode_void(commits: &[u64]) -> Vec<u8> {
    commits.iter().flat_map(|commit| commit.to_le_bytes()).collect()
}

/// Decodes a list of commits that do not count.
pub fn decode_void(payload: &[u8]) -> impl Iterator<Item = u64> + '_ {
    payload.chunks_exact(8).map(|bytes| u64_at(bytes, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(bodies: &[&[u8]]) -> (Vec<u8>, BatchHeader) {
        let mut bytes = vec![0; BATCH_HEADER];
        for (number, body) in bodies.iter().enumerate() {
            append(&mut bytes, RecordKind::Chunk, number as u64 + 10, &[body]);
        }
        let header = BatchHeader {
            length: 0,
            sequence: 5,
            durable: 4,
            epoch: 7,
            nonce: 99,
            first_record: 10,
            records: bodies.len() as u32,
            slot: 1,
            checksum: 0,
        };
        seal(&mut bytes, header);
        let header = BatchHeader::decode(&bytes).unwrap();
        (bytes, header)
    }

    fn read(bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
        Records::new(bytes, 7).map(|r| r.ok().map(|r| r.payload.to_vec())).collect()
    }

    #[test]
    fn what_is_appended_and_sealed_is_read_back() {
        let (bytes, header) = batch(&[b"one", b"", b"three33"]);
        assert!(is_whole(&bytes, &header));
        let wanted = [&b"one"[..], b"", b"three33"].map(|b| Some(b.to_vec()));
        assert_eq!(read(&bytes), wanted);
    }

    #[test]
    fn s130_any_flipped_bit_is_noticed_and_costs_only_its_own_record() {
        let (bytes, header) = batch(&[b"first", b"second", b"third"]);
        for bit in BATCH_HEADER * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_whole(&damaged, &header), "bit {bit}");
            let good: Vec<_> = read(&damaged).into_iter().flatten().collect();
            // Padding belongs to no record, so three may be left; a false one never.
            assert!(good.len() >= 2, "bit {bit}: {good:?}");
            assert!(good.iter().all(|b| [&b"first"[..], b"second", b"third"].contains(&&b[..])));
        }
        for bit in 0..BATCH_HEADER * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn s131_a_length_that_lies_is_never_believed() {
        for length in [0, 1, u32::MAX, u32::MAX - 31, 1 << 31, 10_000] {
            let (mut bytes, _) = batch(&[b"first", b"second"]);
            put32(&mut bytes, BATCH_HEADER, length);
            assert_eq!(read(&bytes), [None, Some(b"second".to_vec())]);
        }
    }

    #[test]
    fn s132_a_record_of_another_generation_is_not_read() {
        let (bytes, _) = batch(&[b"old"]);
        assert!(Records::new(&bytes, 8).all(|record| record.is_err()));
    }

    proptest! {
        #[test]
        fn garbage_is_never_a_record_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(BatchHeader::decode(&bytes).is_none());
            prop_assert!(Records::new(&bytes, 7).all(|record| record.is_err()));
        }
    }
}
