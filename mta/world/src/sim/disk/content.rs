//! The bytes of one file, in pages that copies share until one of them is written.
//!
//! Must never copy a page that is only read, nor keep a page of zeros.

use std::ops::Range;
use std::sync::Arc;

/// Size of a page. The spool's blocks have the same size, so that a commit copies nothing.
const PAGE_BYTES: usize = 4096;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// `None` reads as zeros.
type FilePage = Option<Arc<[u8; PAGE_BYTES]>>;

/// The bytes of a file. A clone is cheap and independent.
#[derive(Clone, Default)]
pub(super) struct FileBytes {
    pages: Arc<Vec<FilePage>>,
    bytes: usize,
}

impl FileBytes {
    pub fn from_bytes(bytes: &[u8]) -> FileBytes {
        let mut content = FileBytes::default();
        content.write(0, bytes);
        content
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Extends a shorter file with zeros.
    pub fn grow(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.bytes = bytes;
            let pages = bytes.div_ceil(PAGE_BYTES);
            if pages > self.pages.len() {
                Arc::make_mut(&mut self.pages).resize(pages, None);
            }
        }
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.grow(offset + bytes.len());
        let pages = Arc::make_mut(&mut self.pages);
        for (page, piece) in pieces(offset, bytes.len(), PAGE_BYTES) {
            put(&mut pages[page], (offset + piece.start) % PAGE_BYTES, &bytes[piece]);
        }
    }

    /// Returns `false` if the file ends before.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        if offset.saturating_add(into.len()) > self.bytes {
            return false;
        }
        for (page, piece) in pieces(offset, into.len(), PAGE_BYTES) {
            let (at, length) = ((offset + piece.start) % PAGE_BYTES, piece.len());
            let from = self.pages[page].as_deref().unwrap_or(&ZEROS);
            into[piece].copy_from_slice(&from[at..at + length]);
        }
        true
    }

    /// Whether the file has these bytes at this offset. They must not cross a page.
    pub fn has(&self, offset: usize, bytes: &[u8]) -> bool {
        if offset + bytes.len() > self.bytes {
            return false;
        }
        let at = offset % PAGE_BYTES;
        let page = self.pages[offset / PAGE_BYTES].as_deref().unwrap_or(&ZEROS);
        page[at..at + bytes.len()] == *bytes
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        let whole = self.read(0, &mut bytes);
        debug_assert!(whole, "a file is as long as it is");
        bytes
    }
}

fn put(page: &mut FilePage, at: usize, bytes: &[u8]) {
    let zeros = *bytes == ZEROS[..bytes.len()];
    if let (true, Ok(whole)) = (!zeros, <[u8; PAGE_BYTES]>::try_from(bytes)) {
        *page = Some(Arc::new(whole));
    } else if zeros && bytes.len() == PAGE_BYTES {
        *page = None;
    } else if !zeros || page.is_some() {
        let page = page.get_or_insert_with(|| Arc::new(ZEROS));
        Arc::make_mut(page)[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Cuts `length` bytes at `offset` at the borders of the medium. Returns the number of each piece on
/// the medium, and its range within the bytes.
pub(super) fn pieces(
    offset: usize,
    length: usize,
    grain: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let piece = (grain - at % grain).min(length - done);
        let range = done..done + piece;
        done += piece;
        (piece > 0).then_some((at / grain, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_its_own_and_reads_like_a_plain_array_after_any_writes() {
        use crate::Rng as _;
        let mut chance = crate::sim::Rng::seeded(4);
        let (mut plain, mut content) = (Vec::new(), FileBytes::default());
        for round in 0..400 {
            let (offset, length) = (chance.below(30_000) as usize, chance.below(9_000) as usize);
            let bytes = vec![(round % 4) as u8; length];
            let (before, copy) = (plain.clone(), content.clone());
            plain.resize(plain.len().max(offset + length), 0);
            plain[offset..offset + length].copy_from_slice(&bytes);
            content.write(offset, &bytes);
            assert_eq!(content.to_vec(), plain);
            assert_eq!(copy.to_vec(), before);
        }
        let mut into = [0; 10];
        assert!(content.read(plain.len() - 10, &mut into));
        assert!(!content.read(plain.len() - 9, &mut into));
    }

    #[test]
    fn zeros_take_no_room() {
        let mut content = FileBytes::from_bytes(&[1; 3 * PAGE_BYTES]);
        content.write(0, &[0; 3 * PAGE_BYTES]);
        assert!(content.pages.iter().all(Option::is_none));
    }
}
