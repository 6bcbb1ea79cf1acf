//! The receiving process's end: bodies and envelopes go out, answers come in.
//!
//! Must never make a `Durable` without an answer of the queue process that fits an outstanding transaction.

use super::{
    ANSWER_WAIT, HAND_OVER_COST_BYTES_MAX, HAND_OVERS_MAX, SESSION_BYTES_MAX, SessionMemory,
    ToQueue, ToReceiver, accept_cost,
};
use crate::bounds::PIECE_BYTES_MAX;
use crate::recipients::Recipients;
use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::{Durable, Envelope, Instant, MessageId, Refusal, TransactionId};
use std::collections::{BTreeMap, VecDeque};

/// Event for the receiving process.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum ReceiverEvent {
    /// Say `250`.
    Promised { number: u64, durable: Durable },
    /// Say why not.
    Refused { number: u64, refusal: Refusal },
    /// Close without a reply (RFC 1047): it is unknown whether the message is durable.
    Abandoned { number: u64 },
    /// There is credit again.
    Credit,
}

#[derive(Debug, Default)]
struct OpenTransaction {
    /// Checksum of the body so far.
    checksum: u32,
    /// Credit that it has cost.
    cost: u64,
    /// Staged bytes that the queue process has not taken.
    untaken: u64,
    /// Number of hand-overs. If it is not 0, the transaction waits for an answer.
    hand_overs: u8,
    /// A part was staged in a queue process that has ended, or was refused.
    broken: bool,
    /// Refused before the end of the body. The client hears of it at the end, and nothing more is handed over.
    refused: Option<Refusal>,
    /// The frame of the whole message, for the next hand-over.
    whole: Option<Bytes>,
}

impl OpenTransaction {
    fn is_handed_over(&self) -> bool {
        self.hand_overs > 0
    }
}

/// The receiving process's end.
#[derive(Debug)]
pub struct ReceiverEnd {
    build: u64,
    incarnation: u64,
    connected: bool,
    welcomed: bool,
    /// Can fall below zero by the cost of one hand-over.
    pub(super) credit: i64,
    /// All credit of this stream.
    given: u64,
    /// Bytes that were held when the last stream ended.
    held_before: u64,
    held_bytes_max: u64,
    waiting_for_credit: bool,
    /// Transactions to be handed over again, before anything new, as credit allows.
    again: VecDeque<u64>,
    /// When transactions are given up, while no queue process answers.
    answer_by: Option<Instant>,
    /// What this queue process was told about the memory of sessions.
    memory: SessionMemory,
    transactions: BTreeMap<u64, OpenTransaction>,
    output: VecDeque<Bytes>,
    events: VecDeque<ReceiverEvent>,
}

