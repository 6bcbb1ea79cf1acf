//! The framing of a message after DATA: lines end in CRLF, a dot at the start of a line is doubled, and a line with a
//! single dot ends the message (RFC 5321 4.5.2 and 4.1.1.4).
//!
//! Must never accept anything but CRLF.CRLF as the end of the message. Must never change any other byte, except that
//! [`BareLf::Normalize`] adds a CR.

use memchr::{memchr, memchr3};

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

/// Bytes that a body must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// CR without LF.
    BareCr,
    /// LF without CR, which another server may treat as the end of a line.
    BareLf,
    /// NUL.
    Nul,
}

/// How LF without CR is treated in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BareLf {
    /// It is a flaw.
    #[default]
    Refuse,
    /// It ends a line, and a CR is added. It is never a part of the end of the message: a dot between two bare LFs, or
    /// between a bare LF and a CRLF, is a line of the message.
    Normalize,
}

/// Upper bound on the bytes of output for one byte of input: a dot that turns out to be data, with the CRLF after it.
pub const GROWTH_BYTES_MAX: usize = 3;

/// Removes the framing of an incoming body, which is given in pieces.
#[derive(Clone, Debug)]
pub struct Unstuffer {
    position: LinePosition,
    bare_lf: BareLf,
    /// True if the last line ended in CRLF or no line has ended. A single dot then ends the message.
    after_crlf: bool,
    /// True if dots at the start of a line have a meaning (DATA), false for raw octets (BDAT).
    dots: bool,
    /// Octets of the current line.
    line_bytes: u64,
    /// Octets of the longest complete line so far, without its CRLF.
    line_bytes_longest: u64,
    flaw: Option<Flaw>,
}

/// Where in a line the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// After the end of a line, or at the start of the body.
    LineStart,
    /// Within a line.
    Middle,
    /// After a CR within a line.
    AfterCr,
    /// After a dot at the start of a line. The dot is not a part of the output.
    AfterDot,
    /// After such a dot and a CR. The CR is not yet in the output.
    AfterDotCr,
}

/// The result of [`Unstuffer::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The number of input bytes that were used.
    pub used: usize,
    /// True if the final dot was among them. The bytes after it are not used.
    pub ended: bool,
}

impl Unstuffer {
    /// Creates an unstuffer for DATA.
    pub fn dotted(bare_lf: BareLf) -> Self {
        Self::new(true, bare_lf)
    }

    /// Creates an unstuffer for BDAT, where dots are data and only flaws and line lengths are found.
    pub fn raw(bare_lf: BareLf) -> Self {
        Self::new(false, bare_lf)
    }

    fn new(dots: bool, bare_lf: BareLf) -> Self {
        Unstuffer {
            position: LinePosition::LineStart,
            bare_lf,
            after_crlf: true,
            dots,
            line_bytes: 0,
            line_bytes_longest: 0,
            flaw: None,
        }
    }

    /// Returns the first flaw so far. The end of the body is still found after a flaw.
    pub fn flaw(&self) -> Option<Flaw> {
        self.flaw
    }

    /// Returns the octets of the longest line so far without CRLF, including the current line.
    pub fn line_bytes_longest(&self) -> u64 {
        self.line_bytes_longest.max(self.line_bytes)
    }

    /// Records the end of a raw body: a CR at the end is bare.
    pub fn end_raw(&mut self) {
        if self.position == LinePosition::AfterCr {
            self.mark(Flaw::BareCr);
        }
    }

