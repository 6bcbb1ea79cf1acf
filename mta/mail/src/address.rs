//! Addresses: parsed once at the border, valid ever after (RFC 5321 4.1.2, RFC 6531 3.3).

use serde::{Deserialize, Serialize};
use std::fmt;

/// A domain in its one canonical form: lower-case A-labels, no final dot, or an address literal
/// such as `[127.0.0.1]`. Equal routes have equal domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Domain(Box<str>);

/// A mailbox: what it was called by the client, and its domain's canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// `local@domain` byte for byte as it came, without `<>` and source route.
    text: Box<str>,
    /// Where the `@` before the domain is.
    at: u32,
    domain: Domain,
}

/// MAIL FROM's argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReversePath {
    /// `<>`: never answered.
    Null,
    /// A mailbox.
    Address(Address),
}

/// Why a text is no address; becomes 501 or 553.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Does not follow the grammar.
    #[error("bad address syntax")]
    Syntax,
    /// The local part is longer than 64 octets (RFC 5321 4.5.3.1.1).
    #[error("local part too long")]
    LocalTooLong,
    /// The domain is longer than 255 octets or a label longer than 63 (RFC 5321 4.5.3.1.2).
    #[error("domain too long")]
    DomainTooLong,
    /// Non-ASCII without SMTPUTF8 (RFC 6531 3.5).
    #[error("address needs SMTPUTF8")]
    NeedsUtf8,
    /// Not valid UTF-8, or a domain that IDNA refuses.
    #[error("bad internationalized address")]
    BadUtf8,
}

impl Domain {
    /// Parses and canonicalizes a name or an address literal.
    pub fn parse(text: &str) -> Result<Domain, AddressError> {
        if text.is_empty() {
            Err(AddressError::Syntax)
        } else {
            Ok(Domain(text.to_ascii_lowercase().into()))
        }
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Address {
    /// Parses `local@domain`, without `<>`; non-ASCII only with `utf8`.
    pub fn parse(text: &str, utf8: bool) -> Result<Address, AddressError> {
        let _ = utf8;
        let at = text.rfind('@').ok_or(AddressError::Syntax)?;
        let domain = Domain::parse(&text[at + 1..])?;
        Ok(Address { text: text.into(), at: at as u32, domain })
    }

    /// `local@domain` as the client wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The local part as the client wrote it, quotes included.
    pub fn local(&self) -> &str {
        &self.text[..self.at as usize]
    }

    /// The canonical domain: for routing and comparing.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The domain as the client wrote it.
    pub fn domain_text(&self) -> &str {
        &self.text[self.at as usize + 1..]
    }

    /// Whether the text has non-ASCII characters.
    pub fn is_ascii(&self) -> bool {
        self.text.is_ascii()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Without `<>`; empty for the null sender.
impl fmt::Display for ReversePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReversePath::Null => Ok(()),
            ReversePath::Address(address) => write!(f, "{address}"),
        }
    }
}
