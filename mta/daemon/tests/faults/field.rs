//! Mail on three paths at the same time, relayed, into a mailbox and bounced, and the comparison of the
//! promised messages with the delivered ones.
//!
//! Must never report mail as lost before the queue is empty.

use crate::support::load::Load;
use crate::support::{Daemon, Script, Setup, Sink, until};
use std::collections::{BTreeMap, BTreeSet};

/// Settings with which messages that failed because a process died are tried again at once.
pub const RETRY: &str = "[retry]\nfirst = \"1s\"\nlongest = \"2s\"\n";
/// The user of the mailbox.
pub const USER: &str = "box";

/// A daemon and the destinations of its mail. The sink refuses `no@sink.test`. It accepts the bounces to
/// `load.test`, where the senders of the load are.
pub struct Field {
    pub daemon: Daemon,
    pub sink: Sink,
}

/// Threads that send mail.
pub struct Loads {
    relayed: Load,
    delivered: Load,
    bounced: Load,
}

/// The promised messages.
#[derive(Default)]
pub struct Promised {
    relayed: BTreeSet<String>,
    delivered: BTreeSet<String>,
    bounced: BTreeSet<String>,
}

/// The comparison of the promised and the delivered messages.
#[derive(Debug, Default)]
pub struct Count {
    pub promised: usize,
    pub lost: Vec<String>,
    pub twice: usize,
}

impl Field {
    /// Starts the daemon with these settings in addition to its own.
    pub fn start(mut setup: Setup) -> Field {
        let sink = Sink::start(script());
        setup.sink_port = sink.port;
        setup.routes +=
            &format!("[[route]]\ndomain = \"load.test\"\nto = \"smtp:127.0.0.1:{}\"\n", sink.port);
        if !setup.tables.contains("[retry]") {
            setup.tables += RETRY;
        }
        Field { daemon: Daemon::start(setup), sink }
    }

    /// Starts `senders` senders of relayed mail, one of mail to the mailbox, and one of mail that bounces.
    pub fn load(&self, senders: usize) -> Loads {
        let port = self.daemon.port;
        Loads {
            relayed: Load::start(senders, port, "b@sink.test"),
            delivered: Load::start(1, port, &format!("{USER}@local.test")),
            bounced: Load::start(1, port, "no@sink.test"),
        }
    }

    /// Waits until the queue is empty and compares. Between a failure and its notice, which are one commit, the
    /// queue counts neither. Missing messages therefore get some more time.
    pub fn judge(&self, promised: &Promised) -> Count {
        let mut tries = 0;
        loop {
            until("an empty queue", || (self.daemon.queued() == 0).then_some(()));
            let count = self.compare(promised);
            if count.lost.is_empty() || tries == 20 {
                return count;
            }
            tries += 1;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn compare(&self, promised: &Promised) -> Count {
        let mails = self.sink.mails();
        let notices = mails.iter().filter(|mail| mail.from.starts_with("FROM:<>"));
        let notices = notices.filter_map(|mail| between(mail.to.first()?, "TO:<", "@load.test>"));
        let relayed = mails.iter().filter(|mail| !mail.from.starts_with("FROM:<>"));
        let relayed = relayed.filter_map(|mail| between(&mail.text(), "Subject: ", ";"));
        let delivered = self.daemon.mailbox(USER);
        let delivered = delivered.iter().filter_map(|text| between(text, "Subject: ", ";"));
        let mut count = Count::default();
        count.add("relayed", &promised.relayed, relayed);
        count.add("delivered", &promised.delivered, delivered);
        count.add("bounced", &promised.bounced, notices);
        count
    }
}

impl Loads {
    /// Waits until `each` more messages were promised on each path.
    pub fn wait_for_more(&self, each: usize) {
        let loads = [&self.relayed, &self.delivered, &self.bounced];
        let before = loads.map(Load::promised);
        until("more promises", || {
            loads.iter().zip(before).all(|(load, was)| load.promised() >= was + each).then_some(())
        });
    }

    /// Ends the load and adds its promised messages.
    pub fn stop(self, promised: &mut Promised) {
        promised.relayed.extend(tokens(self.relayed));
        promised.delivered.extend(tokens(self.delivered));
        promised.bounced.extend(tokens(self.bounced));
    }
}

fn tokens(load: Load) -> impl Iterator<Item = String> {
    load.stop().into_iter().map(|token| token.trim_end_matches(';').to_string())
}

impl Count {
    fn add(&mut self, way: &str, promised: &BTreeSet<String>, came: impl Iterator<Item = String>) {
        let mut copies: BTreeMap<String, usize> = BTreeMap::new();
        came.for_each(|token| *copies.entry(token).or_default() += 1);
        self.promised += promised.len();
        let lost = promised.iter().filter(|token| !copies.contains_key(*token));
        self.lost.extend(lost.map(|token| format!("{way} {token}")));
        self.twice += copies.values().map(|count| count - 1).sum::<usize>();
    }
}

/// Refuses `no@` and accepts all other recipients.
pub fn script() -> Script {
    Script {
        rcpt: |argument| match argument.starts_with("TO:<no@") {
            true => "550 5.1.1 Nobody of this name".into(),
            false => "250 2.1.5 Ok".into(),
        },
        // A separate function, at which a test can stop the sending process.
        end: |_| format!("{TAKEN} 2.0.0 Taken"),
        ..Script::default()
    }
}

/// The sink's code for an accepted message.
pub const TAKEN: u64 = 259;

/// Returns the text between two texts.
pub fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found.to_string())
}
