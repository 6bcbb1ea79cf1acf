//! Finds the end of DATA and takes the stuffed dots out (RFC 5321 4.5.2).
//!
//! Must never take anything but CRLF.CRLF for the end.

/// The state between two bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    LineStart,
    /// A dot at the start of a line, held back.
    Dot,
    /// That dot and a CR, both held back.
    DotCr,
    Text,
    /// A CR inside a line, passed on.
    Cr,
}

/// Reads DATA in pieces of any size; keeps only its state.
pub struct Unstuff {
    at: At,
    /// Bare LF and bare CR, which a mailer must never send.
    pub bare: u64,
}

impl Unstuff {
    /// Creates the state after the 354.
    pub fn new() -> Unstuff {
        Unstuff { at: At::LineStart, bare: 0 }
    }

    /// Passes the message's bytes to `out`. Returns `Some(n)` if the message ended after `n` bytes of `input`.
    pub fn feed(&mut self, input: &[u8], out: &mut impl FnMut(&[u8])) -> Option<usize> {
        let mut from = 0; // the first byte not yet given to `out`
        let mut next = 0;
        while next < input.len() {
            let byte = input[next];
            match self.at {
                At::Text => match memchr::memchr2(b'\r', b'\n', &input[next..]) {
                    None => break,
                    Some(skip) => {
                        next += skip;
                        self.end_of_text(input[next]);
                    }
                },
                At::Cr => self.after_cr(byte),
                At::LineStart if byte == b'.' => {
                    out(&input[from..next]);
                    from = next + 1;
                    self.at = At::Dot;
                }
                At::Dot if byte == b'\r' => {
                    from = next + 1;
                    self.at = At::DotCr;
                }
                At::LineStart | At::Dot => self.in_text(byte),
                At::DotCr if byte == b'\n' => return Some(next + 1),
                At::DotCr => {
                    out(b"\r");
                    self.after_cr(byte);
                }
            }
            next += 1;
        }
        out(&input[from.min(input.len())..]);
        None
    }

    fn end_of_text(&mut self, byte: u8) {
        if byte == b'\r' {
            self.at = At::Cr;
        } else {
            self.bare += 1;
        }
    }

    fn in_text(&mut self, byte: u8) {
        self.at = At::Text;
        if matches!(byte, b'\r' | b'\n') {
            self.end_of_text(byte);
        }
    }

    fn after_cr(&mut self, byte: u8) {
        if byte == b'\n' {
            self.at = At::LineStart;
        } else {
            self.bare += 1;
            self.in_text(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message, how many bytes were left over after the end, and the bare line ends.
    fn unstuff(input: &[u8], piece: usize) -> (Vec<u8>, Option<usize>, u64) {
        let (mut machine, mut message) = (Unstuff::new(), Vec::new());
        for (number, bytes) in input.chunks(piece).enumerate() {
            if let Some(end) = machine.feed(bytes, &mut |out| message.extend_from_slice(out)) {
                return (message, Some(input.len() - number * piece - end), machine.bare);
            }
        }
        (message, None, machine.bare)
    }

    #[test]
    fn only_crlf_dot_crlf_ends_and_stuffed_dots_go_in_pieces_of_any_size() {
        type Row<'a> = (&'a [u8], &'a [u8], Option<usize>, u64);
        let table: &[Row] = &[
            (b".\r\nQUIT", b"", Some(4), 0),
            (b"a\r\n.\r\n", b"a\r\n", Some(0), 0),
            (b"..\r\n.a\r\n...\r\n.\r\n", b".\r\na\r\n..\r\n", Some(0), 0),
            (b"a\n.\nb\r\n.\r\n", b"a\n.\nb\r\n", Some(0), 2),
            (b"a\n.\r\nb", b"a\n.\r\nb", None, 1),
            (b"a\r\n.\nb", b"a\r\n\nb", None, 1),
            (b"a\r.\r\n.\r\n", b"a\r.\r\n", Some(0), 1),
            (b"\r\n.\r\r\n.\r\n", b"\r\n\r\r\n", Some(0), 1),
            (b"a\r\n.\rb\r\n.\r\nx", b"a\r\n\rb\r\n", Some(1), 1),
            (b"a\r\r\n.\r\n", b"a\r\r\n", Some(0), 1),
        ];
        for (input, message, left, bare) in table {
            for piece in 1..=input.len() {
                let got = unstuff(input, piece);
                let name = String::from_utf8_lossy(input).into_owned();
                assert_eq!(got, (message.to_vec(), *left, *bare), "{name:?} by {piece}");
            }
        }
    }
}
