//! How many connections at once: in total and for each client.
//!
//! Must never forget a connection that is open nor count one that is closed: `opened` and
//! `closed` are called in pairs.

use crate::Verdict;
use mail::{Enhanced, Reply};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections in total.
    pub connections_max: u32,
    /// Connections of one client: one IPv4 address, or one IPv6 network of 64 bits, since a host
    /// commands all addresses of its network.
    pub connections_per_client_max: u32,
}

/// The connections that are open now.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    open: u32,
    clients: HashMap<IpAddr, u32>,
}

impl Connections {
    /// Counts a new connection if it may be; else 421, and it is not counted. `trusted` clients
    /// and those without an address have no limit of their own.
    pub fn opened(
        &mut self,
        limits: ConnectionLimits,
        client: Option<IpAddr>,
        trusted: bool,
    ) -> Verdict {
        if self.open >= limits.connections_max {
            return defer(Enhanced(4, 7, 0), "too many connections here; try again later");
        }
        if let Some(client) = client {
            let network = client_network(client);
            let open = self.clients.get(&network).copied().unwrap_or(0);
            if !trusted && open >= limits.connections_per_client_max {
                return defer(Enhanced(4, 7, 0), "too many connections from your address");
            }
            self.clients.insert(network, open + 1);
        }
        self.open += 1;
        Verdict::Accept
    }

    /// Counts a connection out that `opened` accepted.
    pub fn closed(&mut self, client: Option<IpAddr>) {
        debug_assert!(self.open > 0, "closed without opened");
        self.open = self.open.saturating_sub(1);
        let Some(network) = client.map(client_network) else { return };
        match self.clients.get_mut(&network) {
            Some(open) if *open > 1 => *open -= 1,
            // The last one takes its entry along, so that the table is bounded by `open`.
            _ => {
                self.clients.remove(&network);
            }
        }
    }

    /// How many are open.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// How many different clients have one open.
    pub fn clients(&self) -> usize {
        self.clients.len()
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

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn is_open(connections: &mut Connections, client: &str, trusted: bool) -> bool {
        connections.opened(LIMITS, ip(client), trusted) == Verdict::Accept
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        let mut open = Connections::default();
        assert!(is_open(&mut open, "2001:db8::1", false));
        assert!(is_open(&mut open, "2001:db8::ffff:2", false));
        assert!(!is_open(&mut open, "2001:db8::3", false));
        assert!(is_open(&mut open, "2001:db8:0:1::3", false));
        assert_eq!((open.open(), open.clients()), (3, 2));
        let mut open = Connections::default();
        assert!(is_open(&mut open, "192.0.2.1", false));
        assert!(is_open(&mut open, "::ffff:192.0.2.1", false));
        assert!(!is_open(&mut open, "192.0.2.1", false));
        assert!(is_open(&mut open, "192.0.2.2", false));
    }

    #[test]
    fn trusted_clients_and_unix_sockets_have_only_the_total_limit() {
        let mut open = Connections::default();
        for _ in 0..3 {
            assert!(is_open(&mut open, "192.0.2.1", true));
        }
        assert_eq!(open.opened(LIMITS, None, true), Verdict::Accept);
        let Verdict::Defer(reply) = open.opened(LIMITS, None, true) else { panic!() };
        assert_eq!(reply.code, 421);
    }

    #[test]
    fn what_closes_makes_room_and_leaves_nothing_behind() {
        let mut open = Connections::default();
        for _ in 0..10_000 {
            assert!(is_open(&mut open, "192.0.2.1", false));
            assert!(is_open(&mut open, "192.0.2.1", false));
            assert!(!is_open(&mut open, "192.0.2.1", false));
            open.closed(ip("192.0.2.1"));
            open.closed(ip("192.0.2.1"));
        }
        assert_eq!((open.open(), open.clients()), (0, 0));
    }
}
