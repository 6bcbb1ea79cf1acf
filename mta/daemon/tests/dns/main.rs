//! Where the DNS sends mail, and what happens to mail if the DNS lies, fails or is silent: the faults D161 to
//! D168, D174, D175, R226, R237 and R238, by number, with the whole mailer.
//!
//! Must never ask a name server outside this machine.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../hops/hop.rs"]
#[allow(dead_code)]
mod hop;

mod crowds;
mod network;
mod rules;
mod server;
mod trouble;

use hop::{ALL, Hop};
use server::Server;
use support::{Client, Daemon, Setup, until};

/// Settings with which each attempt is repeated after a second.
const HURRY: &str = "[retry]\nfirst = \"1s\"\nfactor = 1\nlongest = \"1s\"\njitter = 0\n";

/// A daemon, its name server, and a next hop at port 25 of each address.
pub struct World {
    pub daemon: Daemon,
    pub dns: Server,
    pub hops: Vec<Hop>,
}

impl World {
    /// Starts them, or returns `None` if the test cannot have a network of its own.
    pub fn start(zone: &str, hops: &[&str], tables: &str) -> Option<World> {
        if !network::own() {
            return None;
        }
        let dns = Server::start(zone);
        let hops = hops.iter().map(|at| Hop::at(&format!("{at}:25"), ALL)).collect();
        let tables = format!("[dns]\nservers = [\"{}\"]\ntimeout = \"1s\"\n{tables}", dns.at);
        let daemon = Daemon::start(Setup { tables, ..Setup::default() });
        Some(World { daemon, dns, hops })
    }

    /// Sends one message from `sender@local.test` to each recipient.
    pub fn send(&self, sender: &str, recipients: &[&str]) {
        let mut client = Client::ready(self.daemon.port);
        client.ask(&format!("MAIL FROM:<{sender}@local.test>"), 250);
        for recipient in recipients {
            client.ask(&format!("RCPT TO:<{recipient}>"), 250);
        }
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
        client.ask("QUIT", 221);
    }

    /// Sends to `b@` each domain and waits for its bounce, which must have this status.
    pub fn bounces(&self, table: &[(&str, &str)]) {
        for (domain, _) in table {
            self.send(&format!("s-{domain}"), &[&format!("b@{domain}")]);
        }
        for (domain, status) in table {
            let notice = self.daemon.wait_in_mailbox(&format!("s-{domain}"), "Action: failed");
            assert!(notice.contains(&format!("Status: {status}\n")), "{domain}: {notice}");
        }
    }

    /// Sends to `b@` each domain and waits until the message is at the hop with this number and nowhere else.
    pub fn arrives(&self, table: &[(&str, usize)]) {
        for (domain, _) in table {
            self.send("sender", &[&format!("b@{domain}")]);
        }
        for (domain, hop) in table {
            let at = |number: usize| self.hops[number].deliveries(&format!("<b@{domain}>"));
            until(&format!("mail for {domain} at {hop}"), || (at(*hop) == 1).then_some(()));
            let all: usize = (0..self.hops.len()).map(at).sum();
            assert_eq!(all, 1, "{domain}");
        }
    }

    /// Sends to `b@` each domain and waits until each was deferred once.
    pub fn waits(&self, domains: &[&str]) {
        for domain in domains {
            self.send(&format!("s-{domain}"), &[&format!("b@{domain}")]);
        }
        for domain in domains {
            self.daemon.wait_for_log(&[&format!("\"to\":\"<b@{domain}>\""), "\"deferred\""]);
        }
    }
}
