//! The verdict on a recipient: may this client send to it, here?
//!
//! Must never let a stranger send through us to anybody else, whatever the address looks like.

use crate::{Routes, mailbox_name};
use ipnet::IpNet;
use mail::{Address, Enhanced, NextHop, Reply};
use std::collections::HashSet;
use std::net::IpAddr;

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Accept,
    /// Not now: 4yz.
    Defer(Reply),
    /// Never: 5yz.
    Reject(Reply),
}

/// Which mailboxes exist in our domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accounts {
    /// Every safe one.
    Any,
    /// These, as `mailbox_name` writes them.
    Listed(HashSet<Box<str>>),
}

/// What the settings say about who may send what.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Who may send to anywhere (`relay.from`).
    pub relay_from: Vec<IpNet>,
    /// Our mailboxes.
    pub accounts: Accounts,
    /// Mailboxes are locked by a file `NAME.lock` beside them ([`mailbox_name`]).
    pub dotlocks: bool,
    /// Our domains, and where everything goes.
    pub routes: Routes,
}

impl Policy {
    /// Whether this client may send to anywhere and is free of the limits for each address. A
    /// client without an address came over a Unix socket, whose permissions have judged it.
    pub fn is_trusted(&self, client: Option<IpAddr>) -> bool {
        let Some(client) = client.map(|address| address.to_canonical()) else { return true };
        self.relay_from.iter().any(|network| network.contains(&client))
    }

    /// The verdict on RCPT TO.
    pub fn recipient(&self, client: Option<IpAddr>, address: &Address) -> Verdict {
        if self.is_ours(address) {
            return self.mailbox(address);
        }
        // A route says where mail goes, not who may send it: routes open nothing.
        if !self.is_trusted(client) {
            let text = "relay access denied: not a domain of ours";
            return reject(554, Enhanced(5, 7, 1), text);
        }
        match self.routes.next_hop(address.domain()) {
            NextHop::Error(text) => reject(550, Enhanced(5, 1, 2), text),
            _ => Verdict::Accept,
        }
    }

    /// Whether mail to this address ends here. Of the machine's own name only the postmaster
    /// does, unless the settings list it among our domains (RFC 5321 4.5.1).
    fn is_ours(&self, address: &Address) -> bool {
        self.routes.is_own(address.domain())
            || (self.routes.is_hostname(address.domain()) && is_postmaster(address))
    }

    fn mailbox(&self, address: &Address) -> Verdict {
        // RFC 5321 4.5.1: the postmaster always exists.
        if is_postmaster(address) {
            return Verdict::Accept;
        }
        let known =
            mailbox_name(address.local(), self.dotlocks).is_ok_and(|name| match &self.accounts {
                Accounts::Any => true,
                Accounts::Listed(names) => names.contains(name.as_str()),
            });
        if known { Verdict::Accept } else { reject(550, Enhanced(5, 1, 1), "no such mailbox here") }
    }
}

fn is_postmaster(address: &Address) -> bool {
    mailbox_name(address.local(), false).is_ok_and(|name| name == "postmaster")
}

