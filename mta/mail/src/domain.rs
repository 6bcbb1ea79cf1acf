//! A domain or an address literal, in one canonical form (RFC 5321 4.1.2 and 4.1.3, RFC 5890, UTS 46).
//!
//! Must never query the DNS, and never let two spellings of a domain become two routes.

use crate::AddressError;
use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Upper bound on the octets of a domain (RFC 5321 4.5.3.1.2).
pub const DOMAIN_BYTES_MAX: usize = 255;
/// Upper bound on the octets of a domain in UTF-8, before IDNA maps it: 4 for each octet that the result may have.
pub const WRITTEN_BYTES_MAX: usize = 4 * DOMAIN_BYTES_MAX;
/// Upper bound on the octets of one label (RFC 1035 2.3.4).
pub const LABEL_BYTES_MAX: usize = 63;

/// A domain in its canonical form: lower-case A-labels without a final dot, or an address literal such as
/// `[127.0.0.1]`. Equal routes have equal domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Box<str>")]
pub struct Domain(Box<str>);

/// Decodes a domain that another process sent. Accepts only the canonical form, so that a compromised process cannot
/// forge another spelling.
impl TryFrom<Box<str>> for Domain {
    type Error = AddressError;
    fn try_from(text: Box<str>) -> Result<Domain, AddressError> {
        if text.starts_with('[') {
            return literal(&text).and_then(|domain| domain.canonical(&text));
        }
        check_name(&text)?;
        let is_canonical = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        is_canonical.then_some(Domain(text)).ok_or(AddressError::Syntax)
    }
}

