//! The conversation between receive and queue: bodies and envelopes in, promises out.
//!
//! Must never allow a `250` without an answer of the queue process that fits an outstanding transaction, and never send
//! more than the queue process gave credit for.
//!
//! Over each new stream the receiving end asks about each transaction that it handed over and that has no answer:
//!
//! | answer | then |
//! |---|---|
//! | `Known` | the message is promised |
//! | `Unknown`, and the whole message is kept here | it is handed over again, up to [`HAND_OVERS_MAX`] times in all |
//! | `Unknown` otherwise | the message is refused (`451`) |
//! | none within [`ANSWER_WAIT`] | the connection is closed without a reply (RFC 1047) |
//!
//! A session hands over only while there is credit. The bytes that wait in the queue process therefore never exceed the
//! credit and one hand-over, for any number of sessions.

mod queue_end;
mod receiver_end;
#[cfg(test)]
mod tests;

use crate::bounds::{PIECE_BYTES_MAX, RECIPIENTS_BYTES_MAX, recipient_bytes};
use crate::frame;
use mail::{Envelope, MessageId, Refusal};
pub use queue_end::{QueueEnd, QueueEvent};
pub use receiver_end::{ReceiverEnd, ReceiverEvent};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a transaction waits while no queue process answers.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Credit that a transaction costs besides its bytes.
pub const TRANSACTION_COST_BYTES: u64 = 512;
/// Maximum number of times that a transaction is handed over: the message may be what ended the stream each time.
pub const HAND_OVERS_MAX: u8 = 3;
/// Upper bound on the credit that one hand-over costs.
const HAND_OVER_COST_BYTES_MAX: u64 =
    (RECIPIENTS_BYTES_MAX + PIECE_BYTES_MAX) as u64 + TRANSACTION_COST_BYTES;
/// Upper bound on the staged bytes of one session that the queue process has not taken.
pub const SESSION_BYTES_MAX: u64 = 512 << 10;

/// Maximum number of open transactions of a receiving process, as large as its maximum number of connections. It bounds
/// what a process can do that was taken over: each transaction takes memory, and some cost no credit.
pub const TRANSACTIONS_MAX: usize = 1_000_000;
// The numbers of a question take up to 10 bytes each and fit into one frame.
const _: () = assert!(TRANSACTIONS_MAX * 10 + 16 <= frame::FRAME_BYTES_MAX);

#[derive(Debug, Serialize, Deserialize)]
enum ToQueue {
    Hello {
        build: u64,
        incarnation: u64,
    },
    /// Tail: body bytes.
    Stage {
        number: u64,
    },
    /// Tail: the last body bytes.
    Accept {
        number: u64,
        checksum: u32,
        envelope: Box<Envelope>,
    },
    Unstage {
        number: u64,
    },
    Question {
        numbers: Vec<u64>,
    },
    Memory(SessionMemory),
}

/// Memory of the sessions of one receiving process, for the operator. Nothing depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMemory {
    /// Requests of clients refused for lack of memory since the process began.
    pub refused: u64,
    /// The shortage, if memory is short.
    pub shortage: Option<MemoryShortage>,
}

/// A shortage of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryShortage {
    /// Its duration.
    pub seconds: u64,
    /// Requests refused since it began.
    pub refused: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum ToReceiver {
    Welcome {
        build: u64,
        credit_bytes: u64,
    },
    /// The message is durable. `number` names one transaction of one session.
    Committed {
        number: u64,
        message: MessageId,
        checksum: u32,
    },
    Refused {
        number: u64,
        refusal: Refusal,
    },
    /// Answer to a question: the message is durable.
    Known {
        number: u64,
        message: MessageId,
    },
    /// Answer to a question: the message never became durable and never will.
    Unknown {
        number: u64,
    },
    Credit {
        bytes: u64,
    },
    Taken {
        number: u64,
        bytes: u64,
    },
}

/// Returns the credit that the end of a body costs. Both ends count with this function.
fn accept_cost(recipients: usize, last: usize) -> u64 {
    (recipients + last) as u64 + TRANSACTION_COST_BYTES
}

/// Returns the bytes that the recipients of an envelope are counted for.
fn recipients_bytes(envelope: &Envelope) -> usize {
    envelope.recipients.iter().map(recipient_bytes).sum()
}
