//! The part of a notice that returns the original message or its headers (RFC 3462 2, RFC 6533 6).
//!
//! Must never return a byte of the body if only the headers were requested.

use super::text::{base64, is_clean, quoted_printable};
use super::{Excerpt, Form, Notice, as_it_is};

/// The last part of a notice.
pub(super) struct OriginalPart {
    /// The MIME headers, each with CRLF.
    pub headers: String,
    /// The encoded body.
    pub body: Vec<u8>,
    /// What the body contains.
    pub returned: Returned,
}

/// How much of the original a notice really returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// All of it.
    Whole,
    /// This number of bytes from its start.
    Start(usize),
    /// Only its headers.
    Headers,
}

pub(super) fn original_part(notice: &Notice<'_>, form: Form) -> OriginalPart {
    let headers = headers_of(notice.original);
    let (content, returned) = match notice.excerpt {
        Excerpt::Whole => (notice.original, Returned::Whole),
        Excerpt::Start(bytes_max) => match start_of(notice.original, bytes_max) {
            // More than the headers and the empty line after them.
            start if start.len() > headers.len() + 2 => (start, Returned::Start(start.len())),
            _ => (headers, Returned::Headers),
        },
        Excerpt::Headers => (headers, Returned::Headers),
    };
    // `message/rfc822` must not be encoded (RFC 2046 5.2.1), so a message with lines that a server may refuse is
    // returned without its body. `message/global` may be encoded (RFC 6532 3.7).
    let (kind, encoding) = match form {
        Form::Ascii => ("message/rfc822", Encoding::None),
        Form::Utf8 => ("message/global", Encoding::None),
        Form::Utf8Encoded => ("message/global", Encoding::Base64),
    };
    let as_it_is = form == Form::Utf8Encoded || is_clean(content);
    if returned == Returned::Headers || !as_it_is {
        return headers_part(headers, form);
    }
    part(kind, content, encoding, returned)
}

fn headers_part(headers: &[u8], form: Form) -> OriginalPart {
    let (kind, encoding) = match form {
        Form::Ascii if is_clean(headers) => ("text/rfc822-headers", Encoding::None),
        Form::Ascii => ("text/rfc822-headers", Encoding::Quoted),
        Form::Utf8 if is_clean(headers) => ("message/global-headers", Encoding::None),
        Form::Utf8 | Form::Utf8Encoded => ("message/global-headers", Encoding::Base64),
    };
    part(kind, headers, encoding, Returned::Headers)
}

enum Encoding {
    None,
    Quoted,
    Base64,
}

fn part(kind: &str, content: &[u8], encoding: Encoding, returned: Returned) -> OriginalPart {
    let (name, body) = match encoding {
        Encoding::None => (as_it_is(content), content.to_vec()),
        Encoding::Quoted => ("quoted-printable", quoted_printable(content)),
        Encoding::Base64 => ("base64", base64(content)),
    };
    let headers = format!("Content-Type: {kind}\r\nContent-Transfer-Encoding: {name}\r\n");
    OriginalPart { headers, body, returned }
}

/// Returns the complete lines among the first `bytes_max` bytes of a message.
fn start_of(original: &[u8], bytes_max: usize) -> &[u8] {
    let start = &original[..original.len().min(bytes_max)];
    &start[..start.windows(2).rposition(|window| window == b"\r\n").map_or(0, |at| at + 2)]
}

/// Returns the headers of a message without the empty line after them. If the message was cut inside its headers,
/// returns the complete lines.
fn headers_of(original: &[u8]) -> &[u8] {
    if original.starts_with(b"\r\n") {
        return &[];
    }
    let end = match original.windows(4).position(|window| window == b"\r\n\r\n") {
        Some(at) => at + 2,
        None => original.windows(2).rposition(|window| window == b"\r\n").map_or(0, |at| at + 2),
    };
    &original[..end.min(HEADERS_BYTES_MAX)]
}

/// Upper bound in bytes on the headers returned.
const HEADERS_BYTES_MAX: usize = 50 * 1024;
