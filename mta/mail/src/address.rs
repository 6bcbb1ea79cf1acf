//! Addresses, parsed once where they enter the system and valid from then on (RFC 5321 4.1.2, RFC 6531 3.3).
//!
//! Must never accept a control character, or a local part that a shell or a header would read differently from what
//! its quotes say.

pub use crate::domain::Domain;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Upper bound on the octets of a local part (RFC 5321 4.5.3.1.1).
pub const LOCAL_BYTES_MAX: usize = 64;

/// The address of a mailbox: the text that the client sent, and the canonical form of the domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedAddress")]
pub struct Address {
    /// `local@domain` byte for byte as the client sent it, without `<>` and source route.
    text: Box<str>,
    /// The offset of the `@` before the domain.
    at: u32,
    domain: Domain,
}

/// The argument of MAIL FROM.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReversePath {
    /// `<>`, the null sender. No notice is ever sent to it.
    Null,
    /// The address of a mailbox.
    Address(Address),
}

/// Why a text is not an address. The client is answered 501 or 553.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text does not follow the grammar.
    #[error("bad address syntax")]
    Syntax,
    /// The local part is longer than 64 octets (RFC 5321 4.5.3.1.1).
    #[error("local part too long")]
    LocalTooLong,
    /// The domain is longer than 255 octets, or a label is longer than 63 (RFC 5321 4.5.3.1.2).
    #[error("domain too long")]
    DomainTooLong,
    /// The text is not ASCII and the client did not ask for SMTPUTF8 (RFC 6531 3.5).
    #[error("address needs SMTPUTF8")]
    NeedsUtf8,
    /// The text is not valid UTF-8, or IDNA refuses the domain.
    #[error("bad internationalized address")]
    BadUtf8,
}

impl Address {
    /// Parses `local@domain` without `<>`. Accepts non-ASCII characters only with `utf8`.
    ///
    /// An unquoted local part may have dots at its ends and next to each other. RFC 5321 4.1.2 does not allow this, but
    /// such addresses exist and every other mailer accepts them. A local part must not be used as a file name before
    /// `policy::mailbox_name` has accepted it.
    pub fn parse(text: &str, utf8: bool) -> Result<Address, AddressError> {
        if !utf8 && !text.is_ascii() {
            return Err(AddressError::NeedsUtf8);
        }
        let at = local_length(text)?;
        if at > LOCAL_BYTES_MAX {
            return Err(AddressError::LocalTooLong);
        }
        let domain_text = text[at..].strip_prefix('@').ok_or(AddressError::Syntax)?;
        if domain_text.ends_with('.') {
            return Err(AddressError::Syntax);
        }
        let domain = Domain::parse(domain_text)?;
        Ok(Address { text: text.into(), at: at as u32, domain })
    }

    /// Returns `local@domain` as the client wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the local part as the client wrote it, including quotes.
    pub fn local(&self) -> &str {
        &self.text[..self.at as usize]
    }

