//! DNS for `delivery`: drives hickory-resolver and converts its answers.
//!
//! Must never read a file: the process has an empty root, so the caller passes the texts. Must never use the search list
//! for a mail domain, and never turn a failed query into "there is no such name".

use delivery::resolve::{Answer, Answers, Mx, Question};
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::proto::serialize::binary::BinEncodable;
use hickory_resolver::{Resolver as Hickory, TokioResolver, system_conf};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Upper bound on the time that an answer is cached, whatever its TTL.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Upper bound on the time that the absence of a name or record is cached.
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(3600);
/// Upper bound on cached answers.
const CACHE_ANSWERS_MAX: u64 = 8 * 1024;
/// Upper bound on the records of a cached answer, in all its sections. The owner of a domain chooses how many there are.
const RECORDS_KEPT: usize = 32;
/// Upper bound on the bytes of a cached answer in its form on the wire.
const ANSWER_BYTES_KEPT: usize = 4 << 10;
const _: () = {
    // The name and the data of a record may be names of 255 bytes that are allocated separately.
    let answer = RECORDS_KEPT * (size_of::<Record>() + 2 * 256) + ANSWER_BYTES_KEPT;
    assert!(CACHE_ANSWERS_MAX as usize * answer <= 256 << 20);
};
/// Upper bound on queries in flight to one server.
const QUESTIONS_IN_FLIGHT_MAX: usize = 256;
/// Upper bound on the records that are used of one answer.
const RECORDS_MAX: usize = 1000;
/// Upper bound on the names that are kept of the hosts file.
const HOSTS_NAMES_MAX: usize = 100_000;

/// What a resolver is made from. These are texts and not files, so that it works with an empty root.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// The servers to query, instead of those in `resolv_conf` unless this is empty.
    pub servers: &'a [SocketAddr],
    /// The text of `/etc/resolv.conf`; empty if there is none.
    pub resolv_conf: &'a str,
    /// The text of `/etc/hosts`; empty if there is none.
    pub hosts: &'a str,
    /// The timeout for one answer of one server.
    pub timeout: Duration,
}

/// Answers `delivery`'s questions.
pub struct Resolver {
    /// The resolver, or why no server can be queried.
    dns: Result<TokioResolver, Box<str>>,
    hosts: HashMap<Box<str>, Vec<IpAddr>>,
    /// True if there is a route to IPv6 addresses outside this host.
    ipv6: bool,
}

impl Resolver {
    /// Makes a resolver. If no server is known, every query fails temporarily.
    pub fn new(sources: &Sources<'_>) -> Resolver {
        let dns = configuration(sources).and_then(|(config, options)| {
            Hickory::builder_with_config(config, TokioRuntimeProvider::default())
                .with_options(options)
                .build()
                .map_err(|error| error.to_string().into())
        });
        Resolver { dns, hosts: hosts(sources.hosts), ipv6: has_ipv6_route() }
    }

    /// Answers one question.
    pub async fn ask(&self, question: &Question) -> Answer {
        match question {
            Question::Mx(domain) => Answer::Mx(self.mx(domain.as_str()).await),
            Question::Addresses(name) => {
                let known = self.hosts.get(name.as_str());
                Answer::Addresses(match known {
                    Some(addresses) => Answers::Found(addresses.clone()),
                    None => self.addresses(name.as_str()).await,
                })
            }
        }
    }

    async fn mx(&self, domain: &str) -> Answers<Mx> {
        self.lookup(domain, RecordType::MX, |record| match &record.data {
            RData::MX(mx) => {
                let host = mx.exchange.to_ascii().to_ascii_lowercase();
                let host = host.strip_suffix('.').unwrap_or(&host).into();
                Some(Mx { preference: mx.preference, host })
            }
            _ => None,
        })
        .await
    }

    /// Queries both kinds of addresses at once. One that has an answer is enough (RFC 5321 5.1).
    async fn addresses(&self, name: &str) -> Answers<IpAddr> {
        let v4 = self.lookup(name, RecordType::A, |record| match &record.data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            _ => None,
        });
        let v6 = self.lookup(name, RecordType::AAAA, |record| match &record.data {
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        });
        match tokio::join!(v4, v6) {
            (Answers::Found(v4), Answers::Found(v6)) if self.ipv6 => {
                Answers::Found(v4.into_iter().chain(v6).collect())
            }
            (Answers::Found(found), _) | (_, Answers::Found(found)) => Answers::Found(found),
            (Answers::Unknown(why), _) | (_, Answers::Unknown(why)) => Answers::Unknown(why),
            (Answers::NoName, _) | (_, Answers::NoName) => Answers::NoName,
            (Answers::NoRecord, Answers::NoRecord) => Answers::NoRecord,
        }
    }

    async fn lookup<T>(
        &self,
        name: &str,
        kind: RecordType,
        pick: impl Fn(&Record) -> Option<T>,
    ) -> Answers<T> {
        let dns = match &self.dns {
            Ok(dns) => dns,
            Err(why) => return Answers::Unknown(why.clone()),
        };
        // A name that the DNS cannot represent does not exist in it.
        let Ok(mut fqdn) = Name::from_ascii(name) else { return Answers::NoName };
        fqdn.set_fqdn(true);
        let looked_up = dns.lookup(fqdn.clone(), kind).await;
        if !may_be_kept(&looked_up) {
            dns.clear_lookup_cache(fqdn, kind);
        }
        match looked_up {
            Ok(lookup) => {
                let found: Vec<T> =
                    lookup.answers().iter().filter_map(pick).take(RECORDS_MAX).collect();
                if found.is_empty() { Answers::NoRecord } else { Answers::Found(found) }
            }
            Err(error) => without_records(&error),
        }
    }
}

