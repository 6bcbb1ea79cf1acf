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

/// Event for the queue process, from one receiving process.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum QueueEvent {
    /// Body bytes, in order.
    Stage { transaction: TransactionId, bytes: Bytes },
    /// The last body bytes, and the envelope. Answered with [`QueueEnd::committed`] or [`QueueEnd::refused`].
    Accept { transaction: TransactionId, envelope: Box<Envelope>, bytes: Bytes },
    /// Drops what was staged.
    Unstage { transaction: TransactionId },
    /// Asks what became of a transaction. Answered with [`QueueEnd::known`], [`QueueEnd::unknown`] or [`QueueEnd::asked`].
    Question { transaction: TransactionId },
}

#[derive(Debug, Default)]
struct Staged {
    cost: u64,
    checksum: u32,
    /// The end of the body has come.
    ended: bool,
}

/// The queue process's end of one stream.
#[derive(Debug)]
pub struct QueueEnd {
    pub(super) build: u64,
    incarnation: Option<u64>,
    /// All the credit of the other end.
    pub(super) credit_bytes: u64,
    /// Credit that is spent.
    pub(super) outstanding_bytes: u64,
    staged: BTreeMap<u64, Staged>,
    /// Transactions that were refused before their end. The rest of each is dropped.
    pub(super) dropped: HashSet<u64>,
    /// Transactions that the other end asked about while the spool commits them.
    asked: HashSet<u64>,
    memory: SessionMemory,
    output: VecDeque<Bytes>,
    events: VecDeque<QueueEvent>,
    /// Credit that [`QueueEnd::credit`] gives back.
    freed: u64,
}

impl QueueEnd {
    /// Creates the end of a new stream. `credit_bytes` bounds what the receiving process may have staged and unanswered.
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

    /// Takes the frames that have arrived.
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

    /// Refuses messages that an honest end never sends, whatever its clients do. After the end of a body nothing more may
    /// come for its transaction: a second end would be a second message with the same id.
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

    /// Counts bytes and returns the checksum so far. An honest end overdraws its credit by one hand-over at most.
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

    /// Returns credit for bytes of a body before its end that have gone to the log.
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

    /// Returns true if the transaction is of the process at the other end. A former incarnation used the same numbers.
    fn is_theirs(&self, transaction: TransactionId) -> bool {
        self.incarnation == Some(transaction.incarnation)
    }

    /// Defers the answer to a question until [`QueueEnd::committed`] or [`QueueEnd::refused`], although the message came
    /// over a former stream.
    pub fn asked(&mut self, transaction: TransactionId) {
        if self.is_theirs(transaction) {
            self.asked.insert(transaction.number);
        }
    }

    /// Tells that the message is durable. This spends the proof; the receiving end makes a new one.
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

    /// Answers a question: a former incarnation of the queue process made the message durable.
    pub fn known(&mut self, transaction: TransactionId, message: MessageId) {
        let known = ToReceiver::Known { number: transaction.number, message };
        self.output.push_back(frame::encode_short(&known));
    }

    /// Refuses a message. Drops its events that were not polled, and everything that still comes for it: a body that lacks
    /// a piece must never be accepted.
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

    /// Answers a question: the message never became durable and never will.
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

    /// Gives freed credit back. Called once after a group of answers.
    pub fn credit(&mut self) {
        let bytes = std::mem::take(&mut self.freed);
        if bytes > 0 {
            self.output.push_back(frame::encode_short(&ToReceiver::Credit { bytes }));
        }
    }

    /// Returns the transactions that are staged and have no answer. The queue process unstages them when the stream ends.
    pub fn outstanding(&self) -> impl Iterator<Item = TransactionId> + '_ {
        let incarnation = self.incarnation.unwrap_or_default();
        self.staged.keys().map(move |number| TransactionId { incarnation, number: *number })
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    /// Returns what the other end has told about the memory of its sessions.
    pub fn memory(&self) -> SessionMemory {
        self.memory
    }

    /// Returns the frames to write, in order.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }
}