fn reject(code: u16, enhanced: Enhanced, text: impl Into<Box<str>>) -> Verdict {
    Verdict::Reject(Reply::new(code, enhanced, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, Route};
    use mail::{Domain, Host};

    fn domain(text: &str) -> Domain {
        Domain::parse(text).unwrap()
    }

    fn policy(accounts: Accounts) -> Policy {
        let route = |name: &str, to| Route { pattern: Pattern::Exact(domain(name)), to };
        let sink = NextHop::Smtp(Host::Address("127.0.0.1".parse().unwrap()), 2600);
        Policy {
            relay_from: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            accounts,
            dotlocks: false,
            routes: Routes::new(
                [domain("local.test")].into(),
                NextHop::Local,
                domain("mx.example.org"),
                vec![
                    route("sink.test", sink),
                    route("gone.test", NextHop::Error("gone for good".into())),
                ],
                false,
            )
            .with_addresses(["192.0.2.25".parse().unwrap()]),
        }
    }

    const STRANGER: &str = "203.0.113.9";
    const FRIEND: &str = "10.1.2.3";

    /// 0 is accepted, else the reply's code.
    fn check(policy: &Policy, client: &str, address: &str, expected: u16) {
        let Ok(parsed) = Address::parse(address, true) else {
            assert_ne!(expected, 0, "{address} does not parse");
            return;
        };
        let code = match policy.recipient(Some(client.parse().unwrap()), &parsed) {
            Verdict::Accept => 0,
            Verdict::Defer(reply) | Verdict::Reject(reply) => reply.code,
        };
        assert_eq!(code, expected, "{client} to {address}");
    }

    #[test]
    fn strangers_reach_our_mailboxes_and_nobody_else() {
        let policy = policy(Accounts::Any);
        for (address, expected) in [
            ("joe@local.test", 0),
            ("joe@LOCAL.TEST", 0),
            ("joe@[192.0.2.25]", 0),
            ("postmaster@mx.example.org", 0),
            ("joe@mx.example.org", 554),
            ("joe@sink.test", 554),
            ("joe@gone.test", 554),
            ("joe@elsewhere.example", 554),
            ("joe@[192.0.2.26]", 554),
            ("joe@[127.0.0.1]", 554),
            ("joe@sub.local.test", 554),
            ("joe@local.test.evil.example", 554),
        ] {
            check(&policy, STRANGER, address, expected);
        }
    }

    #[test]
    fn trusted_clients_send_anywhere_that_can_be_reached() {
        let policy = policy(Accounts::Any);
        for (address, expected) in [
            ("joe@sink.test", 0),
            ("joe@elsewhere.example", 0),
            ("joe@mx.example.org", 0),
            ("joe@gone.test", 550),
            ("joe@[127.0.0.1]", 550),
            ("a/b@local.test", 550),
        ] {
            check(&policy, FRIEND, address, expected);
        }
        check(&policy, "2001:db8::5", "joe@sink.test", 0);
        check(&policy, "::ffff:10.1.2.3", "joe@sink.test", 0);
        check(&policy, "::ffff:203.0.113.9", "joe@sink.test", 554);
        assert!(policy.is_trusted(None));
    }

    #[test]
    fn p052_percent_hacks_bang_paths_and_quoted_ats_never_relay() {
        let listed = policy(Accounts::Listed(["joe".into()].into()));
        for address in [
            "joe%elsewhere.example@local.test",
            "elsewhere.example!joe@local.test",
            "\"joe@elsewhere.example\"@local.test",
            "joe@elsewhere.example@local.test",
            "\"joe%elsewhere.example\"@local.test",
        ] {
            check(&listed, STRANGER, address, 550);
            check(&listed, FRIEND, address, 550);
        }
        // Where every mailbox exists these are names like any other; they stay here.
        let any = policy(Accounts::Any);
        for address in ["joe%elsewhere.example@local.test", "elsewhere.example!joe@local.test"] {
            check(&any, STRANGER, address, 0);
            let parsed = Address::parse(address, true).unwrap();
            assert_eq!(any.routes.next_hop(parsed.domain()), NextHop::Local);
        }
        check(&any, STRANGER, "joe%local.test@elsewhere.example", 554);
    }

    #[test]
    fn what_the_mailboxes_will_not_take_is_refused_before_it_is_promised() {
        let plain = policy(Accounts::Any);
        check(&plain, STRANGER, "bob.lock@local.test", 0);
        let locked = Policy { dotlocks: true, ..plain };
        check(&locked, STRANGER, "bob.lock@local.test", 550);
        check(&locked, FRIEND, "\"bob.lock\"@[192.0.2.25]", 550);
        check(&locked, STRANGER, "bob@local.test", 0);
    }

    #[test]
    fn unsafe_and_unknown_mailboxes_are_refused_and_the_postmaster_exists() {
        let listed = policy(Accounts::Listed(["joe".into()].into()));
        for (address, expected) in [
            ("joe@local.test", 0),
            ("JOE@local.test", 0),
            ("\"joe\"@local.test", 0),
            ("ann@local.test", 550),
            ("PostMaster@local.test", 0),
            ("postmaster@[192.0.2.25]", 0),
        ] {
            check(&listed, STRANGER, address, expected);
        }
        let any = policy(Accounts::Any);
        for address in ["\"../x\"@local.test", "a/b@local.test", "\".x\"@local.test"] {
            check(&any, STRANGER, address, 550);
        }
        let reply = match any.recipient(None, &Address::parse("a/b@local.test", false).unwrap()) {
            Verdict::Reject(reply) => reply.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(reply, "550 5.1.1 no such mailbox here");
    }
}
