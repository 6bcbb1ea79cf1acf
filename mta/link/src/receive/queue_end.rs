//! The queue process's end: bodies and envelopes come in, answers go out.
//!
//! Must never accept a body that lacks a piece, and never hold more than the credit and one hand-over.

use super::{
    HAND_OVER_COST_BYTES_MAX, SessionMemory, TRANSACTIONS_MAX, ToQueue, ToReceiver, accept_cost,
    recipients_bytes,
};
use crate::bounds::PIECE_BYTES_MAX;
use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::{Durable, Envelope, MessageId, Refusal, TransactionId};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// What the queue process is told by one receiving process.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum QueueEvent {
    /// Body bytes, in order.
    Stage { transaction: TransactionId, bytes: Bytes },
    /// The last body bytes, and the envelope. To be answered with [`QueueEnd::committed`] or
    /// [`QueueEnd::refused`].
    Accept { transaction: TransactionId, envelope: Box<Envelope>, bytes: Bytes },
    /// Forget what was staged.
    Unstage { transaction: TransactionId },
    /// What became of it? To be answered with [`QueueEnd::known`] or [`QueueEnd::unknown`].
    Question { transaction: TransactionId },
}

#[derive(Debug, Default)]
struct Staged {
    cost: u64,
    checksum: u32,
    /// Its end has come too.
    ended: bool,
}

/// The queue process's end; made anew for each stream.
#[derive(Debug)]
pub struct QueueEnd {
    pub(super) build: u64,
    incarnation: Option<u64>,
    /// All the credit there is.
    pub(super) credit_bytes: u64,
    /// Bytes staged and not given back.
    pub(super) outstanding_bytes: u64,
    staged: BTreeMap<u64, Staged>,
    /// Refused before their end: what still comes of them is dropped, up to the end.
    pub(super) dropped: HashSet<u64>,
    /// Asked about while they are with the spool.
    asked: HashSet<u64>,
    memory: SessionMemory,
    output: VecDeque<Bytes>,
    events: VecDeque<QueueEvent>,
    /// Credit to be given back with the next answer.
    freed: u64,
}

impl QueueEnd {
    /// `credit_bytes` is all that the receiver may have staged and unanswered at once.
    pub fn new(build: u64, credit_bytes: u64) -> Self {
        QueueEnd {
            build,
            incarnation: None,
            credit_bytes,
            outstanding_bytes: 0,
            staged: BTreeMap::new(),
            dropped: HashSet::new(),
            asked: HashSet::new(),
            memory: SessionMemory::default(),
            output: VecDeque::new(),
            events: VecDeque::new(),
            freed: 0,
        }
    }

    /// Takes what has arrived.
    pub fn handle(&mut self, input: &mut BytesMut) -> Result<(), LinkError> {
        while let Some((message, tail)) = frame::decode::<ToQueue>(input)? {
            let Some(incarnation) = self.incarnation else {
                self.greet(message)?;
                continue;
            };
            self.take(incarnation, message, tail)?;
        }
        Ok(())
    }

    fn greet(&mut self, message: ToQueue) -> Result<(), LinkError> {
        match message {
            ToQueue::Hello { build, .. } if build != self.build => Err(LinkError::WrongBuild),
            ToQueue::Hello { incarnation, .. } => {
                self.incarnation = Some(incarnation);
                let (build, credit_bytes) = (self.build, self.credit_bytes);
                let welcome = ToReceiver::Welcome { build, credit_bytes };
                self.output.push_back(frame::encode_short(&welcome));
                Ok(())
            }
            _ => Err(LinkError::NotAccepted),
        }
    }

    fn take(&mut self, incarnation: u64, message: ToQueue, bytes: Bytes) -> Result<(), LinkError> {
        self.judge(&message, bytes.len())?;
        match message {
            ToQueue::Hello { .. } => return Err(LinkError::NotAccepted),
            ToQueue::Stage { number } if self.dropped.contains(&number) => {
                self.drop_bytes(bytes.len() as u64);
            }
            ToQueue::Accept { number, envelope, .. } if self.dropped.remove(&number) => {
                self.drop_bytes(accept_cost(recipients_bytes(&envelope), bytes.len()));
            }
            ToQueue::Unstage { number } if self.dropped.remove(&number) => {}
            ToQueue::Stage { number } => {
                self.stage(number, &bytes, bytes.len() as u64)?;
                let transaction = TransactionId { incarnation, number };
                self.events.push_back(QueueEvent::Stage { transaction, bytes });
            }
            ToQueue::Accept { number, checksum, envelope } => {
                let cost = accept_cost(recipients_bytes(&envelope), bytes.len());
                let found = self.stage(number, &bytes, cost)?;
                if found != checksum {
                    return Err(LinkError::Garbage);
                }
                self.staged.entry(number).or_default().ended = true;
                let transaction = TransactionId { incarnation, number };
                self.events.push_back(QueueEvent::Accept { transaction, envelope, bytes });
            }
            ToQueue::Unstage { number } => {
                self.free(number);
                self.credit();
                let transaction = TransactionId { incarnation, number };
                self.events.push_back(QueueEvent::Unstage { transaction });
            }
            ToQueue::Question { numbers } => {
                let questions = numbers.into_iter().map(|number| QueueEvent::Question {
                    transaction: TransactionId { incarnation, number },
                });
                self.events.extend(questions);
            }
            ToQueue::Memory(memory) => self.memory = memory,
        }
        Ok(())
    }

