//! The messages a source sends: made up, as large as asked, or real ones from files; each with its own mark.
//!
//! Must never build or hash a whole message for each one sent: only its mark and its last line differ.

use super::draw::{Purpose, draw};
use super::sizes::Sizes;
use crate::mark::{Mark, Sum, Token, WARM_UP};
use anyhow::{Context, Result, ensure};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of a line of filler, with its CRLF.
const LINE_BYTES: usize = 78;
/// Lines from one that begins with a dot to the next, so that dot-stuffing is always exercised.
const DOT_EVERY: usize = 10;
/// Upper bound on the bytes of mark, Message-ID and last line of a generated message.
const EDGES_BYTES_MAX: usize = 260;
/// Upper bounds on the number and the bytes of real messages, which are kept in memory.
const REAL_MAX: usize = 100_000;
const REAL_BYTES_MAX: usize = 512 << 20;

/// All messages of a run.
pub struct Letters {
    run: u64,
    seed: u64,
    /// The text below the marks, not stuffed. Generated messages are prefixes of one text.
    plain: Vec<u8>,
    /// The same with its dots stuffed.
    stuffed: Vec<u8>,
    shapes: Vec<Shape>,
    choice: Choice,
}

/// What all messages of one size, or one real message, have in common.
struct Shape {
    plain: Range<usize>,
    stuffed: Range<usize>,
    /// Of `plain`.
    sum: Sum,
    /// Whether it has bytes above 127.
    eight_bit: bool,
}

enum Choice {
    /// Generated messages, of random shape; `sizes` are the sizes of the shapes.
    Made { sizes: Sizes, classes: Vec<usize> },
    /// Real messages, one after the other.
    InOrder,
    /// Real messages, in random order.
    Drawn,
}

/// One message; only `head` and `tail` are its own.
#[derive(Default)]
pub struct Edges {
    /// Message-ID and mark.
    pub head: Vec<u8>,
    /// The last line, if it has one of its own.
    pub tail: Vec<u8>,
}

/// The part between a message's edges.
#[derive(Clone, Copy)]
pub struct Middle<'a> {
    /// For BDAT: not stuffed.
    pub plain: &'a [u8],
    /// For DATA: with dots stuffed.
    pub stuffed: &'a [u8],
    /// Whether it has bytes above 127.
    pub eight_bit: bool,
}

impl Letters {
    /// Creates generated messages of these sizes, header included.
    pub fn made(run: u64, seed: u64, sender: &str, sizes: Sizes) -> Letters {
        let mut plain = format!(
            "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\nFrom: <{sender}>\r\nTo: posthaste-lab:;\r\n\
             Subject: posthaste-lab {run:016x}\r\n\r\n"
        )
        .into_bytes();
        let mut stuffed = plain.clone();
        let mut sum = Sum::new();
        sum.update(&plain);
        let (mut line, mut chance) = (0, run | 1);
        let classes = sizes.classes();
        let shapes = classes.iter().map(|size| {
            let from = plain.len();
            while plain.len() + LINE_BYTES <= size.saturating_sub(EDGES_BYTES_MAX) {
                let start = plain.len();
                filler(&mut plain, line % DOT_EVERY == 0, &mut chance);
                stuff_line(&mut stuffed, &plain[start..]);
                line += 1;
            }
            sum.update(&plain[from..]);
            let (plain, stuffed) = (0..plain.len(), 0..stuffed.len());
            Shape { plain, stuffed, sum: sum.clone(), eight_bit: false }
        });
        let shapes = shapes.collect();
        Letters { run, seed, plain, stuffed, shapes, choice: Choice::Made { sizes, classes } }
    }

