//! Finds the next hop for a recipient: first our own domains, then the routes of the settings in their order, then the
//! MX records of the domain.
//!
//! Must never send mail for an address literal of a stranger to this machine or its network, unless a route says so.

use crate::verdict::POSTMASTER;
use crate::{Names, Postmaster, mailbox_name};
use mail::{Address, Domain, Host, NextHop};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// The domains that a route applies to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pattern {
    /// `*`: all domains.
    Any,
    /// `*.sink.test`: all domains below this one, without this one.
    Below(Domain),
    /// `sink.test`: this domain only.
    Exact(Domain),
}

/// One `[[route]]` of the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The domains.
    pub pattern: Pattern,
    /// The next hop of their mail.
    pub to: NextHop,
}

/// All routes. The cost of a lookup is the number of labels of the domain.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    own: HashSet<Domain>,
    own_hop: Option<NextHop>,
    /// The name of this machine, unless it is one of our domains or a route names it.
    hostname: Option<Domain>,
    /// The mailbox at `hostname` that the settings name for the postmaster.
    postmaster: Option<Box<str>>,
    hops: Vec<NextHop>,
    any: Option<usize>,
    is: HashMap<Box<str>, usize>,
    below: HashMap<Box<str>, usize>,
    literals: bool,
    addresses: HashSet<IpAddr>,
}

impl Routes {
    /// Builds the routes. `own` are our domains, and `own_hop` is the next hop of their mail: `Local` or an LMTP
    /// server.
    ///
    /// Mail for `hostname` has the same next hop if no route matches. If `literals` is true, mail for
    /// `user@[192.0.2.1]` is sent to that address.
    pub fn new(
        own: HashSet<Domain>,
        own_hop: NextHop,
        hostname: Domain,
        routes: Vec<Route>,
        literals: bool,
    ) -> Routes {
        let mut built = Routes { own, own_hop: Some(own_hop), literals, ..Routes::default() };
        for (at, Route { pattern, to }) in routes.into_iter().enumerate() {
            // The first match wins, so a later route for the same domains never counts.
            match pattern {
                Pattern::Any => {
                    built.any.get_or_insert(at);
                }
                Pattern::Below(domain) => {
                    built.below.entry(key(&domain)).or_insert(at);
                }
                Pattern::Exact(domain) => {
                    built.is.entry(key(&domain)).or_insert(at);
                }
            }
            built.hops.push(to);
        }
        let first = built.first_match(&hostname);
        let is_named = first.is_some() && first != built.any;
        let is_apart = !is_named && !built.own.contains(&hostname);
        built.hostname = is_apart.then_some(hostname);
        built
    }

    /// Adds the postmaster of the settings, which replaces the postmaster of this machine at RCPT.
    pub fn with_postmaster(mut self, postmaster: &Postmaster) -> Routes {
        let local = match postmaster {
            Postmaster::Mailbox(local) => Some(&**local),
            Postmaster::Address(address) => {
                self.is_hostname(address.domain()).then(|| address.local())
            }
        };
        let name = local.and_then(|local| mailbox_name(local, Names::default()).ok());
        self.postmaster = name.map(Box::from);
        self
    }

    /// Adds the addresses of this machine. Mail for `joe` at the literal of such an address is for `joe` here (RFC 5321
    /// 4.1.3).
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Routes {
        self.addresses = addresses.into_iter().map(|address| address.to_canonical()).collect();
        self
    }

    /// True if the domain is one of our domains or the literal of one of our addresses.
    pub fn is_own(&self, domain: &Domain) -> bool {
        let is_address = |address: IpAddr| self.addresses.contains(&address.to_canonical());
        self.own.contains(domain) || domain.literal().is_some_and(is_address)
    }

    /// True if the domain is the name of this machine, is not one of our domains, and is named by no route. The route
    /// `*` names no domain.
    pub fn is_hostname(&self, domain: &Domain) -> bool {
        self.hostname.as_ref() == Some(domain)
    }

    /// Returns the next hop for a recipient.
    ///
    /// Mail for the postmaster of this machine stays here, as RCPT promises, even if the route `*` matches the name of
    /// the machine.
    pub fn next_hop_of(&self, address: &Address) -> NextHop {
        match self.is_own(address.domain()) {
            true => self.home(),
            false => self.next_hop_of_foreign(address),
        }
    }

