//! xtext, the encoding of characters that a parameter of DSN or AUTH cannot contain (RFC 3461 4).
//!
//! Must never decode into a command or a header: values that are passed on stay encoded.

/// True if the text is xtext, `*( xchar / hexchar )`, that decodes to printable ASCII, as ENVID and the address in
/// ORCPT must (RFC 3461 4.2 and 4.4).
pub fn is_printable(text: &str) -> bool {
    decode(text).is_some_and(|plain| plain.iter().all(|byte| matches!(byte, b' '..=b'~')))
}

/// Returns the decoded octets, or `None` if the text is not xtext.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'+' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            b'=' => return None,
            b'!'..=b'~' => byte,
            _ => return None,
        });
    }
    Some(plain)
}

/// Appends `plain` as xtext.
pub fn encode(plain: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in plain {
        match byte {
            b'+' | b'=' => {}
            b'!'..=b'~' => {
                out.push(*byte as char);
                continue;
            }
            _ => {}
        }
        out.push('+');
        out.push(DIGITS[usize::from(byte >> 4)] as char);
        out.push(DIGITS[usize::from(byte & 15)] as char);
    }
}

/// Parses one upper-case hexadecimal digit (RFC 3461 4).
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn p060_encoded_controls_are_no_printable_xtext() {
        for bad in ["+0A", "+0D+0A", "+00", "+7F", "+G1", "+0a", "+4", "+", "a=b", "a b", "é"] {
            assert!(!is_printable(bad), "{bad}");
        }
        for good in ["", "abc", "a+2Bb", "a+3Db", "+20", "<a@b>"] {
            assert!(is_printable(good), "{good}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_come_back(plain in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut text = String::new();
            encode(&plain, &mut text);
            prop_assert_eq!(decode(&text), Some(plain));
        }
    }
}
