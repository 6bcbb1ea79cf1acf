//! Bytes from the peer in, replies out (RFC 5321 4.2): bounded, and made harmless.
//!
//! Must never keep more than `LINE_BYTES_MAX` + 1 + `TEXT_BYTES_MAX`, and never hand on a control
//! character or an 8-bit byte of the peer.

use mail::{Enhanced, Reply};
use memchr::memchr;

/// Octets of one reply line, four times what RFC 5321 4.5.3.1.5 grants.
pub const LINE_BYTES_MAX: usize = 2048;
/// Lines of one reply.
pub const LINES_MAX: usize = 128;
/// Octets of text kept of one reply; what is more is counted and dropped.
pub const TEXT_BYTES_MAX: usize = 8 * 1024;

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Garbage {
    /// A line without an end.
    #[error("its reply has a line of more than 2048 octets")]
    LongLine,
    /// A reply without an end.
    #[error("its reply has more than 128 lines")]
    ManyLines,
    /// No code between 200 and 599 ahead of ` `, `-` or the line's end.
    #[error("its reply has no valid code")]
    Code,
    /// The lines of one reply disagree.
    #[error("its reply has lines with different codes")]
    Codes,
    /// A good reply at a place where it means nothing.
    #[error("its reply does not fit the command")]
    Unfit,
    /// A reply that nothing asked for.
    #[error("it sent a reply that nothing asked for")]
    Unasked,
}

/// Collects one reply after the other.
#[derive(Debug, Default)]
pub struct ReplyReader {
    /// The start of a line whose end has not come yet.
    line: Vec<u8>,
    /// What the lines so far of the reply say.
    code: u16,
    lines: usize,
    enhanced: Option<Enhanced>,
    text: String,
}

impl ReplyReader {
    /// Takes bytes up to the end of one reply: how many it took, and the reply if it is whole.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Reply>), Garbage> {
        let mut taken = 0;
        while let Some(end) = memchr(b'\n', &bytes[taken..]) {
            let line = &bytes[taken..taken + end];
            taken += end + 1;
            let last = if self.line.is_empty() {
                self.add_line(line)?
            } else {
                self.keep(line)?;
                let whole = std::mem::take(&mut self.line);
                self.add_line(&whole)?
            };
            if last {
                return Ok((taken, Some(self.finish())));
            }
        }
        self.keep(&bytes[taken..])?;
        Ok((bytes.len(), None))
    }

    /// Whether a reply has begun and not ended.
    pub fn is_amid(&self) -> bool {
        self.lines > 0 || !self.line.is_empty()
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), Garbage> {
        // The CR may be among them: where a line is cut must not make it longer.
        if self.line.len() + part.len() > LINE_BYTES_MAX + 1 {
            return Err(Garbage::LongLine);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Adds one line without its LF; says whether it was the reply's last.
    fn add_line(&mut self, line: &[u8]) -> Result<bool, Garbage> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LINE_BYTES_MAX {
            return Err(Garbage::LongLine);
        }
        let (code, last, text) = split(line).ok_or(Garbage::Code)?;
        if self.lines > 0 && code != self.code {
            return Err(Garbage::Codes);
        }
        if self.lines == LINES_MAX {
            return Err(Garbage::ManyLines);
        }
        self.code = code;
        self.add_text(text);
        self.lines += 1;
        Ok(last)
    }

    fn add_text(&mut self, mut text: &[u8]) {
        if let Some((enhanced, rest)) = enhanced(text, self.code)
            && (self.lines == 0 || self.enhanced == Some(enhanced))
        {
            self.enhanced = Some(enhanced);
            text = rest;
        }
        let room = TEXT_BYTES_MAX.saturating_sub(self.text.len() + 1);
        if self.lines > 0 && room > 0 {
            self.text.push('\n');
        }
        self.text.extend(text.iter().take(room).map(|byte| harmless(*byte)));
    }

    fn finish(&mut self) -> Reply {
        self.lines = 0;
        let text = self.text.trim_end().into();
        self.text.clear();
        Reply { code: self.code, enhanced: self.enhanced.take(), text }
    }
}