impl ReceiverEnd {
    /// Creates an end without a stream. `incarnation` is drawn at random when the process starts.
    pub fn new(build: u64, incarnation: u64) -> Self {
        ReceiverEnd {
            build,
            incarnation,
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

    /// Returns the incarnation of this process.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Begins a new stream to a queue process.
    pub fn connected(&mut self, now: Instant) {
        self.disconnected(now);
        self.connected = true;
        self.memory = SessionMemory::default();
        let hello = ToQueue::Hello { build: self.build, incarnation: self.incarnation };
        self.output.push_back(frame::encode_short(&hello));
        let numbers: Vec<u64> = self.handed_over().collect();
        if !numbers.is_empty() {
            self.output.push_back(frame::encode_short(&ToQueue::Question { numbers }));
        }
    }

    /// Ends the stream. Transactions that were staged in part cannot continue.
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

    /// Sets the number of held bytes from which on sessions wait, even if there is more credit: the process has no memory
    /// for more. At least 1 counts. A hand-over that begins below the bound may exceed it.
    pub fn bound_held(&mut self, held_bytes_max: u64) {
        self.held_bytes_max = held_bytes_max.max(1);
    }

    fn handed_over(&self) -> impl Iterator<Item = u64> + '_ {
        self.transactions.iter().filter(|(_, t)| t.is_handed_over()).map(|(number, _)| *number)
    }

    /// Returns true if a session may hand over what it has, or read more from its client. Must be called right before each
    /// [`Self::stage`] and [`Self::accept`]. After `false`, [`ReceiverEvent::Credit`] comes when it is worth asking again.
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

    /// Hands over bytes of a body before its end, at most [`PIECE_BYTES_MAX`].
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

    /// Hands over the end of a body and its envelope. The answer comes as an event.
    pub fn accept(&mut self, number: u64, mut envelope: Envelope, last: &[u8]) {
        let recipients = std::mem::take(&mut envelope.recipients);
        self.accept_encoded(number, envelope, &recipients.iter().collect(), last);
    }

    /// Does the same with recipients that are encoded already. The list in `envelope` must be empty.
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

    /// Refuses a message at its end, without a hand-over.
    fn refuse(&mut self, number: u64, refusal: Refusal) {
        self.unstage(number);
        self.events.push_back(ReceiverEvent::Refused { number, refusal });
    }

    /// Drops a transaction: the client gave up, or the session refused the message.
    pub fn unstage(&mut self, number: u64) {
        let Some(transaction) = self.transactions.remove(&number) else { return };
        // The queue process drops the rest of a refused body until it hears of its end.
        if self.connected && (!transaction.broken || transaction.refused.is_some()) {
            self.output.push_back(frame::encode_short(&ToQueue::Unstage { number }));
        }
    }

    /// Takes the frames that have arrived.
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

    /// Makes a `Durable` from an answer that names an outstanding transaction of this incarnation and repeats the checksum
    /// of what was handed over. No other place makes a `Durable` without a sync.
    ///
    /// The answer to a question has no checksum. The former queue process checked the bytes when it took them, and the
    /// durable record holds the transaction's id.
    fn committed(
        &mut self,
        number: u64,
        message: MessageId,
        checksum: Option<u32>,
    ) -> Result<(), LinkError> {
        let fits = |transaction: &OpenTransaction| {
            transaction.is_handed_over() && checksum.is_none_or(|sum| sum == transaction.checksum)
        };
        if !self.transactions.get(&number).is_some_and(fits) {
            return Err(LinkError::WrongAnswer);
        }
        self.transactions.remove(&number);
        let durable =
            Durable::attested(message, TransactionId { incarnation: self.incarnation, number });
        self.events.push_back(ReceiverEvent::Promised { number, durable });
        Ok(())
    }

    /// Before the end of a body, keeps the refusal for the end and lets sessions read on: the rest of the body is thrown away.
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

    /// Hands over again what a former stream lost, under the same credit as everything new.
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

    /// Returns when [`Self::handle_timeout`] must be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.answer_by.filter(|_| self.handed_over().next().is_some())
    }

    /// Gives up the transactions that have waited for an answer too long (RFC 1047).
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

    /// Tells the queue process about the memory of sessions, unless it knows that already or frames wait to be written.
    /// The number of waiting frames therefore does not grow with each call. Returns true if there is a new frame.
    pub fn tell_memory(&mut self, memory: SessionMemory) -> bool {
        let told = self.welcomed && self.output.is_empty() && self.memory != memory;
        if told {
            self.memory = memory;
            self.output.push_back(frame::encode_short(&ToQueue::Memory(memory)));
        }
        told
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Returns the frames to write, in order.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }

    /// Returns the credit that is spent: bytes of bodies and envelopes that the queue process has not taken or answered.
    /// Without a queue process, the number from the end of the last stream.
    pub fn held_bytes(&self) -> u64 {
        let given = i64::try_from(self.given).unwrap_or(i64::MAX);
        let held = given.saturating_sub(self.credit).max(0).unsigned_abs();
        if self.welcomed { held } else { self.held_before }
    }

    /// Returns true if a queue process answers.
    pub fn is_welcomed(&self) -> bool {
        self.welcomed
    }

    /// Returns the number of transactions that are staged or wait for an answer.
    pub fn outstanding(&self) -> usize {
        self.transactions.len()
    }
}
