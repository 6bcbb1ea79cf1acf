//! What is asked of the DNS, and the facts that come back.
//!
//! Must never treat silence or the failure of a server as the absence of a name: mail that only
//! has to wait would bounce.

use mail::Domain;
use std::net::IpAddr;

/// A question for the DNS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// MX records of a domain.
    Mx(Domain),
    /// A and AAAA records of a name; CNAMEs are followed.
    Addresses(Domain),
}

/// One MX record. An empty host is the root, `.` (RFC 7505).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mx {
    /// Lower is better.
    pub preference: u16,
    /// Lower case, no final dot.
    pub host: Box<str>,
}

/// What the DNS says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answers<T> {
    /// At least one record.
    Found(Vec<T>),
    /// The name exists and has no such record.
    NoRecord,
    /// There is no such name (NXDOMAIN).
    NoName,
    /// There is no answer now: SERVFAIL, REFUSED, a timeout, or no resolver. The text is for the
    /// report.
    Unknown(Box<str>),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Question::Mx`.
    Mx(Answers<Mx>),
    /// To `Question::Addresses`.
    Addresses(Answers<IpAddr>),
}
