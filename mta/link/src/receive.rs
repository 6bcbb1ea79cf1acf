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

use crate::bounds::{PIECE_BYTES_MAX, RECIPIENTS_BYTES_MAX, recipient_bytes};
use crate::recipients::Recipients;
use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::{Durable, Envelope, Instant, MessageId, Refusal, TransactionId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet, VecDeque};
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
        origin: u64,
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

/// What the receiving process is told.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum ReceiverEvent {
    /// Say `250`.
    Promised { number: u64, durable: Durable },
    /// Say why not.
    Refused { number: u64, refusal: Refusal },
    /// Close without a reply (RFC 1047): nobody knows what became of it.
    Abandoned { number: u64 },
    /// Sessions that waited for credit may go on.
    Credit,
}

#[derive(Debug, Default)]
struct Transaction {
    /// Checksum of the body so far.
    checksum: u32,
    /// Bytes that hold credit.
    cost: u64,
    /// Staged bytes that the queue process has not taken.
    untaken: u64,
    /// How often it was handed over; not 0: it waits for the answer.
    hand_overs: u8,
    /// Something was staged in a life of the queue process that is over, or was refused.
    broken: bool,
    /// Refused before its end: the client hears it there, and nothing more is handed over.
    refused: Option<Refusal>,
    /// The whole of it, to be handed over again.
    whole: Option<Bytes>,
}

impl Transaction {
    fn is_handed_over(&self) -> bool {
        self.hand_overs > 0
    }
}

/// What the end of a body costs of the credit: both ends count alike.
fn accept_cost(recipients: usize, last: usize) -> u64 {
    (recipients + last) as u64 + TRANSACTION_COST_BYTES
}

/// What the recipients of an envelope count for.
fn recipients_bytes(envelope: &Envelope) -> usize {
    envelope.recipients.iter().map(recipient_bytes).sum()
}

/// The receiving process's end.
#[derive(Debug)]
pub struct ReceiverEnd {
    build: u64,
    origin: u64,
    connected: bool,
    welcomed: bool,
    /// Below zero by at most what one hand-over costs.
    credit: i64,
    /// Credit that was given in all over this stream; bytes that were held when the last one ended.
    given: u64,
    held_before: u64,
    held_bytes_max: u64,
    waiting_for_credit: bool,
    /// To be handed over again, as credit allows, before anything new.
    again: VecDeque<u64>,
    /// Since when there has been no queue process that answers.
    answer_by: Option<Instant>,
    /// What this queue process was told of the memory of sessions.
    memory: SessionMemory,
    transactions: BTreeMap<u64, Transaction>,
    output: VecDeque<Bytes>,
    events: VecDeque<ReceiverEvent>,
}

