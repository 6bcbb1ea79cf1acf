//! The limits on simultaneous connections: in total, at each listener and for each client.
//!
//! Must never forget an open connection or count a closed one: `opened` and `closed` are called in pairs.

use crate::memory::STRANGERS_PERCENT_MAX;
use mail::{Enhanced, Reply};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

/// The limits of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Upper bound on the connections of all listeners together.
    pub connections_max: u32,
    /// Upper bound on the connections of this listener.
    pub listener_connections: u32,
    /// Upper bound on the connections of one client at all listeners together.
    pub connections_per_client: u32,
}

/// A client, as the limit for each client counts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// One IPv4 address or one IPv6 network of 64 bits, because a host can use all addresses of its network.
    Network(IpAddr),
    /// All clients of the Unix socket at this path, which cannot be told apart.
    Socket(Arc<Path>),
}

impl From<IpAddr> for Caller {
    fn from(client: IpAddr) -> Caller {
        Caller::Network(client_network(client))
    }
}

/// The connections that are open now.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLimiter {
    all: Count,
    /// The connections of each listener that has an open one, by the address of the listener.
    listeners: HashMap<Arc<str>, Count>,
    callers: HashMap<Caller, u32>,
}

/// Connections that share one limit.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    open: u32,
    /// The connections of callers that are not trusted.
    strangers: u32,
}

/// An accepted connection, as `closed` needs it.
#[derive(Clone, Debug)]
pub struct ConnectionPermit {
    listener: Arc<str>,
    caller: Caller,
    trusted: bool,
}

/// Returns how many of `connections_max` connections all strangers together may have. The rest is for trusted callers,
/// so that an attacker with many addresses cannot keep them out.
pub fn strangers_max(connections_max: u32) -> u32 {
    let reserve = u64::from(connections_max) * (100 - STRANGERS_PERCENT_MAX) / 100;
    connections_max - reserve as u32
}

impl Count {
    fn has_room(self, max: u32, trusted: bool) -> bool {
        self.open < max && (trusted || self.strangers < strangers_max(max))
    }

    fn opened(&mut self, trusted: bool) {
        self.open += 1;
        self.strangers += u32::from(!trusted);
    }

    fn closed(&mut self, trusted: bool) {
        debug_assert!(self.open > 0, "closed without opened");
        self.open = self.open.saturating_sub(1);
        self.strangers = self.strangers.saturating_sub(u32::from(!trusted));
    }
}

impl ConnectionLimiter {
    /// Counts a new connection if the limits allow it.
    ///
    /// `listener` is the address of its listener. The limit for each client does not apply to `trusted` callers.
    ///
    /// # Errors
    ///
    /// Returns the reply 421 if the connection is refused.
    pub fn opened(
        &mut self,
        limits: ConnectionLimits,
        listener: &Arc<str>,
        caller: Caller,
        trusted: bool,
    ) -> Result<ConnectionPermit, Reply> {
        let here = self.listeners.get(listener).copied().unwrap_or_default();
        if !self.all.has_room(limits.connections_max, trusted)
            || !here.has_room(limits.listener_connections, trusted)
        {
            return Err(defer("too many connections here; try again later"));
        }
        let open = self.callers.get(&caller).copied().unwrap_or(0);
        if !trusted && open >= limits.connections_per_client {
            return Err(defer("too many connections from your address"));
        }
        self.callers.insert(caller.clone(), open + 1);
        self.all.opened(trusted);
        self.listeners.entry(listener.clone()).or_default().opened(trusted);
        Ok(ConnectionPermit { listener: listener.clone(), caller, trusted })
    }

    /// Removes a connection from the counts.
    pub fn closed(&mut self, connection: &ConnectionPermit) {
        let ConnectionPermit { listener, caller, trusted } = connection;
        self.all.closed(*trusted);
        // The last connection removes the entry, so the tables never have more entries than there are connections.
        if let Some(here) = self.listeners.get_mut(listener) {
            here.closed(*trusted);
            if here.open == 0 {
                self.listeners.remove(listener);
            }
        }
        match self.callers.get_mut(caller) {
            Some(open) if *open > 1 => *open -= 1,
            _ => {
                self.callers.remove(caller);
            }
        }
    }

    /// The number of open connections.
    pub fn open(&self) -> u32 {
        self.all.open
    }

    /// The number of callers with an open connection.
    pub fn callers(&self) -> usize {
        self.callers.len()
    }
}

/// Returns the address that stands for a client: its IPv4 address, or the 64-bit network of its IPv6 address.
pub fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
    }
}

