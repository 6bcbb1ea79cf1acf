//! Parses the replies of a peer (RFC 5321 4.2) and bounds their size.
//!
//! Must never keep more than `LINE_BYTES_MAX` + 1 + `TEXT_BYTES_MAX`, and never return a control
//! character or an 8-bit octet of the peer.
//!
//! The code of a reply decides about mail, so it is used whenever it is clear: long lines are cut,
//! empty lines are skipped, and if codes differ within one class, the last one counts.

use mail::{Enhanced, Reply};
use memchr::memchr;

/// Upper bound on the octets that are kept of a reply line: four times the limit of RFC 5321
/// 4.5.3.1.5. The rest is skipped.
pub const LINE_BYTES_MAX: usize = 2048;
/// Upper bound on the octets of a reply line with its CR. A longer line breaks the protocol.
pub const LINE_BYTES_READ_MAX: usize = 64 * 1024;
/// Upper bound on the empty lines before or inside a reply.
pub const EMPTY_LINES_MAX: usize = 16;
/// Upper bound on the lines of one reply.
pub const LINES_MAX: usize = 128;
/// Upper bound on the octets of text that are kept of one reply. The rest is counted and dropped.
pub const TEXT_BYTES_MAX: usize = 8 * 1024;

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Garbage {
    /// A line without an end.
    #[error("its reply has a line of more than 65536 octets")]
    LongLine,
    /// A reply without an end.
    #[error("its reply has more than 128 lines")]
    ManyLines,
    /// No code between 200 and 599 ahead of ` `, `-` or the line's end.
    #[error("its reply has no valid code")]
    Code,
    /// The lines of one reply are of different classes.
    #[error("its reply has lines with codes of different classes")]
    Codes,
    /// A reply whose class has no meaning at this place.
    #[error("its reply does not fit the command")]
    Unfit,
    /// A reply that nothing asked for.
    #[error("it sent a reply that nothing asked for")]
    Unasked,
}

/// Collects one reply after the other.
#[derive(Debug, Default)]
pub struct ReplyReader {
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// The octets of that line so far, including skipped ones.
    line_bytes: usize,
    /// Empty lines since the last reply.
    empty_lines: usize,
    /// The lines of the reply so far.
    code: u16,
    lines: usize,
    enhanced: Option<Enhanced>,
    /// Where in `text` the lines with `enhanced` begin.
    enhanced_at: usize,
    text: String,
}