    /// Returns the next hops of the recipients in their order. Consecutive recipients of one domain need only one
    /// lookup.
    pub fn next_hops_of<'a>(&self, addresses: impl Iterator<Item = &'a Address>) -> Vec<NextHop> {
        let mut hops: Vec<NextHop> = Vec::with_capacity(addresses.size_hint().0);
        let mut before = None;
        for address in addresses {
            // The local part has a meaning only at the name of this machine.
            let domain = Some(address.domain()).filter(|domain| !self.is_hostname(domain));
            let same = hops.last().filter(|_| domain.is_some() && domain == before);
            hops.push(same.cloned().unwrap_or_else(|| self.next_hop_of(address)));
            before = domain;
        }
        hops
    }

    /// Returns the next hop for a recipient whose domain is not our own.
    pub(crate) fn next_hop_of_foreign(&self, address: &Address) -> NextHop {
        match self.is_own_postmaster(address) {
            true => self.home(),
            false => self.beyond(address.domain()),
        }
    }

    fn is_own_postmaster(&self, address: &Address) -> bool {
        let postmaster = |name: String| {
            name == POSTMASTER || self.postmaster.as_deref().is_some_and(|other| other == name)
        };
        self.is_hostname(address.domain())
            && mailbox_name(address.local(), Names::default()).is_ok_and(postmaster)
    }

    /// Returns the next hop for a domain, which is `NextHop::Error` if there is none.
    pub fn next_hop(&self, domain: &Domain) -> NextHop {
        match self.is_own(domain) {
            true => self.home(),
            false => self.beyond(domain),
        }
    }

    fn beyond(&self, domain: &Domain) -> NextHop {
        if let Some(hop) = self.matching(domain) {
            return hop.clone();
        }
        if self.is_hostname(domain) {
            return self.home();
        }
        if domain.is_literal() {
            return self.literal(domain);
        }
        NextHop::Mx(domain.clone())
    }

    fn home(&self) -> NextHop {
        self.own_hop.clone().unwrap_or(NextHop::Local)
    }

    /// The first route that matches: the smallest place among its exact name, the names above it
    /// and `*`.
    fn matching(&self, domain: &Domain) -> Option<&NextHop> {
        self.hops.get(self.first_match(domain)?)
    }

    fn first_match(&self, domain: &Domain) -> Option<usize> {
        let text = domain.as_str();
        let exact = self.is.get(text);
        let above = text.match_indices('.').filter_map(|(at, _)| self.below.get(&text[at + 1..]));
        let below = if domain.is_literal() { None } else { above.min() };
        exact.into_iter().chain(below).chain(&self.any).min().copied()
    }

    /// `user@[address]` (RFC 5321 4.1.3).
    fn literal(&self, domain: &Domain) -> NextHop {
        match domain.literal() {
            Some(address) if self.literals && is_foreign(address) => {
                NextHop::Smtp(Host::Address(address), 25)
            }
            Some(_) => NextHop::Error("mail to address literals is not sent from here".into()),
            None => NextHop::Error("unknown kind of address literal".into()),
        }
    }
}

fn key(domain: &Domain) -> Box<str> {
    domain.as_str().into()
}