    /// Appends the body's bytes to `out` without doubled dots, up to the end of `bytes` or of the message. After a flaw
    /// the content of `out` has no meaning.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Taken {
        self.take_within(bytes, usize::MAX, out)
    }

    /// Does the same but appends at most `room` bytes, and does not use input that has no room. If `room` is at least
    /// [`GROWTH_BYTES_MAX`], at least one byte is used.
    pub fn take_within(&mut self, bytes: &[u8], room: usize, out: &mut Vec<u8>) -> Taken {
        let bytes = &bytes[..bytes.len().min(room)];
        let mut run = Run { bytes, copied: 0, at: 0, spare: room - bytes.len() };
        while run.at < run.bytes.len() {
            match self.position {
                LinePosition::Middle => self.within_line(&mut run, out),
                LinePosition::LineStart if self.dots && bytes[run.at] == b'.' => {
                    run.copy(out);
                    run.drop_byte();
                    self.position = LinePosition::AfterDot;
                }
                LinePosition::LineStart => self.position = LinePosition::Middle,
                LinePosition::AfterCr => self.after_cr(&mut run),
                LinePosition::AfterDot if bytes[run.at] == b'\r' => {
                    run.drop_byte();
                    self.position = LinePosition::AfterDotCr;
                }
                LinePosition::AfterDot if bytes[run.at] == b'\n' && self.normalizes() => {
                    self.dot_line(false, &mut run, out);
                }
                LinePosition::AfterDot => self.position = LinePosition::Middle,
                LinePosition::AfterDotCr if bytes[run.at] == b'\n' && self.after_crlf => {
                    return Taken { used: run.at + 1, ended: true };
                }
                LinePosition::AfterDotCr if bytes[run.at] == b'\n' => {
                    self.dot_line(true, &mut run, out);
                }
                LinePosition::AfterDotCr => {
                    self.mark(Flaw::BareCr);
                    self.position = LinePosition::Middle;
                }
            }
        }
        run.copy(out);
        Taken { used: run.at, ended: false }
    }

    fn normalizes(&self) -> bool {
        self.bare_lf == BareLf::Normalize
    }

    /// Restores a single dot, which was removed, because a bare LF stands before or after it. The dot is a line of the
    /// message and not its end.
    fn dot_line(&mut self, crlf: bool, run: &mut Run<'_>, out: &mut Vec<u8>) {
        if run.grow(2) {
            run.replace_byte(b".\r\n", out);
            self.line_bytes = 1;
            self.end_line(crlf);
        }
    }

    /// Moves to the next byte that has a meaning: a line end or a flaw.
    fn within_line(&mut self, run: &mut Run<'_>, out: &mut Vec<u8>) {
        let rest = &run.bytes[run.at..];
        let Some(found) = memchr3(b'\r', b'\n', 0, rest) else {
            self.line_bytes += rest.len() as u64;
            run.at = run.bytes.len();
            return;
        };
        self.line_bytes += found as u64;
        run.at += found;
        if rest[found] == b'\n' && self.normalizes() {
            if run.grow(1) {
                run.replace_byte(b"\r\n", out);
                self.end_line(false);
            }
            return;
        }
        run.at += 1;
        match (rest[found], rest.get(found + 1)) {
            (b'\r', Some(b'\n')) => {
                run.at += 1;
                self.end_line(true);
            }
            (b'\r', None) => self.position = LinePosition::AfterCr,
            (b'\r', Some(_)) => self.mark(Flaw::BareCr),
            (b'\n', _) => self.mark(Flaw::BareLf),
            _ => self.mark(Flaw::Nul),
        }
    }

    fn after_cr(&mut self, run: &mut Run<'_>) {
        if run.bytes[run.at] == b'\n' {
            run.at += 1;
            self.end_line(true);
        } else {
            self.mark(Flaw::BareCr);
            self.position = LinePosition::Middle;
        }
    }

    fn end_line(&mut self, crlf: bool) {
        self.position = LinePosition::LineStart;
        self.after_crlf = crlf;
        self.line_bytes_longest = self.line_bytes_longest.max(self.line_bytes);
        self.line_bytes = 0;
    }

    fn mark(&mut self, flaw: Flaw) {
        self.flaw.get_or_insert(flaw);
    }
}

/// A piece of input that is being copied to the output. Everything before `copied` was copied or dropped.
struct Run<'a> {
    /// The input. It is shortened if the output grows by more than `spare`.
    bytes: &'a [u8],
    copied: usize,
    at: usize,
    /// The number of bytes by which the output may exceed the input.
    spare: usize,
}

