//! The framing of a message after DATA: lines end in CRLF, a dot at the start of a line is
//! doubled, a lone dot ends it (RFC 5321 4.5.2 and 4.1.1.4).
//!
//! Must never take anything but CRLF.CRLF for the end, and never change another byte.

use memchr::{memchr, memchr3};

/// Doubles the dots of a body that comes in pieces, for sending.
#[derive(Clone, Debug)]
pub struct Stuffer {
    /// The last bytes of what went out, as far as the next piece depends on them.
    edge: Edge,
}

/// What the body so far ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// CRLF, or nothing at all: the next byte starts a line.
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
    /// Appends `body` to `out`, dots doubled. Pieces may be cut anywhere.
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

    /// Ends the message: the final dot, and before it the CRLF that the body may lack.
    pub fn finish(self, out: &mut Vec<u8>) {
        if self.edge != Edge::LineStart {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b".\r\n");
    }
}

/// Why a body cannot be taken, found while it goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// CR without LF.
    BareCr,
    /// LF without CR: where another server sees a line, this one would not.
    BareLf,
    /// NUL.
    Nul,
}

/// Takes the framing off a body that comes in pieces.
#[derive(Clone, Debug)]
pub struct Unstuffer {
    place: Place,
    /// Dots at line starts mean something (DATA); false: raw octets (BDAT).
    dots: bool,
    /// Octets of the line that is not over yet.
    line_bytes: u64,
    /// The longest line so far, without its CRLF.
    line_bytes_longest: u64,
    flaw: Option<Flaw>,
}

/// Where in a line the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// After CRLF, or at the very start.
    LineStart,
    /// Within a line.
    Middle,
    /// After a CR within a line.
    AfterCr,
    /// After the dot that started a line, which is dropped.
    AfterDot,
    /// After that dot and a CR, which is kept back.
    AfterDotCr,
}

/// What `Unstuffer::take` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the input that are done with.
    pub used: usize,
    /// The final dot was among them; nothing after it was looked at.
    pub ended: bool,
}

impl Unstuffer {
    /// For DATA.
    pub fn dotted() -> Self {
        Self::new(true)
    }

    /// For BDAT, where dots are data and only flaws and lines are watched.
    pub fn raw() -> Self {
        Self::new(false)
    }

    fn new(dots: bool) -> Self {
        Unstuffer {
            place: Place::LineStart,
            dots,
            line_bytes: 0,
            line_bytes_longest: 0,
            flaw: None,
        }
    }

    /// The first flaw so far; the body is still followed to its real end.
    pub fn flaw(&self) -> Option<Flaw> {
        self.flaw
    }

    /// The longest line so far in octets, CRLF not counted, the unfinished one too.
    pub fn line_bytes_longest(&self) -> u64 {
        self.line_bytes_longest.max(self.line_bytes)
    }

    /// The raw body is over: a CR at its end stays bare.
    pub fn end_raw(&mut self) {
        if self.place == Place::AfterCr {
            self.mark(Flaw::BareCr);
        }
    }

    /// Appends the body's bytes in `bytes` to `out`, without doubled dots, up to the end of
    /// `bytes` or of the message. Once there is a flaw the content of `out` means nothing.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Taken {
        let mut run = Run { bytes, copied: 0, at: 0 };
        while run.at < bytes.len() {
            match self.place {
                Place::Middle => self.within_line(&mut run),
                Place::LineStart if self.dots && bytes[run.at] == b'.' => {
                    run.copy(out);
                    run.drop_byte();
                    self.place = Place::AfterDot;
                }
                Place::LineStart => self.place = Place::Middle,
                Place::AfterCr => self.after_cr(&mut run),
                Place::AfterDot if bytes[run.at] == b'\r' => {
                    run.drop_byte();
                    self.place = Place::AfterDotCr;
                }
                Place::AfterDot => self.place = Place::Middle,
                Place::AfterDotCr if bytes[run.at] == b'\n' => {
                    return Taken { used: run.at + 1, ended: true };
                }
                Place::AfterDotCr => {
                    self.mark(Flaw::BareCr);
                    self.place = Place::Middle;
                }
            }
        }
        run.copy(out);
        Taken { used: bytes.len(), ended: false }
    }

    /// Goes to the next byte that matters; leaves the line at its CRLF.
    fn within_line(&mut self, run: &mut Run<'_>) {
        let rest = &run.bytes[run.at..];
        let Some(found) = memchr3(b'\r', b'\n', 0, rest) else {
            self.line_bytes += rest.len() as u64;
            run.at = run.bytes.len();
            return;
        };
        self.line_bytes += found as u64;
        run.at += found + 1;
        match (rest[found], rest.get(found + 1)) {
            (b'\r', Some(b'\n')) => {
                run.at += 1;
                self.end_line();
            }
            (b'\r', None) => self.place = Place::AfterCr,
            (b'\r', Some(_)) => self.mark(Flaw::BareCr),
            (b'\n', _) => self.mark(Flaw::BareLf),
            _ => self.mark(Flaw::Nul),
        }
    }

    fn after_cr(&mut self, run: &mut Run<'_>) {
        if run.bytes[run.at] == b'\n' {
            run.at += 1;
            self.end_line();
        } else {
            self.mark(Flaw::BareCr);
            self.place = Place::Middle;
        }
    }

    fn end_line(&mut self) {
        self.place = Place::LineStart;
        self.line_bytes_longest = self.line_bytes_longest.max(self.line_bytes);
        self.line_bytes = 0;
    }

    fn mark(&mut self, flaw: Flaw) {
        self.flaw.get_or_insert(flaw);
    }
}

