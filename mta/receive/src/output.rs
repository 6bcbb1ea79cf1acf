//! Outputs of the machines: what their driver must do.
//!
//! Must never hold more than the driver or the log needs.

use crate::ClientId;
use mail::{Address, MessageId, Reply, ReversePath};
use policy::Short;
use std::time::Duration;

/// What a [`Gateway`](crate::Gateway) asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Poll this client.
    Wake(ClientId),
    /// Poll every client.
    WakeAll,
    /// Log: no queue process has answered for this long.
    QueueAbsent(Duration),
    /// Log: the memory of sessions is short.
    MemoryShort(Short),
}

/// What a [`InboundSession`](crate::InboundSession) asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionOutput {
    /// Log: this recipient was refused. The sender is [`InboundSession::sender`](crate::InboundSession::sender).
    RecipientRefused {
        /// The recipient that the client named.
        recipient: Address,
        /// The reply.
        reply: Reply,
    },
    /// Log: the number of refused recipients that have no line of their own.
    RecipientsRefused(u64),
    /// Log: the message has been delivered to its recipient before, and was refused.
    LoopRefused {
        /// Its sender.
        sender: ReversePath,
        /// The reply.
        reply: Reply,
    },
    /// The message was handed over to the queue process, and its client waits.
    HandedOver,
    /// Log: the message is kept. The `250` is in [`InboundSession::transmit`](crate::InboundSession::transmit).
    Promised(Promised),
    /// Log: the queue process refused the message.
    Refused {
        /// Its sender.
        sender: ReversePath,
        /// The reply.
        reply: Reply,
    },
    /// Log: it is unknown whether the message is durable. The connection closes without a reply (RFC 1047).
    Abandoned {
        /// Its sender.
        sender: ReversePath,
    },
    /// Close our side for writing, and go on reading.
    CloseWrite,
    /// Close the connection. Comes last.
    Close,
}

/// A message that is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Promised {
    /// Its queue id.
    pub message: MessageId,
    /// Its sender.
    pub sender: ReversePath,
    /// Octets of the message as its client sent it.
    pub bytes: u64,
    /// The number of its recipients.
    pub recipients: usize,
    /// The time from the hand-over to the answer.
    pub commit_time: Duration,
}