impl Domain {
    /// Parses and canonicalizes a name or an address literal. Removes one final dot.
    ///
    /// Underscores are accepted, because names in the DNS have them. A name that ends in a number is accepted too: the
    /// DNS is asked for it like for any other name, and it is never taken for the IP address that it resembles.
    pub fn parse(text: &str) -> Result<Domain, AddressError> {
        if text.starts_with('[') {
            return literal(text);
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_ascii() {
            check_name(name)?;
            let mut lower: Box<str> = name.into();
            lower.make_ascii_lowercase();
            return Ok(Domain(lower));
        }
        if name.len() > WRITTEN_BYTES_MAX {
            return Err(AddressError::DomainTooLong);
        }
        let ascii = Uts46::new()
            .to_ascii(
                name.as_bytes(),
                AsciiDenyList::STD3,
                Hyphens::CheckFirstLast,
                DnsLength::Ignore,
            )
            .map_err(|_| AddressError::BadUtf8)?;
        check_name(&ascii)?;
        Ok(Domain(ascii.into()))
    }

    fn canonical(self, text: &str) -> Result<Domain, AddressError> {
        if *self.0 == *text { Ok(self) } else { Err(AddressError::Syntax) }
    }

    /// Returns the canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the name ends in a number, like an IP address without brackets.
    pub fn ends_in_number(&self) -> bool {
        let last = self.0.rsplit('.').next().unwrap_or_default();
        last.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Returns whether this is an address literal in brackets, which needs no DNS.
    pub fn is_literal(&self) -> bool {
        self.0.starts_with('[')
    }

    /// Returns the address of an address literal, or `None` for a name and for a literal of another kind. An IPv4-mapped
    /// address is returned as IPv4, so that it cannot bypass a check of the IPv4 address.
    pub fn literal(&self) -> Option<IpAddr> {
        let inner = self.0.strip_prefix('[')?.strip_suffix(']')?;
        match inner.strip_prefix("IPv6:") {
            Some(six) => six.parse::<Ipv6Addr>().ok().map(|address| address.to_canonical()),
            None => inner.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks `sub-domain *("." sub-domain)` and its length limits in one pass.
fn check_name(name: &str) -> Result<(), AddressError> {
    if name.len() > DOMAIN_BYTES_MAX {
        return Err(AddressError::DomainTooLong);
    }
    name.split('.').try_for_each(|label| check_label(label.as_bytes()))
}

fn check_label(label: &[u8]) -> Result<(), AddressError> {
    if label.len() > LABEL_BYTES_MAX {
        return Err(AddressError::DomainTooLong);
    }
    let (Some(first), Some(last)) = (label.first(), label.last()) else {
        return Err(AddressError::Syntax);
    };
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if *first == b'-' || *last == b'-' || !label.iter().all(fits) {
        return Err(AddressError::Syntax);
    }
    Ok(())
}

/// Parses an address literal: an IPv4 address, `IPv6:` and an address, or `tag:content`, in brackets (RFC 5321 4.1.3).
fn literal(text: &str) -> Result<Domain, AddressError> {
    if text.len() > DOMAIN_BYTES_MAX {
        return Err(AddressError::DomainTooLong);
    }
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or(AddressError::Syntax)?;
    if let Ok(four) = inner.parse::<Ipv4Addr>() {
        return Ok(Domain(format!("[{four}]").into()));
    }
    let (tag, content) = inner.split_once(':').ok_or(AddressError::Syntax)?;
    if tag.eq_ignore_ascii_case("IPv6") {
        let six: Ipv6Addr = content.parse().map_err(|_| AddressError::Syntax)?;
        return Ok(Domain(format!("[IPv6:{six}]").into()));
    }
    let tag_fits = tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && tag.ends_with(|last: char| last.is_ascii_alphanumeric());
    // RFC 5321 4.1.3 allows more characters. Nobody uses them, and a command or a header would misread them.
    let fits = content
        .bytes()
        .all(|byte| matches!(byte, 33..=90 | 94..=126) && !b"<>()\",;@".contains(&byte));
    if !tag_fits || content.is_empty() || !fits {
        return Err(AddressError::Syntax);
    }
    Ok(Domain(format!("[{}:{content}]", tag.to_ascii_lowercase()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, AddressError>) {
        assert_eq!(
            Domain::parse(text).as_ref().map(Domain::as_str),
            expected.as_ref().copied(),
            "{text}"
        );
    }

    #[test]
    fn p050_every_spelling_of_a_domain_is_one_route() {
        check("Example.ORG", Ok("example.org"));
        check("example.org.", Ok("example.org"));
        check("bücher.example", Ok("xn--bcher-kva.example"));
        check("BU\u{308}CHER.example", Ok("xn--bcher-kva.example"));
        check("XN--BCHER-KVA.example", Ok("xn--bcher-kva.example"));
        check("bücher。example", Ok("xn--bcher-kva.example"));
        // A Cyrillic homograph is a different domain and stays different.
        check("ex\u{430}mple.org", Ok("xn--exmple-4nf.org"));
        check("a\u{200d}b.example", Err(AddressError::BadUtf8));
        check("a\u{200b}.\u{ad}.example", Err(AddressError::Syntax));
        check("\u{ff11}\u{ff12}\u{ff17}.0.0.\u{ff11}", Ok("127.0.0.1"));
        check("bü cher.example", Err(AddressError::BadUtf8));
    }

    #[test]
    fn p054_literals_are_canonical_or_refused() {
        check("[127.0.0.1]", Ok("[127.0.0.1]"));
        check("[ipv6:0:0::1]", Ok("[IPv6:::1]"));
        check("[IPv6:gggg]", Err(AddressError::Syntax));
        check("[1.2.3]", Err(AddressError::Syntax));
        check("[127.0.0.1", Err(AddressError::Syntax));
        check("[Foo:bar]", Ok("[foo:bar]"));
        check("[::1]", Err(AddressError::Syntax));
        for odd in ["[foo:>]", "[foo:a@b]", "[foo:\"]", "[foo:,]", "[foo:(x)]"] {
            check(odd, Err(AddressError::Syntax));
        }
        let bare = Domain::parse("1.2.3.4").unwrap();
        assert!(bare.ends_in_number() && !bare.is_literal() && bare.literal().is_none());
        assert!(!Domain::parse("4.test").unwrap().ends_in_number());
        let mapped = Domain::parse("[IPv6:::ffff:127.0.0.1]").unwrap();
        assert!(mapped.is_literal() && mapped.literal().unwrap().is_loopback());
        let general = Domain::parse("[foo:bar]").unwrap();
        assert!(general.is_literal() && general.literal().is_none());
    }

    #[test]
    fn another_process_sends_the_canonical_form_or_no_domain_at_all() {
        for good in ["example.org", "[127.0.0.1]", "[IPv6:::1]", "xn--bcher-kva.example"] {
            assert_eq!(Domain::try_from(Box::from(good)).as_ref().map(Domain::as_str), Ok(good));
        }
        for bad in
            ["", "a@b.c", "A.b", "a b", "a.b>\r\nRSET", "[127.0.0.1", "[ipv6:::1]", "bücher.x"]
        {
            assert!(Domain::try_from(Box::from(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn p056_labels_of_63_and_domains_of_255_are_the_limit() {
        let label = |n: usize| "a".repeat(n);
        check(&label(63), Ok(&label(63)));
        check(&label(64), Err(AddressError::DomainTooLong));
        let full = [label(63), label(63), label(63), label(63)].join(".");
        assert_eq!(full.len(), 255);
        check(&full, Ok(&full));
        check(&format!("{full}a"), Err(AddressError::DomainTooLong));
        // Characters that IDNA removes count until they are removed.
        let written = |soft_hyphens| format!("{}ab.c", "\u{ad}".repeat(soft_hyphens));
        check(&written(508), Ok("ab.c"));
        check(&written(509), Err(AddressError::DomainTooLong));
        for bad in ["", ".", "..", "a..b", ".a", "-a.b", "a-.b", "a b", "a\0b", "a\rb", "a/b"] {
            check(bad, Err(AddressError::Syntax));
        }
    }
}
