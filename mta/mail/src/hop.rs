//! The next hop: where a recipient's mail goes from here. Each destination queue belongs to one next hop.
//!
//! Must never compare equal unless mail to both can share a connection.

use crate::Domain;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where mail goes next. Equal next hops share one destination queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NextHop {
    /// The MX hosts of this domain, or its own address if it has no MX record (RFC 5321 5.1).
    Mx(Domain),
    /// This host and port, by SMTP. A name is looked up for addresses only, never for MX records.
    Smtp(Host, u16),
    /// This host and port, by LMTP.
    Lmtp(Host, u16),
    /// This Unix socket, by LMTP.
    LmtpUnix(Box<str>),
    /// The mailboxes of this host.
    Local,
    /// Nowhere: the mail is dropped.
    Discard,
    /// Nowhere until an operator releases the message.
    Hold,
    /// Nowhere: the message bounces with this text.
    Error(Box<str>),
}

/// A host of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Host {
    /// A name to look up.
    Name(Domain),
    /// An address.
    Address(std::net::IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => write!(f, "{name}"),
            Host::Address(std::net::IpAddr::V6(address)) => write!(f, "[{address}]"),
            Host::Address(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHop::Mx(domain) => write!(f, "{domain}"),
            NextHop::Smtp(host, port) => write!(f, "smtp:{host}:{port}"),
            NextHop::Lmtp(host, port) => write!(f, "lmtp:{host}:{port}"),
            NextHop::LmtpUnix(path) => write!(f, "lmtp:unix:{path}"),
            NextHop::Local => f.write_str("local"),
            NextHop::Discard => f.write_str("discard"),
            NextHop::Hold => f.write_str("hold"),
            NextHop::Error(text) => write!(f, "error:{text}"),
        }
    }
}
