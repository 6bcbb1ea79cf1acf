//! Queue and a sending process (send or local): attempts and bodies out, outcomes back.
//!
//! Must never let an outcome be lost by the restart of either end: the sending end keeps each
//! until the queue end says that it is recorded, and says it again to a new queue process.
//!
//! A body crosses once for each sending process: it comes with the first attempt that needs it
//! and both ends keep the same count of unacknowledged attempts; the sending end may drop it
//! when that is zero. Bodies over [`INLINE_BYTES_MAX`] are fetched in chunks instead.

mod bounded;
mod queue_end;
mod sender_end;
#[cfg(test)]
mod tests;

use crate::bounds::PIECE_BYTES_MAX;
use mail::{MailFrom, MessageId, NextHop, Outcome, Recipient, Timestamp};
pub use queue_end::{QueueEnd, QueueEvent};
pub use sender_end::{SenderEnd, SenderEvent};
use serde::{Deserialize, Serialize};

/// Largest body (with our own headers) in bytes that comes along with its first attempt.
pub const INLINE_BYTES_MAX: u64 = 64 << 10;
/// Longest chunk in bytes that may be fetched at once.
pub const CHUNK_BYTES_MAX: u32 = 256 << 10;
/// Attempts that a sending process may say it has under way, those with a result that is not
/// recorded included. For a process that was taken over: each costs a look.
pub const UNDER_WAY_MAX: usize = 1_000_000;
const _: () = assert!(INLINE_BYTES_MAX as usize <= PIECE_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_MAX as usize <= PIECE_BYTES_MAX);

/// One try of some recipients of one message at one next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Unique over all incarnations of the queue process.
    pub id: u64,
    /// Seals the attempt, its message and recipients for the process that it is given to: what
    /// that process says to be under way is believed by this alone.
    pub seal: u64,
    /// The message.
    pub message: MessageId,
    /// The next hop, and how much this process may do there at once.
    pub route: Route,
    /// MAIL FROM.
    pub from: MailFrom,
    /// When the message came, and when this attempt became due.
    pub times: Times,
    /// The size of the message.
    pub body: BodySize,
    /// The index in the envelope and the recipient.
    pub recipients: Vec<(u32, Recipient)>,
}

/// The next hop of an attempt, with its limits for one sending process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The next hop.
    pub hop: NextHop,
    /// Upper bound on the connections of this process to this next hop.
    pub connections_max: u32,
    /// Upper bound on the messages of one connection.
    pub messages_per_connection_max: u32,
}

/// What happened to a message before an attempt, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When the last byte of the message was received.
    pub arrived: Timestamp,
    /// When this attempt became due: the end of the station `schedule`.
    pub due: Timestamp,
}

/// The size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodySize {
    /// Our own headers and the sender's bytes together.
    pub bytes: u64,
    /// Our own headers, which come first.
    pub prefix_bytes: u32,
}

#[cfg(any(test, feature = "testing"))]
impl Attempt {
    /// An attempt for tests: these recipients of a message of three octets from the null sender,
    /// whose id is that of the attempt.
    pub fn sample(id: u64, recipients: &[&str]) -> Attempt {
        let recipient = |address: &&str| {
            let address = mail::Address::parse(address, false).expect("the test gives an address");
            Recipient { address, notify: mail::Notify::DEFAULT, orcpt: None }
        };
        Attempt {
            id,
            seal: 0,
            message: MessageId(id),
            route: Route {
                hop: NextHop::Local,
                connections_max: 1,
                messages_per_connection_max: 1,
            },
            from: MailFrom::new(mail::ReversePath::Null),
            times: Times::default(),
            body: BodySize { bytes: 3, prefix_bytes: 0 },
            recipients: (0..).zip(recipients.iter().map(recipient)).collect(),
        }
    }
}

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Result {
    /// The attempt.
    pub attempt: u64,
    /// Its message.
    pub message: MessageId,
    /// One for each recipient of the attempt.
    pub outcomes: Vec<(u32, Outcome)>,
}

/// An attempt that a sending process has under way, told to a new queue process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// The attempt's id in the former incarnation.
    pub attempt: u64,
    /// As it came with the attempt.
    pub seal: u64,
    /// The message.
    pub message: MessageId,
    /// Indices.
    pub recipients: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
enum ToSender {
    Welcome {
        build: u64,
    },
    /// Tail: the body, if `inline`.
    Attempt {
        attempt: Box<Attempt>,
        inline: bool,
    },
    /// Tail: the bytes.
    Chunk {
        attempt: u64,
        offset: u64,
    },
    ChunkBad {
        attempt: u64,
    },
    Recorded {
        attempts: Vec<u64>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum ToQueue {
    Hello {
        build: u64,
        incarnation: u64,
        capacity: u32,
    },
    /// After `Hello`: an attempt that is under way, the latest first.
    UnderWay(UnderWay),
    /// Nothing else is under way.
    AllTold,
    Result(Result),
    Fetch {
        attempt: u64,
        message: MessageId,
        offset: u64,
        bytes: u32,
    },
    /// It takes no more attempts, and ends when those that it has begun have ended.
    Drains,
}
