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
mod tests;