    /// Each file of `directory` (not below it) is one message; sorted by name, or by chance.
    pub fn real(run: u64, seed: u64, directory: &Path, at_random: bool) -> Result<Letters> {
        let choice = if at_random { Choice::Drawn } else { Choice::InOrder };
        let (plain, stuffed) = (Vec::new(), Vec::new());
        let mut letters = Letters { run, seed, plain, stuffed, shapes: Vec::new(), choice };
        for path in files(directory)? {
            let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
            letters.add_real(&bytes);
            let kept = letters.plain.len();
            ensure!(kept <= REAL_BYTES_MAX, "more than {REAL_BYTES_MAX} bytes of messages");
        }
        ensure!(!letters.shapes.is_empty(), "{}: no file in it", directory.display());
        Ok(letters)
    }

    fn add_real(&mut self, bytes: &[u8]) {
        let (plain, stuffed) = (self.plain.len(), self.stuffed.len());
        for line in lines(bytes) {
            let start = self.plain.len();
            self.plain.extend_from_slice(line);
            self.plain.extend_from_slice(b"\r\n");
            stuff_line(&mut self.stuffed, &self.plain[start..]);
        }
        let mut sum = Sum::new();
        sum.update(&self.plain[plain..]);
        let eight_bit = !self.plain[plain..].is_ascii();
        let (plain, stuffed) = (plain..self.plain.len(), stuffed..self.stuffed.len());
        self.shapes.push(Shape { plain, stuffed, sum, eight_bit });
    }

    /// Fills in the edges of message `number`. Returns its number of bytes, dots not stuffed.
    pub fn write(&self, number: u64, edges: &mut Edges) -> (Middle<'_>, u64) {
        let token = Token { run: self.run, number };
        let (shape, made_size) = self.choose(number & !WARM_UP);
        let Edges { head, tail } = edges;
        head.clear();
        tail.clear();
        let mut sum = shape.sum.clone();
        // Writing to a Vec cannot fail.
        if let Some(size) = made_size {
            let _ = write!(head, "Message-ID: <{token}@posthaste-lab.invalid>\r\n");
            let _ = write!(tail, "This was {token}.");
            let mark_bytes = 53 + token_bytes(token) + decimal_digits(size);
            let rest = head.len() + mark_bytes + shape.plain.len() + tail.len() + 2;
            tail.resize(tail.len() + size.saturating_sub(rest), b'.');
            tail.extend_from_slice(b"\r\n");
            sum.update(tail);
        }
        let bytes = (shape.plain.len() + tail.len()) as u64;
        Mark { token, bytes, sum: sum.finish(token) }.write(head);
        let middle = Middle {
            plain: &self.plain[shape.plain.clone()],
            stuffed: &self.stuffed[shape.stuffed.clone()],
            eight_bit: shape.eight_bit,
        };
        (middle, head.len() as u64 + bytes)
    }

    /// The size of a generated message is exact to a byte.
    fn choose(&self, number: u64) -> (&Shape, Option<usize>) {
        let count = self.shapes.len() as u64;
        let at = match &self.choice {
            Choice::InOrder => number % count,
            Choice::Drawn => draw(self.seed, Purpose::Size, number, 0) % count,
            Choice::Made { sizes, classes } => {
                let size = sizes.of(self.seed, number);
                let at = classes.partition_point(|class| *class < size);
                return (&self.shapes[at], Some(size));
            }
        };
        (&self.shapes[at as usize], None)
    }
}

fn token_bytes(token: Token) -> usize {
    17 + usize::from(token.is_warm_up()) + decimal_digits((token.number & !WARM_UP) as usize)
}

fn decimal_digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if path.is_file() {
            paths.push(path);
            ensure!(paths.len() <= REAL_MAX, "more than {REAL_MAX} files");
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Returns lines without their line ends, and without the `From ` line of an mbox file.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = if bytes.ends_with(b"\n") || bytes.ends_with(b"\r") { 1 } else { 0 };
    let bytes = &bytes[..bytes.len() - end];
    let bytes = if end == 1 { bytes.strip_suffix(b"\r").unwrap_or(bytes) } else { bytes };
    let by_lf = bytes.split(|byte| *byte == b'\n');
    let lines = by_lf
        .flat_map(|line| line.strip_suffix(b"\r").unwrap_or(line).split(|byte| *byte == b'\r'));
    let is_envelope = bytes.starts_with(b"From ");
    lines.skip(usize::from(is_envelope))
}

