//! An input taken apart from its front, for targets that want more than one string of bytes.
//!
//! Must never fail: an input that is over gives zeros and empty pieces.

/// What is left of an input.
#[derive(Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Nothing is left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `bound`, which is at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// Often a small number, else any.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=239 => u64::from(byte % 8),
            240..=250 => u64::from(self.u16()),
            _ => self.u64(),
        }
    }

    /// Returns the next bytes, up to this number.
    pub fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A piece that says its length in one byte.
    pub fn short(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }

    /// A piece that says its length in two bytes.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.u16());
        self.take(length)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Bytes cut in the places that `sizes` says, again and again; no sizes: in one piece.
pub fn pieces<'a>(bytes: &'a [u8], sizes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let size = sizes.next().map_or(rest.len(), |size| match size {
            0 => 1,
            255 => 4_096,
            size => usize::from(*size),
        });
        let (piece, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        Some(piece)
    })
}
