//! Finds the addresses of a next hop, in the order in which to try them (RFC 5321 5.1, RFC 7505).
//!
//! Must never route mail back to this host because of foreign DNS records, and never bounce mail
//! because the DNS gave no answer.

mod dice;
mod rules;
mod target;

pub use rules::{Choice, Ourselves, Rules};
pub use target::{Target, Unreachable, Where};

use crate::resolve::{Answer, Answers, Mx, Question};
use dice::Dice;
use mail::{Domain, Enhanced, Host, NextHop, Reply};
use smtp::client::Dialect;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Upper bound on the MX hosts that are used; the preferred ones.
pub const MX_HOSTS_MAX: usize = 16;
/// Upper bound on the addresses of one host.
pub const ADDRESSES_PER_HOST_MAX: usize = 8;

/// The search for one next hop's addresses.
#[derive(Debug)]
pub struct Search {
    rules: Arc<Rules>,
    dialect: Dialect,
    port: u16,
    state: State,
    questions: VecDeque<Question>,
}

#[derive(Debug)]
enum State {
    ExpectMx(Domain),
    ExpectAddresses {
        hosts: Vec<MxHost>,
        by_mx: bool,
        domain: Domain,
        left_out: LeftOut,
    },
    /// The host of a route. An administrator wrote it, so its addresses are trusted, and a name that
    /// does not exist is a mistake to fix and no reason to bounce.
    ExpectRoute(Domain),
    Found(Result<Vec<Target>, Unreachable>),
}

#[derive(Debug)]
struct MxHost {
    preference: u16,
    host: Box<str>,
    addresses: Option<Answers<IpAddr>>,
}

/// Why MX hosts are not among the candidates.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    /// The preference of the MX record that names this host.
    ourselves: Option<u16>,
}

impl Search {
    /// Starts a search. It ends `Unreachable` for next hops that are no hosts.
    pub fn new(hop: &NextHop, rules: Arc<Rules>) -> Search {
        let port = rules.port;
        let mut search = Search {
            rules,
            dialect: Dialect::Smtp,
            port,
            state: State::Found(Ok(Vec::new())),
            questions: VecDeque::new(),
        };
        match hop {
            NextHop::Mx(domain) => search.start_mx(domain),
            NextHop::Smtp(host, port) => search.start_route(host, *port, Dialect::Smtp),
            NextHop::Lmtp(host, port) => search.start_route(host, *port, Dialect::Lmtp),
            NextHop::LmtpUnix(path) => {
                let place = Where::Unix(path.clone());
                let target = Target { name: path.clone(), place, dialect: Dialect::Lmtp };
                search.state = State::Found(Ok(vec![target]));
            }
            NextHop::Local | NextHop::Discard | NextHop::Hold | NextHop::Error(_) => {
                search.fail(451, Enhanced(4, 3, 5), format!("{hop} is not a host"));
            }
        }
        search
    }