impl ReceiverEnd {
    /// `origin` is drawn at random at the start of the process.
    pub fn new(build: u64, origin: u64) -> Self {
        ReceiverEnd {
            build,
            origin,
            connected: false,
            welcomed: false,
            credit: 0,
            given: 0,
            held_before: 0,
            held_bytes_max: u64::MAX,
            waiting_for_credit: false,
            again: VecDeque::new(),
            answer_by: None,
            memory: SessionMemory::default(),
            transactions: BTreeMap::new(),
            output: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The name of this life.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// A stream to a queue process is there.
    pub fn connected(&mut self, now: Instant) {
        self.disconnected(now);
        self.connected = true;
        self.memory = SessionMemory::default();
        let hello = ToQueue::Hello { build: self.build, origin: self.origin };
        self.output.push_back(frame::encode_short(&hello));
        let numbers: Vec<u64> = self.handed_over().collect();
        if !numbers.is_empty() {
            self.output.push_back(frame::encode_short(&ToQueue::Question { numbers }));
        }
    }

    /// The queue process is gone: what was half staged cannot go on.
    pub fn disconnected(&mut self, now: Instant) {
        self.held_before = self.held_bytes();
        self.output.clear();
        self.connected = false;
        self.welcomed = false;
        self.credit = 0;
        self.again.clear();
        for transaction in self.transactions.values_mut().filter(|t| !t.is_handed_over()) {
            transaction.broken |= transaction.cost > 0;
        }
        self.answer_by.get_or_insert(now + ANSWER_WAIT);
    }

    /// Sessions wait while this much has been handed over and not taken or answered, even if there is more credit: the
    /// driver has no memory for more. At least 1. What is handed over while less is held may exceed it.
    pub fn bound_held(&mut self, held_bytes_max: u64) {
        self.held_bytes_max = held_bytes_max.max(1);
    }

    fn handed_over(&self) -> impl Iterator<Item = u64> + '_ {
        self.transactions.iter().filter(|(_, t)| t.is_handed_over()).map(|(number, _)| *number)
    }

    /// Whether a session may hand over what it has, or read more of its client. To be asked right
    /// before each [`Self::stage`] and [`Self::accept`]. `false` is followed by
    /// [`ReceiverEvent::Credit`] when it is worth asking again.
    pub fn may_stage(&mut self, number: u64) -> bool {
        let transaction = self.transactions.get(&number);
        let broken = transaction.is_some_and(|t| t.broken);
        let within = transaction.is_none_or(|t| t.untaken < SESSION_BYTES_MAX);
        let room = self.credit > 0 && self.held_bytes() < self.held_bytes_max;
        let free = self.welcomed && room && self.again.is_empty();
        let may = broken || (free && within);
        self.waiting_for_credit |= !may;
        may
    }

    /// Hands over bytes of a body that is not yet at its end, at most [`PIECE_BYTES_MAX`].
    pub fn stage(&mut self, number: u64, bytes: &[u8]) {
        let transaction = self.transactions.entry(number).or_default();
        transaction.checksum = crc32c::crc32c_append(transaction.checksum, bytes);
        if transaction.broken {
            return;
        }
        debug_assert!(bytes.len() <= PIECE_BYTES_MAX);
        let Ok(frame) = frame::encode(&ToQueue::Stage { number }, bytes) else {
            return self.refused(number, Refusal::TooLarge);
        };
        let cost = bytes.len() as u64;
        transaction.cost += cost;
        transaction.untaken += cost;
        self.credit -= cost as i64;
        self.output.push_back(frame);
    }

    /// Hands over the end of a body and its envelope; the answer comes as an event.
    pub fn accept(&mut self, number: u64, mut envelope: Envelope, last: &[u8]) {
        let recipients = std::mem::take(&mut envelope.recipients);
        self.accept_encoded(number, envelope, &recipients.iter().collect(), last);
    }

    /// The same for an envelope whose recipients have been encoded before; its own list is empty.
    pub fn accept_encoded(
        &mut self,
        number: u64,
        envelope: Envelope,
        recipients: &Recipients,
        last: &[u8],
    ) {
        let transaction = self.transactions.entry(number).or_default();
        let bytes = recipients.frame_bytes();
        let cost = accept_cost(bytes, last.len());
        let too_large = (cost > HAND_OVER_COST_BYTES_MAX).then_some(Refusal::TooLarge);
        let broken = transaction.broken.then(|| transaction.refused.unwrap_or(Refusal::Broken));
        if let Some(refusal) = broken.or(too_large) {
            return self.refuse(number, refusal);
        }
        let checksum = crc32c::crc32c_append(transaction.checksum, last);
        let header = ToQueue::Accept { number, checksum, envelope: Box::new(envelope) };
        let blocks = recipients.blocks();
        let Ok(frame) = frame::encode_with_list(&header, recipients.len(), blocks, bytes, last)
        else {
            return self.refuse(number, Refusal::TooLarge);
        };
        transaction.whole = (transaction.cost == 0).then(|| frame.clone());
        transaction.checksum = checksum;
        transaction.cost += cost;
        transaction.hand_overs = 1;
        self.credit -= cost as i64;
        if self.connected {
            self.output.push_back(frame);
        }
    }

    /// Refuses at its end what was not handed over.
    fn refuse(&mut self, number: u64, refusal: Refusal) {
        self.unstage(number);
        self.events.push_back(ReceiverEvent::Refused { number, refusal });
    }

    /// The client gave up, or the session refused the message.
    pub fn unstage(&mut self, number: u64) {
        let Some(transaction) = self.transactions.remove(&number) else { return };
        // One that was refused is unstaged too: the queue process drops what comes of it until then.
        if self.connected && (!transaction.broken || transaction.refused.is_some()) {
            self.output.push_back(frame::encode_short(&ToQueue::Unstage { number }));
        }
    }

    /// Takes what has arrived.
    pub fn handle(&mut self, input: &mut BytesMut) -> Result<(), LinkError> {
        while let Some((message, _)) = frame::decode::<ToReceiver>(input)? {
            self.take(message)?;
        }
        Ok(())
    }

    fn take(&mut self, message: ToReceiver) -> Result<(), LinkError> {
        match message {
            ToReceiver::Welcome { build, .. } if build != self.build => {
                return Err(LinkError::WrongBuild);
            }
            ToReceiver::Welcome { credit_bytes, .. } => {
                self.welcomed = true;
                self.given = credit_bytes;
                self.answer_by = None;
                self.give(credit_bytes);
            }
            _ if !self.welcomed => return Err(LinkError::NotAccepted),
            ToReceiver::Committed { number, message, checksum } => {
                self.committed(number, message, Some(checksum))?;
            }
            ToReceiver::Known { number, message } => self.committed(number, message, None)?,
            ToReceiver::Refused { number, refusal } => self.refused(number, refusal),
            ToReceiver::Unknown { number } => self.unknown(number),
            ToReceiver::Credit { bytes } => self.give(bytes),
            ToReceiver::Taken { number, bytes } => {
                if let Some(transaction) = self.transactions.get_mut(&number) {
                    transaction.untaken = transaction.untaken.saturating_sub(bytes);
                }
                self.give(bytes);
            }
        }
        Ok(())
    }

    /// The one place that makes a `Durable` without a sync: from an answer of the queue process that
    /// names an outstanding transaction of this life and repeats the checksum of what was handed
    /// over. The answer to a question has no checksum: the bytes were checked when they were handed
    /// to a former life of the queue process, and the transaction's id was in the durable record.
    fn committed(
        &mut self,
        number: u64,
        message: MessageId,
        checksum: Option<u32>,
    ) -> Result<(), LinkError> {
        let fits = |transaction: &Transaction| {
            transaction.is_handed_over() && checksum.is_none_or(|sum| sum == transaction.checksum)
        };
        if !self.transactions.get(&number).is_some_and(fits) {
            return Err(LinkError::WrongAnswer);
        }
        self.transactions.remove(&number);
        let durable = Durable::attested(message, TransactionId { origin: self.origin, number });
        self.events.push_back(ReceiverEvent::Promised { number, durable });
        Ok(())
    }

    /// The client of a body that is not at its end is told when it is; sessions that wait for credit
    /// go on, to read what will be thrown away.
    fn refused(&mut self, number: u64, refusal: Refusal) {
        match self.transactions.get_mut(&number) {
            Some(transaction) if !transaction.is_handed_over() => {
                transaction.broken = true;
                transaction.refused = Some(refusal);
                self.waiting_for_credit = false;
                self.events.push_back(ReceiverEvent::Credit);
            }
            _ => {
                self.transactions.remove(&number);
                self.events.push_back(ReceiverEvent::Refused { number, refusal });
            }
        }
    }

    fn unknown(&mut self, number: u64) {
        let Some(transaction) = self.transactions.get(&number) else { return };
        if transaction.whole.is_some() && transaction.hand_overs < HAND_OVERS_MAX {
            self.again.push_back(number);
            return self.hand_over_again();
        }
        self.transactions.remove(&number);
        self.events.push_back(ReceiverEvent::Refused { number, refusal: Refusal::Broken });
    }

    /// What a former stream lost goes before anything new, and is under the same credit.
    fn hand_over_again(&mut self) {
        while self.credit > 0 {
            let Some(number) = self.again.pop_front() else { return };
            let Some(transaction) = self.transactions.get_mut(&number) else { continue };
            let Some(whole) = &transaction.whole else { continue };
            transaction.hand_overs += 1;
            self.credit -= transaction.cost as i64;
            self.output.push_back(whole.clone());
        }
    }

    fn give(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add_unsigned(bytes);
        self.hand_over_again();
        if self.credit > 0 && std::mem::take(&mut self.waiting_for_credit) {
            self.events.push_back(ReceiverEvent::Credit);
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.answer_by.filter(|_| self.handed_over().next().is_some())
    }

    /// Gives up what has waited for an answer too long (RFC 1047).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.answer_by.is_none_or(|by| now < by) {
            return;
        }
        let numbers: Vec<u64> = self.handed_over().collect();
        for number in numbers {
            self.transactions.remove(&number);
            self.events.push_back(ReceiverEvent::Abandoned { number });
        }
        self.answer_by = Some(now + ANSWER_WAIT);
    }

