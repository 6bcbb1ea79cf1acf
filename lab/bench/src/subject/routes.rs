//! Next hops of their own for many domains, written in one line: `dead{5000}.test 127.8.0.0:25`.
//!
//! Must never name a next hop that does not lie on this machine.

use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Upper bound on the routes of one line: more are a mistake in a file.
const DOMAINS_MAX: u32 = 200_000;

/// One domain and where its mail goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The domain.
    pub domain: String,
    /// Its next hop.
    pub to: SocketAddrV4,
}

/// Expands lines `DOMAIN ADDRESS:PORT`. `{COUNT}` in the domain makes that number of routes, numbered from 0, and their
/// addresses count up with them. An error says what is wrong with a line.
pub fn expand(lines: &[String]) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for line in lines {
        expand_one(line, &mut routes).with_context(|| format!("route `{line}`"))?;
    }
    Ok(routes)
}

fn expand_one(line: &str, routes: &mut Vec<Route>) -> Result<()> {
    let (domain, to) = line.split_once(' ').context("`DOMAIN ADDRESS:PORT` is expected")?;
    let to: SocketAddrV4 = to.trim().parse().context("ADDRESS:PORT is expected")?;
    let Some((before, rest)) = domain.split_once('{') else {
        routes.push(Route { domain: domain.into(), to: local(to)? });
        return Ok(());
    };
    let (count, after) = rest.split_once('}').context("`}` is missing")?;
    let count: u32 = count.parse().context("a number is expected between the braces")?;
    ensure!(count <= DOMAINS_MAX, "{count} domains, where {DOMAINS_MAX} are allowed");
    for number in 0..count {
        let address = Ipv4Addr::from(u32::from(*to.ip()).wrapping_add(number));
        let to = local(SocketAddrV4::new(address, to.port()))?;
        routes.push(Route { domain: format!("{before}{number}{after}"), to });
    }
    Ok(())
}

fn local(to: SocketAddrV4) -> Result<SocketAddrV4> {
    ensure!(to.ip().is_loopback(), "{to} does not lie on this machine");
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_count_is_as_many_domains_with_addresses_that_count_up() {
        let lines = ["slow.test 127.0.0.1:2601", "d{300}.test 127.8.0.0:25"].map(String::from);
        let routes = expand(&lines).unwrap();
        assert_eq!(routes.len(), 301);
        let last = Route { domain: "d299.test".into(), to: "127.8.1.43:25".parse().unwrap() };
        assert_eq!((routes[0].domain.as_str(), &routes[300]), ("slow.test", &last));
    }

    #[test]
    fn a_line_that_leads_away_or_nowhere_is_refused() {
        for line in
            ["d.test", "d.test 10.0.0.1:25", "d{2.test 127.0.0.1:25", "d{x}.test 127.0.0.1:25"]
        {
            assert!(expand(&[line.to_string()]).is_err(), "{line}");
        }
        assert!(expand(&["d{9}.test 127.255.255.250:25".to_string()]).is_err());
    }
}
