//! The part that returns the original message or its headers (RFC 3462 2, RFC 6533 6).
//!
//! Must never return a byte of the body where only the headers were asked for.

use super::text::{base64, is_clean, quoted_printable};
use super::{Form, Notice, Part, as_it_is};

/// The last part of a notice.
pub(super) struct OriginalPart {
    /// Its MIME headers, each with CRLF.
    pub headers: String,
    /// Its body, encoded.
    pub body: Vec<u8>,
}

pub(super) fn original_part(notice: &Notice<'_>, form: Form) -> OriginalPart {
    let headers = headers_of(notice.original);
    // `message/rfc822` must not be encoded (RFC 2046 5.2.1), so a message with lines that no
    // server need take is returned without its body.
    let whole = notice.part == Part::Whole && is_clean(notice.original);
    match form {
        Form::Ascii if whole => part("message/rfc822", notice.original, Encoding::None),
        Form::Ascii if is_clean(headers) => part("text/rfc822-headers", headers, Encoding::None),
        Form::Ascii => part("text/rfc822-headers", headers, Encoding::Quoted),
        Form::Utf8 if whole => part("message/global", notice.original, Encoding::None),
        Form::Utf8 if is_clean(headers) => part("message/global-headers", headers, Encoding::None),
        Form::Utf8 => part("message/global-headers", headers, Encoding::Base64),
        // RFC 6532 3.7: `message/global`, unlike `message/rfc822`, may be encoded.
        Form::Utf8Encoded if notice.part == Part::Whole => {
            part("message/global", notice.original, Encoding::Base64)
        }
        Form::Utf8Encoded => part("message/global-headers", headers, Encoding::Base64),
    }
}

enum Encoding {
    None,
    Quoted,
    Base64,
}

fn part(kind: &str, content: &[u8], encoding: Encoding) -> OriginalPart {
    let (name, body) = match encoding {
        Encoding::None => (as_it_is(content), content.to_vec()),
        Encoding::Quoted => ("quoted-printable", quoted_printable(content)),
        Encoding::Base64 => ("base64", base64(content)),
    };
    let headers = format!("Content-Type: {kind}\r\nContent-Transfer-Encoding: {name}\r\n");
    OriginalPart { headers, body }
}

/// The headers of a message without the empty line after them; of a message that was cut inside
/// its headers, the whole lines.
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

/// Most headers returned, in bytes.
const HEADERS_BYTES_MAX: usize = 50 * 1024;
