//! The conversation between queue and a sending process (send or local): attempts and bodies out, outcomes back.
//!
//! Must never lose an outcome when either end restarts. The sending end keeps each outcome until the queue end has recorded
//! it, and repeats it to a new queue process.
//!
//! A small body crosses once for each sending process, with the first attempt that needs it. Both ends count the attempts
//! without a recorded outcome, and the sending end drops the body when that number is zero. It fetches bodies above
//! [`INLINE_BYTES_MAX`] in chunks.

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

/// Largest body in bytes, with our own headers, that comes with its first attempt.
pub const INLINE_BYTES_MAX: u64 = 64 << 10;
/// Longest chunk of one fetch in bytes.
pub const CHUNK_BYTES_MAX: u32 = 256 << 10;
/// Maximum number of attempts that a sending process may report to be under way, including those with a result that is not
/// recorded. It bounds the work that a process can cause that was taken over.
pub const UNDER_WAY_MAX: usize = 1_000_000;
const _: () = assert!(INLINE_BYTES_MAX as usize <= PIECE_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_MAX as usize <= PIECE_BYTES_MAX);

/// One try of some recipients of one message at one next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Id, unique over all incarnations of the queue process.
    pub id: u64,
    /// Seal over the attempt, its message and recipients, and the process that it is given to. Queue believes a report that
    /// an attempt is under way only with this seal.
    pub seal: u64,
    /// Queue id of the message.
    pub message: MessageId,
    /// Next hop, and how much this process may do there at once.
    pub route: AttemptRoute,
    /// MAIL FROM.
    pub from: MailFrom,
    /// When the message arrived, and when this attempt became due.
    pub times: Times,
    /// Size of the message.
    pub body: BodySize,
    /// Recipients, each with its index in the envelope.
    pub recipients: Vec<(u32, Recipient)>,
}

/// Next hop of an attempt, with the limits for one sending process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRoute {
    /// The next hop.
    pub hop: NextHop,
    /// Upper bound on the connections of this process to this next hop.
    pub connections_max: u32,
    /// Upper bound on the messages of one connection.
    pub messages_per_connection_max: u32,
}

/// Times of a message before an attempt, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When the last byte of the message was received.
    pub arrived: Timestamp,
    /// When this attempt became due: the end of the station `schedule`.
    pub due: Timestamp,
}

/// Size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodySize {
    /// Size of our own headers and the sender's bytes together.
    pub bytes: u64,
    /// Size of our own headers, which come first.
    pub prefix_bytes: u32,
}

#[cfg(any(test, feature = "testing"))]
impl Attempt {
    /// Makes an attempt for tests: a message of three octets from the null sender to these recipients. The message has the
    /// id of the attempt.
    pub fn sample(id: u64, recipients: &[&str]) -> Attempt {
        let recipient = |address: &&str| {
            let address = mail::Address::parse(address, false).expect("the test gives an address");
            Recipient { address, notify: mail::Notify::DEFAULT, orcpt: None }
        };
        Attempt {
            id,
            seal: 0,
            message: MessageId(id),
            route: AttemptRoute {
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

/// Outcomes of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Result {
    /// Id of the attempt.
    pub attempt: u64,
    /// Queue id of its message.
    pub message: MessageId,
    /// An outcome for each recipient of the attempt, with the recipient's index.
    pub outcomes: Vec<(u32, Outcome)>,
}

/// Attempt that a sending process has under way, as it reports it to a new queue process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// Id of the attempt, as the former queue process gave it.
    pub attempt: u64,
    /// Seal that came with the attempt.
    pub seal: u64,
    /// Queue id of the message.
    pub message: MessageId,
    /// Indices of the recipients.
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
    /// All attempts that are under way have been reported.
    AllTold,
    Result(Result),
    Fetch {
        attempt: u64,
        message: MessageId,
        offset: u64,
        bytes: u32,
    },
    /// The sending process takes no more attempts, and ends when the attempts that it has begun have ended.
    Drains,
}