/// Returns whether an answer is small enough for the cache to stay within its bound.
fn may_be_kept(looked_up: &Result<Lookup, NetError>) -> bool {
    match looked_up {
        Ok(lookup) => {
            let message = lookup.message();
            let records =
                message.answers.len() + message.authorities.len() + message.additionals.len();
            let bytes = || message.to_bytes().map_or(usize::MAX, |bytes| bytes.len());
            records <= RECORDS_KEPT && bytes() <= ANSWER_BYTES_KEPT
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
            let authorities = none.authorities.as_ref().map_or(0, |records| records.len());
            let servers = none.ns.iter().flat_map(|ns| ns.iter());
            authorities + servers.map(|ns| 1 + ns.glue.len()).sum::<usize>() <= RECORDS_KEPT
        }
        Err(_) => true,
    }
}

/// Converts an error. Only an explicit answer counts as absence; a referral without SOA record (a lame server) does not.
fn without_records<T>(error: &NetError) -> Answers<T> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => Answers::NoName,
            ResponseCode::NoError if none.soa.is_some() || none.ns.is_none() => Answers::NoRecord,
            code => Answers::Unknown(format!("the server answers {code}").into()),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => {
            Answers::Unknown(format!("the server answers {code}").into())
        }
        NetError::Timeout => Answers::Unknown("no server answers in time".into()),
        other => Answers::Unknown(other.to_string().into()),
    }
}

fn configuration(sources: &Sources<'_>) -> Result<(ResolverConfig, ResolverOpts), Box<str>> {
    let servers = if sources.servers.is_empty() {
        let (config, _) = system_conf::parse_resolv_conf(sources.resolv_conf)
            .map_err(|error| Box::from(format!("no name server is known: {error}")))?;
        config.name_servers().to_vec()
    } else {
        sources.servers.iter().map(server).collect()
    };
    let mut options = ResolverOpts::default();
    options.timeout = sources.timeout;
    options.attempts = 2;
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = CACHE_ANSWERS_MAX;
    options.positive_max_ttl = Some(TTL_MAX);
    options.negative_max_ttl = Some(NEGATIVE_TTL_MAX);
    options.max_active_requests = QUESTIONS_IN_FLIGHT_MAX;
    Ok((ResolverConfig::from_name_servers(servers), options))
}

fn server(at: &SocketAddr) -> NameServerConfig {
    let on_port = |mut connection: ConnectionConfig| {
        connection.port = at.port();
        connection
    };
    let connections = vec![on_port(ConnectionConfig::udp()), on_port(ConnectionConfig::tcp())];
    NameServerConfig::new(at.ip(), true, connections)
}

/// Parses lines of the form `address name name... # comment` (hosts(5)).
fn hosts(text: &str) -> HashMap<Box<str>, Vec<IpAddr>> {
    let mut hosts: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
        for name in words {
            let name = name.to_ascii_lowercase();
            let name = name.strip_suffix('.').unwrap_or(&name);
            if hosts.len() < HOSTS_NAMES_MAX || hosts.contains_key(name) {
                hosts.entry(name.into()).or_default().push(address);
            }
        }
    }
    hosts
}

/// Asks the kernel whether there is a route. Connecting a UDP socket sends nothing. The address is that of a root server.
fn has_ipv6_route() -> bool {
    let socket = UdpSocket::bind("[::]:0");
    socket.is_ok_and(|socket| socket.connect("[2001:7fd::1]:53").is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_file_is_read_with_comments_aliases_and_case() {
        let hosts = hosts("127.0.0.1 localhost # home\n::1 LocalHost ip6.\nx y\n\n192.0.2.1\n");
        let both: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(hosts["localhost"], both);
        assert_eq!(hosts["ip6"], both[1..]);
        assert_eq!(hosts.len(), 2);
    }

    #[test]
    fn a_hosts_file_with_too_many_names_is_read_up_to_the_bound() {
        let text: String =
            (0..HOSTS_NAMES_MAX + 9).map(|n| format!("192.0.2.1 host{n}\n")).collect();
        assert_eq!(hosts(&text).len(), HOSTS_NAMES_MAX);
    }

    #[tokio::test]
    async fn n116_without_a_resolv_conf_nobody_can_say_and_mail_waits() {
        for text in ["", "search x\n", "nameserver nonsense\n", "\u{0}\u{1}"] {
            let timeout = Duration::from_secs(1);
            let sources = Sources { servers: &[], resolv_conf: text, hosts: "", timeout };
            let resolver = Resolver::new(&sources);
            let domain = mail::Domain::parse("example.org").unwrap();
            let answer = resolver.ask(&Question::Mx(domain)).await;
            assert!(matches!(answer, Answer::Mx(Answers::Unknown(_))), "{text:?}: {answer:?}");
        }
    }
}