impl ReplyReader {
    /// Takes bytes up to the end of one reply. Returns how many it took, and the reply if it is
    /// complete.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Reply>), Garbage> {
        let mut taken = 0;
        while let Some(end) = memchr(b'\n', &bytes[taken..]) {
            let line = &bytes[taken..taken + end];
            taken += end + 1;
            let last = if self.line_bytes == 0 && line.len() <= LINE_BYTES_MAX {
                self.add_line(line)?
            } else {
                self.keep(line)?;
                self.line_bytes = 0;
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

    /// True if a reply has begun and not ended.
    pub fn is_amid(&self) -> bool {
        self.lines > 0 || self.line_bytes > 0
    }

    /// Keeps the start of a line and counts the skipped octets.
    fn keep(&mut self, part: &[u8]) -> Result<(), Garbage> {
        self.line_bytes += part.len();
        if self.line_bytes > LINE_BYTES_READ_MAX {
            return Err(Garbage::LongLine);
        }
        // One octet more, for the CR: the length of a line must not depend on how it arrives.
        let room = LINE_BYTES_MAX + 1 - self.line.len();
        self.line.extend_from_slice(&part[..room.min(part.len())]);
        Ok(())
    }

    /// Adds one line without its LF. Returns true if it is the last line of the reply.
    fn add_line(&mut self, line: &[u8]) -> Result<bool, Garbage> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = &line[..line.len().min(LINE_BYTES_MAX)];
        if line.is_empty() && self.empty_lines < EMPTY_LINES_MAX {
            self.empty_lines += 1;
            return Ok(false);
        }
        let (code, last, text) = split(line).ok_or(Garbage::Code)?;
        let first = self.lines == 0 || code != self.code;
        if first && self.lines > 0 {
            self.change_code(code)?;
        }
        if self.lines == LINES_MAX {
            return Err(Garbage::ManyLines);
        }
        self.code = code;
        self.add_text(text, first);
        self.lines += 1;
        Ok(last)
    }

    /// Handles a change of the code. RFC 5321 4.2.1 requires the same code on all lines. If only the
    /// class is the same, the code and the enhanced code of the last line count, and the enhanced
    /// code of earlier lines returns to the text. If the last code has no enhanced code, that of the
    /// first line counts.
    fn change_code(&mut self, code: u16) -> Result<(), Garbage> {
        if code / 100 != self.code / 100 {
            return Err(Garbage::Codes);
        }
        if let Some(enhanced) = self.enhanced.take() {
            // Past the end if there was no room for the lines.
            let at = self.enhanced_at.min(self.text.len());
            self.text.insert_str(at, &format!("{enhanced} "));
            self.text.truncate(TEXT_BYTES_MAX);
        }
        self.enhanced_at = self.text.len() + 1;
        Ok(())
    }

    /// Adds the text of a line. The enhanced code is removed from the first line with this code and
    /// from lines that repeat it.
    fn add_text(&mut self, mut text: &[u8], first: bool) {
        if let Some((enhanced, rest)) = enhanced(text, self.code)
            && (first || self.enhanced == Some(enhanced))
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
        (self.lines, self.empty_lines) = (0, 0);
        let mut text = self.text.trim_end();
        let mut found = self.enhanced.take();
        let changed = std::mem::take(&mut self.enhanced_at) > 0;
        // The lines with the last code have no enhanced code. The reply gets that of the first line,
        // which a change of the code has returned to the text.
        if changed
            && found.is_none()
            && let Some((first, rest)) = enhanced(text.as_bytes(), self.code)
        {
            (found, text) = (Some(first), &text[text.len() - rest.len()..]);
        }
        let reply = Reply { code: self.code, enhanced: found, text: text.into() };
        self.text.clear();
        reply
    }
}

/// Splits a line into the code, whether the line is the last one, and the text. `250` alone is a
/// complete line (RFC 5321 4.2).
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

/// Returns the enhanced code at the start of the text, if it is of the class of the reply
/// (RFC 2034 4).
fn enhanced(text: &[u8], code: u16) -> Option<(Enhanced, &[u8])> {
    // A tab is shown as a space below, so it separates words here too.
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

    /// Parses a stream in pieces of these sizes. Returns the replies, how the stream ended, and
    /// whether a reply is incomplete.
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

    /// Every way of cutting the stream gives the same replies.
    fn read_any(stream: &[u8]) -> (Vec<String>, Option<Garbage>) {
        let whole = read(stream, &[usize::MAX]);
        for cuts in [&[1][..], &[7], &[2047, 3], &[2048], &[2049], &[65_536], &[65_537, 1]] {
            assert_eq!(read(stream, cuts), whole, "{cuts:?}");
        }
        (whole.0.iter().map(Reply::to_string).collect(), whole.1)
    }

    #[test]
    fn r230_the_code_of_a_long_line_counts_and_its_text_is_cut() {
        let sizes = [2_048, 2_049, 5_789, LINE_BYTES_READ_MAX - 1];
        for bytes in sizes {
            for end in ["\r\n", "\n"] {
                let line = format!("550 5.7.1 {:x<1$}{end}250 ok\r\n", "", bytes - 10);
                let (replies, garbage) = read_any(line.as_bytes());
                let kept = bytes.min(LINE_BYTES_MAX);
                assert_eq!(garbage, None);
                assert_eq!(replies, [&line[..kept], "250 ok"], "{bytes}");
            }
        }
        let cr = format!("550 {:x<2044}\ry{:z<3000}\r\n", "", "");
        assert_eq!(read_any(cr.as_bytes()).0, [&cr[..2_048]]);
        let two = format!("250-{:x<3000}\r\n250 {:y<3000}\r\n", "", "");
        assert_eq!(read_any(two.as_bytes()).0[0].len(), 4 + 2 * 2_044 + 1);
    }

    #[test]
    fn r230_a_line_beyond_the_bound_breaks_the_protocol_before_its_end() {
        for bytes in [LINE_BYTES_READ_MAX, 1 << 20] {
            let line = format!("550 {}\r\n", "x".repeat(bytes - 4));
            assert_eq!(read_any(line.as_bytes()), (vec![], Some(Garbage::LongLine)));
        }
        let mut reader = ReplyReader::default();
        reader.take(&[b'5'; LINE_BYTES_READ_MAX]).unwrap();
        assert_eq!(reader.line.len(), LINE_BYTES_MAX + 1);
        assert_eq!(reader.take(b"5"), Err(Garbage::LongLine));
    }

    #[test]
    fn r234_different_codes_of_one_class_count_as_the_last_and_empty_lines_are_skipped() {
        for (stream, expected) in [
            ("550-5.1.1 no\r\n551 5.1.6 moved\r\n", Ok("551 5.1.6 5.1.1 no moved")),
            ("550-no\r\n551 5.1.6 moved\r\n", Ok("551 5.1.6 no moved")),
            ("550-5.1.1 no\r\n551 moved\r\n", Ok("551 5.1.1 no moved")),
            (
                "550-a\r\n551-5.1.1 b\r\n551-5.1.1 c\r\n552 5.2.2 d\r\n",
                Ok("552 5.2.2 a 5.1.1 b c d"),
            ),
            ("550-5.1.1 a\r\n550-5.1.1 b\r\n550 5.2.1 c\r\n", Ok("550 5.1.1 a b 5.2.1 c")),
            ("451-a\r\n450 b\r\n", Ok("450 a b")),
            ("250-a\r\n251 b\r\n", Ok("251 a b")),
            ("450-a\r\n550 b\r\n", Err(Garbage::Codes)),
            ("550-a\r\n250 b\r\n", Err(Garbage::Codes)),
            ("\r\n250 ok\r\n", Ok("250 ok")),
            ("\n\r\n\n550-a\r\n\r\n550 b\r\n", Ok("550 a b")),
            ("\r\r\n", Err(Garbage::Code)),
            (" \r\n", Err(Garbage::Code)),
        ] {
            let (replies, garbage) = read_any(stream.as_bytes());
            let expected = (expected.ok().map(String::from), expected.err());
            assert_eq!((replies.first().cloned(), garbage), expected, "{stream:?}");
        }
        let most = "\r\n".repeat(EMPTY_LINES_MAX);
        assert_eq!(read_any(format!("{most}250 a\r\n{most}250 b\r\n").as_bytes()).1, None);
        let more = format!("{most}\r\n250 a\r\n");
        assert_eq!(read_any(more.as_bytes()), (vec![], Some(Garbage::Code)));
    }

    #[test]
    fn r234_the_first_lines_enhanced_code_counts_where_the_last_code_has_none() {
        let stream = b"550-5.1.1 no\r\n551 4.1.1 such user\r\n\
            550-5.1.1\r\n551-\r\n551 moved\r\n\
            550-a\r\n551-5.1.6 b\r\n552 c\r\n\
            550-5.1.1 a\r\n551-5.1.1 b\r\n552 c\r\n";
        let (replies, ..) = read(stream, &[1]);
        let found: Vec<_> = replies.iter().map(|reply| (reply.enhanced, &*reply.text)).collect();
        let unknown = Some(Enhanced(5, 1, 1));
        let expected = [
            (unknown, "no\n4.1.1 such user"),
            (unknown, "\n\nmoved"),
            (None, "a\n5.1.6 b\nc"),
            (unknown, "a\n5.1.1 b\nc"),
        ];
        assert_eq!(found, expected);
        let mut wire = Vec::new();
        replies.iter().for_each(|reply| reply.encode(&mut wire));
        assert_eq!(read(&wire, &[7]).0, replies);
    }

    #[test]
    fn the_kept_text_is_bounded_however_often_the_code_changes() {
        let lines: String = (0..127)
            .map(|n| format!("55{}-5.{}.100 {:x<200}\r\n", n % 9, n % 7, ""))
            .chain(["559 end\r\n".to_string()])
            .collect();
        let (replies, ..) = read(lines.as_bytes(), &[usize::MAX]);
        // The enhanced code of the first line was counted and is not in the text.
        let kept = replies[0].text.len() + "5.0.100 ".len();
        assert!((TEXT_BYTES_MAX - 1..=TEXT_BYTES_MAX).contains(&kept), "{kept}");
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
