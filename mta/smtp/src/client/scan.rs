//! Searches a message for 8-bit octets in its headers or its body, which the next hop may not accept.
//!
//! Must never change a byte.

/// The part of a message that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanPart {
    /// The header section.
    Headers,
    /// The header section and the body.
    Message,
}

/// The findings so far in a message that is fed from its start.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The header section has an 8-bit octet.
    pub eight_bit_header: bool,
    /// The body has an 8-bit octet.
    pub eight_bit_body: bool,
    headers_over: bool,
    line_bytes: usize,
}

impl Scan {
    /// Takes the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !self.headers_over && !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (line, rest) = bytes.split_at(end);
            self.eight_bit_header |= !line.is_ascii();
            self.line_bytes += line.len();
            if line.ends_with(b"\n") {
                self.headers_over = self.line_bytes <= 2;
                self.line_bytes = 0;
            }
            bytes = rest;
        }
        self.eight_bit_body |= !bytes.is_ascii();
    }

    /// True if more bytes cannot change the findings.
    pub fn is_settled(&self, part: ScanPart) -> bool {
        match part {
            ScanPart::Headers => self.eight_bit_header || self.headers_over,
            ScanPart::Message => self.eight_bit_body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_end_at_the_first_empty_line_however_the_message_is_cut() {
        for (message, header, body) in [
            ("A: b\r\n\r\nc\r\n", false, false),
            ("A: b\r\n\r\n\u{e9}\r\n", false, true),
            ("A: \u{e9}\r\n\r\nc\r\n", true, false),
            ("A: \u{e9}\r\n\r\n\u{e9}\r\n", true, true),
            ("\r\n\u{e9}", false, true),
        ] {
            for cut in 1..message.len() {
                let mut scan = Scan::default();
                message.as_bytes().chunks(cut).for_each(|part| scan.feed(part));
                let seen = (scan.eight_bit_header, scan.eight_bit_body);
                assert_eq!(seen, (header, body), "{message:?} by {cut}");
            }
        }
    }
}
