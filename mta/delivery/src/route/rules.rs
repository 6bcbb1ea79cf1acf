//! The rules for next hops that the DNS names.
//!
//! Must never decide about a route of the settings.

use std::net::IpAddr;

/// The names and addresses of this host, which must not be found in MX records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ourselves {
    /// Our host names, lower case.
    pub names: Vec<Box<str>>,
    /// Our addresses.
    pub addresses: Vec<IpAddr>,
}

/// What the administrator allows for next hops that the DNS names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The port of SMTP. Only tests use another one.
    pub port: u16,
    /// The names and addresses of this host.
    pub ourselves: Ourselves,
    /// Whether loopback addresses in MX records and address literals count as this host. A sender
    /// could otherwise reach local services through us.
    pub loopback_is_ourselves: bool,
    /// MX records that hold an address instead of a name (RFC 5321 5.1).
    pub mx_addresses: Choice,
    /// Whether a domain whose MX lookup says NXDOMAIN is treated like one without MX records, so that
    /// its addresses are looked up.
    pub mx_nxdomain: Choice,
    /// Private and link-local addresses in MX records and address literals. The daemon's routes lead no literal here.
    pub private_addresses: Choice,
}

/// Whether a record that the DNS should not hold is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The record is used.
    Use,
    /// The record is ignored.
    Refuse,
}

impl Rules {
    /// The rules that the daemon makes of an empty settings file, without names or addresses of ours, for tests of any
    /// crate.
    ///
    /// Product code fills every field itself; tidy refuses a call from it.
    pub fn for_tests() -> Rules {
        Rules {
            port: 25,
            ourselves: Ourselves::default(),
            loopback_is_ourselves: true,
            mx_addresses: Choice::Use,
            mx_nxdomain: Choice::Use,
            private_addresses: Choice::Use,
        }
    }
}
