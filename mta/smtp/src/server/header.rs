//! A look at a message's header section as it goes by: how long it is, and how many servers
//! have handled it (RFC 5321 6.3).
//!
//! Must never change or refuse a byte, and never look at one twice.

use memchr::memchr;

const RECEIVED: &[u8] = b"received";

/// The scan; pieces may be cut anywhere.
#[derive(Debug)]
pub(super) struct HeaderScan {
    place: Place,
    /// Octets of the name at hand.
    name_bytes: u32,
    /// Octets of the header section so far.
    pub(super) bytes: u64,
    /// Received fields so far.
    pub(super) hops: u32,
}

/// Where the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    LineStart,
    /// In a field's name, of which so many octets agree with `Received`; 9 and more: none.
    Name(u8),
    /// In white space between name and colon.
    BeforeColon(u8),
    /// In the rest of a line.
    Rest,
    /// The header section is over: an empty line, or one that is no field.
    Over,
}

const OTHER: u8 = 9;

/// What is longer is no field (RFC 5322 2.1.1): the body has begun without an empty line.
const NAME_BYTES_MAX: u32 = 998;

impl HeaderScan {
    pub(super) fn new() -> Self {
        HeaderScan { place: Place::LineStart, name_bytes: 0, bytes: 0, hops: 0 }
    }

    /// Looks at the next piece.
    pub(super) fn look(&mut self, piece: &[u8]) {
        let mut at = 0;
        while at < piece.len() && self.place != Place::Over {
            if self.place == Place::Rest {
                let Some(end) = memchr(b'\n', &piece[at..]) else {
                    at = piece.len();
                    break;
                };
                at += end + 1;
                self.place = Place::LineStart;
            } else {
                self.place = self.next(piece[at]);
                at += 1;
            }
        }
        self.bytes += at as u64;
    }

    fn next(&mut self, byte: u8) -> Place {
        match (self.place, byte) {
            (Place::LineStart, b' ' | b'\t') => Place::Rest,
            (Place::LineStart, b':') => Place::Over,
            (Place::LineStart, _) => self.name(0, byte),
            (Place::Name(matched) | Place::BeforeColon(matched), b':') => {
                self.hops += u32::from(usize::from(matched) == RECEIVED.len());
                Place::Rest
            }
            (Place::Name(matched) | Place::BeforeColon(matched), b' ' | b'\t') => {
                Place::BeforeColon(matched)
            }
            (Place::Name(matched), _) => self.name(matched, byte),
            _ => Place::Over,
        }
    }

    fn name(&mut self, matched: u8, byte: u8) -> Place {
        self.name_bytes = if self.place == Place::LineStart { 1 } else { self.name_bytes + 1 };
        match byte {
            b'!'..=b'~' if self.name_bytes <= NAME_BYTES_MAX => {
                let agrees = RECEIVED.get(usize::from(matched)) == Some(&byte.to_ascii_lowercase());
                Place::Name(if agrees { matched + 1 } else { OTHER })
            }
            _ => Place::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, hops: u32, bytes: usize) {
        for size in [1, 2, 7, text.len().max(1)] {
            let mut scan = HeaderScan::new();
            text.as_bytes().chunks(size).for_each(|piece| scan.look(piece));
            assert_eq!(scan.hops, hops, "{text:?} by {size}");
            assert!(scan.bytes.abs_diff(bytes as u64) <= 1, "{text:?}: {}", scan.bytes);
        }
    }

    #[test]
    fn received_fields_are_counted_in_the_header_section_only() {
        check(
            "Received: a\r\nRECEIVED : b\r\n\tReceived: c\r\nX: Received:\r\n\r\nReceived: d\r\n",
            2,
            56,
        );
        check("Receive: a\r\nReceivedX: b\r\nReceived\r\nReceived: c\r\n", 0, 35);
        check("", 0, 0);
        check("no field\r\nReceived: a\r\n", 0, 4);
        check("Received:a\r\n \r\nReceived:", 2, 24);
    }
}