/// True if the address may belong to another host: it is not of this machine, of its link, or of a group.
fn is_foreign(address: IpAddr) -> bool {
    let no = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let near = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !no && !near
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(text: &str) -> Domain {
        Domain::parse(text).unwrap()
    }

    fn to(port: u16) -> NextHop {
        NextHop::Smtp(Host::Address("127.0.0.1".parse().unwrap()), port)
    }

    fn routes(routes: Vec<(Pattern, NextHop)>, literals: bool) -> Routes {
        Routes::new(
            [domain("local.test")].into(),
            NextHop::Local,
            domain("mx.example.org"),
            routes.into_iter().map(|(pattern, to)| Route { pattern, to }).collect(),
            literals,
        )
    }

    #[test]
    fn our_domains_come_first_then_the_first_matching_route_then_mx() {
        let routes = routes(
            vec![
                (Pattern::Exact(domain("a.sink.test")), to(1)),
                (Pattern::Below(domain("sink.test")), to(2)),
                (Pattern::Exact(domain("b.sink.test")), to(3)),
                (Pattern::Exact(domain("sink.test")), to(4)),
                (Pattern::Below(domain("deep.sink.test")), to(5)),
                (Pattern::Exact(domain("local.test")), to(6)),
                (Pattern::Exact(domain("sink.test")), to(7)),
            ],
            false,
        );
        for (name, expected) in [
            ("local.test", NextHop::Local),
            ("LOCAL.test.", NextHop::Local),
            ("mx.example.org", NextHop::Local),
            ("a.sink.test", to(1)),
            ("b.sink.test", to(2)),
            ("x.deep.sink.test", to(2)),
            ("sink.test", to(4)),
            ("notsink.test", NextHop::Mx(domain("notsink.test"))),
            ("sub.local.test", NextHop::Mx(domain("sub.local.test"))),
        ] {
            assert_eq!(routes.next_hop(&domain(name)), expected, "{name}");
        }
    }

    #[test]
    fn a_star_catches_all_but_what_stands_before_it_and_our_own() {
        let routes = routes(
            vec![
                (Pattern::Exact(domain("a.test")), NextHop::Hold),
                (Pattern::Any, NextHop::Discard),
                (Pattern::Exact(domain("b.test")), to(1)),
            ],
            true,
        );
        for (name, expected) in [
            ("a.test", NextHop::Hold),
            ("b.test", NextHop::Discard),
            ("mx.example.org", NextHop::Discard),
            ("[192.0.2.1]", NextHop::Discard),
            ("local.test", NextHop::Local),
        ] {
            assert_eq!(routes.next_hop(&domain(name)), expected, "{name}");
        }
    }

    #[test]
    fn of_the_name_of_this_machine_the_postmaster_alone_stays_here_where_a_star_leads_elsewhere() {
        let mailbox = Postmaster::Mailbox("ann".into());
        let table = [(Postmaster::for_tests(), to(1)), (mailbox, NextHop::Local)];
        for (postmaster, anns) in table {
            let routes = routes(vec![(Pattern::Any, to(1))], false).with_postmaster(&postmaster);
            for (address, expected) in [
                ("postmaster@mx.example.org", &NextHop::Local),
                ("PostMaster@mx.example.org", &NextHop::Local),
                ("postmaster@elsewhere.test", &to(1)),
                ("ann@mx.example.org", &anns),
                ("bob@mx.example.org", &to(1)),
                ("bob@local.test", &NextHop::Local),
            ] {
                let found = routes.next_hop_of(&Address::parse(address, false).unwrap());
                assert_eq!(found, *expected, "{address}, {postmaster:?}");
            }
        }
    }

    #[test]
    fn a_lists_next_hops_are_those_of_its_recipients_one_by_one() {
        let starred = routes(vec![(Pattern::Any, to(1))], false);
        let bare = routes(vec![(Pattern::Exact(domain("a.test")), NextHop::Hold)], true);
        let names = [
            "ann@mx.example.org",
            "postmaster@mx.example.org",
            "bob@mx.example.org",
            "ann@a.test",
            "bob@a.test",
            "bob@b.test",
            "ann@local.test",
            "bob@local.test",
            "ann@a.test",
            "ann@[192.0.2.1]",
            "bob@[192.0.2.1]",
            "postmaster@mx.example.org",
            "postmaster@mx.example.org",
        ];
        let list = names.map(|name| Address::parse(name, false).unwrap());
        for routes in [starred, bare] {
            let each: Vec<_> = list.iter().map(|address| routes.next_hop_of(address)).collect();
            assert_eq!(routes.next_hops_of(list.iter()), each);
        }
    }

    #[test]
    fn p054_an_address_literal_never_leads_to_this_machine() {
        let closed = routes(vec![], false);
        let open = routes(vec![], true);
        let address = "192.0.2.1".parse().unwrap();
        assert_eq!(
            open.next_hop(&domain("[192.0.2.1]")),
            NextHop::Smtp(Host::Address(address), 25)
        );
        for name in [
            "[127.0.0.1]",
            "[0.0.0.0]",
            "[169.254.1.1]",
            "[224.0.0.1]",
            "[255.255.255.255]",
            "[IPv6:::1]",
            "[IPv6:::]",
            "[IPv6:::ffff:127.0.0.1]",
            "[IPv6:fe80::1]",
            "[IPv6:ff02::1]",
        ] {
            assert!(matches!(open.next_hop(&domain(name)), NextHop::Error(_)), "{name}");
            assert!(matches!(closed.next_hop(&domain(name)), NextHop::Error(_)), "{name}");
        }
        assert!(matches!(closed.next_hop(&domain("[192.0.2.1]")), NextHop::Error(_)));
    }

    #[test]
    fn the_literal_of_an_address_of_ours_is_a_domain_of_ours() {
        let ours: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "2001:db8::25".parse().unwrap()];
        let closed = routes(vec![(Pattern::Any, to(1))], false).with_addresses(ours);
        for (name, expected) in [
            ("[127.0.0.1]", NextHop::Local),
            ("[IPv6:::ffff:127.0.0.1]", NextHop::Local),
            ("[IPv6:2001:db8::25]", NextHop::Local),
            ("[127.0.0.2]", to(1)),
            ("[IPv6:2001:db8::26]", to(1)),
        ] {
            assert_eq!(closed.next_hop(&domain(name)), expected, "{name}");
        }
    }

    #[test]
    fn the_cost_of_a_lookup_does_not_grow_with_the_routes() {
        let many = (0..20_000)
            .map(|n| (Pattern::Exact(domain(&format!("d{n}.example"))), to(n as u16)))
            .collect();
        let routes = routes(many, false);
        let started = std::time::Instant::now();
        for n in 0..50_000u32 {
            let hop = routes.next_hop(&domain(&format!("d{}.example", n % 20_000)));
            assert_eq!(hop, to((n % 20_000) as u16));
        }
        // A scan would compare 500 million names; unoptimized, this takes about 0.2 s.
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
    }
}
