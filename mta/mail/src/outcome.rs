//! The outcome of one attempt for one recipient, with the evidence.
//!
//! Must never hold text of a peer that has not been sanitized.

use crate::{Enhanced, Reply};
use serde::{Deserialize, Serialize};

/// The outcome of one attempt for one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum Outcome {
    /// The next hop or the mailbox has accepted the message. `relayed` means that the next hop does not offer DSN, so
    /// we send the success notice (RFC 3461 5.2.2).
    Delivered { report: Report, relayed: bool },
    /// A temporary failure. The recipient is tried again.
    Deferred(Report),
    /// A permanent failure. The recipient bounces.
    Failed(Report),
}

impl Outcome {
    /// Returns the evidence.
    pub fn report(&self) -> &Report {
        match self {
            Outcome::Delivered { report, .. } => report,
            Outcome::Deferred(report) | Outcome::Failed(report) => report,
        }
    }
}

/// The evidence for an outcome, for operators and notices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    /// How far the attempt got.
    pub stage: Stage,
    /// The peer's complete reply. If there was none, our description with a suitable code.
    pub reply: Reply,
    /// `host[address]:port` of the peer, or the path of the mailbox; empty if none was reached.
    pub peer: Box<str>,
    /// Whether `reply` is the peer's own; otherwise it is our description of what went wrong.
    pub from_peer: bool,
}

impl Report {
    /// Returns whether the message looped: it says itself that this mailbox has had it before. Anybody can forge such a
    /// header, and the sender's address too.
    pub fn is_loop_here(&self) -> bool {
        let looped = self.reply.enhanced == Some(Enhanced(5, 4, 6));
        looped && self.stage == Stage::Mailbox && !self.from_peer
    }
}

/// How far an attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Looking up the next hop's addresses.
    Resolve,
    /// Opening the connection.
    Connect,
    /// Waiting for the greeting, 220.
    Greeting,
    /// EHLO, HELO or LHLO.
    Hello,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Rcpt,
    /// DATA or BDAT, before the last byte.
    Data,
    /// After the last byte: the peer may have accepted the message.
    End,
    /// Delivery to a local mailbox.
    Mailbox,
    /// Our own decision: expiry, a route with `error:`, a message too large for the next hop.
    Here,
}