    /// Tells how the memory of sessions is, if the queue process does not know that yet. While frames wait to be
    /// written nothing is told, so that their number does not grow: the driver calls this every second. Returns whether
    /// there is a frame to be written.
    pub fn tell_memory(&mut self, memory: SessionMemory) -> bool {
        let told = self.welcomed && self.output.is_empty() && self.memory != memory;
        if told {
            self.memory = memory;
            self.output.push_back(frame::encode_short(&ToQueue::Memory(memory)));
        }
        told
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Frames to be written, in order.
    pub fn output(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }

    /// Bytes of bodies and envelopes that the queue process has not taken or not answered: what they
    /// cost of the credit. While there is no queue process, those of the last one.
    pub fn held_bytes(&self) -> u64 {
        let given = i64::try_from(self.given).unwrap_or(i64::MAX);
        let held = given.saturating_sub(self.credit).max(0).unsigned_abs();
        if self.welcomed { held } else { self.held_before }
    }

    /// A queue process answers.
    pub fn is_welcomed(&self) -> bool {
        self.welcomed
    }

    /// Transactions that are staged or wait for an answer.
    pub fn outstanding(&self) -> usize {
        self.transactions.len()
    }
}

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
    build: u64,
    origin: Option<u64>,
    /// All the credit there is.
    credit_bytes: u64,
    /// Bytes staged and not given back.
    outstanding_bytes: u64,
    staged: BTreeMap<u64, Staged>,
    /// Refused before their end: what still comes of them is dropped, up to the end.
    dropped: HashSet<u64>,
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
            origin: None,
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
            let Some(origin) = self.origin else {
                self.greet(message)?;
                continue;
            };
            self.take(origin, message, tail)?;
        }
        Ok(())
    }

    fn greet(&mut self, message: ToQueue) -> Result<(), LinkError> {
        match message {
            ToQueue::Hello { build, .. } if build != self.build => Err(LinkError::WrongBuild),
            ToQueue::Hello { origin, .. } => {
                self.origin = Some(origin);
                let (build, credit_bytes) = (self.build, self.credit_bytes);
                let welcome = ToReceiver::Welcome { build, credit_bytes };
                self.output.push_back(frame::encode_short(&welcome));
                Ok(())
            }
            _ => Err(LinkError::NotAccepted),
        }
    }

    fn take(&mut self, origin: u64, message: ToQueue, bytes: Bytes) -> Result<(), LinkError> {
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
                let transaction = TransactionId { origin, number };
                self.events.push_back(QueueEvent::Stage { transaction, bytes });
            }
            ToQueue::Accept { number, checksum, envelope } => {
                let cost = accept_cost(recipients_bytes(&envelope), bytes.len());
                let found = self.stage(number, &bytes, cost)?;
                if found != checksum {
                    return Err(LinkError::Garbage);
                }
                self.staged.entry(number).or_default().ended = true;
                let transaction = TransactionId { origin, number };
                self.events.push_back(QueueEvent::Accept { transaction, envelope, bytes });
            }
            ToQueue::Unstage { number } => {
                self.free(number);
                self.credit();
                let transaction = TransactionId { origin, number };
                self.events.push_back(QueueEvent::Unstage { transaction });
            }
            ToQueue::Question { numbers } => {
                let questions = numbers.into_iter().map(|number| QueueEvent::Question {
                    transaction: TransactionId { origin, number },
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

    /// Whether it is the other end's own, and not one of a former life, whose numbers are used
    /// again.
    fn is_theirs(&self, transaction: TransactionId) -> bool {
        self.origin == Some(transaction.origin)
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

    /// The answer to a question: a former life of ours made it durable.
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
        let origin = self.origin.unwrap_or_default();
        self.staged.keys().map(move |number| TransactionId { origin, number: *number })
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

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, MailFrom, Notify, Origin, Protocol, Recipient, ReversePath, Timestamp};

    const NOW: Instant = Instant::ZERO;

    fn envelope() -> Envelope {
        let origin = Origin { client: None, helo: "h".into(), protocol: Protocol::Esmtp };
        Envelope {
            from: MailFrom::new(ReversePath::Null),
            origin,
            arrived: Timestamp::default(),
            recipients: vec![recipient()],
        }
    }

    fn recipient() -> Recipient {
        let address = Address::parse("x@y.test", false).unwrap();
        Recipient { address, notify: Notify::DEFAULT, orcpt: None }
    }

    fn carry(from: &mut VecDeque<Bytes>) -> BytesMut {
        from.drain(..).flatten().collect()
    }

    fn meet(receiver: &mut ReceiverEnd) -> QueueEnd {
        let mut queue = QueueEnd::new(1, 10_000);
        receiver.connected(NOW);
        queue.handle(&mut carry(receiver.output())).unwrap();
        receiver.handle(&mut carry(queue.output())).unwrap();
        queue
    }

    fn handed_over(queue: &mut QueueEnd) -> TransactionId {
        loop {
            match queue.poll() {
                Some(QueueEvent::Accept { transaction, .. }) => return transaction,
                Some(_) => {}
                None => panic!("nothing was handed over"),
            }
        }
    }

    #[test]
    fn a_promise_needs_an_answer_that_fits_an_outstanding_transaction() {
        let mut receiver = ReceiverEnd::new(1, 9);
        let mut queue = meet(&mut receiver);
        receiver.stage(1, b"half");
        receiver.accept(1, envelope(), b"rest");
        queue.handle(&mut carry(receiver.output())).unwrap();
        let transaction = handed_over(&mut queue);
        queue.committed(Durable::attested(MessageId(5), transaction));
        let mut answer = carry(queue.output());
        receiver.handle(&mut answer.clone()).unwrap();
        let Some(ReceiverEvent::Promised { number: 1, durable }) = receiver.poll() else {
            panic!()
        };
        assert_eq!(durable.message(), MessageId(5));
        assert_eq!(receiver.handle(&mut answer), Err(LinkError::WrongAnswer), "said twice");
        for (number, checksum) in [(2, 0), (1, 1)] {
            receiver.accept(number, envelope(), b"x");
            let wrong = ToReceiver::Committed { number: 1, message: MessageId(6), checksum };
            let mut wrong = BytesMut::from(&frame::encode_short(&wrong)[..]);
            assert_eq!(receiver.handle(&mut wrong), Err(LinkError::WrongAnswer));
        }
    }

    #[test]
    fn a_small_message_is_handed_over_again_to_a_new_queue_process_that_does_not_know_it() {
        let mut receiver = ReceiverEnd::new(1, 9);
        let mut queue = meet(&mut receiver);
        receiver.accept(1, envelope(), b"small");
        queue.handle(&mut carry(receiver.output())).unwrap();
        receiver.disconnected(NOW);
        let mut queue = meet(&mut receiver);
        let transaction = TransactionId { origin: 9, number: 1 };
        assert_eq!(queue.poll(), Some(QueueEvent::Question { transaction }));
        queue.unknown(transaction);
        receiver.handle(&mut carry(queue.output())).unwrap();
        queue.handle(&mut carry(receiver.output())).unwrap();
        assert_eq!(handed_over(&mut queue), transaction);
    }

    #[test]
    fn a_message_that_a_former_life_made_durable_is_promised_and_a_half_staged_one_refused() {
        let mut receiver = ReceiverEnd::new(1, 9);
        meet(&mut receiver);
        receiver.accept(1, envelope(), b"small");
        receiver.stage(2, b"half");
        receiver.disconnected(NOW);
        let mut queue = meet(&mut receiver);
        queue.known(TransactionId { origin: 9, number: 1 }, MessageId(5));
        receiver.handle(&mut carry(queue.output())).unwrap();
        assert!(matches!(receiver.poll(), Some(ReceiverEvent::Promised { number: 1, .. })));
        receiver.stage(2, b"more");
        receiver.accept(2, envelope(), b"end");
        let refused = ReceiverEvent::Refused { number: 2, refusal: Refusal::Broken };
        assert_eq!(receiver.poll(), Some(refused));
    }

    #[test]
    fn what_becomes_of_a_former_life_s_message_is_not_said_to_the_one_with_its_number() {
        let mut queue = meet(&mut ReceiverEnd::new(1, 8));
        let former = TransactionId { origin: 8, number: 1 };
        let mut receiver = ReceiverEnd::new(1, 9);
        queue = QueueEnd::new(queue.build, queue.credit_bytes);
        receiver.connected(NOW);
        queue.handle(&mut carry(receiver.output())).unwrap();
        receiver.handle(&mut carry(queue.output())).unwrap();
        receiver.accept(1, envelope(), b"another");
        queue.handle(&mut carry(receiver.output())).unwrap();
        handed_over(&mut queue);
        queue.committed(Durable::attested(MessageId(5), former));
        queue.refused(former, Refusal::Full);
        queue.taken(former, 5);
        assert!(queue.output().is_empty());
        queue.committed(Durable::attested(MessageId(6), TransactionId { origin: 9, number: 1 }));
        receiver.handle(&mut carry(queue.output())).unwrap();
        let told = std::iter::from_fn(|| receiver.poll());
        let promised: Vec<_> =
            told.filter(|event| matches!(event, ReceiverEvent::Promised { .. })).collect();
        assert_eq!(promised.len(), 1);
    }

    #[test]
    fn a_message_that_is_with_the_spool_is_answered_over_the_next_stream() {
        let mut receiver = ReceiverEnd::new(1, 9);
        let mut queue = meet(&mut receiver);
        receiver.accept(1, envelope(), b"small");
        queue.handle(&mut carry(receiver.output())).unwrap();
        let transaction = handed_over(&mut queue);
        receiver.disconnected(NOW);
        let mut queue = meet(&mut receiver);
        assert_eq!(queue.poll(), Some(QueueEvent::Question { transaction }));
        queue.asked(transaction);
        queue.committed(Durable::attested(MessageId(5), transaction));
        receiver.handle(&mut carry(queue.output())).unwrap();
        let promised = |event| matches!(event, ReceiverEvent::Promised { number: 1, .. });
        assert!(std::iter::from_fn(|| receiver.poll()).any(promised));
    }

    #[test]
    fn while_there_is_no_queue_process_nothing_gathers_that_is_to_be_said_to_it() {
        let mut receiver = ReceiverEnd::new(1, 9);
        let mut queue = meet(&mut receiver);
        (1..100).for_each(|number| receiver.stage(number, b"half"));
        queue.handle(&mut carry(receiver.output())).unwrap();
        let transaction = |number| TransactionId { origin: 9, number };
        (50..100).for_each(|number| queue.refused(transaction(number), Refusal::Full));
        receiver.handle(&mut carry(queue.output())).unwrap();
        receiver.disconnected(NOW);
        (1..100).for_each(|number| receiver.unstage(number));
        assert!(receiver.output().is_empty() && receiver.outstanding() == 0);
    }

    #[test]
    fn without_a_queue_process_for_ten_seconds_a_transaction_is_abandoned_without_a_reply() {
        let mut receiver = ReceiverEnd::new(1, 9);
        meet(&mut receiver);
        receiver.accept(1, envelope(), b"small");
        assert!(receiver.is_welcomed());
        receiver.disconnected(NOW);
        assert!(!receiver.is_welcomed());
        assert_eq!(receiver.next_wakeup(), Some(NOW + ANSWER_WAIT));
        receiver.handle_timeout(NOW + ANSWER_WAIT / 2);
        assert_eq!(receiver.poll(), None);
        receiver.handle_timeout(NOW + ANSWER_WAIT);
        assert_eq!(receiver.poll(), Some(ReceiverEvent::Abandoned { number: 1 }));
    }

    /// Everything was on its way when the refusal was said, or only the first piece was.
    #[test]
    fn s118_nothing_of_a_body_that_was_refused_in_its_middle_is_accepted_and_the_client_hears_it() {
        for on_its_way in [true, false] {
            let mut receiver = ReceiverEnd::new(1, 9);
            let mut queue = meet(&mut receiver);
            receiver.poll();
            receiver.stage(1, b"first");
            if on_its_way {
                receiver.stage(1, b"second");
                receiver.accept(1, envelope(), b"rest");
            }
            queue.handle(&mut carry(receiver.output())).unwrap();
            assert!(matches!(queue.poll(), Some(QueueEvent::Stage { .. })));
            queue.refused(TransactionId { origin: 9, number: 1 }, Refusal::Full);
            queue.credit();
            if !on_its_way {
                receiver.stage(1, b"second");
                queue.handle(&mut carry(receiver.output())).unwrap();
                receiver.handle(&mut carry(queue.output())).unwrap();
                assert_eq!(receiver.poll(), Some(ReceiverEvent::Credit), "sessions go on");
                receiver.stage(1, b"third");
                receiver.accept(1, envelope(), b"rest");
                queue.handle(&mut carry(receiver.output())).unwrap();
            }
            assert_eq!(queue.poll(), None, "nothing is left to be accepted");
            receiver.handle(&mut carry(queue.output())).unwrap();
            let refused = ReceiverEvent::Refused { number: 1, refusal: Refusal::Full };
            assert_eq!(receiver.poll(), Some(refused));
            assert_eq!((receiver.credit, queue.outstanding_bytes), (10_000, 0));
            assert!(queue.dropped.is_empty() && receiver.outstanding() == 0);
        }
    }

    #[test]
    fn credit_is_spent_by_staging_and_comes_back_with_the_answer() {
        let mut receiver = ReceiverEnd::new(1, 9);
        assert!(!receiver.may_stage(1), "no queue process, no credit");
        let mut queue = meet(&mut receiver);
        assert_eq!(receiver.poll(), Some(ReceiverEvent::Credit));
        receiver.stage(1, &[0; 10_000]);
        assert!(!receiver.may_stage(2));
        queue.handle(&mut carry(receiver.output())).unwrap();
        queue.taken(TransactionId { origin: 9, number: 1 }, 4_000);
        receiver.handle(&mut carry(queue.output())).unwrap();
        assert!(receiver.may_stage(2));
        receiver.unstage(1);
        queue.handle(&mut carry(receiver.output())).unwrap();
        receiver.handle(&mut carry(queue.output())).unwrap();
        assert_eq!(receiver.credit, 10_000);
        assert_eq!(queue.outstanding_bytes, 0);
    }

    #[test]
    fn r211_how_the_memory_of_sessions_is_is_told_once_to_each_queue_process() {
        let mut receiver = ReceiverEnd::new(1, 9);
        let shortage = MemoryShortage { seconds: 7, refused: 12 };
        let memory = SessionMemory { refused: 30, shortage: Some(shortage) };
        assert!(!receiver.tell_memory(memory), "nobody hears it");
        for _ in 0..2 {
            let mut queue = meet(&mut receiver);
            assert_eq!(queue.memory(), SessionMemory::default());
            assert!(receiver.tell_memory(memory) && !receiver.tell_memory(memory));
            assert!(!receiver.tell_memory(SessionMemory { refused: 31, ..memory }));
            assert_eq!(receiver.output().len(), 1, "no more of them wait than one");
            queue.handle(&mut carry(receiver.output())).unwrap();
            assert_eq!(queue.memory(), memory);
            assert!(!receiver.tell_memory(memory), "it is known");
            assert!(receiver.tell_memory(SessionMemory { refused: 31, shortage: None }));
            queue.handle(&mut carry(receiver.output())).unwrap();
            assert_eq!(queue.memory(), SessionMemory { refused: 31, shortage: None });
            assert!(receiver.tell_memory(memory), "the next one does not know it");
        }
    }

    /// Queue's end, greeted, and what it says to these messages.
    fn said(messages: &[(ToQueue, &[u8])]) -> Result<(), LinkError> {
        let mut queue = QueueEnd::new(1, 10_000);
        let hello = ToQueue::Hello { build: 1, origin: 9 };
        let mut input = BytesMut::from(&frame::encode_short(&hello)[..]);
        for (message, tail) in messages {
            input.extend_from_slice(&frame::encode(message, tail).unwrap());
        }
        queue.handle(&mut input)
    }

    fn accept(envelope: Envelope, body: &[u8]) -> ToQueue {
        let checksum = crc32c::crc32c(body);
        ToQueue::Accept { number: 1, checksum, envelope: Box::new(envelope) }
    }

    #[test]
    fn after_the_end_of_a_body_nothing_comes_of_its_transaction() {
        let first = || (accept(envelope(), b"x"), &b"x"[..]);
        assert_eq!(said(&[first()]), Ok(()));
        let again = (accept(envelope(), b"xx"), &b"x"[..]);
        let more = (ToQueue::Stage { number: 1 }, &b"x"[..]);
        let regret = (ToQueue::Unstage { number: 1 }, &b""[..]);
        for next in [again, more, regret] {
            assert_eq!(said(&[first(), next]), Err(LinkError::NotAccepted));
        }
    }

    #[test]
    fn an_envelope_that_no_session_would_have_made_is_not_taken() {
        let wrong: [fn(&mut Envelope); 4] = [
            |envelope| envelope.recipients.clear(),
            |envelope| envelope.from.envid = Some("x\r\nRSET".into()),
            |envelope| envelope.origin.helo = "a b".into(),
            |envelope| envelope.recipients[0].orcpt = Some("rfc822;x y".into()),
        ];
        for change in wrong {
            let mut envelope = envelope();
            change(&mut envelope);
            assert_eq!(said(&[(accept(envelope, b""), b"")]), Err(LinkError::NotAccepted));
        }
    }

    #[test]
    fn what_costs_no_credit_is_bounded_all_the_same() {
        let empty = (ToQueue::Stage { number: 1 }, &b""[..]);
        assert_eq!(said(&[empty]), Err(LinkError::NotAccepted));
        let question = ToQueue::Question { numbers: vec![1; TRANSACTIONS_MAX + 1] };
        assert_eq!(said(&[(question, b"")]), Err(LinkError::NotAccepted));
    }

    fn long_envelope(bytes: usize) -> Envelope {
        let domain = format!("{}.{}.{}.test", "a".repeat(60), "b".repeat(60), "c".repeat(60));
        let mut envelope = envelope();
        envelope.recipients.clear();
        let mut left = bytes;
        loop {
            let address =
                Address::parse(&format!("{:064}@{domain}", envelope.recipients.len()), false);
            let orcpt = Some(format!("rfc822;{}", "o".repeat(493)).into());
            let notify = Notify::of(true, true, true);
            let recipient = Recipient { address: address.unwrap(), notify, orcpt };
            match left.checked_sub(recipient_bytes(&recipient)) {
                Some(less) => left = less,
                None => return envelope,
            }
            envelope.recipients.push(recipient);
        }
    }

    #[test]
    fn r211_sessions_wait_while_the_driver_has_no_memory_for_more_on_its_way() {
        let mut receiver = ReceiverEnd::new(1, 9);
        let mut queue = meet(&mut receiver);
        receiver.bound_held(1_000);
        assert!(receiver.may_stage(1));
        receiver.stage(1, &[b'x'; 999]);
        assert!(receiver.may_stage(2));
        receiver.stage(2, &[b'x'; 500]);
        assert!(!receiver.may_stage(1) && !receiver.may_stage(3));
        queue.handle(&mut carry(receiver.output())).unwrap();
        queue.taken(TransactionId { origin: 9, number: 1 }, 999);
        receiver.handle(&mut carry(queue.output())).unwrap();
        assert_eq!(receiver.poll(), Some(ReceiverEvent::Credit));
        assert!(receiver.may_stage(3));
    }

    #[test]
    fn r211_recipients_encoded_before_make_the_frame_of_the_whole_envelope() {
        for count in [1, 2, 127, 128, 300] {
            let mut whole = envelope();
            let first = whole.recipients[0].clone();
            whole.recipients = vec![first; count];
            let header = |envelope: Envelope| ToQueue::Accept {
                number: 3,
                checksum: 5,
                envelope: Box::new(envelope),
            };
            let recipients: Recipients = whole.recipients.iter().collect();
            let bytes = recipients.frame_bytes();
            let empty = header(Envelope { recipients: Vec::new(), ..whole.clone() });
            let made =
                frame::encode_with_list(&empty, count, recipients.blocks(), bytes, b"the end");
            assert_eq!(made, frame::encode(&header(whole), b"the end"), "{count}");
        }
    }

    #[test]
    fn r205_an_envelope_at_its_bound_is_taken_and_one_above_it_is_refused_to_its_client_alone() {
        let mut receiver = ReceiverEnd::new(1, 9);
        let mut queue = meet(&mut receiver);
        let piece = vec![0; PIECE_BYTES_MAX];
        receiver.accept(1, long_envelope(RECIPIENTS_BYTES_MAX), &piece);
        queue.handle(&mut carry(receiver.output())).unwrap();
        let transaction = handed_over(&mut queue);
        queue.committed(Durable::attested(MessageId(5), transaction));
        queue.credit();
        receiver.handle(&mut carry(queue.output())).unwrap();
        assert!(matches!(receiver.poll(), Some(ReceiverEvent::Promised { number: 1, .. })));
        assert_eq!((receiver.credit, queue.outstanding_bytes), (10_000, 0));
        let too_long = RECIPIENTS_BYTES_MAX + PIECE_BYTES_MAX + 2_000;
        receiver.accept(2, long_envelope(too_long), b"x");
        let refused = ReceiverEvent::Refused { number: 2, refusal: Refusal::TooLarge };
        assert_eq!(receiver.poll(), Some(refused));
        receiver.accept(3, envelope(), b"of another client");
        queue.handle(&mut carry(receiver.output())).unwrap();
        assert_eq!(handed_over(&mut queue).number, 3);
        assert_eq!(
            said(&[(accept(long_envelope(too_long), b""), b"")]),
            Err(LinkError::NotAccepted)
        );
    }

    #[test]
    fn r206_a_message_that_was_handed_over_too_often_is_refused_and_poisons_no_more_streams() {
        let mut receiver = ReceiverEnd::new(1, 9);
        meet(&mut receiver);
        receiver.accept(1, envelope(), b"poison");
        for hand_over in 1..=HAND_OVERS_MAX {
            assert_eq!(receiver.poll(), None, "{hand_over}");
            receiver.disconnected(NOW);
            let mut queue = meet(&mut receiver);
            let transaction = TransactionId { origin: 9, number: 1 };
            assert_eq!(queue.poll(), Some(QueueEvent::Question { transaction }));
            queue.unknown(transaction);
            receiver.handle(&mut carry(queue.output())).unwrap();
        }
        let refused = ReceiverEvent::Refused { number: 1, refusal: Refusal::Broken };
        assert_eq!(receiver.poll(), Some(refused));
        assert!(receiver.output().is_empty() && receiver.outstanding() == 0);
    }

    /// What a session of the test does when it may go on.
    struct Busy {
        number: u64,
        pieces: usize,
    }

    /// Sessions of one process that end bodies together while the disk stands still: all hand over
    /// what they can. Gives back how many could, and fails if queue ends the conversation.
    fn crowd(receivers: u64, sessions: u64, credit_bytes: u64) -> usize {
        let mut ends: Vec<_> = (0..receivers)
            .map(|origin| {
                let mut receiver = ReceiverEnd::new(1, origin);
                let mut queue = QueueEnd::new(1, credit_bytes / receivers);
                receiver.connected(NOW);
                queue.handle(&mut carry(receiver.output())).unwrap();
                receiver.handle(&mut carry(queue.output())).unwrap();
                let busy = (0..sessions).map(|number| Busy { number, pieces: number as usize % 3 });
                (receiver, queue, busy.collect::<Vec<_>>())
            })
            .collect();
        let piece = vec![0; 64 << 10];
        let mut handed_over = 0;
        for (receiver, queue, busy) in &mut ends {
            // All have read `354` while there was credit for each of them.
            assert!(busy.iter().all(|session| receiver.may_stage(session.number)));
            for session in busy {
                for _ in 0..session.pieces {
                    if receiver.may_stage(session.number) {
                        receiver.stage(session.number, &piece);
                    }
                }
                if receiver.may_stage(session.number) {
                    receiver.accept(session.number, envelope(), &piece);
                    handed_over += 1;
                }
            }
            queue.handle(&mut carry(receiver.output())).expect("back-pressure, no closed stream");
            // A new stream, and all of it once more.
            receiver.disconnected(NOW);
            let mut queue = QueueEnd::new(1, credit_bytes / receivers);
            receiver.connected(NOW);
            queue.handle(&mut carry(receiver.output())).unwrap();
            while let Some(QueueEvent::Question { transaction }) = queue.poll() {
                queue.unknown(transaction);
            }
            receiver.handle(&mut carry(queue.output())).unwrap();
            queue.handle(&mut carry(receiver.output())).expect("nor for what is handed over again");
        }
        handed_over
    }

    #[test]
    fn r224_four_and_sixteen_receiving_processes_over_a_stalled_disk_never_exceed_their_credit() {
        for receivers in [1, 4, 16] {
            for credit_bytes in [32 << 20, 1 << 20, 1] {
                let credit_bytes: u64 = credit_bytes;
                let handed_over = crowd(receivers, 2_000, credit_bytes.max(receivers));
                let most = credit_bytes / (64 << 10) + 2 * receivers;
                assert!(handed_over as u64 <= most, "{handed_over} of {receivers} {credit_bytes}");
                assert!(handed_over > 0);
            }
        }
    }
}