/// Code, whether it is the last line, and the text. `250` alone is a whole line (RFC 5321 4.2).
fn split(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let digits = line.get(..3)?;
    if !matches!(digits[0], b'2'..=b'5') || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match line.get(3) {
        None => Some((code, true, b"")),
        Some(b' ') => Some((code, true, &line[4..])),
        Some(b'-') => Some((code, false, &line[4..])),
        Some(_) => None,
    }
}

/// An enhanced code of the reply's own class at the start of the text (RFC 2034 4).
fn enhanced(text: &[u8], code: u16) -> Option<(Enhanced, &[u8])> {
    // A tab is shown as a space below, so it parts words here too.
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = text.iter().position(blank).unwrap_or(text.len());
    let word = std::str::from_utf8(&text[..end]).ok()?;
    let mut parts = word.split('.');
    let mut number = |digits: usize| {
        let part = parts.next()?;
        let fits =
            !part.is_empty() && part.len() <= digits && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u16>().ok().filter(|_| fits)
    };
    let (class, subject, detail) = (number(1)?, number(3)?, number(3)?);
    if parts.next().is_some() || class != code / 100 {
        return None;
    }
    let rest = text.get(end + 1..).unwrap_or_default();
    Some((Enhanced(class as u8, subject, detail), rest))
}

fn harmless(byte: u8) -> char {
    match byte {
        b'\t' => ' ',
        0x20..=0x7e => char::from(byte),
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Read = (Vec<Reply>, Option<Garbage>, bool);

    /// All replies of a stream in pieces of these sizes, how it ended, and whether one is half there.
    fn read(stream: &[u8], cuts: &[usize]) -> Read {
        let (mut reader, mut replies, mut rest) = (ReplyReader::default(), Vec::new(), stream);
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let size = (*cuts.next().unwrap()).clamp(1, rest.len());
            let (mut piece, after) = rest.split_at(size);
            while !piece.is_empty() {
                match reader.take(piece) {
                    Err(garbage) => return (replies, Some(garbage), false),
                    Ok((taken, reply)) => {
                        piece = &piece[taken..];
                        replies.extend(reply);
                    }
                }
            }
            rest = after;
        }
        (replies, None, reader.is_amid())
    }

    #[test]
    fn a_line_of_the_longest_kind_is_read_however_it_is_cut_and_a_longer_one_never() {
        for (bytes, fits) in [(LINE_BYTES_MAX, true), (LINE_BYTES_MAX + 1, false)] {
            let line = [b"250 ", &vec![b'x'; bytes - 4][..], b"\r\n"].concat();
            for cut in [1, 7, bytes, bytes + 1, bytes + 2] {
                let (replies, garbage, _) = read(&line, &[cut]);
                assert_eq!(
                    (replies.len() == 1, garbage.is_none()),
                    (fits, fits),
                    "{bytes} by {cut}"
                );
            }
        }
    }

    #[test]
    fn a_tab_parts_the_enhanced_code_from_the_text_as_a_space_does() {
        let (replies, ..) = read(b"421 4.3.2\tbye\r\n421 4.3.2 bye\r\n", &[1]);
        assert_eq!(replies[0], replies[1]);
        assert_eq!(replies[0].enhanced, Some(Enhanced(4, 3, 2)));
    }

    fn part() -> impl Strategy<Value = Vec<u8>> {
        let words: Vec<&[u8]> = vec![
            b"220 mx\r\n",
            b"250-",
            b"250 ",
            b"250\r\n",
            b"2.1.0 ",
            b"5.1.1\t",
            b"550 5.1.1 no\r\n",
            b"421 bye\n",
            b"\r\n",
            b"\n",
            b"\r",
            b"999",
            b"-",
        ];
        let any = prop::collection::vec(any::<u8>(), 0..6);
        prop_oneof![5 => prop::sample::select(words).prop_map(<[u8]>::to_vec), 1 => any]
    }

    proptest! {
        #[test]
        fn any_way_of_cutting_the_same_bytes_gives_the_same_replies(
            parts in prop::collection::vec(part(), 0..20),
            cuts in prop::collection::vec(1usize..12, 1..8),
        ) {
            let stream = parts.concat();
            let whole = read(&stream, &[usize::MAX]);
            prop_assert_eq!(&read(&stream, &[1]), &whole);
            prop_assert_eq!(&read(&stream, &cuts), &whole);
        }
    }
}