fn defer(text: &str) -> Reply {
    Reply::new(421, Enhanced(4, 7, 0), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits =
        ConnectionLimits { connections_max: 4, listener_connections: 4, connections_per_client: 2 };

    fn ip(text: &str) -> Caller {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn socket(path: &str) -> Caller {
        Caller::Socket(Path::new(path).into())
    }

    /// Opens a connection at the only listener.
    fn open(
        all: &mut ConnectionLimiter,
        caller: Caller,
        trusted: bool,
    ) -> Option<ConnectionPermit> {
        all.opened(LIMITS, &"[::]:25".into(), caller, trusted).ok()
    }

    fn is_open(all: &mut ConnectionLimiter, client: &str, trusted: bool) -> bool {
        open(all, ip(client), trusted).is_some()
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        let mut all = ConnectionLimiter::default();
        assert!(is_open(&mut all, "2001:db8::1", false));
        assert!(is_open(&mut all, "2001:db8::ffff:2", false));
        assert!(!is_open(&mut all, "2001:db8::3", false));
        assert!(is_open(&mut all, "2001:db8:0:1::3", false));
        assert_eq!((all.open(), all.callers()), (3, 2));
        let mut all = ConnectionLimiter::default();
        assert!(is_open(&mut all, "192.0.2.1", false));
        assert!(is_open(&mut all, "::ffff:192.0.2.1", false));
        assert!(!is_open(&mut all, "192.0.2.1", false));
        assert!(is_open(&mut all, "192.0.2.2", false));
    }

    #[test]
    fn trusted_clients_have_only_the_total_limit() {
        let mut all = ConnectionLimiter::default();
        for _ in 0..3 {
            assert!(is_open(&mut all, "192.0.2.1", true));
        }
        assert!(open(&mut all, socket("/s"), true).is_some());
        let refused = all.opened(LIMITS, &"[::]:25".into(), socket("/s"), true).unwrap_err();
        assert_eq!(refused.code, 421);
    }

    #[test]
    fn r221_all_clients_of_a_unix_socket_that_is_not_trusted_are_one() {
        let mut all = ConnectionLimiter::default();
        let mut accepted = Vec::new();
        for (path, trusted, is_accepted) in [
            ("/strangers", false, true),
            ("/strangers", false, true),
            ("/strangers", false, false),
            ("/others", false, true),
            ("/trusted", true, true),
            ("/trusted", true, false),
        ] {
            let connection = open(&mut all, socket(path), trusted);
            assert_eq!(connection.is_some(), is_accepted, "{path}");
            accepted.extend(connection);
        }
        all.closed(&accepted.remove(0));
        accepted.push(open(&mut all, socket("/strangers"), false).unwrap());
        accepted.iter().for_each(|connection| all.closed(connection));
        assert_eq!((all.open(), all.callers()), (0, 0));
    }

    #[test]
    fn r211_strangers_of_many_networks_leave_a_quarter_of_the_connections_to_trusted_callers() {
        assert_eq!(strangers_max(u32::MAX), u32::MAX - u32::MAX / 4);
        // The smaller one of the two limits is in force.
        for (max, strangers) in [(1, 1), (3, 3), (4, 3), (100, 75)] {
            for (connections_max, listener_connections) in [(max, 200), (200, max)] {
                let limits = ConnectionLimits {
                    connections_max,
                    listener_connections,
                    connections_per_client: 1,
                };
                let mut all = ConnectionLimiter::default();
                let network = |number: u32| Caller::from(IpAddr::from(number.to_be_bytes()));
                let mut enter = |number, trusted| {
                    all.opened(limits, &"[::]:25".into(), network(number), trusted).ok()
                };
                let mut accepted: Vec<_> =
                    (0..200).filter_map(|number| enter(number, false)).collect();
                assert_eq!(accepted.len(), strangers, "of {limits:?}");
                accepted.extend((200..400).filter_map(|number| enter(number, true)));
                assert_eq!(accepted.len(), max as usize, "of {limits:?}");
                // One that leaves makes room for its kind.
                all.closed(&accepted[0]);
                assert!(all.opened(limits, &"[::]:25".into(), network(0), false).is_ok());
            }
        }
    }

    #[test]
    fn r211_a_listener_that_is_full_takes_no_place_of_another_one() {
        let limits = |listener_connections| ConnectionLimits {
            connections_max: 100,
            listener_connections,
            connections_per_client: 100,
        };
        let mut all = ConnectionLimiter::default();
        let mut enter = |at: &str, max, trusted| {
            all.opened(limits(max), &at.into(), ip("192.0.2.1"), trusted).is_ok()
        };
        assert_eq!((0..100).filter(|_| enter("[::]:25", 40, false)).count(), 30);
        assert_eq!((0..100).filter(|_| enter("[::]:587", 8, false)).count(), 6);
        assert_eq!((0..100).filter(|_| enter("[::]:587", 8, true)).count(), 2);
        assert_eq!((0..100).filter(|_| enter("[::]:25", 40, true)).count(), 10);
    }

    #[test]
    fn what_closes_makes_room_and_leaves_nothing_behind() {
        let mut all = ConnectionLimiter::default();
        for _ in 0..10_000 {
            let two = [(); 2].map(|()| open(&mut all, ip("192.0.2.1"), false).unwrap());
            assert!(!is_open(&mut all, "192.0.2.1", false));
            two.iter().for_each(|connection| all.closed(connection));
        }
        assert_eq!((all.open(), all.callers(), all.listeners.len()), (0, 0, 0));
    }
}
