//! The mark that each message of our source carries, and how a sink proves the message whole.
//!
//! Must never judge bytes above the mark: mailers add their trace headers there.

use std::fmt;
use twox_hash::XxHash3_128;

/// The header's name. Its value is `RUN-NUMBER BYTES SUM`, about all that follows its line.
pub const MARK_HEADER: &str = "X-Posthaste-Lab";

/// Longest header line that can be a mark.
const MARK_LINE_BYTES_MAX: usize = 256;

/// The name of one message: which run sent it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// Drawn anew by each run of the source.
    pub run: u64,
    /// Counts up from 0 within the run; those sent to warm up count from [`WARM_UP`].
    pub number: u64,
}

/// The number of the first message that only warms up; such a token is written `RUN-wNUMBER`.
pub const WARM_UP: u64 = 1 << 63;

impl Token {
    /// Returns whether the message was a warm-up: accepted, but not counted.
    pub fn is_warm_up(&self) -> bool {
        self.number >= WARM_UP
    }
}

/// What the mark says about the bytes below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Whose bytes these are.
    pub token: Token,
    /// How many bytes follow the mark's line.
    pub bytes: u64,
    /// The sum of those bytes and of the token.
    pub sum: u128,
}

/// XXH3 of 128 bits, over the bytes below a mark and then its token: finds damage, not forgery.
#[derive(Clone)]
pub struct Sum {
    hasher: XxHash3_128,
}

impl Sum {
    /// Creates the sum of no bytes.
    pub fn new() -> Sum {
        Sum { hasher: XxHash3_128::new() }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
    }

    /// Finishes the sum with `token`.
    pub fn finish(mut self, token: Token) -> u128 {
        self.hasher.write(&token.run.to_le_bytes());
        self.hasher.write(&token.number.to_le_bytes());
        self.hasher.finish_128()
    }
}

/// The verdict of a sink on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Marked, and every byte below the mark is as it was sent.
    Whole(Token),
    /// Marked, but the bytes below differ.
    Damaged(Token),
    /// No mark: not from our source.
    Unmarked,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warm_up = if self.is_warm_up() { "w" } else { "" };
        write!(f, "{:016x}-{warm_up}{}", self.run, self.number & !WARM_UP)
    }
}

impl std::str::FromStr for Token {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> anyhow::Result<Token> {
        let (run, number) =
            text.split_once('-').ok_or_else(|| anyhow::anyhow!("not a token: {text}"))?;
        let (number, first) = number.strip_prefix('w').map_or((number, 0), |text| (text, WARM_UP));
        let number: u64 = number.parse()?;
        anyhow::ensure!(number < WARM_UP, "not a token: {text}");
        Ok(Token { run: u64::from_str_radix(run, 16)?, number: number | first })
    }
}

impl Mark {
    /// Creates the mark of a message with these bytes below it.
    pub fn of(token: Token, below: &[u8]) -> Mark {
        let mut sum = Sum::new();
        sum.update(below);
        Mark { token, bytes: below.len() as u64, sum: sum.finish(token) }
    }

    /// Returns the header line, with its CRLF.
    pub fn line(&self) -> String {
        let mut line = Vec::new();
        self.write(&mut line);
        String::from_utf8(line).expect("it is written in ASCII")
    }

    /// Appends the header line, with its CRLF.
    pub fn write(&self, out: &mut Vec<u8>) {
        use std::io::Write as _;
        let Mark { token, bytes, sum } = self;
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{MARK_HEADER}: {token} {bytes} {sum:032x}\r\n");
    }

    /// Parses a header line (without CRLF); `None` if it is no mark.
    pub fn parse(line: &[u8]) -> Option<Mark> {
        let line = std::str::from_utf8(line).ok()?;
        let (name, value) = line.split_once(':')?;
        if !name.eq_ignore_ascii_case(MARK_HEADER) {
            return None;
        }
        let mut words = value.split_ascii_whitespace();
        let token = words.next()?.parse().ok()?;
        let bytes = words.next()?.parse().ok()?;
        let hex = words.next().filter(|hex| hex.len() == 32)?;
        let sum = u128::from_str_radix(hex, 16).ok()?;
        Some(Mark { token, bytes, sum })
    }
}

/// Reads a message as it streams by and judges it at its end. Holds one header line at most.
pub struct Verifier {
    part: Part,
}

