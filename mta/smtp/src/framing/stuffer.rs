//! Adds the framing to an outgoing body.
//!
//! Must never change a byte of the body: it only adds dots and the final line end.

use memchr::memchr;

/// Doubles the dots of an outgoing body, which is given in pieces.
#[derive(Clone, Debug)]
pub struct Stuffer {
    /// The end of the body so far.
    edge: Edge,
}

/// The end of the body so far, on which the framing of the next byte depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// CRLF, or no byte yet: the next byte starts a line.
    LineStart,
    /// CR.
    Cr,
    /// Anything else.
    Middle,
}

impl Default for Stuffer {
    fn default() -> Self {
        Stuffer { edge: Edge::LineStart }
    }
}

impl Stuffer {
    /// Appends a piece of the body to `out` with its dots doubled. The pieces may be cut anywhere.
    pub fn stuff(&mut self, body: &[u8], out: &mut Vec<u8>) {
        let Some((&last, before)) = body.split_last() else { return };
        out.reserve(body.len() + body.len() / 64);
        let mut copied = 0;
        if self.edge == Edge::LineStart && body[0] == b'.' {
            out.push(b'.');
        }
        let mut at = 0;
        while let Some(found) = memchr(b'\n', &body[at..]) {
            let next = at + found + 1;
            let after_cr = if next >= 2 { body[next - 2] == b'\r' } else { self.edge == Edge::Cr };
            if after_cr && body.get(next) == Some(&b'.') {
                out.extend_from_slice(&body[copied..next]);
                out.push(b'.');
                copied = next;
            }
            at = next;
        }
        out.extend_from_slice(&body[copied..]);
        let before_last = before.last().map_or(self.edge == Edge::Cr, |byte| *byte == b'\r');
        self.edge = match last {
            b'\n' if before_last => Edge::LineStart,
            b'\r' => Edge::Cr,
            _ => Edge::Middle,
        };
    }

    /// Appends the final dot, and before it a CRLF if the body does not end in one.
    pub fn finish(self, out: &mut Vec<u8>) {
        if self.edge != Edge::LineStart {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b".\r\n");
    }
}
