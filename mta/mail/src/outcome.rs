//! What became of one recipient in one attempt, and who said so.
//!
//! Must never hold a byte of a peer that was not made harmless.

use crate::{Enhanced, Reply};
use serde::{Deserialize, Serialize};

/// The end of one attempt for one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum Outcome {
    /// The next hop or the mailbox has it. `relayed` says that the next hop offers no DSN, so a
    /// success notice is ours to send (RFC 3461 5.2.2).
    Delivered { report: Report, relayed: bool },
    /// To be tried again.
    Deferred(Report),
    /// Never to be tried again; bounces.
    Failed(Report),
}

impl Outcome {
    /// Who said what.
    pub fn report(&self) -> &Report {
        match self {
            Outcome::Delivered { report, .. } => report,
            Outcome::Deferred(report) | Outcome::Failed(report) => report,
        }
    }
}

/// The evidence for an outcome: what an operator wants to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    /// What the conversation had reached.
    pub stage: Stage,
    /// The peer's reply in full, or our own words with a fitting code where there was none.
    pub reply: Reply,
    /// `host[address]:port` of the peer, or the mailbox's path; empty where none was reached.
    pub peer: Box<str>,
    /// The reply is the peer's own; false: `reply` is our description of what went wrong.
    pub from_peer: bool,
}

impl Report {
    /// A mailbox here has had the message before, as the message says itself. Anybody can write that into
    /// a header, and anybody's address as the sender.
    pub fn is_loop_here(&self) -> bool {
        let looped = self.reply.enhanced == Some(Enhanced(5, 4, 6));
        looped && self.stage == Stage::Mailbox && !self.from_peer
    }
}

/// How far an attempt came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Finding the next hop's addresses.
    Resolve,
    /// Opening the connection.
    Connect,
    /// Waiting for 220.
    Greeting,
    /// EHLO, HELO or LHLO.
    Hello,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Rcpt,
    /// DATA or BDAT, before the last byte.
    Data,
    /// After the last byte: the peer may have it.
    End,
    /// A local mailbox.
    Mailbox,
    /// Our own decision: expiry, a route `error:`, too large for the next hop.
    Here,
}
