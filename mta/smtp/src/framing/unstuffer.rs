//! Removes the framing of an incoming body, and finds flaws and long lines.
//!
//! Must never accept anything but CRLF.CRLF as the end of the message.

use memchr::memchr3;

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
