//! Sanitizing, folding and encoding of text from strangers.
//!
//! Must never let a CR, LF, NUL or other control character through.

/// Returns the text with `?` for every control character and, without `utf8`, for every non-ASCII character.
pub(super) fn harmless(text: &str, utf8: bool) -> String {
    text.chars().map(|c| if is_harmless(c, utf8) { c } else { '?' }).collect()
}

fn is_harmless(c: char, utf8: bool) -> bool {
    let ascii = c == ' ' || c.is_ascii_graphic();
    // Strangers must not be able to set line and paragraph separators, or marks that change the direction of text.
    let separator = matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    ascii || (utf8 && !c.is_ascii() && !c.is_control() && !separator)
}

/// Appends `name: value` as one field, folded between words (RFC 5322 2.2.3). A word that is too long for a line is
/// broken. No line is empty, and no line can be taken for the start of another field.
pub(super) fn fold(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.push(':');
    let mut column = name.len() + 1;
    for word in value.split_ascii_whitespace() {
        for piece in pieces(word) {
            if column + 1 + piece.len() > LINE_BYTES_WANTED && column > name.len() + 1 {
                out.push_str("\r\n");
                column = 0;
            }
            out.push(' ');
            out.push_str(piece);
            column += 1 + piece.len();
        }
    }
    out.push_str("\r\n");
}

/// Splits a word into pieces of at most `WORD_BYTES_MAX`.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(rest.floor_char_boundary(WORD_BYTES_MAX));
        rest = after;
        Some(piece)
    })
}

/// Cuts the text to a bound and appends a mark if something is missing.
pub(super) fn bounded(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.into();
    }
    format!("{} [...]", &text[..text.floor_char_boundary(bytes_max)])
}

/// Decodes xtext (RFC 3461 4). Returns `None` unless the whole text is well-formed and decodes to printable ASCII, so
/// that the result is safe in a header. The caller then shows the encoded form.
pub(super) fn decode_xtext(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = String::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let decoded = if byte == b'+' {
            // RFC 3461 4: upper-case hexadecimal digits only.
            let digit = |b: u8| b"0123456789ABCDEF".iter().position(|d| *d == b);
            (digit(bytes.next()?)? * 16 + digit(bytes.next()?)?) as u8
        } else {
            byte
        };
        if !(b' '..=b'~').contains(&decoded) {
            return None;
        }
        out.push(decoded as char);
    }
    Some(out)
}

/// Returns whether bytes need no encoding in a MIME part: all lines end with CRLF and have at most 998 octets, and there
/// is no NUL (RFC 5322 2.1.1, RFC 2045 2.7 and 2.8).
pub(super) fn is_clean(bytes: &[u8]) -> bool {
    let mut line = 0;
    let mut before = 0u8;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            0 => return false,
            b'\n' if before != b'\r' => return false,
            b'\n' => line = 0,
            b'\r' if bytes.get(at + 1) != Some(&b'\n') => return false,
            b'\r' => {}
            _ => line += 1,
        }
        if line > LINE_BYTES_MAX {
            return false;
        }
        before = byte;
    }
    true
}

/// Encodes as quoted-printable (RFC 2045 6.7). CRLF remains a line end. A bare CR or LF is encoded.
pub(super) fn quoted_printable(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    let mut column = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if bytes[at..].starts_with(b"\r\n") {
            out.extend_from_slice(b"\r\n");
            (column, at) = (0, at + 2);
            continue;
        }
        let at_line_end = at + 1 == bytes.len() || bytes[at + 1..].starts_with(b"\r\n");
        let blank = byte == b' ' || byte == b'\t';
        let plain = (byte.is_ascii_graphic() && byte != b'=') || (blank && !at_line_end);
        if column + if plain { 1 } else { 3 } > QP_COLUMN_MAX {
            out.extend_from_slice(b"=\r\n");
            column = 0;
        }
        if plain {
            out.push(byte);
            column += 1;
        } else {
            out.extend_from_slice(format!("={byte:02X}").as_bytes());
            column += 3;
        }
        at += 1;
    }
    out
}

/// Encodes as base 64 in lines of 76 characters (RFC 2045 6.8).
pub(super) fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(bytes.len() * 3 / 2);
    for line in bytes.chunks(57) {
        for group in line.chunks(3) {
            let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for place in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
                out.push(if place <= group.len() { digit } else { b'=' });
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Upper bound in octets on a line of a message, without its CRLF (RFC 5322 2.1.1).
pub(super) const LINE_BYTES_MAX: usize = 998;
/// The length at which a field is folded if possible (RFC 5322 2.1.1).
const LINE_BYTES_WANTED: usize = 78;
/// Upper bound in octets on a word that is not broken. With the name of a field, the line stays within the limit.
const WORD_BYTES_MAX: usize = 900;
/// Upper bound on a line of quoted-printable without the soft break (RFC 2045 6.7 (5)).
const QP_COLUMN_MAX: usize = 75;
const _: () = assert!(WORD_BYTES_MAX + 64 < LINE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p060_xtext_that_decodes_to_controls_or_is_malformed_stays_encoded() {
        for (text, expected) in [
            ("QQ314159", Some("QQ314159")),
            ("a+2Bb+3D", Some("a+b=")),
            ("x+0D+0AEvil:+20y", None),
            ("x+0A", None),
            ("x+00", None),
            ("x+G1", None),
            ("x+2b", None),
            ("x+2", None),
            ("x\r\ny", None),
        ] {
            assert_eq!(decode_xtext(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn fold_breaks_at_words_and_never_leaves_a_long_line() {
        let mut out = String::new();
        fold(
            &mut out,
            "Diagnostic-Code",
            &format!("smtp; {} {}", "word ".repeat(40), "x".repeat(3000)),
        );
        assert!(out.ends_with("\r\n"));
        for (number, line) in out.trim_end().split("\r\n").enumerate() {
            assert!(line.len() <= LINE_BYTES_MAX);
            assert!(number == 0 || (line.starts_with(' ') && !line.trim().is_empty()));
        }
        let mut empty = String::new();
        fold(&mut empty, "X", " \t");
        assert_eq!(empty, "X:\r\n");
    }

    #[test]
    fn quoted_printable_and_base64_are_as_the_rfc_shows() {
        assert_eq!(quoted_printable("a=b \r\né".as_bytes()), b"a=3Db=20\r\n=C3=A9");
        assert_eq!(quoted_printable(b"a\rb\nc"), b"a=0Db=0Ac");
        let long = quoted_printable(&[b'x'; 200]);
        assert!(long.split(|b| *b == b'\n').all(|line| line.len() <= 77));
        assert_eq!(base64(b"M"), b"TQ==\r\n");
        assert_eq!(base64(b"Ma"), b"TWE=\r\n");
        assert_eq!(base64(b"Man"), b"TWFu\r\n");
        assert_eq!(base64(b""), b"");
    }
}