/// A piece of input on its way to the output: everything before `copied` has gone.
struct Run<'a> {
    bytes: &'a [u8],
    copied: usize,
    at: usize,
}

impl Run<'_> {
    fn copy(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[self.copied..self.at]);
        self.copied = self.at;
    }

    /// Leaves the byte at hand out; everything before it has been copied.
    fn drop_byte(&mut self) {
        self.at += 1;
        self.copied = self.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An encoder that shares nothing with `Stuffer`: line by line.
    fn stuffed(body: &[u8]) -> Vec<u8> {
        let text = body.split_inclusive(|byte| *byte == b'\n');
        let mut out = Vec::new();
        for line in text {
            out.extend(line.starts_with(b".").then_some(b'.'));
            out.extend(line);
        }
        out.extend(b".\r\n");
        out
    }

    /// Takes the framing off in pieces of the given sizes; body, bytes used, flaw.
    fn unstuffed(wire: &[u8], cuts: &[usize]) -> (Vec<u8>, usize, Option<Flaw>, bool) {
        let (mut unstuffer, mut out, mut used) = (Unstuffer::dotted(), Vec::new(), 0);
        let mut sizes = cuts.iter().copied().chain(std::iter::repeat(wire.len().max(1)));
        while used < wire.len() {
            let size = sizes.next().unwrap_or(1).clamp(1, wire.len() - used);
            let taken = unstuffer.take(&wire[used..used + size], &mut out);
            used += taken.used;
            if taken.ended {
                return (out, used, unstuffer.flaw(), true);
            }
        }
        (out, used, unstuffer.flaw(), false)
    }

    proptest! {
        #[test]
        fn any_clean_body_comes_back_byte_exact_however_it_is_cut(
            lines in prop::collection::vec("[.a\u{e9} ]{0,4}", 0..20),
            cuts in prop::collection::vec(1usize..9, 0..60),
        ) {
            let body = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>().into_bytes();
            let mut wire = stuffed(&body);
            let end = wire.len();
            wire.extend(b"QUIT\r\n");
            prop_assert_eq!(unstuffed(&wire, &cuts), (body.clone(), end, None, true));
            let (mut stuffer, mut out, mut from) = (Stuffer::default(), Vec::new(), 0);
            for cut in cuts {
                let to = (from + cut).min(body.len());
                stuffer.stuff(&body[from..to], &mut out);
                from = to;
            }
            stuffer.stuff(&body[from..], &mut out);
            stuffer.finish(&mut out);
            prop_assert_eq!(&out[..], &wire[..end]);
        }

        #[test]
        fn cutting_never_changes_what_is_found(
            wire in prop::collection::vec(prop::sample::select(&b"\r\n.a\0"[..]), 0..40),
            cuts in prop::collection::vec(1usize..5, 0..40),
        ) {
            let whole = unstuffed(&wire, &[]);
            let pieces = unstuffed(&wire, &cuts);
            prop_assert_eq!((whole.1, whole.2, whole.3), (pieces.1, pieces.2, pieces.3));
            if whole.2.is_none() {
                prop_assert_eq!(whole.0, pieces.0);
            }
            let end = wire.windows(5).position(|five| five == b"\r\n.\r\n").map(|at| at + 5);
            let end = if wire.starts_with(b".\r\n") { Some(3) } else { end };
            prop_assert_eq!(whole.3.then_some(whole.1), end);
        }
    }

    #[test]
    fn a_body_without_final_crlf_gets_one() {
        for (body, wire) in
            [("", ".\r\n"), ("a", "a\r\n.\r\n"), (".", "..\r\n.\r\n"), ("\r\n", "\r\n.\r\n")]
        {
            let (mut stuffer, mut out) = (Stuffer::default(), Vec::new());
            stuffer.stuff(body.as_bytes(), &mut out);
            stuffer.finish(&mut out);
            assert_eq!(out, wire.as_bytes());
        }
    }
}
