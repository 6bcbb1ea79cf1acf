//! The identifiers of a message: the queue id that people see, and the id of the transaction that brought it.
//!
//! Must never identify two messages, or two transactions.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The queue id. Later messages have greater ids. An id is unique in its spool for ever, even if the clock is set back:
/// the spool only assigns ids above all earlier ones.
///
/// It is shown as eleven characters of Crockford's base 32 in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId(pub u64);

const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Characters of a queue id: 55 bits, enough for microseconds until the year 3111.
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

/// An error: the text is not a queue id.
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

/// The id of one transaction of a client. `incarnation` is chosen at random when a receive process starts, and `number`
/// counts up within it. With this id, a restarted queue process can be asked whether it stored the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// The random id of the receive process's incarnation.
    pub incarnation: u64,
    /// Counts up from 1 within the incarnation.
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
