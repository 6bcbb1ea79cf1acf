//! The mark that each message of our source carries, and how a sink proves the message whole.
//!
//! Must never judge bytes above the mark: mailers add their trace headers there.

use sha2::{Digest, Sha256};
use std::fmt;

/// The header's name. Its value is `RUN-NUMBER BYTES SHA256`, about all that follows its line.
pub const MARK_HEADER: &str = "X-Posthaste-Lab";

/// Longest header line that can be a mark; longer ones are other people's.
const MARK_LINE_BYTES_MAX: usize = 256;

/// The name of one message: which run sent it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// Drawn anew by each run of the source.
    pub run: u64,
    /// Counts up from 0 within the run.
    pub number: u64,
}

/// What the mark says about the bytes below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Whose bytes these are.
    pub token: Token,
    /// How many bytes follow the mark's line.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
}

/// What a sink found out about one message.
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
        write!(f, "{:016x}-{}", self.run, self.number)
    }
}

impl std::str::FromStr for Token {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> anyhow::Result<Token> {
        let (run, number) =
            text.split_once('-').ok_or_else(|| anyhow::anyhow!("not a token: {text}"))?;
        Ok(Token { run: u64::from_str_radix(run, 16)?, number: number.parse()? })
    }
}

impl Mark {
    /// The header line, with its CRLF.
    pub fn line(&self) -> String {
        let mut hex = String::with_capacity(64);
        for byte in self.sha256 {
            hex.push_str(&format!("{byte:02x}"));
        }
        format!("{MARK_HEADER}: {} {} {hex}\r\n", self.token, self.bytes)
    }

    /// Reads a header line (without CRLF); `None` where it is no mark.
    pub fn parse(line: &[u8]) -> Option<Mark> {
        let line = std::str::from_utf8(line).ok()?;
        let (name, value) = line.split_once(':')?;
        if !name.eq_ignore_ascii_case(MARK_HEADER) {
            return None;
        }
        let mut words = value.split_ascii_whitespace();
        let token = words.next()?.parse().ok()?;
        let bytes = words.next()?.parse().ok()?;
        let hex = words.next().filter(|hex| hex.len() == 64 && hex.is_ascii())?;
        let mut sha256 = [0; 32];
        for (at, byte) in sha256.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Mark { token, bytes, sha256 })
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
    Below { mark: Mark, hasher: Sha256, bytes: u64 },
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
                self.part = Part::Below { mark, hasher: Sha256::new(), bytes: 0 };
            } else if text.is_empty() {
                self.part = Part::Without;
            } else {
                line.clear();
            }
        }
        if let Part::Below { hasher, bytes: seen, .. } = &mut self.part {
            hasher.update(bytes);
            *seen += bytes.len() as u64;
        }
    }

    /// The message has ended.
    pub fn finish(self) -> Finding {
        let Part::Below { mark, hasher, bytes } = self.part else {
            return Finding::Unmarked;
        };
        if bytes == mark.bytes && hasher.finalize()[..] == mark.sha256 {
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
        let sha256 = Sha256::digest(rest).into();
        let mark = Mark { token, bytes: rest.len() as u64, sha256 };
        (token, [mark.line().as_bytes(), rest].concat())
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
    fn a_message_without_mark_is_unmarked_even_if_its_body_has_one() {
        let (_, message) = marked(b"x\r\n");
        assert_eq!(find(b"Subject: x\r\n\r\nbody\r\n", 3), Finding::Unmarked);
        assert_eq!(find(&[b"A: b\r\n\r\n", &message[..]].concat(), 3), Finding::Unmarked);
        assert_eq!(find(b"", 1), Finding::Unmarked);
    }
}
