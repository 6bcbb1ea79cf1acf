//! The answer to one request of a client, and the reasons why a message is not kept.
//!
//! Must never have two replies for one refusal.

use crate::{Enhanced, Reply};
use serde::{Deserialize, Serialize};

/// The answer to one request of a client: its greeting, sender, recipient or body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is granted.
    Accept,
    /// Refused for now. The reply is 4yz.
    Defer(Reply),
    /// Refused for good. The reply is 5yz.
    Reject(Reply),
}

impl Verdict {
    /// The reply of a refusal.
    pub fn reply(&self) -> Option<&Reply> {
        match self {
            Verdict::Accept => None,
            Verdict::Defer(reply) | Verdict::Reject(reply) => Some(reply),
        }
    }
}

/// Why a message is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// There is no room on the disk or in memory.
    #[error("no room in the spool")]
    Full,
    /// More bytes are staged than the settings allow: the disk does not keep up.
    #[error("the spool is busy")]
    Busy,
    /// The disk failed, or the queue process ended before the message was complete or cannot be reached.
    #[error("the spool's disk or the queue process failed")]
    Broken,
    /// The message is larger than the spool can store at all.
    #[error("message too large for the spool")]
    TooLarge,
}

impl Refusal {
    /// What the client is told.
    pub fn reply(self) -> Reply {
        match self {
            Refusal::Full | Refusal::Busy => {
                Reply::new(452, Enhanced(4, 3, 1), "Insufficient system storage")
            }
            Refusal::Broken => Reply::new(451, Enhanced(4, 3, 0), "Queue trouble, try again later"),
            Refusal::TooLarge => {
                Reply::new(552, Enhanced(5, 3, 4), "Message too big for this system")
            }
        }
    }
}

/// A refusal is temporary or permanent as its reply says.
impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Verdict {
        let reply = refusal.reply();
        if reply.is_permanent() { Verdict::Reject(reply) } else { Verdict::Defer(reply) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_reply_that_says_whether_to_come_back() {
        let codes = |refusal: Refusal| (refusal.reply().code, refusal.reply().enhanced);
        assert_eq!(codes(Refusal::Full), (452, Some(Enhanced(4, 3, 1))));
        assert_eq!(codes(Refusal::Busy), codes(Refusal::Full));
        assert_eq!(codes(Refusal::Broken), (451, Some(Enhanced(4, 3, 0))));
        assert_eq!(codes(Refusal::TooLarge), (552, Some(Enhanced(5, 3, 4))));
        assert!(matches!(Verdict::from(Refusal::Broken), Verdict::Defer(_)));
        assert!(matches!(Verdict::from(Refusal::TooLarge), Verdict::Reject(_)));
    }
}