    /// What an honest end never says, whatever its clients do. After the end of a body nothing comes
    /// of its transaction but the answer: a second end would be a second message under one name.
    fn judge(&self, message: &ToQueue, bytes: usize) -> Result<(), LinkError> {
        let ended = |number: &u64| self.staged.get(number).is_some_and(|staged| staged.ended);
        let fits = match message {
            ToQueue::Stage { number } => {
                let room = self.staged.len() + self.dropped.len() < TRANSACTIONS_MAX;
                bytes > 0 && bytes <= PIECE_BYTES_MAX && room && !ended(number)
            }
            ToQueue::Accept { number, envelope, .. } => {
                let cost = accept_cost(recipients_bytes(envelope), bytes);
                let fits = cost <= HAND_OVER_COST_BYTES_MAX;
                fits && !ended(number) && envelope.is_sound()
            }
            ToQueue::Unstage { number } => !ended(number),
            ToQueue::Question { numbers } => numbers.len() <= TRANSACTIONS_MAX,
            ToQueue::Hello { .. } | ToQueue::Memory(_) => true,
        };
        if fits { Ok(()) } else { Err(LinkError::NotAccepted) }
    }

    /// The other end overdraws by one hand-over at most; more is a broken peer.
    fn stage(&mut self, number: u64, bytes: &[u8], cost: u64) -> Result<u32, LinkError> {
        let staged = self.staged.entry(number).or_default();
        staged.cost += cost;
        staged.checksum = crc32c::crc32c_append(staged.checksum, bytes);
        let checksum = staged.checksum;
        self.outstanding_bytes += cost;
        if self.outstanding_bytes > self.credit_bytes + HAND_OVER_COST_BYTES_MAX {
            return Err(LinkError::OverCredit);
        }
        Ok(checksum)
    }

    /// Bytes of a body that is not yet at its end have gone to the log: the session may go on.
    pub fn taken(&mut self, transaction: TransactionId, bytes: u64) {
        let number = transaction.number;
        if !self.is_theirs(transaction) {
            return;
        }
        let Some(staged) = self.staged.get_mut(&number) else { return };
        let bytes = bytes.min(staged.cost);
        staged.cost -= bytes;
        self.outstanding_bytes -= bytes;
        self.output.push_back(frame::encode_short(&ToReceiver::Taken { number, bytes }));
    }

    /// Whether it is the other end's own, and not one of a former incarnation, whose numbers are used
    /// again.
    fn is_theirs(&self, transaction: TransactionId) -> bool {
        self.incarnation == Some(transaction.incarnation)
    }

    /// A question that cannot be answered yet: [`QueueEnd::committed`] or [`QueueEnd::refused`]
    /// will, although the message came over a former stream.
    pub fn asked(&mut self, transaction: TransactionId) {
        if self.is_theirs(transaction) {
            self.asked.insert(transaction.number);
        }
    }

    /// The message is durable. The proof is spent here and made anew by the receiving end.
    pub fn committed(&mut self, durable: Durable) {
        let (number, message) = (durable.transaction().number, durable.message());
        if !self.is_theirs(durable.transaction()) {
            return;
        }
        if self.asked.remove(&number) {
            return self.known(durable.transaction(), message);
        }
        let Some(staged) = self.staged.get(&number) else { return };
        let checksum = staged.checksum;
        self.free(number);
        let committed = ToReceiver::Committed { number, message, checksum };
        self.output.push_back(frame::encode_short(&committed));
    }

    /// The answer to a question: a former incarnation of ours made it durable.
    pub fn known(&mut self, transaction: TransactionId, message: MessageId) {
        let known = ToReceiver::Known { number: transaction.number, message };
        self.output.push_back(frame::encode_short(&known));
    }

    /// The message was not taken. What has come of it and was not polled yet is dropped, and what
    /// still comes of it as well: a body that lacks a piece must never be accepted.
    pub fn refused(&mut self, transaction: TransactionId, refusal: Refusal) {
        let number = transaction.number;
        if !self.is_theirs(transaction) {
            return;
        }
        self.asked.remove(&number);
        let ended = self.staged.get(&number).is_none_or(|staged| staged.ended);
        let unstaged = QueueEvent::Unstage { transaction };
        if !ended && !self.events.contains(&unstaged) {
            self.dropped.insert(number);
        }
        self.events.retain(|event| match event {
            QueueEvent::Stage { transaction: of, .. }
            | QueueEvent::Accept { transaction: of, .. } => *of != transaction,
            QueueEvent::Unstage { .. } | QueueEvent::Question { .. } => true,
        });
        self.free(number);
        self.output.push_back(frame::encode_short(&ToReceiver::Refused { number, refusal }));
    }

    /// Nothing is known of it: it never became durable and never will.
    pub fn unknown(&mut self, transaction: TransactionId) {
        let unknown = ToReceiver::Unknown { number: transaction.number };
        self.output.push_back(frame::encode_short(&unknown));
    }

    fn drop_bytes(&mut self, bytes: u64) {
        self.freed += bytes;
        self.credit();
    }

    fn free(&mut self, number: u64) {
        if let Some(staged) = self.staged.remove(&number) {
            self.outstanding_bytes -= staged.cost;
            self.freed += staged.cost;
        }
    }

    /// Gives freed credit back; called once after a group of answers.
    pub fn credit(&mut self) {
        let bytes = std::mem::take(&mut self.freed);
        if bytes > 0 {
            self.output.push_back(frame::encode_short(&ToReceiver::Credit { bytes }));
        }
    }

    /// Transactions that are staged without an answer: to be unstaged when the stream ends.
    pub fn outstanding(&self) -> impl Iterator<Item = TransactionId> + '_ {
        let incarnation = self.incarnation.unwrap_or_default();
        self.staged.keys().map(move |number| TransactionId { incarnation, number: *number })
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    /// What the other end has told of the memory of its sessions.
    pub fn memory(&self) -> SessionMemory {
        self.memory
    }

    /// Frames to be written, in order.
    pub fn output(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }
}