    /// Returns the next question. Questions may be answered in any order.
    pub fn poll(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    /// Takes an answer. `chance` is a random number, which decides the order of equal hosts.
    pub fn handle(&mut self, question: &Question, answer: Answer, chance: u64) {
        let state = std::mem::replace(&mut self.state, State::Found(Ok(Vec::new())));
        match (state, question, answer) {
            (State::ExpectMx(domain), Question::Mx(asked), Answer::Mx(answers))
                if *asked == domain =>
            {
                self.mx_answered(domain, answers, chance);
            }
            (State::ExpectRoute(name), Question::Addresses(asked), Answer::Addresses(answers))
                if *asked == name =>
            {
                self.route_answered(&name, answers);
            }
            (
                State::ExpectAddresses { mut hosts, by_mx, domain, left_out },
                Question::Addresses(asked),
                Answer::Addresses(answers),
            ) => {
                for host in hosts.iter_mut().filter(|host| *host.host == *asked.as_str()) {
                    host.addresses.get_or_insert_with(|| answers.clone());
                }
                if hosts.iter().all(|host| host.addresses.is_some()) {
                    self.choose(hosts, by_mx, &domain, left_out, chance);
                } else {
                    self.state = State::ExpectAddresses { hosts, by_mx, domain, left_out };
                }
            }
            // An answer to nothing we asked.
            (state, ..) => self.state = state,
        }
    }

    /// Returns the addresses in the order to try, once all questions are answered.
    pub fn found(&self) -> Option<&Result<Vec<Target>, Unreachable>> {
        match &self.state {
            State::Found(found) => Some(found),
            _ => None,
        }
    }

    fn start_mx(&mut self, domain: &Domain) {
        if let Some(address) = literal(domain.as_str()) {
            return self.start_literal(domain, address);
        }
        if domain.as_str().starts_with('[') {
            let text = format!("{domain} is not an address that mail can go to");
            return self.fail(550, Enhanced(5, 1, 2), text);
        }
        self.questions.push_back(Question::Mx(domain.clone()));
        self.state = State::ExpectMx(domain.clone());
    }

    /// RFC 5321 4.1.3: an address literal needs no lookup.
    fn start_literal(&mut self, domain: &Domain, address: IpAddr) {
        if self.is_ourselves(address) {
            return self.fail(554, Enhanced(5, 4, 6), format!("{domain} is this host itself"));
        }
        if self.is_off_limits(address) {
            return self.fail(550, Enhanced(5, 4, 4), format!("{domain} is a private address"));
        }
        self.state = State::Found(Ok(vec![self.target(domain.as_str(), address)]));
    }

    fn start_route(&mut self, host: &Host, port: u16, dialect: Dialect) {
        (self.port, self.dialect) = (port, dialect);
        match host {
            Host::Address(address) => {
                let target = self.target(&address.to_string(), *address);
                self.state = State::Found(Ok(vec![target]));
            }
            Host::Name(name) => match literal(name.as_str()) {
                Some(address) => {
                    self.state = State::Found(Ok(vec![self.target(name.as_str(), address)]));
                }
                None => {
                    self.questions.push_back(Question::Addresses(name.clone()));
                    self.state = State::ExpectRoute(name.clone());
                }
            },
        }
    }

    fn route_answered(&mut self, name: &Domain, answers: Answers<IpAddr>) {
        match answers {
            Answers::Found(addresses) => {
                let targets = addresses.iter().take(ADDRESSES_PER_HOST_MAX);
                let targets = targets.map(|address| self.target(name.as_str(), *address)).collect();
                self.state = State::Found(Ok(targets));
            }
            Answers::Unknown(why) => self.unknown(name.as_str(), &why),
            Answers::NoRecord | Answers::NoName => {
                self.fail(
                    451,
                    Enhanced(4, 4, 4),
                    format!("the route's host {name} has no address"),
                );
            }
        }
    }

    fn mx_answered(&mut self, domain: Domain, answers: Answers<Mx>, chance: u64) {
        match answers {
            Answers::Found(records) if records.iter().all(|mx| mx.host.is_empty()) => {
                // RFC 7505 4.2: 556 with 5.1.10.
                let text = format!("{domain} does not take mail (null MX)");
                self.fail(556, Enhanced(5, 1, 10), text);
            }
            Answers::Found(records) => self.ask_hosts(domain, records, chance),
            Answers::NoRecord => self.ask_domain(domain),
            // Some load balancers deny a name that has an address when they are asked for its MX.
            Answers::NoName if self.rules.mx_nxdomain == Choice::Use => self.ask_domain(domain),
            Answers::NoName => {
                self.fail(550, Enhanced(5, 1, 2), format!("there is no domain {domain}"));
            }
            Answers::Unknown(why) => self.unknown(domain.as_str(), &why),
        }
    }

    /// A domain without MX is its own mail server (RFC 5321 5.1).
    fn ask_domain(&mut self, domain: Domain) {
        let host = domain.as_str().into();
        let hosts = vec![MxHost { preference: 0, host, addresses: None }];
        self.questions.push_back(Question::Addresses(domain.clone()));
        let left_out = LeftOut::default();
        self.state = State::ExpectAddresses { hosts, by_mx: false, domain, left_out };
    }

    /// Orders the hosts: best preference first, equal ones at random, and none whose preference is
    /// not better than that of this host.
    fn ask_hosts(&mut self, domain: Domain, mut records: Vec<Mx>, chance: u64) {
        let mut dice = Dice(chance);
        dice.shuffle(&mut records);
        records.sort_by_key(|mx| mx.preference);
        let own = |mx: &&Mx| self.rules.ourselves.names.contains(&mx.host);
        let ourselves = records.iter().find(own).map(|mx| mx.preference);
        records
            .retain(|mx| self.usable(&mx.host) && ourselves.is_none_or(|own| mx.preference < own));
        records.truncate(MX_HOSTS_MAX);
        let hosts: Vec<_> = records.into_iter().map(MxHost::of).collect();
        let left_out = LeftOut { ourselves };
        if hosts.iter().all(|host| host.addresses.is_some()) {
            return self.choose(hosts, true, &domain, left_out, chance);
        }
        for (at, host) in hosts.iter().enumerate() {
            let again = hosts[..at].iter().any(|earlier| earlier.host == host.host);
            let known = again || host.addresses.is_some();
            if let (false, Ok(name)) = (known, Domain::parse(&host.host)) {
                self.questions.push_back(Question::Addresses(name));
            }
        }
        self.state = State::ExpectAddresses { hosts, by_mx: true, domain, left_out };
    }

    /// Ends the search once all questions are answered.
    fn choose(
        &mut self,
        hosts: Vec<MxHost>,
        by_mx: bool,
        domain: &Domain,
        left_out: LeftOut,
        chance: u64,
    ) {
        let found = |host: &MxHost| match &host.addresses {
            Some(Answers::Found(addresses)) => addresses.clone(),
            _ => Vec::new(),
        };
        let own = |host: &&MxHost| found(host).iter().any(|address| self.is_ourselves(*address));
        let by_address = hosts.iter().filter(own).map(|host| host.preference).min();
        let ourselves = [left_out.ourselves, by_address].into_iter().flatten().min();
        let mut dice = Dice(chance.rotate_left(17));
        let mut targets = Vec::new();
        for host in hosts.iter().filter(|host| ourselves.is_none_or(|own| host.preference < own)) {
            let mut addresses = found(host);
            addresses.retain(|address| !self.is_off_limits(*address));
            dice.shuffle(&mut addresses);
            addresses.truncate(ADDRESSES_PER_HOST_MAX);
            targets.extend(addresses.into_iter().map(|address| self.target(&host.host, address)));
        }
        let unknown = hosts.iter().find_map(|host| match &host.addresses {
            Some(Answers::Unknown(why)) => Some((host.host.clone(), why.clone())),
            _ => None,
        });
        match (targets.is_empty(), unknown, ourselves) {
            (false, ..) => self.state = State::Found(Ok(targets)),
            (true, Some((host, why)), _) => self.unknown(&host, &why),
            (true, None, Some(_)) => {
                let text = format!("mail for {domain} loops back to this host");
                self.fail(554, Enhanced(5, 4, 6), text);
            }
            (true, None, None) if hosts.iter().any(|host| !found(host).is_empty()) => {
                let text = format!("all mail servers of {domain} have private addresses");
                self.fail(550, Enhanced(5, 4, 4), text);
            }
            (true, None, None) if by_mx => {
                let text = format!("no mail server of {domain} has an address");
                self.fail(550, Enhanced(5, 4, 4), text);
            }
            (true, None, None) => {
                let text = format!("{domain} has neither a mail server nor an address");
                self.fail(550, Enhanced(5, 1, 2), text);
            }
        }
    }

    fn target(&self, name: &str, address: IpAddr) -> Target {
        let place = Where::Tcp(SocketAddr::new(address, self.port));
        Target { name: name.into(), place, dialect: self.dialect }
    }

    fn is_ourselves(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let nowhere = address.is_unspecified() || address.is_multicast();
        let loopback = self.rules.loopback_is_ourselves && address.is_loopback();
        nowhere || loopback || self.rules.ourselves.addresses.contains(&address)
    }

    /// True if foreign DNS records must not lead mail to this address.
    fn is_off_limits(&self, address: IpAddr) -> bool {
        self.rules.private_addresses == Choice::Refuse && is_private(address.to_canonical())
    }

    /// True if the text of an MX record is a host that may be used. The root is not.
    fn usable(&self, host: &str) -> bool {
        match host.parse::<IpAddr>() {
            Ok(_) => self.rules.mx_addresses == Choice::Use,
            Err(_) => Domain::parse(host).is_ok_and(|name| *name.as_str() == *host),
        }
    }

    fn unknown(&mut self, name: &str, why: &str) {
        self.fail(451, Enhanced(4, 4, 3), format!("looking up {name}: {why}"));
    }

    fn fail(&mut self, code: u16, enhanced: Enhanced, text: String) {
        let text: String =
            text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
        self.state = State::Found(Err(Unreachable(Reply::new(code, enhanced, text))));
    }
}

/// The address of `[192.0.2.1]` or `[IPv6:2001:db8::1]` (RFC 5321 4.1.3).
fn literal(domain: &str) -> Option<IpAddr> {
    let inner = domain.strip_prefix('[')?.strip_suffix(']')?;
    match inner.get(..5) {
        Some(tag) if tag.eq_ignore_ascii_case("ipv6:") => inner[5..].parse().ok().map(IpAddr::V6),
        _ => inner.parse().ok().map(IpAddr::V4),
    }
}

impl MxHost {
    /// An MX record that holds an address needs no lookup.
    fn of(mx: Mx) -> MxHost {
        let addresses = mx.host.parse().ok().map(|address| Answers::Found(vec![address]));
        MxHost { preference: mx.preference, host: mx.host, addresses }
    }
}

/// Not routed on the Internet: RFC 1918, RFC 6598, RFC 4193, and link-local addresses.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            let shared = a == 100 && (64..128).contains(&b);
            address.is_private() || address.is_link_local() || shared
        }
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
    }
}
