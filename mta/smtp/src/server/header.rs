//! A look at a message's header section as it goes by: how long it is, how many servers have handled it
//! (RFC 5321 6.3), and to whom it says that it has been delivered.
//!
//! Must never change or refuse a byte, never look at one twice, and never keep more of a field than an
//! address needs.

use super::DeliveredTo;
use memchr::memchr;

/// The scan; pieces may be cut anywhere.
#[derive(Debug)]
pub(super) struct HeaderScan {
    place: Place,
    /// What the field at hand says, as far as it is an address; `None`: it is not `Delivered-To`.
    value: Option<Vec<u8>>,
    /// Octets of the name at hand.
    name_bytes: u32,
    /// Octets of the header section so far.
    pub(super) bytes: u64,
    /// Received fields so far.
    pub(super) hops: u32,
    /// Delivered-To fields so far.
    delivered_to: DeliveredTo,
}

/// A field that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Received,
    DeliveredTo,
}

impl Field {
    /// Its name, in lower case. The first letter tells the fields apart.
    fn name(self) -> &'static [u8] {
        match self {
            Field::Received => b"received",
            Field::DeliveredTo => b"delivered-to",
        }
    }
}

/// The field whose name begins as the one at hand, and so many of its octets; `None`: there is none.
type Match = Option<(Field, u8)>;

/// Where the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    LineStart,
    /// In a field's name.
    Name(Match),
    /// In white space between name and colon.
    BeforeColon(Match),
    /// In the rest of a line.
    Rest,
    /// The header section is over: an empty line, or one that is no field.
    Over,
}

/// What is longer is no field (RFC 5322 2.1.1): the body has begun without an empty line.
const NAME_BYTES_MAX: u32 = 998;

/// What is longer is no address (RFC 5321 4.5.3.1.1 and 4.5.3.1.2), folded as it may be.
const VALUE_BYTES_MAX: usize = 512;

impl HeaderScan {
    pub(super) fn new() -> Self {
        HeaderScan {
            place: Place::LineStart,
            value: None,
            name_bytes: 0,
            bytes: 0,
            hops: 0,
            delivered_to: DeliveredTo::default(),
        }
    }

    /// Looks at the next piece.
    pub(super) fn look(&mut self, piece: &[u8]) {
        let mut at = 0;
        while at < piece.len() && self.place != Place::Over {
            if self.place == Place::Rest {
                let end = memchr(b'\n', &piece[at..]);
                let line = &piece[at..end.map_or(piece.len(), |end| at + end)];
                self.keep(line);
                at += line.len();
                if end.is_some() {
                    at += 1;
                    self.place = Place::LineStart;
                }
            } else {
                self.place = self.next(piece[at]);
                at += 1;
            }
        }
        self.bytes += at as u64;
    }

    /// The addresses of the Delivered-To fields. The message is over.
    pub(super) fn delivered_to(mut self) -> DeliveredTo {
        self.end_field();
        self.delivered_to.sorted()
    }

    /// Room that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.delivered_to.memory_bytes() + self.value.as_ref().map_or(0, Vec::capacity)
    }

    /// Keeps a piece of a line of the field at hand, if it is one that counts. One octet more than an
    /// address may have shows that it is none.
    fn keep(&mut self, line: &[u8]) {
        let Some(value) = &mut self.value else { return };
        let line = if value.is_empty() { line.trim_ascii_start() } else { line };
        let room = (VALUE_BYTES_MAX + 1).saturating_sub(value.len());
        value.extend(line.iter().filter(|byte| **byte != b'\r').take(room));
    }

    /// The field at hand is over.
    fn end_field(&mut self) {
        if let Some(value) = self.value.take().filter(|value| value.len() <= VALUE_BYTES_MAX) {
            self.delivered_to.add(value.trim_ascii());
        }
    }

    fn next(&mut self, byte: u8) -> Place {
        if self.place == Place::LineStart && !matches!(byte, b' ' | b'\t') {
            self.end_field();
        }
        match (self.place, byte) {
            (Place::LineStart, b' ' | b'\t') => Place::Rest,
            (Place::LineStart, b':') => Place::Over,
            (Place::LineStart, _) => self.name(None, byte),
            (Place::Name(matched) | Place::BeforeColon(matched), b':') => {
                match matched.filter(|(field, bytes)| usize::from(*bytes) == field.name().len()) {
                    Some((Field::Received, _)) => self.hops += 1,
                    Some((Field::DeliveredTo, _)) => self.value = Some(Vec::new()),
                    None => {}
                }
                Place::Rest
            }
            (Place::Name(matched) | Place::BeforeColon(matched), b' ' | b'\t') => {
                Place::BeforeColon(matched)
            }
            (Place::Name(matched), _) => self.name(matched, byte),
            _ => Place::Over,
        }
    }

    fn name(&mut self, matched: Match, byte: u8) -> Place {
        let begins = self.place == Place::LineStart;
        self.name_bytes = if begins { 1 } else { self.name_bytes + 1 };
        match byte {
            b'r' | b'R' if begins => Place::Name(Some((Field::Received, 1))),
            b'd' | b'D' if begins => Place::Name(Some((Field::DeliveredTo, 1))),
            b'!'..=b'~' if self.name_bytes <= NAME_BYTES_MAX => {
                let byte = byte.to_ascii_lowercase();
                let agrees = |(field, bytes): &(Field, u8)| {
                    field.name().get(usize::from(*bytes)) == Some(&byte)
                };
                Place::Name(matched.filter(agrees).map(|(field, bytes)| (field, bytes + 1)))
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

    fn delivered_to(text: &str, size: usize) -> DeliveredTo {
        let mut scan = HeaderScan::new();
        text.as_bytes().chunks(size).for_each(|piece| scan.look(piece));
        scan.delivered_to()
    }

    #[test]
    fn r216_delivered_to_fields_are_read_in_the_header_section_only() {
        let text = "DELIVERED-TO : A@b.test\r\nX: y\r\n Delivered-To: no@x.test\r\n\
            Delivered-To:\r\n\tc@d.test \r\nDelivered-Too: no@y.test\r\nReceived: x\r\n\
            delivered-to:e@f.test\r\n\r\nDelivered-To: no@z.test\r\n";
        for size in [1, 2, 7, text.len()] {
            let found = delivered_to(text, size);
            for (address, expected) in [
                ("a@B.test", true),
                ("c@d.test", true),
                ("e@f.test", true),
                ("no@x.test", false),
                ("no@y.test", false),
                ("no@z.test", false),
                ("", false),
            ] {
                assert_eq!(found.names(address), expected, "{address} by {size}");
            }
        }
        assert!(delivered_to("Delivered-To: a@b.test", 3).names("a@b.test"));
        assert!(delivered_to("Delivered-To: a@b.test\r\n", 3).names("a@b.test"));
        let long = format!("Delivered-To: a@{}\r\n\r\n", "b".repeat(VALUE_BYTES_MAX));
        assert_eq!(delivered_to(&long, 100), DeliveredTo::default());
    }

    #[test]
    fn r216_what_is_kept_of_a_header_section_is_bounded() {
        let mut scan = HeaderScan::new();
        for number in 0..10_000 {
            scan.look(format!("Delivered-To: {number}@b.test\r\n").as_bytes());
        }
        scan.look(b"Delivered-To:");
        scan.look(&b" x".repeat(100_000));
        assert!(scan.memory_bytes() <= 4_096, "{}", scan.memory_bytes());
        let found = scan.delivered_to();
        assert!(found.names("0@b.test") && found.names("199@b.test"));
        assert!(!found.names("200@b.test"));
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
