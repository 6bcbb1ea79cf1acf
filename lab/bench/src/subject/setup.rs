//! What a subject is asked to do, in the same terms for all of them.
//!
//! Must never hold a term that only one mailer understands.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What the subject does with the mail that it accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duty {
    /// Keep it queued: no delivery is tried during the run.
    Hold,
    /// Deliver it to the next hop at once.
    #[default]
    Relay,
    /// Deliver it into one mailbox file of the room's user.
    Mbox,
    /// Deliver it into that user's Maildir.
    Maildir,
    /// Promise it, then discard it at once.
    Discard,
}

impl Duty {
    /// Returns whether mail is delivered into a mailbox.
    pub fn is_local(self) -> bool {
        matches!(self, Duty::Mbox | Duty::Maildir)
    }
}

/// What the mailer logs, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Logging {
    /// Its default, on the disk of the queue.
    #[default]
    Full,
    /// As little as possible.
    None,
    /// As `Full`, on a disk of its own that is slow (`Site::log` lies there).
    Slow,
}

/// The setup of a subject for one cell. `Subject::refuses` says what a mailer does not support.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Setup {
    /// What the subject does with mail.
    pub duty: Duty,
    /// Recipients that may share a transaction to the next hop.
    pub recipients_per_transaction: u32,
    /// Queue directories; 0: the mailer's default.
    pub directories: u32,
    /// Disks over which they are spread (`Site::queue/disk0`, `disk1`, ... are mounted); 0: no disks of their own.
    pub disks: u32,
    /// What is logged.
    pub logging: Logging,
    /// The order of a queue run, by the mailer's own name; empty: its default.
    pub order: String,
    /// Processes or connections that empty the queue concurrently; 0: the mailer's default.
    pub runners: u32,
    /// Next hops of their own for some domains: see `routes`. All other mail goes to the one next hop.
    pub routes: Vec<String>,
    /// Whether its syncs are counted, by a tracer that stops it only there.
    pub count_syncs: bool,
    /// Milliseconds by which each of its syncs is delayed, as on a slower disk. They are counted, too.
    pub sync_delay_ms: f64,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            duty: Duty::Relay,
            recipients_per_transaction: 100,
            directories: 0,
            disks: 0,
            logging: Logging::Full,
            order: String::new(),
            runners: 0,
            routes: Vec::new(),
            count_syncs: false,
            sync_delay_ms: 0.0,
        }
    }
}

impl Setup {
    /// Why it cannot be had of a mailer that has only these of `directories`, `disks`, `order`, `runners`,
    /// `routes` and `discard`.
    pub fn beyond(&self, can: &[&str]) -> Option<String> {
        let asked = [
            ("directories", self.directories > 0, "a number of queue directories"),
            ("disks", self.disks > 0, "a way to spread its queue over several disks"),
            ("order", !self.order.is_empty(), "orders of a queue run"),
            ("runners", self.runners > 0, "a number of queue runners"),
            ("routes", !self.routes.is_empty(), "a next hop for each domain"),
            ("discard", self.duty == Duty::Discard, "mail that is thrown away"),
        ];
        let missing = asked.iter().find(|(name, asked, _)| *asked && !can.contains(name));
        missing.map(|(_, _, what)| format!("it has no setting for {what}"))
    }
}
