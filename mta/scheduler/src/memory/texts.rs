//! Short texts side by side in large chunks, each with a handle of four bytes.
//!
//! Must never hold a text longer than `TEXT_BYTES_MAX`: a longer one is cut at a character boundary.

/// Longest text. No address is longer (RFC 5321 4.5.3.1.3).
pub(crate) const TEXT_BYTES_MAX: usize = 1022;

/// Unit of a handle in bytes.
const CELL: usize = 4;
const CHUNK_CELLS: usize = 16 * 1024;
/// Bytes of the length before each text.
const LENGTH: usize = 2;
const CLASSES: usize = (TEXT_BYTES_MAX + LENGTH).div_ceil(CELL) + 1;
const _: () = assert!(TEXT_BYTES_MAX + LENGTH <= CELL * (CLASSES - 1));
const END: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Texts {
    chunks: Vec<Box<[u8]>>,
    /// Number of cells used in the last chunk.
    used: usize,
    /// The first free place of each size in cells. Each free place holds the handle of the next one.
    free: Vec<u32>,
}

impl Texts {
    pub fn new() -> Self {
        Texts { chunks: Vec::new(), used: CHUNK_CELLS, free: vec![END; CLASSES] }
    }

    pub fn insert(&mut self, text: &str) -> u32 {
        let text = cut(text);
        let cells = (text.len() + LENGTH).div_ceil(CELL);
        let at = self.take(cells);
        let place = self.place(at, cells);
        place[..LENGTH].copy_from_slice(&(text.len() as u16).to_le_bytes());
        place[LENGTH..LENGTH + text.len()].copy_from_slice(text.as_bytes());
        at
    }

    pub fn get(&self, at: u32) -> &str {
        std::str::from_utf8(self.bytes(at)).expect("insert wrote a text here")
    }

    /// Returns the bytes of a text without a check, for comparisons.
    pub fn bytes(&self, at: u32) -> &[u8] {
        let chunk = &self.chunks[at as usize / CHUNK_CELLS];
        let start = at as usize % CHUNK_CELLS * CELL;
        let length = usize::from(u16::from_le_bytes([chunk[start], chunk[start + 1]]));
        &chunk[start + LENGTH..start + LENGTH + length]
    }

    pub fn remove(&mut self, at: u32) {
        let cells = (self.get(at).len() + LENGTH).div_ceil(CELL);
        let next = self.free[cells];
        self.place(at, cells)[..CELL].copy_from_slice(&next.to_le_bytes());
        self.free[cells] = at;
    }

    fn take(&mut self, cells: usize) -> u32 {
        let at = self.free[cells];
        if at != END {
            let place = self.place(at, cells);
            self.free[cells] = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
            return at;
        }
        if self.used + cells > CHUNK_CELLS {
            self.chunks.push(vec![0; CHUNK_CELLS * CELL].into());
            self.used = 0;
        }
        let at = (self.chunks.len() - 1) * CHUNK_CELLS + self.used;
        self.used += cells;
        u32::try_from(at).expect("16 GiB of addresses do not fit")
    }

    fn place(&mut self, at: u32, cells: usize) -> &mut [u8] {
        let start = at as usize % CHUNK_CELLS * CELL;
        &mut self.chunks[at as usize / CHUNK_CELLS][start..start + cells * CELL]
    }
}

pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_reads_back_whatever_its_length_and_its_place_is_used_again() {
        let mut texts = Texts::new();
        let long = "é".repeat(2000);
        let all: Vec<String> = (0..3000).map(|n| "x".repeat(n % 1022)).collect();
        let places: Vec<u32> = all.iter().map(|text| texts.insert(text)).collect();
        for (place, text) in places.iter().zip(&all) {
            assert_eq!(texts.get(*place), text);
        }
        texts.remove(places[17]);
        assert_eq!(texts.insert(&"y".repeat(17)), places[17]);
        let cut = texts.insert(&long);
        assert_eq!(texts.get(cut).len(), TEXT_BYTES_MAX);
    }
}