fn filler(out: &mut Vec<u8>, dot: bool, chance: &mut u64) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -";
    for at in 0..LINE_BYTES - 2 {
        *chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let letter = LETTERS[(*chance >> 58) as usize];
        out.push(if at == 0 && dot { b'.' } else { letter });
    }
    out.extend_from_slice(b"\r\n");
}

/// Doubles a dot at the start (RFC 5321 4.5.2).
fn stuff_line(stuffed: &mut Vec<u8>, line: &[u8]) {
    if line.starts_with(b".") {
        stuffed.push(b'.');
    }
    stuffed.extend_from_slice(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::{Finding, Verifier};
    use crate::unstuff::Unstuff;

    /// The plain message, proven whole in both forms.
    fn proven(letters: &Letters, number: u64) -> Vec<u8> {
        let mut edges = Edges::default();
        let (middle, bytes) = letters.write(number, &mut edges);
        let Edges { head, tail } = edges;
        let plain = [&head[..], middle.plain, &tail].concat();
        let wire = [&head[..], middle.stuffed, &tail, b".\r\n"].concat();
        let (mut unstuff, mut unstuffed) = (Unstuff::new(), Vec::new());
        let end = unstuff.feed(&wire, &mut |out| unstuffed.extend_from_slice(out));
        assert_eq!((end, &unstuffed, unstuff.bare), (Some(wire.len()), &plain, 0));
        assert_eq!(plain.len() as u64, bytes);
        let mut verifier = Verifier::new();
        verifier.feed(&plain);
        assert_eq!(verifier.finish(), Finding::Whole(Token { run: 9, number }));
        plain
    }

    #[test]
    fn each_made_up_message_is_whole_to_the_verifier_and_as_large_as_asked() {
        let sizes = "0:1,400:1,1000:1,4096:1,100000:1";
        let letters = Letters::made(9, 3, "a@b.test", sizes.parse().unwrap());
        for number in (0..60).chain([WARM_UP, WARM_UP + 123_456]) {
            let plain = proven(&letters, number);
            let size = letters.choose(number & !WARM_UP).1.unwrap();
            assert!(size < 400 || plain.len().abs_diff(size) <= 1, "{} {size}", plain.len());
            assert!(plain.split(|byte| *byte == b'\n').all(|line| line.len() < 998));
        }
    }

    #[test]
    fn real_messages_have_their_line_ends_repaired_and_only_a_mark_put_on_top() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write("1", b"From x Thu\nSubject: a\n\n.one\n..\nlast without end");
        write("2", b"Subject: b\r\n\r\ncaf\xc3\xa9\r\n.\r\n\r\n");
        write("3", b"Subject: c\r\rold\r");
        std::fs::create_dir(directory.path().join("0")).unwrap();
        let letters = Letters::real(9, 3, directory.path(), false).unwrap();
        let texts: [&[u8]; 3] = [
            b"Subject: a\r\n\r\n.one\r\n..\r\nlast without end\r\n",
            b"Subject: b\r\n\r\ncaf\xc3\xa9\r\n.\r\n\r\n",
            b"Subject: c\r\n\r\nold\r\n",
        ];
        for number in 0..6 {
            let plain = proven(&letters, number);
            let end = plain.iter().position(|byte| *byte == b'\n').unwrap();
            assert_eq!(&plain[end + 1..], texts[number as usize % 3], "{number}");
            let eight_bit = letters.write(number, &mut Edges::default()).0.eight_bit;
            assert_eq!(eight_bit, number % 3 == 1);
        }
        let drawn = Letters::real(9, 3, directory.path(), true).unwrap();
        let middle = |number| drawn.write(number, &mut Edges::default()).0.plain.to_vec();
        let all: std::collections::BTreeSet<_> = (0..40).map(middle).collect();
        assert_eq!(all.len(), 3, "not all of them were drawn");
        assert!(Letters::real(9, 3, &directory.path().join("0"), false).is_err());
    }
}