impl Run<'_> {
    fn copy(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[self.copied..self.at]);
        self.copied = self.at;
    }

    /// Reserves room for `count` bytes in addition to the input. If there is no room, the input is cut before the
    /// current byte, and false is returned.
    fn grow(&mut self, count: usize) -> bool {
        let of_spare = count.min(self.spare);
        let end = self.bytes.len().saturating_sub(count - of_spare);
        let grows = end > self.at;
        if grows {
            self.spare -= of_spare;
        }
        self.bytes = &self.bytes[..end.max(self.at)];
        grows
    }

    /// Writes `bytes` instead of the current byte.
    fn replace_byte(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.copy(out);
        out.extend_from_slice(bytes);
        self.drop_byte();
    }

    /// Drops the current byte. Everything before it has been copied.
    fn drop_byte(&mut self) {
        self.at += 1;
        self.copied = self.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An encoder that works line by line and shares no code with `Stuffer`.
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

    /// Removes the framing in pieces of these sizes. Returns the body, the bytes used, the flaw, and whether the end
    /// was found.
    fn unstuffed(wire: &[u8], cuts: &[usize]) -> (Vec<u8>, usize, Option<Flaw>, bool) {
        unstuffed_by(Unstuffer::dotted(BareLf::Refuse), wire, cuts)
    }

    fn unstuffed_by(
        mut unstuffer: Unstuffer,
        wire: &[u8],
        cuts: &[usize],
    ) -> (Vec<u8>, usize, Option<Flaw>, bool) {
        let (mut out, mut used) = (Vec::new(), 0);
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
    fn r232_a_bare_lf_ends_a_line_and_never_a_message() {
        // What is sent, what comes behind the end if it is one, and the body.
        type Case = (&'static [u8], Option<&'static [u8]>, &'static [u8]);
        let table: &[Case] = &[
            (b"a\nb\n", None, b"a\r\nb\r\n"),
            (b"a\n.\n", None, b"a\r\n.\r\n"),
            (b"a\n.\r\n", None, b"a\r\n.\r\n"),
            (b"a\r\n.\n", None, b"a\r\n.\r\n"),
            (b".\n", None, b".\r\n"),
            (b"\n.\r\n.\r\n", Some(b"QUIT"), b"\r\n.\r\n"),
            (b"a\n..\n.b\n..c\n\r\n.\r\n", Some(b"\n.\n"), b"a\r\n.\r\nb\r\n.c\r\n\r\n"),
            (b"a\n.\n.\n.\r\n\n.\r\n.\r\n", Some(b""), b"a\r\n.\r\n.\r\n.\r\n\r\n.\r\n"),
        ];
        for (wire, behind, body) in table {
            let whole = [wire, behind.unwrap_or_default()].concat();
            for cuts in [&[][..], &[1; 60], &[2; 60], &[3, 1, 4, 1, 5]] {
                let unstuffer = Unstuffer::dotted(BareLf::Normalize);
                let found = unstuffed_by(unstuffer, &whole, cuts);
                let expected = (body.to_vec(), wire.len(), None, behind.is_some());
                assert_eq!(found, expected, "{wire:?} by {cuts:?}");
            }
        }
        for (wire, flaw) in [
            (&b"a\n\rb"[..], Flaw::BareCr),
            (b"a\n.\rb\n", Flaw::BareCr),
            (b"a\r\r\n", Flaw::BareCr),
            (b"\n\0", Flaw::Nul),
        ] {
            let unstuffer = Unstuffer::dotted(BareLf::Normalize);
            assert_eq!(unstuffed_by(unstuffer, wire, &[1; 9]).2, Some(flaw), "{wire:?}");
        }
    }

    #[test]
    fn r232_what_is_added_stays_within_the_room_and_each_call_moves_on() {
        let wire = b"\n.\n..\n.\r\nab\n\n\n\r\n.c\n\n\n\n".repeat(20);
        let (whole, ..) = unstuffed_by(Unstuffer::dotted(BareLf::Normalize), &wire, &[]);
        for room in GROWTH_BYTES_MAX..40 {
            let mut unstuffer = Unstuffer::dotted(BareLf::Normalize);
            let (mut out, mut used) = (Vec::new(), 0);
            while used < wire.len() {
                let before = out.len();
                let taken = unstuffer.take_within(&wire[used..], room, &mut out);
                assert!(taken.used > 0 && out.len() - before <= room, "{room}");
                used += taken.used;
            }
            assert_eq!(out, whole, "{room}");
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
