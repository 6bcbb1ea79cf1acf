//! What a subject is asked to do, the same words for all of them.
//!
//! Must never hold what only one mailer understands.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What becomes of the mail that a subject takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duty {
    /// It stays queued: no delivery is tried while it is looked at.
    Hold,
    /// It goes on to the next hop at once.
    #[default]
    Relay,
    /// Into one mailbox file of a user of the room.
    Mbox,
    /// Into that user's Maildir.
    Maildir,
    /// It is promised, then thrown away at once.
    Discard,
}

impl Duty {
    /// Whether mail ends in a mailbox here.
    pub fn is_local(self) -> bool {
        matches!(self, Duty::Mbox | Duty::Maildir)
    }
}

/// What is logged, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Logging {
    /// What the mailer logs as it comes, on the disk of the queue.
    #[default]
    Full,
    /// As little as it can be made to log.
    None,
    /// As `Full`, on a disk of its own that is slow (`Site::log` lies there).
    Slow,
}

/// How a subject is set up for one cell. What it cannot do it says in `Subject::refuses`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Setup {
    /// What becomes of the mail.
    pub duty: Duty,
    /// Recipients that may share a transaction to the next hop.
    pub recipients_per_transaction: u32,
    /// Queue directories; 0: as the mailer comes.
    pub directories: u32,
    /// Disks over which they are spread (`Site::queue/disk0`, `disk1`, ... are mounted); 0: no disks of their own.
    pub disks: u32,
    /// What is logged.
    pub logging: Logging,
    /// The order of a queue run, in the mailer's own word; empty: as it comes.
    pub order: String,
    /// Processes or connections that empty the queue at once; 0: as it comes.
    pub runners: u32,
    /// Next hops of their own for some domains: see `routes`. All other mail goes to the one next hop.
    pub routes: Vec<String>,
    /// Whether its syncs are counted, by a tracer that stops it at those alone.
    pub count_syncs: bool,
    /// So much longer each of its syncs takes, in milliseconds: a slower disk. They are counted, too.
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
