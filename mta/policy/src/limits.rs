//! How many connections at once: in total and for each client.
//!
//! Must never forget a connection that is open nor count one that is closed: `opened` and
//! `closed` are called in pairs.

use crate::Verdict;
use crate::memory::STRANGERS_PERCENT_MAX;
use mail::{Enhanced, Reply};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections in total.
    pub connections_max: u32,
    /// Connections of one client.
    pub connections_per_client_max: u32,
}

/// Who has a connection: what the limit for each client counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// One IPv4 address, or one IPv6 network of 64 bits, since a host commands all addresses of its network.
    Network(IpAddr),
    /// All clients of the Unix socket at this path: nothing tells one from another.
    Socket(Arc<Path>),
}

impl From<IpAddr> for Caller {
    fn from(client: IpAddr) -> Caller {
        Caller::Network(client_network(client))
    }
}

/// The connections that are open now.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    open: u32,
    /// Those of callers that are not trusted.
    strangers: u32,
    callers: HashMap<Caller, u32>,
}

impl ConnectionLimits {
    /// Connections of all strangers together. The rest is for trusted callers: whoever has many addresses could
    /// keep everybody out.
    pub fn strangers_max(self) -> u32 {
        let reserve = u64::from(self.connections_max) * (100 - STRANGERS_PERCENT_MAX) / 100;
        self.connections_max - reserve as u32
    }
}

impl Connections {
    /// Counts a new connection if it may be; else 421, and it is not counted. `trusted` callers have no
    /// limit of their own.
    pub fn opened(&mut self, limits: ConnectionLimits, caller: &Caller, trusted: bool) -> Verdict {
        let is_full = self.open >= limits.connections_max;
        if is_full || (!trusted && self.strangers >= limits.strangers_max()) {
            return defer(Enhanced(4, 7, 0), "too many connections here; try again later");
        }
        let open = self.callers.get(caller).copied().unwrap_or(0);
        if !trusted && open >= limits.connections_per_client_max {
            return defer(Enhanced(4, 7, 0), "too many connections from your address");
        }
        self.callers.insert(caller.clone(), open + 1);
        self.open += 1;
        self.strangers += u32::from(!trusted);
        Verdict::Accept
    }

    /// Counts a connection out that `opened` accepted, of a caller that was `trusted` then or not.
    pub fn closed(&mut self, caller: &Caller, trusted: bool) {
        debug_assert!(self.open > 0, "closed without opened");
        self.open = self.open.saturating_sub(1);
        self.strangers = self.strangers.saturating_sub(u32::from(!trusted));
        match self.callers.get_mut(caller) {
            Some(open) if *open > 1 => *open -= 1,
            // The last one takes its entry along, so that the table is bounded by `open`.
            _ => {
                self.callers.remove(caller);
            }
        }
    }

    /// How many are open.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// How many different callers have one open.
    pub fn callers(&self) -> usize {
        self.callers.len()
    }
}

/// What counts as one client: the address, or the network of 64 bits of an IPv6 address.
pub fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
    }
}

fn defer(enhanced: Enhanced, text: &str) -> Verdict {
    Verdict::Defer(Reply::new(421, enhanced, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits =
        ConnectionLimits { connections_max: 4, connections_per_client_max: 2 };

    fn ip(text: &str) -> Caller {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn socket(path: &str) -> Caller {
        Caller::Socket(Path::new(path).into())
    }

    fn is_open(connections: &mut Connections, client: &str, trusted: bool) -> bool {
        connections.opened(LIMITS, &ip(client), trusted) == Verdict::Accept
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        let mut open = Connections::default();
        assert!(is_open(&mut open, "2001:db8::1", false));
        assert!(is_open(&mut open, "2001:db8::ffff:2", false));
        assert!(!is_open(&mut open, "2001:db8::3", false));
        assert!(is_open(&mut open, "2001:db8:0:1::3", false));
        assert_eq!((open.open(), open.callers()), (3, 2));
        let mut open = Connections::default();
        assert!(is_open(&mut open, "192.0.2.1", false));
        assert!(is_open(&mut open, "::ffff:192.0.2.1", false));
        assert!(!is_open(&mut open, "192.0.2.1", false));
        assert!(is_open(&mut open, "192.0.2.2", false));
    }

    #[test]
    fn trusted_clients_have_only_the_total_limit() {
        let mut open = Connections::default();
        for _ in 0..3 {
            assert!(is_open(&mut open, "192.0.2.1", true));
        }
        assert_eq!(open.opened(LIMITS, &socket("/s"), true), Verdict::Accept);
        let Verdict::Defer(reply) = open.opened(LIMITS, &socket("/s"), true) else { panic!() };
        assert_eq!(reply.code, 421);
    }

    #[test]
    fn r221_all_clients_of_a_unix_socket_that_is_not_trusted_are_one() {
        let mut open = Connections::default();
        for (path, trusted, accepted) in [
            ("/strangers", false, true),
            ("/strangers", false, true),
            ("/strangers", false, false),
            ("/others", false, true),
            ("/trusted", true, true),
            ("/trusted", true, false),
        ] {
            let verdict = open.opened(LIMITS, &socket(path), trusted);
            assert_eq!(verdict == Verdict::Accept, accepted, "{path}");
        }
        open.closed(&socket("/strangers"), false);
        assert_eq!(open.opened(LIMITS, &socket("/strangers"), false), Verdict::Accept);
        for path in ["/strangers", "/strangers", "/others", "/trusted"] {
            open.closed(&socket(path), path == "/trusted");
        }
        assert_eq!((open.open(), open.callers()), (0, 0));
    }

    #[test]
    fn r211_strangers_of_many_networks_leave_a_quarter_of_the_connections_to_trusted_callers() {
        let limits =
            |connections_max| ConnectionLimits { connections_max, connections_per_client_max: 1 };
        assert_eq!(limits(u32::MAX).strangers_max(), u32::MAX - u32::MAX / 4);
        for (connections_max, strangers) in [(1, 1), (3, 3), (4, 3), (100, 75)] {
            let limits = limits(connections_max);
            let mut open = Connections::default();
            let network = |number: u32| Caller::from(IpAddr::from(number.to_be_bytes()));
            let mut enter =
                |number, trusted| open.opened(limits, &network(number), trusted) == Verdict::Accept;
            let accepted = (0..200).filter(|number| enter(*number, false)).count();
            assert_eq!(accepted, strangers, "of {connections_max}");
            let accepted = (200..400).filter(|number| enter(*number, true)).count();
            assert_eq!(accepted, connections_max as usize - strangers, "of {connections_max}");
            // One that leaves makes room for its kind.
            open.closed(&network(0), false);
            assert_eq!(open.opened(limits, &network(0), false), Verdict::Accept);
        }
    }

    #[test]
    fn what_closes_makes_room_and_leaves_nothing_behind() {
        let mut open = Connections::default();
        for _ in 0..10_000 {
            assert!(is_open(&mut open, "192.0.2.1", false));
            assert!(is_open(&mut open, "192.0.2.1", false));
            assert!(!is_open(&mut open, "192.0.2.1", false));
            open.closed(&ip("192.0.2.1"), false);
            open.closed(&ip("192.0.2.1"), false);
        }
        assert_eq!((open.open(), open.callers()), (0, 0));
    }
}
