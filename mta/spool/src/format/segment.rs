//! The header of a segment. It fits into one sector, so that it is old or new but never torn.
//!
//! Must never be written while the segment holds anything that is still needed.

use super::{SECTOR, VERSION, are_counts, put32, put64, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"PHSEGMT\x01";
const CHECKSUM: usize = SECTOR - 4;

/// What a segment is used for in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Batches of everything.
    Log,
    /// Chunks of large bodies only.
    Bulk,
}

/// The header that begins one use (epoch) of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Log or bulk.
    pub kind: SegmentKind,
    /// Must be the number in the file's name; in a copied file it is not.
    pub slot: u32,
    /// Counts the uses of all segments; the log is read in this order.
    pub epoch: u64,
    /// Cannot be guessed, so that no sender can forge a batch inside of a body.
    pub nonce: u64,
    /// The newest durable snapshot when this epoch began. If only an older one is found, a write was
    /// lost.
    pub snapshot: u64,
    /// Bytes of the segment.
    pub bytes: u32,
}

/// What the first sector of a segment file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFound {
    /// Zeros: never used.
    Unused,
    /// In use or used before.
    Used(SegmentHeader),
    /// Written by a newer version, which must not be touched.
    Newer(u32),
    /// None of these.
    Damaged,
}

impl SegmentHeader {
    /// Encodes the sector.
    pub fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[..8].copy_from_slice(MAGIC);
        put32(&mut bytes, 8, VERSION);
        put32(&mut bytes, 12, if self.kind == SegmentKind::Log { 1 } else { 2 });
        put32(&mut bytes, 16, self.slot);
        put32(&mut bytes, 20, self.bytes);
        put64(&mut bytes, 24, self.epoch);
        put64(&mut bytes, 32, self.nonce);
        put64(&mut bytes, 40, self.snapshot);
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM]);
        put32(&mut bytes, CHECKSUM, checksum);
        bytes
    }

    /// Decodes the sector.
    pub fn decode(bytes: &[u8]) -> HeaderFound {
        let Some(bytes) = bytes.get(..SECTOR) else { return HeaderFound::Damaged };
        if bytes.iter().all(|byte| *byte == 0) {
            return HeaderFound::Unused;
        }
        let whole = u32_at(bytes, CHECKSUM) == crc32c::crc32c(&bytes[..CHECKSUM]);
        if !whole || &bytes[..8] != MAGIC {
            return HeaderFound::Damaged;
        }
        if u32_at(bytes, 8) > VERSION {
            return HeaderFound::Newer(u32_at(bytes, 8));
        }
        let kind = match u32_at(bytes, 12) {
            1 => SegmentKind::Log,
            2 => SegmentKind::Bulk,
            _ => return HeaderFound::Damaged,
        };
        let header = SegmentHeader {
            kind,
            slot: u32_at(bytes, 16),
            bytes: u32_at(bytes, 20),
            epoch: u64_at(bytes, 24),
            nonce: u64_at(bytes, 32),
            snapshot: u64_at(bytes, 40),
        };
        match are_counts(&[header.epoch, header.snapshot]) {
            true => HeaderFound::Used(header),
            false => HeaderFound::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s130_any_flipped_bit_of_a_segment_header_is_noticed() {
        let header = SegmentHeader {
            kind: SegmentKind::Log,
            slot: 3,
            epoch: 9,
            nonce: 77,
            snapshot: 1,
            bytes: 1 << 26,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), HeaderFound::Used(header));
        assert_eq!(SegmentHeader::decode(&[0; SECTOR]), HeaderFound::Unused);
        for bit in 0..SECTOR * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&damaged), HeaderFound::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn s131_an_epoch_that_cannot_be_counted_on_from_is_damage() {
        let header = SegmentHeader {
            kind: SegmentKind::Log,
            slot: 3,
            epoch: u64::MAX,
            nonce: 77,
            snapshot: 1,
            bytes: 1 << 26,
        };
        assert_eq!(SegmentHeader::decode(&header.encode()), HeaderFound::Damaged);
    }

    #[test]
    fn s143_a_newer_version_is_told_apart_from_damage() {
        let header = SegmentHeader {
            kind: SegmentKind::Bulk,
            slot: 0,
            epoch: 1,
            nonce: 1,
            snapshot: 0,
            bytes: 1,
        };
        let mut bytes = header.encode();
        put32(&mut bytes, 8, VERSION + 1);
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM]);
        put32(&mut bytes, CHECKSUM, checksum);
        assert_eq!(SegmentHeader::decode(&bytes), HeaderFound::Newer(VERSION + 1));
    }
}
