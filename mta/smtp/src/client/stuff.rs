//! Dot-stuffing (RFC 5321 4.5.2) over any cut of the body.
//!
//! Must never let a body end itself: also a dot after a bare CR or LF, which the receiving side
//! refuses anyway, gets its second dot.

use memchr::memchr_iter;

/// Where the last byte left the line.
#[derive(Clone, Copy, Debug)]
pub struct Stuffer {
    last_two: [u8; 2],
}

impl Default for Stuffer {
    fn default() -> Self {
        Stuffer { last_two: *b"\r\n" }
    }
}

impl Stuffer {
    /// Appends `bytes` to `out`, the dots that begin a line doubled.
    pub fn stuff(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(last) = bytes.last() else { return };
        let mut copied = 0;
        for dot in memchr_iter(b'.', bytes) {
            let before = if dot == 0 { self.last_two[1] } else { bytes[dot - 1] };
            if matches!(before, b'\n' | b'\r') {
                out.extend_from_slice(&bytes[copied..dot]);
                out.push(b'.');
                copied = dot;
            }
        }
        out.extend_from_slice(&bytes[copied..]);
        let before = if bytes.len() > 1 { bytes[bytes.len() - 2] } else { self.last_two[1] };
        self.last_two = [before, *last];
    }

    /// Appends the end of the data; a last line without an end gets one (RFC 5321 4.1.1.4).
    pub fn end(self, out: &mut Vec<u8>) {
        if self.last_two != *b"\r\n" {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b".\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stuffed(body: &[u8], cut: usize) -> Vec<u8> {
        let (mut stuffer, mut out) = (Stuffer::default(), Vec::new());
        body.chunks(cut.max(1)).for_each(|part| stuffer.stuff(part, &mut out));
        stuffer.end(&mut out);
        out
    }

    #[test]
    fn each_line_of_a_dot_gets_a_second_one_however_the_body_is_cut() {
        for (body, wanted) in [
            (&b""[..], &b".\r\n"[..]),
            (b".", b"..\r\n.\r\n"),
            (b"a\r\n.\r\n", b"a\r\n..\r\n.\r\n"),
            (b"..a\r\n.b.c\r\n", b"...a\r\n..b.c\r\n.\r\n"),
            (b"a", b"a\r\n.\r\n"),
            (b"a\r", b"a\r\r\n.\r\n"),
            (b"a\n.\n", b"a\n..\n\r\n.\r\n"),
            (b"a\r.\r\nb", b"a\r..\r\nb\r\n.\r\n"),
        ] {
            for cut in 1..=body.len().max(1) {
                assert_eq!(stuffed(body, cut), wanted, "{body:?} cut at {cut}");
            }
        }
    }
}
