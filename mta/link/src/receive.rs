//! Receive and queue: bodies and envelopes in, promises out.
//!
//! Must never let a `250` be said without an answer of the queue process that fits an
//! outstanding transaction, and never send more than the queue process gave credit for.
//!
//! Over each new stream the receiving end asks what became of each transaction that was handed
//! over and not answered. Known: promised. Unknown: handed over again if it was small enough to be
//! kept whole, up to [`HAND_OVERS_MAX`] times, else refused (`451`). No answer in
//! [`ANSWER_WAIT`]: closed without a reply, as RFC 1047 has it.
//!
//! Credit: a session hands over only while credit is left, so that what is outstanding is never
//! more than the credit and one hand-over, however many sessions there are.

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

/// How long a transaction waits for a queue process that does not answer or is not there.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// What a transaction costs of the credit besides its bytes.
pub const TRANSACTION_COST_BYTES: u64 = 512;
/// How often one transaction is handed over: what ended the stream each time may be this message.
pub const HAND_OVERS_MAX: u8 = 3;
/// Upper bound on what one hand-over costs of the credit.
const HAND_OVER_COST_BYTES_MAX: u64 =
    (RECIPIENTS_BYTES_MAX + PIECE_BYTES_MAX) as u64 + TRANSACTION_COST_BYTES;
/// Staged bytes of one session that the queue process has not yet taken.
pub const SESSION_BYTES_MAX: u64 = 512 << 10;

/// Transactions that one receiving process may have open: as many as it may have connections. For
/// one that was taken over: each takes memory, and some cost no credit.
pub const TRANSACTIONS_MAX: usize = 1_000_000;
// The numbers of a question fit into one frame, with 10 bytes each.
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

/// How the memory of the sessions of one receiving process is, for the operator. Nothing depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMemory {
    /// Requests of clients refused for want of it since the process began.
    pub refused: u64,
    /// It is short.
    pub shortage: Option<MemoryShortage>,
}

/// How short the memory of sessions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryShortage {
    /// For how long.
    pub seconds: u64,
    /// Requests refused meanwhile.
    pub refused: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum ToReceiver {
    Welcome {
        build: u64,
        credit_bytes: u64,
    },
    /// `session` of the design is part of `number`: one number is one transaction of one session.
    Committed {
        number: u64,
        message: MessageId,
        checksum: u32,
    },
    Refused {
        number: u64,
        refusal: Refusal,
    },
    /// The answer to a question: it is durable.
    Known {
        number: u64,
        message: MessageId,
    },
    /// The answer to a question: it never became durable and never will.
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

/// What the end of a body costs of the credit: both ends count alike.
fn accept_cost(recipients: usize, last: usize) -> u64 {
    (recipients + last) as u64 + TRANSACTION_COST_BYTES
}

/// What the recipients of an envelope count for.
fn recipients_bytes(envelope: &Envelope) -> usize {
    envelope.recipients.iter().map(recipient_bytes).sum()
}
