//! The forms of texts: addresses, domains, next hops, templates. Each says what is wrong in words that
//! follow the setting's name. Must never look anything up.

use super::problem::nearest;
use super::types::{Deliver, ListenAddress, Piece, Rate, SocketMode, Template};
use super::units;
use mail::{Address, Domain, Host, NextHop};
use policy::{Pattern, Postmaster};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// A path from the root, without a NUL.
pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    let good = text.starts_with('/') && !text.contains('\0');
    good.then(|| PathBuf::from(text)).ok_or_else(|| "must be a path that begins with `/`".into())
}

/// A name or an address literal.
pub(super) fn domain(text: &str) -> Result<Domain, String> {
    let domain =
        Domain::parse(text).map_err(|error| format!("`{text}` is not a domain: {error}"))?;
    match domain.ends_in_number() {
        true => Err(format!("`{text}` is not a domain: it ends in a number")),
        false => Ok(domain),
    }
}

/// A name.
pub(super) fn host_name(text: &str) -> Result<Domain, String> {
    match domain(text)? {
        name if name.as_str().starts_with('[') => {
            Err(format!("`{text}` is an address, not a name"))
        }
        name => Ok(name),
    }
}

/// `name`, `*.name` or `*`.
pub(super) fn pattern(text: &str) -> Result<Pattern, String> {
    match (text, text.strip_prefix("*.")) {
        ("*", _) => Ok(Pattern::Any),
        (_, Some(parent)) => host_name(parent).map(Pattern::Below),
        _ => domain(text).map(Pattern::Exact),
    }
}

/// An address, or a network as in `192.0.2.0/24`.
pub(super) fn network(text: &str) -> Result<ipnet::IpNet, String> {
    let whole = |address: IpAddr| ipnet::IpNet::from(address);
    let parsed = text.parse::<IpAddr>().map(whole).ok().or_else(|| text.parse().ok());
    let network: ipnet::IpNet = parsed.ok_or_else(|| {
        format!("`{text}` is neither an address nor a network such as 192.0.2.0/24")
    })?;
    if network.trunc() != network {
        return Err(format!(
            "`{text}` has bits set after its prefix length: write `{}`",
            network.trunc()
        ));
    }
    match mapped(network) {
        // A client over IPv4 has an IPv4 address here, whatever socket it comes through.
        Some(v4) => Err(format!(
            "`{text}` is an IPv4 network written as IPv6, which never matches a client: write `{v4}`"
        )),
        None => Ok(network),
    }
}

fn mapped(network: ipnet::IpNet) -> Option<ipnet::IpNet> {
    let ipnet::IpNet::V6(v6) = network else { return None };
    let bits = v6.prefix_len().checked_sub(96)?;
    ipnet::IpNet::new(IpAddr::V4(v6.network().to_ipv4_mapped()?), bits).ok()
}

const LISTEN: &str = "must be host:port, [v6]:port, *:port or unix:/path";

/// Where to listen: `*` is all addresses, of both kinds; `localhost` is 127.0.0.1.
pub(super) fn listen_address(text: &str) -> Result<ListenAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path).map(ListenAddress::Unix);
    }
    let (host, port) = text.rsplit_once(':').ok_or(LISTEN)?;
    let address = match host {
        "*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        _ => ip(host).ok_or_else(|| format!("`{host}` is not an address: it {LISTEN}"))?,
    };
    Ok(ListenAddress::Tcp(SocketAddr::new(address, self::port(port)?)))
}

/// As long as an address of a Unix socket may be (unix(7)), with its final NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

fn unix(path: &str) -> Result<PathBuf, String> {
    if path.len() > UNIX_PATH_BYTES_MAX {
        return Err(format!("the path of a socket can have at most {UNIX_PATH_BYTES_MAX} bytes"));
    }
    absolute(path).map_err(|_| "the path of a socket must begin with `/`".into())
}

fn ip(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

fn port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| *port > 0 && digits);
    port.ok_or_else(|| format!("`{text}` is not a port: ports are 1 to 65535"))
}

