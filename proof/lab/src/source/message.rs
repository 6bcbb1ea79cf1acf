//! The messages a source sends: as large as asked, each with its own mark.
//!
//! Must never build or hash a whole message for each one sent: only its mark and its last line differ.

use crate::mark::{Mark, Token};
use sha2::{Digest, Sha256};

/// Text characters of a line of filler.
const LINE_CHARS: usize = 76;
/// Every so many lines one begins with a dot, so that stuffing is always at work.
const DOT_EVERY: usize = 10;

/// What all messages of a run have in common.
pub struct Template {
    run: u64,
    /// Header and filler below the mark, as it is.
    plain: Vec<u8>,
    /// The same with its dots stuffed.
    stuffed: Vec<u8>,
    /// The hash up to there.
    hasher: Sha256,
}

/// The part of a message above the common one, and the part below.
pub struct Edges {
    /// Message-ID and mark.
    pub head: String,
    /// The last line.
    pub tail: String,
}

impl Template {
    /// For messages of about `size_bytes`, header included.
    pub fn new(run: u64, sender: &str, size_bytes: usize) -> Template {
        let mut plain = format!(
            "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\nFrom: <{sender}>\r\nTo: posthaste-lab:;\r\n\
             Subject: posthaste-lab {run:016x}\r\n\r\n"
        )
        .into_bytes();
        // About 250 bytes are the mark, the Message-ID and the last line.
        let wanted = size_bytes.saturating_sub(250);
        let mut chance = run | 1;
        let mut line = 0;
        while plain.len() < wanted {
            let room = (wanted - plain.len()).clamp(3, LINE_CHARS + 2) - 2;
            filler(&mut plain, room, line % DOT_EVERY == 0, &mut chance);
            line += 1;
        }
        let stuffed = stuff(&plain);
        let hasher = Sha256::new_with_prefix(&plain);
        Template { run, plain, stuffed, hasher }
    }

    /// The edges of message `number`.
    pub fn edges(&self, number: u64) -> Edges {
        let token = Token { run: self.run, number };
        let tail = format!("This was {token}.\r\n");
        let bytes = (self.plain.len() + tail.len()) as u64;
        let sha256 = self.hasher.clone().chain_update(&tail).finalize().into();
        let mark = Mark { token, bytes, sha256 };
        Edges {
            head: format!("Message-ID: <{token}@posthaste-lab.invalid>\r\n{}", mark.line()),
            tail,
        }
    }

    /// The common part: as DATA wants it, or as BDAT does.
    pub fn middle(&self, stuffed: bool) -> &[u8] {
        if stuffed { &self.stuffed } else { &self.plain }
    }
}

fn filler(out: &mut Vec<u8>, chars: usize, dot: bool, chance: &mut u64) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -";
    for at in 0..chars {
        *chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let letter = LETTERS[(*chance >> 58) as usize];
        out.push(if at == 0 && dot { b'.' } else { letter });
    }
    out.extend_from_slice(b"\r\n");
}

/// Doubles each dot at the start of a line (RFC 5321 4.5.2).
fn stuff(plain: &[u8]) -> Vec<u8> {
    let mut stuffed = Vec::with_capacity(plain.len() + plain.len() / 64);
    for line in plain.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b".") {
            stuffed.push(b'.');
        }
        stuffed.extend_from_slice(line);
    }
    stuffed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::{Finding, Verifier};
    use crate::unstuff::Unstuff;

    #[test]
    fn each_message_is_whole_to_the_verifier_stuffed_or_not_and_about_as_large_as_asked() {
        for size in [0, 400, 1000, 4096, 100_000] {
            let template = Template::new(9, "a@b.test", size);
            for number in [0, 1, 77] {
                let Edges { head, tail } = template.edges(number);
                let plain = [head.as_bytes(), template.middle(false), tail.as_bytes()].concat();
                let wire =
                    [head.as_bytes(), template.middle(true), tail.as_bytes(), b".\r\n"].concat();
                let mut unstuffed = Vec::new();
                let end = Unstuff::new().feed(&wire, &mut |out| unstuffed.extend_from_slice(out));
                assert_eq!((end, &unstuffed), (Some(wire.len()), &plain));
                let mut verifier = Verifier::new();
                verifier.feed(&plain);
                assert_eq!(verifier.finish(), Finding::Whole(Token { run: 9, number }));
                assert!(size < 400 || plain.len().abs_diff(size) < 60, "{} {size}", plain.len());
            }
        }
    }
}
