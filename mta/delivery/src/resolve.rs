//! What is asked of the DNS, and the facts that come back.
//!
//! Must never take silence or a server's failure for the absence of a name: that would bounce
//! mail that only has to wait.

use mail::Domain;
use std::net::IpAddr;

/// What is to be looked up.
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
    /// Nobody can say now: SERVFAIL, REFUSED, timeout, no resolver. In words, for the report.
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