    /// Returns the local part without quotes and backslashes, for names of mailboxes. It may contain any printable
    /// character, including `/` and `@`.
    pub fn local_unquoted(&self) -> Cow<'_, str> {
        let local = self.local();
        let Some(inner) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return Cow::Borrowed(local);
        };
        if !inner.contains('\\') {
            return Cow::Borrowed(inner);
        }
        let mut plain = String::with_capacity(inner.len());
        let mut characters = inner.chars();
        while let Some(character) = characters.next() {
            plain.extend(if character == '\\' { characters.next() } else { Some(character) });
        }
        Cow::Owned(plain)
    }

    /// Returns the canonical domain, for routing and comparison.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns the domain as the client wrote it.
    pub fn domain_text(&self) -> &str {
        &self.text[self.at as usize + 1..]
    }

    /// Returns whether the whole text is ASCII.
    pub fn is_ascii(&self) -> bool {
        self.text.is_ascii()
    }

    /// Returns the address for a next hop without SMTPUTF8, with the domain as A-labels. Returns `None` if the local
    /// part is not ASCII: such a next hop cannot express it (RFC 6531 3.2).
    pub fn ascii_form(&self) -> Option<String> {
        if self.is_ascii() {
            return Some(self.text.to_string());
        }
        self.local().is_ascii().then(|| format!("{}@{}", self.local(), self.domain))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Writes the address without `<>`, and nothing for the null sender.
impl fmt::Display for ReversePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReversePath::Null => Ok(()),
            ReversePath::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Returns the length in octets of the local part at the start of `text`: a quoted string or a dot-string.
fn local_length(text: &str) -> Result<usize, AddressError> {
    if text.starts_with('"') { quoted_length(text) } else { dot_string_length(text) }
}

/// Measures a dot-string: atext and dots, with at least one character that is not a dot. UTF8-non-ascii counts as atext
/// (RFC 6531 3.3).
fn dot_string_length(text: &str) -> Result<usize, AddressError> {
    let mut named = false;
    for (at, character) in text.char_indices() {
        match character {
            '@' if named => return Ok(at),
            '.' => {}
            _ if is_atext(character) => named = true,
            _ => return Err(AddressError::Syntax),
        }
    }
    Err(AddressError::Syntax)
}

/// Measures `Quoted-string = DQUOTE *QcontentSMTP DQUOTE`: printable characters only, each optionally after a `\`.
fn quoted_length(text: &str) -> Result<usize, AddressError> {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok(at + 1),
            '\\' => match characters.next() {
                Some((_, ' '..='~')) => {}
                _ => return Err(AddressError::Syntax),
            },
            _ if character.is_control() => return Err(AddressError::Syntax),
            _ => {}
        }
    }
    Err(AddressError::Syntax)
}

/// Returns whether a character is atext (RFC 5322 3.2.3). All non-ASCII characters except the C1 controls are.
fn is_atext(character: char) -> bool {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' => true,
        '!' | '#' | '$' | '%' | '&' | '\'' | '*' | '+' | '-' | '/' | '=' | '?' => true,
        '^' | '_' | '`' | '{' | '|' | '}' | '~' => true,
        _ => !character.is_ascii() && !character.is_control(),
    }
}

/// An address as decoded from another process or from the spool, before it is checked. A compromised process must not
/// be able to forge an address that `parse` would have refused.
#[derive(Deserialize)]
struct UncheckedAddress {
    text: Box<str>,
    at: u32,
    domain: Domain,
}

impl TryFrom<UncheckedAddress> for Address {
    type Error = AddressError;
    fn try_from(parts: UncheckedAddress) -> Result<Address, AddressError> {
        let UncheckedAddress { text, at, domain } = parts;
        let local = local_length(&text)?;
        let domain_text = text[local..].strip_prefix('@').ok_or(AddressError::Syntax)?;
        if local != at as usize || local > LOCAL_BYTES_MAX || !fits(domain_text, &domain) {
            return Err(AddressError::Syntax);
        }
        Ok(Address { text, at, domain })
    }
}

