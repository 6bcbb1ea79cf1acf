//! The parameters of MAIL and RCPT (RFC 1870, RFC 6152, RFC 6531, RFC 3461, RFC 4954 5).
//!
//! Must never accept a value that the next hop could interpret in another way.

use crate::xtext;
use mail::{BodyKind, Enhanced, Notify, Reply, Ret};

/// Upper bound on the octets of ENVID (RFC 3461 4.4).
pub const ENVID_BYTES_MAX: usize = 100;
/// Upper bound on the octets of ORCPT (RFC 3461 4.2).
pub const ORCPT_BYTES_MAX: usize = 500;

/// The parameters of MAIL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailParameters<'a> {
    /// SIZE=. A larger number than 64 bits can hold becomes `u64::MAX`.
    pub size: Option<u64>,
    /// BODY=.
    pub body: Option<BodyKind>,
    /// SMTPUTF8.
    pub smtputf8: bool,
    /// RET=.
    pub ret: Option<Ret>,
    /// ENVID=, still xtext.
    pub envid: Option<&'a str>,
    /// True if AUTH= was given. Its value is checked but not used.
    auth: bool,
}

/// The parameters of RCPT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RcptParameters<'a> {
    /// NOTIFY=.
    pub notify: Option<Notify>,
    /// ORCPT=, `type;xtext`.
    pub orcpt: Option<&'a str>,
}

/// Parses the text after the path of MAIL.
pub fn mail(text: &str) -> Result<MailParameters<'_>, Reply> {
    let mut found = MailParameters::default();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let (key, value) = split(word);
        let is = |name: &str| key.eq_ignore_ascii_case(name);
        if is("SIZE") {
            once(&mut found.size, value.and_then(size), "Bad message size syntax")?;
        } else if is("BODY") {
            once(&mut found.body, Some(body(value, word)?), "Duplicate BODY")?;
        } else if is("SMTPUTF8") {
            flag(&mut found.smtputf8, value.is_none(), "Bad SMTPUTF8 syntax")?;
        } else if is("RET") {
            once(&mut found.ret, value.and_then(ret), "Bad RET parameter syntax")?;
        } else if is("ENVID") {
            once(&mut found.envid, value.filter(|id| is_envid(id)), "Bad ENVID parameter syntax")?;
        } else if is("AUTH") {
            flag(&mut found.auth, value.is_some_and(is_auth), "Bad AUTH parameter syntax")?;
        } else {
            return Err(unsupported(word));
        }
    }
    Ok(found)
}

/// Parses the text after the path of RCPT. `utf8` is true if the transaction has SMTPUTF8.
pub fn rcpt(text: &str, utf8: bool) -> Result<RcptParameters<'_>, Reply> {
    let mut found = RcptParameters::default();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let (key, value) = split(word);
        if key.eq_ignore_ascii_case("NOTIFY") {
            once(&mut found.notify, value.and_then(notify), "Bad NOTIFY parameter syntax")?;
        } else if key.eq_ignore_ascii_case("ORCPT") {
            let value = value.filter(|orcpt| is_orcpt(orcpt, utf8));
            once(&mut found.orcpt, value, "Bad ORCPT parameter syntax")?;
        } else {
            return Err(unsupported(word));
        }
    }
    Ok(found)
}

/// Refuses all parameters, because the client greeted with HELO.
pub fn none(text: &str) -> Result<(), Reply> {
    match text.split(' ').find(|word| !word.is_empty()) {
        Some(word) => Err(unsupported(word)),
        None => Ok(()),
    }
}

fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (word, None),
    }
}

/// Sets the parameter, unless the value is invalid or the parameter is repeated.
fn once<T>(place: &mut Option<T>, value: Option<T>, complaint: &str) -> Result<(), Reply> {
    if value.is_none() || place.is_some() {
        return Err(bad(complaint));
    }
    *place = value;
    Ok(())
}

fn flag(place: &mut bool, good: bool, complaint: &str) -> Result<(), Reply> {
    if !good || *place {
        return Err(bad(complaint));
    }
    *place = true;
    Ok(())
}

fn bad(complaint: &str) -> Reply {
    Reply::new(501, Enhanced(5, 5, 4), complaint)
}

/// The reply to an unknown parameter (RFC 5321 4.1.1.11). It shows up to 40 characters of the parameter, and only
/// printable ASCII.
fn unsupported(word: &str) -> Reply {
    let shown: String = word.chars().take(40).filter(|shown| matches!(shown, '!'..='~')).collect();
    Reply::new(555, Enhanced(5, 5, 4), format!("Unsupported option: {shown}"))
}

/// Parses `1*20DIGIT` (RFC 1870 4). A longer number is too large but not a syntax error.
fn size(value: &str) -> Option<u64> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| value.parse().unwrap_or(u64::MAX))
}

fn body(value: Option<&str>, word: &str) -> Result<BodyKind, Reply> {
    match value {
        Some(kind) if kind.eq_ignore_ascii_case("7BIT") => Ok(BodyKind::SevenBit),
        Some(kind) if kind.eq_ignore_ascii_case("8BITMIME") => Ok(BodyKind::EightBit),
        Some(kind) if !kind.is_empty() => Err(unsupported(word)),
        _ => Err(bad("Bad BODY parameter syntax")),
    }
}

fn ret(value: &str) -> Option<Ret> {
    match value {
        _ if value.eq_ignore_ascii_case("FULL") => Some(Ret::Full),
        _ if value.eq_ignore_ascii_case("HDRS") => Some(Ret::Headers),
        _ => None,
    }
}

