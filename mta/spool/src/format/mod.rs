//! The bytes on the disk, version 1. `docs/spool-format.md` has the pictures.
//!
//! Must never trust a length before its checksum, allocate what a damaged byte asks for, or panic
//! on any input. All numbers are little-endian, all checksums CRC-32C.

pub mod batch;
pub mod message;
pub mod segment;
pub mod snapshot;

/// The version this code writes and the newest it reads.
pub const VERSION: u32 = 1;

/// Batches start on blocks of this size, and no block is written twice in its epoch.
pub const BLOCK: usize = 4096;

/// Bytes that the medium writes whole or not at all; a header that must not be torn fits.
pub const SECTOR: usize = 512;

/// The file that says which version the directory has.
pub const MARKER: &str = "format";

/// The file that the one writing process locks.
pub const LOCK: &str = "lock";

/// Returns the content of the marker.
pub fn marker() -> String {
    format!("posthaste spool {VERSION}\n")
}

/// Parses the version in a marker.
pub fn marker_version(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_prefix("posthaste spool ")?.trim_end_matches('\n').parse().ok()
}

/// Upper bound on every number that a spool counts up. A greater one is damage, and to count on from
/// it would overflow.
const COUNT_MAX: u64 = 1 << 62;

/// Whether a spool may have counted up to these numbers.
pub(crate) fn are_counts(numbers: &[u64]) -> bool {
    numbers.iter().all(|number| *number <= COUNT_MAX)
}

pub(crate) const fn aligned(bytes: usize, to: usize) -> usize {
    bytes.div_ceil(to) * to
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes(b.try_into().expect("four bytes")))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
}

pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Reads forward through bytes. Each step returns `None` past the end.
pub(crate) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|b| u32_at(b, 0))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|b| u64_at(b, 0))
    }
}
