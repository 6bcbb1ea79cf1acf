//! An attempt from its arrival to its outcome.
//!
//! Must never lose the indices of its recipients: queue identifies a recipient by its index.

use bytes::Bytes;
use link::send::{Attempt, BodySize, Times};
use mail::{MessageId, NextHop, Now, Outcome};
use smtp::client::OutboundMessage;

/// An attempt without an outcome. Its sender and recipients are in the client's message.
#[derive(Debug)]
pub struct OpenAttempt {
    /// Id from the queue process.
    pub id: u64,
    /// Queue id of the message.
    pub message: MessageId,
    /// When the message arrived, and when the attempt became due.
    pub times: Times,
    /// Size of the message.
    pub body: BodySize,
    /// Time at which the attempt came from the queue process.
    pub taken: Now,
    /// Indices of the recipients in the envelope.
    pub(crate) indices: Vec<u32>,
    pub(crate) connections_max: u32,
    pub(crate) messages_per_connection_max: u32,
}

/// An attempt that no connection has begun.
#[derive(Debug)]
pub(crate) struct WaitingAttempt {
    pub attempt: OpenAttempt,
    pub message: Box<OutboundMessage>,
}

impl WaitingAttempt {
    /// Splits an attempt of the queue process into the next hop and the rest.
    pub fn new(attempt: Attempt, content: Option<Bytes>, taken: Now) -> (NextHop, WaitingAttempt) {
        let Attempt { id, message, route, from, times, body, recipients, .. } = attempt;
        let (indices, recipients) = recipients.into_iter().unzip();
        let attempt = OpenAttempt {
            id,
            message,
            times,
            body,
            taken,
            indices,
            connections_max: route.connections_max.max(1),
            messages_per_connection_max: route.messages_per_connection_max.max(1),
        };
        let message = OutboundMessage { from, recipients, body_bytes: body.bytes, content };
        (route.hop, WaitingAttempt { attempt, message: Box::new(message) })
    }
}

/// An attempt that has ended, for the log. Its result is on its way to the queue process.
#[derive(Debug)]
pub struct EndedAttempt {
    /// The attempt.
    pub attempt: OpenAttempt,
    /// Its sender and recipients.
    pub message: Box<OutboundMessage>,
    /// The index in the envelope and the outcome of each recipient, in the order of the message.
    pub outcomes: Vec<(u32, Outcome)>,
    /// Time at which a connection took the message.
    pub begun: Now,
    /// Time at which the outcome was known.
    pub ended: Now,
}
