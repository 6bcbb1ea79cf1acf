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
    /// Something was staged in an incarnation of the queue process that is over, or was refused.
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

/// The receiving process's end.
#[derive(Debug)]
pub struct ReceiverEnd {
    build: u64,
    incarnation: u64,
    connected: bool,
    welcomed: bool,
    /// Below zero by at most what one hand-over costs.
    pub(super) credit: i64,
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
    /// `incarnation` is drawn at random at the start of the process.
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

    /// The name of this incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A stream to a queue process is there.
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
    /// names an outstanding transaction of this incarnation and repeats the checksum of what was handed
    /// over. The answer to a question has no checksum: the bytes were checked when they were handed
    /// to a former incarnation of the queue process, and the transaction's id was in the durable record.
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
        let durable =
            Durable::attested(message, TransactionId { incarnation: self.incarnation, number });
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
