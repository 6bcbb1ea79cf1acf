//! The outgoing body: its framing, and which bytes to ask for next.
//!
//! Must never end an incomplete body.

use super::message::OutboundMessage;
use crate::framing::Stuffer;

/// Upper bound on the octets of one request: one chunk of the spool.
pub const BODY_CHUNK_BYTES_MAX: u32 = 256 * 1024;

/// How the end of the body is marked.
#[derive(Clone, Debug)]
pub(super) enum Framing {
    /// After DATA: leading dots are doubled, and a line with a dot ends the body.
    Dots(Stuffer),
    /// After BDAT, which announced the length.
    Counted,
}

#[derive(Debug)]
pub(super) struct BodyOut {
    framing: Framing,
    /// The offset of the next bytes in the message.
    offset: u64,
    bytes: u64,
    asked: bool,
}

impl BodyOut {
    /// Starts at the first byte of the message.
    pub fn start(framing: Framing, message: &OutboundMessage) -> BodyOut {
        BodyOut { framing, offset: 0, bytes: message.body_bytes, asked: false }
    }

    fn frame(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match &mut self.framing {
            Framing::Dots(stuffer) => stuffer.stuff(bytes, out),
            Framing::Counted => out.extend_from_slice(bytes),
        }
    }

    /// Returns the offset and the number of the next bytes to ask for, or `None` while a request is unanswered.
    pub fn ask(&mut self) -> Option<(u64, u32)> {
        let left = self.bytes - self.offset;
        if self.asked || left == 0 {
            return None;
        }
        self.asked = true;
        Some((self.offset, left.min(u64::from(BODY_CHUNK_BYTES_MAX)) as u32))
    }

    /// Frames the next bytes. Bytes beyond the announced size are a bug of the caller and dropped.
    pub fn add(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let left = usize::try_from(self.bytes - self.offset).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(left)];
        self.frame(bytes, out);
        self.offset += bytes.len() as u64;
        self.asked = false;
    }

    /// Frames the next bytes of content that is in memory.
    pub fn add_from(&mut self, content: &[u8], out: &mut Vec<u8>) {
        let from = usize::try_from(self.offset).unwrap_or(usize::MAX).min(content.len());
        let to = content.len().min(from + BODY_CHUNK_BYTES_MAX as usize);
        self.add(&content[from..to], out);
    }

    pub fn is_whole(&self) -> bool {
        self.offset == self.bytes
    }

    pub fn end(self, out: &mut Vec<u8>) {
        if let Framing::Dots(stuffer) = self.framing {
            stuffer.finish(out);
        }
    }
}
