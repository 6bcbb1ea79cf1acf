//! Scans the header section of a message while it is read: its length, the number of servers that have handled the
//! message (RFC 5321 6.3), and the recipients in its Delivered-To fields.
//!
//! Process local uses the same scan, so both processes recognise the same loops.
//!
//! Must never change or refuse a byte, never scan a byte twice, and never keep more of a field than an
//! address needs.

use super::DeliveredTo;
use memchr::memchr;

/// The scan of one header section. The pieces may be cut anywhere, and lines may end in CRLF or LF.
#[derive(Debug)]
pub struct HeaderScan {
    position: HeaderPosition,
    /// The value of the current field if the field is `Delivered-To`, otherwise `None`.
    value: Option<Vec<u8>>,
    /// Octets of the current field's name.
    name_bytes: u32,
    /// Octets of the header section so far.
    pub(super) bytes: u64,
    /// Received fields so far.
    pub(super) hops: u32,
    /// Delivered-To fields so far.
    delivered_to: DeliveredTo,
}

/// A field that the scan looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Received,
    DeliveredTo,
}

impl Field {
    /// Returns the only field whose name has this first letter.
    fn of_initial(byte: u8) -> Match {
        match byte {
            b'r' | b'R' => Some((Field::Received, 0)),
            b'd' | b'D' => Some((Field::DeliveredTo, 0)),
            _ => None,
        }
    }

    /// The name of the field, in lower case.
    fn name(self) -> &'static [u8] {
        match self {
            Field::Received => b"received",
            Field::DeliveredTo => b"delivered-to",
        }
    }
}

/// The field whose name starts like the current name, and the number of equal octets. `None` if there is no such field.
type Match = Option<(Field, u8)>;

/// Where in the header section the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderPosition {
    LineStart,
    /// In the name of a field.
    Name(Match),
    /// In white space between a name and the colon.
    BeforeColon(Match),
    /// In the rest of a line.
    Rest,
    /// After the header section, which ends at an empty line or at a line that is not a field.
    Over,
}

/// Upper bound on the name of a field (RFC 5322 2.1.1). A longer name belongs to a body that began without an empty
/// line.
const NAME_BYTES_MAX: u32 = 998;

/// Upper bound on the value of a Delivered-To field, folding included. A longer value is not an address (RFC 5321
/// 4.5.3.1.1 and 4.5.3.1.2).
const VALUE_BYTES_MAX: usize = 512;

impl Default for HeaderScan {
    fn default() -> Self {
        HeaderScan {
            position: HeaderPosition::LineStart,
            value: None,
            name_bytes: 0,
            bytes: 0,
            hops: 0,
            delivered_to: DeliveredTo::default(),
        }
    }
}

impl HeaderScan {
    /// Scans the next piece.
    pub fn look(&mut self, piece: &[u8]) {
        let mut at = 0;
        while at < piece.len() {
            let rest = &piece[at..];
            at += match self.position {
                HeaderPosition::LineStart => self.line_start(rest[0]),
                HeaderPosition::Name(matched) => self.name(matched, rest),
                HeaderPosition::BeforeColon(matched) => self.after_name(matched, rest[0]),
                HeaderPosition::Rest => self.rest(rest),
                HeaderPosition::Over => break,
            };
        }
        self.bytes += at as u64;
    }

    /// Ends the scan. Returns the addresses of the Delivered-To fields.
    pub fn delivered_to(mut self) -> DeliveredTo {
        self.end_field();
        self.delivered_to.sorted()
    }

    /// Returns the memory that the scan takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.delivered_to.memory_bytes() + self.value.as_ref().map_or(0, Vec::capacity)
    }

    /// Keeps a piece of a line if the current field is Delivered-To. One octet more than an address may have is kept,
    /// to show that the value is too long.
    fn keep(&mut self, line: &[u8]) {
        let Some(value) = &mut self.value else { return };
        let line = if value.is_empty() { line.trim_ascii_start() } else { line };
        let room = (VALUE_BYTES_MAX + 1).saturating_sub(value.len());
        value.extend(line.iter().filter(|byte| **byte != b'\r').take(room));
    }

    /// Ends the current field.
    fn end_field(&mut self) {
        if let Some(value) = self.value.take().filter(|value| value.len() <= VALUE_BYTES_MAX) {
            self.delivered_to.add(value.trim_ascii());
        }
    }

    /// Decides by the first octet what a line is. Returns the number of octets used, as the methods below do.
    fn line_start(&mut self, byte: u8) -> usize {
        if matches!(byte, b' ' | b'\t') {
            self.position = HeaderPosition::Rest;
            return 1;
        }
        if self.value.is_some() {
            self.end_field();
        }
        if byte == b':' {
            self.position = HeaderPosition::Over;
            return 1;
        }
        self.name_bytes = 0;
        self.position = HeaderPosition::Name(Field::of_initial(byte));
        0
    }

    /// Takes the available part of a name, and the octet that ends the name.
    fn name(&mut self, matched: Match, rest: &[u8]) -> usize {
        let room = (NAME_BYTES_MAX - self.name_bytes) as usize;
        let longest = &rest[..rest.len().min(room)];
        let ended = longest.iter().position(|byte| !is_of_name(*byte));
        let length = ended.unwrap_or(longest.len());
        let matched = matched.and_then(|matched| agreeing(matched, &rest[..length]));
        self.name_bytes += length as u32;
        match rest.get(length) {
            Some(byte) => length + self.after_name(matched, *byte),
            None => {
                self.position = HeaderPosition::Name(matched);
                length
            }
        }
    }

    fn after_name(&mut self, matched: Match, byte: u8) -> usize {
        self.position = match byte {
            b':' => {
                self.begin_field(matched);
                HeaderPosition::Rest
            }
            b' ' | b'\t' => HeaderPosition::BeforeColon(matched),
            _ => HeaderPosition::Over,
        };
        1
    }

    fn begin_field(&mut self, matched: Match) {
        match matched.filter(|(field, bytes)| usize::from(*bytes) == field.name().len()) {
            Some((Field::Received, _)) => self.hops += 1,
            Some((Field::DeliveredTo, _)) => self.value = Some(Vec::new()),
            None => {}
        }
    }

    fn rest(&mut self, rest: &[u8]) -> usize {
        let end = memchr(b'\n', rest);
        let line = &rest[..end.unwrap_or(rest.len())];
        if self.value.is_some() {
            self.keep(line);
        }
        if end.is_none() {
            return line.len();
        }
        self.position = HeaderPosition::LineStart;
        line.len() + 1
    }
}

/// True if a name may have this octet (RFC 5322 3.6.8).
fn is_of_name(byte: u8) -> bool {
    matches!(byte, b'!'..=b'9' | b';'..=b'~')
}

/// Returns the match after more octets of the name, or `None` if they differ.
fn agreeing((field, bytes): (Field, u8), more: &[u8]) -> Match {
    let expected = field.name()[usize::from(bytes)..].get(..more.len())?;
    expected.eq_ignore_ascii_case(more).then_some((field, bytes + more.len() as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, hops: u32, bytes: usize) {
        for size in [1, 2, 7, text.len().max(1)] {
            let mut scan = HeaderScan::default();
            text.as_bytes().chunks(size).for_each(|piece| scan.look(piece));
            assert_eq!(scan.hops, hops, "{text:?} by {size}");
            assert!(scan.bytes.abs_diff(bytes as u64) <= 1, "{text:?}: {}", scan.bytes);
        }
    }

    fn delivered_to(text: &str, size: usize) -> DeliveredTo {
        let mut scan = HeaderScan::default();
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
        let mut scan = HeaderScan::default();
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