enum Part {
    /// Above the mark: the header line gathered so far.
    Above(Vec<u8>),
    /// Below it.
    Below { mark: Mark, sum: Box<Sum>, bytes: u64 },
    /// The header ended without a mark.
    Without,
}

impl Verifier {
    /// For a new message.
    pub fn new() -> Verifier {
        Verifier { part: Part::Above(Vec::new()) }
    }

    /// The next bytes of the message, dots unstuffed.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Part::Above(line) = &mut self.part {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                let room = MARK_LINE_BYTES_MAX.saturating_sub(line.len());
                line.extend_from_slice(&bytes[..bytes.len().min(room)]);
                return;
            };
            let room = MARK_LINE_BYTES_MAX.saturating_sub(line.len());
            line.extend_from_slice(&bytes[..end.min(room)]);
            bytes = &bytes[end + 1..];
            let text = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(mark) = Mark::parse(text) {
                self.part = Part::Below { mark, sum: Box::new(Sum::new()), bytes: 0 };
            } else if text.is_empty() {
                self.part = Part::Without;
            } else {
                line.clear();
            }
        }
        if let Part::Below { sum, bytes: seen, .. } = &mut self.part {
            sum.update(bytes);
            *seen += bytes.len() as u64;
        }
    }

    /// The message has ended.
    pub fn finish(self) -> Finding {
        let Part::Below { mark, sum, bytes } = self.part else {
            return Finding::Unmarked;
        };
        if bytes == mark.bytes && sum.finish(mark.token) == mark.sum {
            Finding::Whole(mark.token)
        } else {
            Finding::Damaged(mark.token)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(rest: &[u8]) -> (Token, Vec<u8>) {
        let token = Token { run: 0xabc, number: 7 };
        (token, [Mark::of(token, rest).line().as_bytes(), rest].concat())
    }

    fn find(message: &[u8], piece: usize) -> Finding {
        let mut verifier = Verifier::new();
        message.chunks(piece).for_each(|bytes| verifier.feed(bytes));
        verifier.finish()
    }

    #[test]
    fn a_message_is_whole_below_its_mark_whatever_trace_headers_stand_above() {
        let (token, message) = marked(b"Subject: x\r\n\r\n.body\r\n");
        let traced = [&b"Received: from a\r\n\tby b\r\n"[..], &message].concat();
        for piece in [1, 2, 7, 1000] {
            assert_eq!(find(&message, piece), Finding::Whole(token));
            assert_eq!(find(&traced, piece), Finding::Whole(token));
        }
    }

    #[test]
    fn one_changed_lost_or_added_byte_is_found() {
        let (token, message) = marked(b"Subject: x\r\n\r\nbody\r\n");
        let mut changed = message.clone();
        *changed.last_mut().unwrap() = b'x';
        assert_eq!(find(&changed, 5), Finding::Damaged(token));
        assert_eq!(find(&message[..message.len() - 1], 5), Finding::Damaged(token));
        assert_eq!(find(&[&message[..], b"x"].concat(), 5), Finding::Damaged(token));
    }

    #[test]
    fn a_changed_token_is_found_too() {
        let (token, message) = marked(b"body\r\n");
        let text = String::from_utf8(message).unwrap();
        let other = Token { run: token.run, number: token.number + 1 };
        let changed = text.replace(&token.to_string(), &other.to_string());
        assert_eq!(find(changed.as_bytes(), 100), Finding::Damaged(other));
    }

    #[test]
    fn a_token_is_read_back_as_it_was_written_also_one_that_warms_up() {
        for number in [0, 7, WARM_UP, WARM_UP + 7] {
            let token = Token { run: 0xabc, number };
            assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
            assert_eq!(token.is_warm_up(), number >= WARM_UP);
        }
        assert_eq!(Token { run: 1, number: WARM_UP + 2 }.to_string(), "0000000000000001-w2");
        assert!(format!("0-{}", u64::MAX).parse::<Token>().is_err());
    }

    #[test]
    fn a_message_without_mark_is_unmarked_even_if_its_body_has_one() {
        let (_, message) = marked(b"x\r\n");
        assert_eq!(find(b"Subject: x\r\n\r\nbody\r\n", 3), Finding::Unmarked);
        assert_eq!(find(&[b"A: b\r\n\r\n", &message[..]].concat(), 3), Finding::Unmarked);
        assert_eq!(find(b"", 1), Finding::Unmarked);
    }
}
