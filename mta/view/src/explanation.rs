//! One message in full: what each of its recipients waits for.
//!
//! Must never hold a byte of the message's content.

use mail::{MessageId, NextHop, Report, Timestamp};
use serde::{Deserialize, Serialize};

/// One queued message and a page of its unfinished recipients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Queue id of the message.
    pub message: MessageId,
    /// Address given to MAIL FROM; empty for the null sender.
    pub sender: String,
    /// Time at which the message arrived.
    pub arrived: Timestamp,
    /// Size in bytes. Sizes of 4 GiB and more are shown as 4 GiB.
    pub bytes: u64,
    /// Priority from -100 (last) to 100 (first).
    pub priority: i8,
    /// Holder of the message, if it is held.
    pub held: Option<HeldBy>,
    /// Time at which delivery is given up; `None` while the message is held.
    pub expires: Option<Timestamp>,
    /// Recipients that are not finished, in the order of their indexes.
    pub recipients: Vec<WaitingRecipient>,
    /// Index of the first recipient of the next page; `None` on the last page.
    pub recipient_next: Option<u32>,
}

/// One recipient and what it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingRecipient {
    /// Index in the envelope.
    pub recipient: u32,
    /// Address given to RCPT TO.
    pub address: String,
    /// Next hop of the recipient's mail.
    pub hop: NextHop,
    /// Gate at which the recipient waits.
    pub gate: Gate,
    /// Time since which the recipient has waited at this gate, to the second.
    pub since: Timestamp,
    /// Number of attempts so far.
    pub attempts: u16,
    /// Last reply in full.
    pub last: Option<Report>,
    /// Time of the next attempt, if it is known.
    pub next_try: Option<Timestamp>,
}

/// Condition that keeps a recipient from being tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Gate {
    /// The message is held.
    Held(HeldBy),
    /// An attempt is in flight.
    InFlight,
    /// The retry schedule, until this time.
    RetryAt(Timestamp),
    /// The destination was unreachable several times in a row and is only probed from time to time.
    DestinationBackoff {
        /// Time of the next probe.
        until: Timestamp,
        /// Number of consecutive failures to reach the destination.
        failures: u16,
        /// Report of the last failure to reach the destination.
        last: Option<Report>,
    },
    /// All attempts that the destination may have at once are in flight.
    DestinationConcurrency {
        /// Attempts in flight to the destination.
        in_flight: u32,
        /// Attempts that the destination may have at once now.
        allowed: u32,
        /// Upper bound on `allowed`, from the settings.
        connections: u32,
    },
    /// The destination's rate limit, until this time.
    RateLimit(Timestamp),
    /// All attempts that the settings allow at once are in flight.
    ProcessLimit {
        /// The limit that has been reached.
        attempts_in_flight_max: u32,
    },
    /// The message was lost with its process before, and another such message is in flight. They are tried one at a
    /// time.
    Suspect,
    /// Its turn among messages, senders and destinations.
    FairShare {
        /// Number of ready messages for the same destination, including this one.
        ready: u32,
    },
    /// A route `error` or `discard`, which the scheduler is about to carry out.
    Route,
}

/// Reason why a message is held. The spool stores the discriminants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum HeldBy {
    /// The policy held the message when it arrived.
    Policy = 1,
    /// An operator ran `queue hold`.
    Operator = 2,
    /// Attempts were lost too often in a row: the message probably kills the process that carries it.
    Losses = 3,
    /// The route of the recipient is `hold`.
    Route = 4,
}

impl HeldBy {
    /// Returns the value with this discriminant.
    pub fn from_u8(code: u8) -> Option<HeldBy> {
        [HeldBy::Policy, HeldBy::Operator, HeldBy::Losses, HeldBy::Route]
            .into_iter()
            .find(|held| *held as u8 == code)
    }
}