fn is_envid(value: &str) -> bool {
    !value.is_empty() && value.len() <= ENVID_BYTES_MAX && xtext::is_printable(value)
}

/// True for `<>` or xtext (RFC 4954 5).
fn is_auth(value: &str) -> bool {
    value == "<>" || !value.is_empty() && xtext::is_printable(value)
}

fn notify(value: &str) -> Option<Notify> {
    if value.eq_ignore_ascii_case("NEVER") {
        return Some(Notify::NEVER);
    }
    let mut asked = [false; 3];
    for word in value.split(',') {
        let is = |name: &&str| word.eq_ignore_ascii_case(name);
        let place = &mut asked[["SUCCESS", "FAILURE", "DELAY"].iter().position(is)?];
        if *place {
            return None;
        }
        *place = true;
    }
    Some(Notify::of(asked[0], asked[1], asked[2]))
}

/// True for `addr-type ";" xtext` (RFC 3461 4.2), or `utf-8;` with an address that RFC 6533 3 allows.
fn is_orcpt(value: &str, utf8: bool) -> bool {
    let Some((kind, address)) = value.split_once(';') else { return false };
    let kind_fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if kind.is_empty()
        || !kind.bytes().all(kind_fits)
        || address.is_empty()
        || value.len() > ORCPT_BYTES_MAX
    {
        return false;
    }
    if kind.eq_ignore_ascii_case("utf-8") {
        is_utf8_address(address, utf8)
    } else {
        xtext::is_printable(address)
    }
}

/// True for utf-8-addr-xtext: visible ASCII characters, `\x{HEX}` for others, and UTF-8 itself only if the transaction
/// has SMTPUTF8. A character written as hex must not be a control character.
fn is_utf8_address(address: &str, utf8: bool) -> bool {
    let mut rest = address;
    while let Some(character) = rest.chars().next() {
        let taken = match character {
            '\\' => embedded(rest),
            '+' | '=' => None,
            '!'..='~' => Some(1),
            _ if utf8 && !character.is_ascii() && !character.is_control() => {
                Some(character.len_utf8())
            }
            _ => None,
        };
        let Some(taken) = taken else { return false };
        rest = &rest[taken..];
    }
    true
}

/// Returns the number of octets of the `\x{HEX}` at the start of `text`.
fn embedded(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("\\x{")?.split_once('}')?.0;
    let upper = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
    let point = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?;
    (upper && digits.len() <= 6 && !point.is_control()).then_some(digits.len() + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, Reply>) -> u16 {
        result.map_or_else(|reply| reply.code, |_| 250)
    }

    #[test]
    fn p033_unknown_duplicate_and_empty_parameters_are_refused() {
        let cases = [
            (" FOO=1", 555),
            (" SIZE=1 SIZE=1", 501),
            (" BODY=7BIT BODY=7BIT", 501),
            (" SIZE", 501),
            (" SIZE=", 501),
            (" BODY", 501),
            (" BODY=BINARYMIME", 555),
            (" RET=NONE", 501),
            (" SMTPUTF8=1", 501),
            (" SMTPUTF8 SMTPUTF8", 501),
            (" =", 555),
            (" NOTIFY=NEVER", 555),
            (" size=1 body=8bitmime smtputf8 ret=hdrs envid=a auth=<>", 250),
            ("", 250),
            ("  ", 250),
        ];
        for (text, expected) in cases {
            assert_eq!(code(mail(text)), expected, "{text}");
        }
    }

    #[test]
    fn p034_sizes_are_numbers_without_overflow() {
        let cases = [
            ("-1", None),
            ("abc", None),
            ("", None),
            ("+1", None),
            ("0", Some(0)),
            ("100000000000000000000", Some(u64::MAX)),
        ];
        for (text, expected) in cases {
            assert_eq!(size(text), expected, "{text}");
        }
    }

    #[test]
    fn p060_no_encoded_control_gets_into_orcpt_envid_or_auth() {
        for bad in ["+0A", "+0D+0A", "+00", "+G1"] {
            assert_eq!(code(mail(&format!(" ENVID={bad}"))), 501);
            assert_eq!(code(mail(&format!(" AUTH={bad}"))), 501);
            assert_eq!(code(rcpt(&format!(" ORCPT=rfc822;{bad}"), false)), 501);
        }
        for (good, utf8) in
            [("rfc822;a+2Bb@c", false), ("utf-8;\\x{E9}@c", false), ("utf-8;é@c", true)]
        {
            assert_eq!(rcpt(&format!(" ORCPT={good}"), utf8).unwrap().orcpt, Some(good));
        }
        for bad in [
            "",
            ";",
            "rfc822;",
            "rfc822",
            "utf-8;é@c",
            "utf-8;\\x{A}",
            "utf-8;\\x{D800}",
            "utf-8;\\x{}",
        ] {
            assert_eq!(code(rcpt(&format!(" ORCPT={bad}"), false)), 501, "{bad}");
        }
        assert_eq!(code(mail(&format!(" ENVID={}", "a".repeat(101)))), 501);
    }

    #[test]
    fn notify_is_never_or_a_set() {
        let parsed = |text| rcpt(text, false).map(|found| found.notify.unwrap());
        assert_eq!(parsed(" NOTIFY=never"), Ok(Notify::NEVER));
        assert_eq!(parsed(" NOTIFY=SUCCESS,DELAY"), Ok(Notify::of(true, false, true)));
        for bad in ["NEVER,SUCCESS", "SUCCESS,SUCCESS", "", ",", "X"] {
            assert_eq!(code(rcpt(&format!(" NOTIFY={bad}"), false)), 501);
        }
    }
}
