//! The names of a message: the queue id people see, and the transaction that brought it.
//!
//! Must never name two messages, or two attempts of a client.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The queue id. Grows with arrival; unique in one spool for ever, also across clock steps,
/// because the spool never hands out one that is not above all before it.
/// People see it as eleven characters of Crockford's base 32 in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId(pub u64);

const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Characters of a queue id: 55 bits, microseconds until the year 3111.
pub const MESSAGE_ID_CHARS: usize = 11;

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; MESSAGE_ID_CHARS];
        for (at, place) in text.iter_mut().rev().enumerate() {
            *place = DIGITS[(self.0 >> (5 * at)) as usize & 31];
        }
        f.write_str(std::str::from_utf8(&text).expect("the digits are ASCII"))
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a queue id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a queue id: eleven of 0-9 and a-z without i, l, o, u are expected")]
pub struct NotAnId;

impl FromStr for MessageId {
    type Err = NotAnId;
    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text.len() != MESSAGE_ID_CHARS {
            return Err(NotAnId);
        }
        let digit = |byte: u8| DIGITS.iter().position(|d| *d == byte.to_ascii_lowercase());
        text.bytes()
            .try_fold(0u64, |id, byte| Some(id << 5 | digit(byte)? as u64))
            .map(MessageId)
            .ok_or(NotAnId)
    }
}

/// One attempt of one client to hand over one message. `origin` is drawn at random when a
/// receiving process starts, `number` counts up inside it, so a restarted queue process can be
/// asked what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// Random name of the receiving process's life.
    pub origin: u64,
    /// Counts up from 1 within that life.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_id_reads_back_as_it_was_shown_and_sorts_by_arrival() {
        for id in [0, 1, 31, 32, 1_790_000_000_000_000, (1 << 55) - 1] {
            let text = MessageId(id).to_string();
            assert_eq!(text.parse(), Ok(MessageId(id)));
            assert!(id == 0 || MessageId(id - 1).to_string() < text);
        }
        for bad in ["", "0000000000u", "000000000000", "0000000000é"] {
            assert_eq!(bad.parse::<MessageId>(), Err(NotAnId));
        }
    }
}