/// Returns whether the text can be a spelling of the domain. Does not apply IDNA to UTF-8 text again: the tables of
/// IDNA change, and an address that was accepted with an older table must stay readable.
fn fits(text: &str, domain: &Domain) -> bool {
    let unfit = |c: char| c.is_control() || " <>\"@,;:\\()[]".contains(c);
    match text.is_ascii() {
        true if domain.is_literal() => Domain::parse(text).as_ref() == Ok(domain),
        true => text.eq_ignore_ascii_case(domain.as_str()),
        false => !text.contains(unfit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Result<&str, AddressError>) {
        let parsed = Address::parse(text, true);
        let local = parsed.as_ref().map(|address| {
            assert_eq!(address.as_str(), text);
            address.local()
        });
        assert_eq!(local.map_err(|error| *error), expected, "{text:?}");
    }

    #[test]
    fn p015_controls_are_refused_in_quoted_strings_too() {
        for bad in ["\"a\0b\"@x.y", "\"a\rb\"@x.y", "\"a\nb\"@x.y", "\"a\tb\"@x.y", "\"\\\r\"@x.y"]
        {
            check(bad, Err(AddressError::Syntax));
        }
        check("\"a\u{85}b\"@x.y", Err(AddressError::Syntax));
        check("a\u{85}b@x.y", Err(AddressError::Syntax));
        check("\"a\u{7f}b\"@x.y", Err(AddressError::Syntax));
    }

    #[test]
    fn p047_eight_bit_needs_smtputf8() {
        assert_eq!(Address::parse("jürgen@x.y", false), Err(AddressError::NeedsUtf8));
        assert_eq!(Address::parse("a@bücher.y", false), Err(AddressError::NeedsUtf8));
        check("jürgen@bücher.y", Ok("jürgen"));
    }

    #[test]
    fn p049_only_the_domain_has_an_ascii_form() {
        let ascii = |text| Address::parse(text, true).unwrap().ascii_form();
        assert_eq!(ascii("a@bücher.y").as_deref(), Some("a@xn--bcher-kva.y"));
        assert_eq!(ascii("jürgen@bücher.y"), None);
        assert_eq!(ascii("A@X.y").as_deref(), Some("A@X.y"));
    }

    #[test]
    fn p052_only_one_at_sign_separates() {
        check("x%other@local.test", Ok("x%other"));
        check("other!x@local.test", Ok("other!x"));
        check("x@other@local.test", Err(AddressError::Syntax));
        check("\"x@other\"@local.test", Ok("\"x@other\""));
    }

    #[test]
    fn p053_quoted_local_parts_stay_byte_exact() {
        check("\"a b\"@x.y", Ok("\"a b\""));
        check("\"a\\\"b\"@x.y", Ok("\"a\\\"b\""));
        check("\"\"@x.y", Ok("\"\""));
        for bad in
            ["\"\"", "\"\"a@x.y", "\"a@x.y", "\"a\"b@x.y", "\"a\\\"@x.y", "\"a\\é\"@x.y", "\"a\""]
        {
            check(bad, Err(AddressError::Syntax));
        }
        let plain = |text| Address::parse(text, true).unwrap().local_unquoted().into_owned();
        assert_eq!(plain("\"a\\\"\\ b\"@x.y"), "a\" b");
        assert_eq!(plain("\"a b\"@x.y"), "a b");
        assert_eq!(plain("a.b@x.y"), "a.b");
    }

    #[test]
    fn p056_local_parts_of_64_octets_are_the_limit() {
        let local = |n: usize| "a".repeat(n);
        check(&format!("{}@x.y", local(64)), Ok(&local(64)));
        for long in [65, 256, 10_000] {
            check(&format!("{}@x.y", local(long)), Err(AddressError::LocalTooLong));
        }
        for bad in ["", "@", "@x.y", "a@", "a", "a@x.y."] {
            check(bad, Err(AddressError::Syntax));
        }
    }

    #[test]
    fn r231_dots_stand_anywhere_in_a_local_part_and_stay_there() {
        for local in ["a..b", ".a", "a.", "..a..", "a...b.c"] {
            let text = format!("{local}@x.y");
            check(&text, Ok(local));
            let parts = UncheckedAddress {
                text: text.into(),
                at: local.len() as u32,
                domain: Domain::parse("x.y").unwrap(),
            };
            assert!(Address::try_from(parts).is_ok(), "{local}: it crosses between processes");
        }
        for bad in [".@x.y", "..@x.y", "a@.x.y", "a@x..y", "a@x.y.", "a. @x.y"] {
            check(bad, Err(AddressError::Syntax));
        }
        check(&format!("{}@x.y", ".a".repeat(33)), Err(AddressError::LocalTooLong));
    }

    #[test]
    fn r236_empty_quoted_strings_and_domains_that_end_in_a_number_are_addresses() {
        check("\"\"@x.y", Ok("\"\""));
        for domain in ["x.123", "255.255.255.255", "1"] {
            let address = Address::parse(&format!("a@{domain}"), false).unwrap();
            assert_eq!(address.domain().as_str(), domain);
            // The DNS is asked for this name; it is never taken for the IP address that it resembles.
            assert!(!address.domain().is_literal() && address.domain().literal().is_none());
            let crossed = Domain::try_from(Box::from(domain));
            assert_eq!(crossed.as_ref(), Ok(address.domain()));
        }
        let empty = Address::parse("\"\"@x.y", false).unwrap();
        assert_eq!(empty.local_unquoted(), "");
    }

    #[test]
    fn p059_what_a_shell_would_read_is_refused_or_data() {
        for bad in
            ["a;b@x.y", "a b@x.y", "a\nb@x.y", "a\rb@x.y", "a\tb@x.y", "a$(b)@x.y", "<a>@x.y"]
        {
            check(bad, Err(AddressError::Syntax));
        }
        check("a|b`c$d@x.y", Ok("a|b`c$d"));
        for bad in ["a@x;y", "a@x y", "a@x\ny", "a@$(x)", "a@x|y", "a@`x`"] {
            check(bad, Err(AddressError::Syntax));
        }
    }

    #[test]
    fn a_wrong_at_from_a_peer_is_refused() {
        let domain = Domain::parse("x.y").unwrap();
        for at in [0, 2, 99] {
            let parts = UncheckedAddress {
                text: "é@x.y".into(),
                at: at + (at == 2) as u32,
                domain: domain.clone(),
            };
            assert!(Address::try_from(parts).is_err());
        }
        let parts = UncheckedAddress { text: "é@x.y".into(), at: 2, domain };
        assert!(Address::try_from(parts).is_ok());
    }

    #[test]
    fn another_process_sends_what_parse_would_have_taken_or_no_address_at_all() {
        let parts = |text: &str, domain: &str| UncheckedAddress {
            text: text.into(),
            at: text.rfind('@').unwrap() as u32,
            domain: Domain::parse(domain).unwrap(),
        };
        for (text, domain) in [
            ("a@X.y", "x.y"),
            ("\"a b\"@x.y", "x.y"),
            ("é@bücher.y", "xn--bcher-kva.y"),
            ("a@[ipv6:::1]", "[IPv6:::1]"),
        ] {
            assert!(Address::try_from(parts(text, domain)).is_ok(), "{text}");
        }
        for (text, domain) in [
            ("a\r\nRSET@x.y", "x.y"),
            ("a> SIZE=1@x.y", "x.y"),
            ("@x.y", "x.y"),
            ("a@x.y\r\n", "x.y"),
            ("a@z.y", "x.y"),
            ("a@é\n.y", "x.y"),
            ("a@é>.y", "x.y"),
        ] {
            assert!(Address::try_from(parts(text, domain)).is_err(), "{text}");
        }
        let long = format!("{}@x.y", "a".repeat(65));
        assert!(Address::try_from(parts(&long, "x.y")).is_err());
    }

    proptest! {
        #[test]
        fn what_parses_reads_back_the_same(text in "[ -~é\u{1}-\u{7f}]{0,12}@[a-zA-Z0-9.ü\\[\\]:-]{0,12}") {
            if let Ok(address) = Address::parse(&text, true) {
                prop_assert_eq!(&Address::parse(&address.to_string(), true), &Ok(address.clone()));
                let canonical = address.domain().as_str();
                prop_assert_eq!(&Domain::parse(canonical), &Ok(address.domain().clone()));
                prop_assert!(!address.as_str().chars().any(char::is_control));
                if let Some(ascii) = address.ascii_form() {
                    let again = Address::parse(&ascii, false).unwrap();
                    prop_assert_eq!(again.domain(), address.domain());
                }
            }
        }

        #[test]
        fn good_addresses_parse(local in "[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}(\\.[a-zé]{1,5}){0,3}", domain in "[a-z]([a-z0-9-]{0,10}[a-z])?(\\.[a-z]{2,5}){0,3}") {
            let address = Address::parse(&format!("{local}@{domain}"), true).unwrap();
            prop_assert_eq!(address.local(), &local);
            prop_assert_eq!(address.domain().as_str(), &domain);
        }
    }
}
