//! Next hops that fail, give wrong replies or break off, and the outcome of the mail: the faults D147 to D160,
//! D172, D173, D176 and D177, R229, R230, R233 and R234, and loops, by number, with the whole mailer.
//!
//! Must never rely on our log alone: the hop's record of what arrived decides.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod ends;
#[allow(dead_code)]
mod hop;
mod lmtp;
mod loops;
mod replies;
mod stages;

use hop::{Hop, Rules};
use serde_json::Value;
use support::{Client, Daemon, Setup, until};

/// Settings with which each attempt is repeated after a second.
const HURRY: &str = "[retry]\nfirst = \"1s\"\nfactor = 1\nlongest = \"1s\"\njitter = 0\n";

/// One message to a hop of its own.
pub struct Case {
    /// The reply to EHLO.
    pub hello: &'static str,
    pub rules: Rules,
    /// The statuses of each recipient's attempts in order: a letter with the code for each, such as `T450
    /// D250`, as in the log.
    pub story: Vec<&'static str>,
    /// True if the hop may have accepted the message in an attempt that failed for the mailer.
    pub ambiguous: bool,
}

pub fn case(hello: &'static str, rules: &[(&'static str, &str)], story: &[&'static str]) -> Case {
    let rules = rules.iter().map(|(verb, reply)| (*verb, (*reply).to_string())).collect();
    Case { hello, rules, story: story.to_vec(), ambiguous: false }
}

/// A daemon with a next hop for each case: `c0.test` and so on.
pub struct Place {
    pub daemon: Daemon,
    pub hops: Vec<Hop>,
}

impl Place {
    pub fn start(hops: Vec<(&str, Hop)>) -> Place {
        let route = |(number, (protocol, hop)): (usize, &(&str, Hop))| {
            let port = hop.port;
            format!(
                "[[route]]\ndomain = \"c{number}.test\"\nto = \"{protocol}:127.0.0.1:{port}\"\n"
            )
        };
        let routes = hops.iter().enumerate().map(route).collect();
        let setup = Setup { routes, tables: HURRY.into(), ..Setup::default() };
        let hops = hops.into_iter().map(|(_, hop)| hop).collect();
        Place { daemon: Daemon::start(setup), hops }
    }

    /// Sends one message from `s{number}@local.test` to `r0@c{number}.test` and so on.
    pub fn send(&self, number: usize, recipients: usize, notify: &str) {
        let mut client = Client::ready(self.daemon.port);
        client.ask(&format!("MAIL FROM:<s{number}@local.test>"), 250);
        for recipient in 0..recipients {
            let line = format!("RCPT TO:<r{recipient}@c{number}.test>{notify}");
            client.ask(&line, 250);
        }
        client.ask("DATA", 354);
        client.send(MESSAGE);
        client.send(".\r\n");
        client.expect(250);
    }

    /// The attempts of a recipient so far, such as `T450 D250`.
    pub fn story(&self, address: &str) -> String {
        let to = format!("<{address}>");
        let mine = self.attempts().into_iter().filter(|line| line["to"] == *to);
        mine.map(|line| word(&line)).collect::<Vec<_>>().join(" ")
    }

    /// All lines of the log about attempts.
    pub fn attempts(&self) -> Vec<Value> {
        let log = self.daemon.log();
        let whole = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        whole.filter(|line| line["event"] == "attempt").collect()
    }

    /// Runs one message through each case, all at the same time, and compares the statuses.
    pub fn run(cases: &[Case]) -> Place {
        let hop = |case: &Case| {
            let rules: Vec<_> =
                case.rules.iter().map(|(verb, reply)| (*verb, reply.as_str())).collect();
            ("smtp", Hop::start(case.hello, &rules))
        };
        let place = Place::start(cases.iter().map(hop).collect());
        place.tell(cases);
        place
    }

    /// The same with hops that were started before.
    pub fn tell(&self, cases: &[Case]) {
        for (number, case) in cases.iter().enumerate() {
            self.send(number, case.story.len(), "");
        }
        for (number, case) in cases.iter().enumerate() {
            for recipient in 0..case.story.len() {
                self.wait_for_story(number, recipient, case);
            }
        }
        until("an empty queue", || (self.daemon.queued() == 0).then_some(()));
        self.daemon.works();
    }

    fn wait_for_story(&self, number: usize, recipient: usize, case: &Case) {
        let (wanted, rules) = (case.story[recipient], &case.rules);
        let address = format!("r{recipient}@c{number}.test");
        let attempts = wanted.split(' ').count();
        let story = until(&format!("{wanted} of {address}, {rules:.300?}"), || {
            let story = self.story(&address);
            (story.split(' ').filter(|word| !word.is_empty()).count() >= attempts).then_some(story)
        });
        assert_eq!(story, wanted, "{address} {rules:.300?}");
        let (least, found) =
            (usize::from(wanted.contains('D')), self.hops[number].deliveries(&address));
        let most = if case.ambiguous { attempts } else { least };
        let right = (least..=most).contains(&found);
        assert!(right, "{address} {rules:.300?}: {found} deliveries at the hop");
    }
}

/// A body of several lines, one of them with a dot, so that half of it is never a whole message.
pub const MESSAGE: &str = "Subject: for a hop\r\n\r\n..dot\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789\r\n";

/// The status of one attempt, such as `T450`.
fn word(line: &Value) -> String {
    let letter = match line["status"].as_str().unwrap() {
        "delivered" | "relayed" => 'D',
        "deferred" => 'T',
        "failed" => 'F',
        other => panic!("{other}"),
    };
    format!("{letter}{}", &line["reply"].as_str().unwrap()[..3])
}