/// A name server: an address, with or without a port.
pub(super) fn dns_server(text: &str) -> Result<SocketAddr, String> {
    const DNS_PORT: u16 = 53;
    let alone = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
    let parsed = alone.or_else(|_| text.parse::<SocketAddr>());
    parsed
        .ok()
        .filter(|address| address.port() != 0)
        .ok_or_else(|| format!("`{text}` is not an address, with or without a port"))
}

const HOPS: [&str; 5] = ["smtp:", "lmtp:", "hold", "error:", "discard"];

/// Where a route goes.
pub(super) fn next_hop(text: &str) -> Result<NextHop, String> {
    let (word, rest) = text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest)));
    match (word, rest) {
        ("hold", None) => Ok(NextHop::Hold),
        ("discard", None) => Ok(NextHop::Discard),
        ("error", Some(text)) => error_text(text),
        ("smtp", Some(rest)) => {
            let (host, port) = host_port(rest, Some(25))?;
            Ok(NextHop::Smtp(host, port))
        }
        ("lmtp", Some(rest)) => lmtp(rest),
        _ => {
            let meant = nearest(word, HOPS.iter().map(|hop| hop.trim_end_matches(':')));
            let hint = meant.map(|word| format!(": did you mean `{word}`?")).unwrap_or_default();
            let forms =
                "smtp:HOST[:PORT], lmtp:HOST:PORT, lmtp:unix:/path, hold, error:TEXT, discard";
            Err(format!("must be one of {forms}, not `{text}`{hint}"))
        }
    }
}

/// A text that goes into replies and bounces (RFC 5321 4.2: one line of printable ASCII).
fn error_text(text: &str) -> Result<NextHop, String> {
    const TEXT_BYTES_MAX: usize = 400;
    let text = text.trim();
    let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if text.is_empty() || !printable || text.len() > TEXT_BYTES_MAX {
        return Err(format!(
            "the text after `error:` must be 1 to {TEXT_BYTES_MAX} printable ASCII characters"
        ));
    }
    Ok(NextHop::Error(text.into()))
}

fn lmtp(text: &str) -> Result<NextHop, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        unix(path)?;
        return Ok(NextHop::LmtpUnix(path.into()));
    }
    if text.starts_with('/') {
        return Err(format!("`{text}` is a path: write `lmtp:unix:{text}`"));
    }
    let (host, port) = host_port(text, None)?;
    Ok(NextHop::Lmtp(host, port))
}

fn host_port(text: &str, default: Option<u16>) -> Result<(Host, u16), String> {
    let address = |host: &str| match ip(host) {
        Some(address) => Ok(Host::Address(address)),
        None if host.contains([':', '[', '*']) => Err(format!("`{host}` is not a host")),
        None => host_name(host).map(Host::Name),
    };
    match (text.rsplit_once(':'), default) {
        (Some((host, port)), _) if !text.ends_with(']') => Ok((address(host)?, self::port(port)?)),
        (_, Some(port)) => Ok((address(text)?, port)),
        _ => Err(format!("`{text}` has no port")),
    }
}

/// The name of a destination, in the form that the scheduler compares with.
pub(super) fn destination(text: &str) -> Result<String, String> {
    if text == "local" || text == "*" {
        return Ok(text.into());
    }
    if text.starts_with("smtp:") || text.starts_with("lmtp:") {
        return next_hop(text).map(|hop| hop.to_string());
    }
    match pattern(text)? {
        Pattern::Exact(domain) => Ok(domain.to_string()),
        Pattern::Below(domain) => Ok(format!("*.{domain}")),
        Pattern::Any => Ok("*".into()),
    }
}

/// Who gets the postmaster's mail: a local part, or an address.
pub(super) fn postmaster(text: &str) -> Result<Postmaster, String> {
    let address = |text: &str| Address::parse(text, true).map_err(|error| error.to_string());
    if text.contains('@') && !text.ends_with('"') {
        return address(text).map(Postmaster::Address);
    }
    let domain = "posthaste.invalid"; // only stands behind the local part, to have it parsed
    let whole = address(&format!("{text}@{domain}"))?;
    Ok(Postmaster::Mailbox(whole.local().into()))
}

/// Permissions of a file, in octal.
pub(super) fn mode(text: &str) -> Result<SocketMode, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.map(SocketMode).ok_or_else(|| "must be a mode in octal such as \"0660\"".into())
}

/// A number of messages per unit of time, or `unlimited`.
pub(super) fn rate(text: &str) -> Result<Option<Rate>, String> {
    units::rate(text).ok_or_else(|| "must be a rate such as \"600/m\", or \"unlimited\"".into())
}

/// A group's name, or its number.
pub(super) fn group(text: &str) -> Result<Box<str>, String> {
    let plain = !text.is_empty() && !text.contains(|c: char| c.is_control() || c == ':');
    plain.then(|| text.into()).ok_or_else(|| "must be the name or the number of a group".into())
}

/// How local mail is delivered.
pub(super) fn deliver(text: &str) -> Result<Deliver, String> {
    const FORMS: &str = "must be maildir:PATH, mbox:PATH, lmtp:ADDRESS or pipe:COMMAND";
    let (word, rest) = text.split_once(':').ok_or(FORMS)?;
    match word {
        "maildir" => path_template(rest).map(Deliver::Maildir),
        "mbox" if rest.ends_with('/') => {
            Err("an mbox is a file: its path cannot end in `/`".into())
        }
        "mbox" => path_template(rest).map(Deliver::Mbox),
        "lmtp" => lmtp(rest).map(Deliver::Lmtp),
        "pipe" => command(rest).map(Deliver::Pipe),
        _ => Err(FORMS.into()),
    }
}

fn path_template(text: &str) -> Result<Template, String> {
    let template = template(text)?;
    let rooted = match template.0.first() {
        Some(Piece::Text(text)) => text.starts_with('/'),
        Some(Piece::State | Piece::Home) => true,
        _ => false,
    };
    // `{home}` from another place than the start would name nothing that exists.
    let home_elsewhere = template.0.iter().skip(1).any(|piece| *piece == Piece::Home);
    if !rooted || home_elsewhere || text.contains('\0') {
        return Err("the path must begin with `/`, `{state}` or `{home}`".into());
    }
    if let Some(foreign) =
        ["%u", "%n", "%d", "%h", "$"].iter().find(|foreign| text.contains(**foreign))
    {
        return Err(format!(
            "`{foreign}` has no meaning here: write {{user}}, {{domain}} or {{home}}"
        ));
    }
    if text.split('/').any(|part| part == "..") {
        return Err("the path cannot contain `..`".into());
    }
    Ok(template)
}

const VARIABLES: [(&str, Piece); 4] = [
    ("state", Piece::State),
    ("user", Piece::User),
    ("domain", Piece::Domain),
    ("home", Piece::Home),
];

fn template(text: &str) -> Result<Template, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("a `{` is not closed")?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before.into()));
        }
        let found = VARIABLES.iter().find(|(known, _)| *known == name);
        let (_, piece) = found.ok_or_else(|| {
            let meant = nearest(name, VARIABLES.iter().map(|(known, _)| *known));
            let hint = meant.map(|word| format!(": did you mean {{{word}}}?")).unwrap_or_default();
            format!("there is no variable {{{name}}}{hint}")
        })?;
        pieces.push(piece.clone());
        rest = after;
    }
    if rest.contains('}') {
        return Err("a `}` has no `{`".into());
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.into()));
    }
    Ok(Template(pieces))
}

/// Words at spaces; `"` keeps spaces together. There is no shell.
fn command(text: &str) -> Result<Vec<Template>, String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for letter in text.chars() {
        match letter {
            '"' => (quoted, begun) = (!quoted, true),
            ' ' | '\t' if !quoted => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            '\0' => return Err("a command cannot contain NUL".into()),
            _ => {
                word.push(letter);
                begun = true;
            }
        }
    }
    if quoted {
        return Err("a `\"` is not closed".into());
    }
    if begun {
        words.push(word);
    }
    match words.first() {
        Some(program) if program.starts_with('/') => {
            words.iter().map(|word| template(word)).collect()
        }
        _ => Err("a command must begin with the absolute path of a program".into()),
    }
}
