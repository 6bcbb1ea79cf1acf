//! Messages from the receiving processes on their way into the spool, and the answers.
//!
//! Must never answer a transaction before the spool has.

use crate::Queue;
use crate::message_cache::CachedMessage;
use crate::restore::arrive;
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::receive::{QueueEnd, QueueEvent, SessionMemory};
use link::send::INLINE_BYTES_MAX;
use mail::{Durable, Envelope, MessageId, Now, Refusal, TransactionId};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// All receiving processes.
#[derive(Debug)]
pub(crate) struct Receivers {
    credit_bytes: u64,
    ends: HashMap<u16, QueueEnd>,
    /// Transactions that the spool has and has not answered.
    pending: HashMap<TransactionId, PendingMessage>,
    /// Staged bytes of each transaction that is not complete.
    staged: HashMap<TransactionId, u64>,
}

/// A message that the spool is making durable.
#[derive(Debug)]
pub(crate) struct PendingMessage {
    /// The receiving process, or `None` for a notice of our own.
    pub instance: Option<u16>,
    pub message: MessageId,
    pub cached: CachedMessage,
}

impl Receivers {
    pub fn new(credit_bytes: u64) -> Receivers {
        Receivers {
            credit_bytes,
            ends: HashMap::new(),
            pending: HashMap::new(),
            staged: HashMap::new(),
        }
    }

    pub fn connect(&mut self, instance: u16, build: u64) {
        self.ends.insert(instance, QueueEnd::new(build, self.credit_bytes));
    }

    /// Ends a stream. Returns the transactions that are not complete.
    pub fn disconnect(&mut self, instance: u16) -> Vec<TransactionId> {
        let Some(end) = self.ends.remove(&instance) else { return Vec::new() };
        let pending = &self.pending;
        let half: Vec<_> = end.outstanding().filter(|t| !pending.contains_key(t)).collect();
        for transaction in &half {
            self.staged.remove(transaction);
        }
        half
    }

    pub fn input(&mut self, instance: u16, input: &mut BytesMut) -> Result<(), LinkError> {
        self.ends.get_mut(&instance).map_or(Ok(()), |end| end.handle(input))
    }

    pub fn output(&mut self, instance: u16) -> Option<&mut VecDeque<Bytes>> {
        self.ends.get_mut(&instance).map(QueueEnd::transmit)
    }

    /// Returns what each process last reported about the memory of its sessions.
    pub fn memory(&self) -> impl Iterator<Item = (u16, SessionMemory)> + '_ {
        self.ends.iter().map(|(instance, end)| (*instance, end.memory()))
    }

    /// Returns the credit of answered transactions to the processes, once for each commit.
    pub fn credit(&mut self) {
        self.ends.values_mut().for_each(QueueEnd::credit);
    }

    fn poll(&mut self, instance: u16) -> Option<QueueEvent> {
        self.ends.get_mut(&instance)?.poll()
    }

    pub fn expect(&mut self, transaction: TransactionId, pending: PendingMessage) {
        self.pending.insert(transaction, pending);
    }

    fn refuse(&mut self, instance: u16, transaction: TransactionId, refusal: Refusal) {
        if let Some(end) = self.ends.get_mut(&instance) {
            end.refused(transaction, refusal);
            end.credit();
        }
    }
}

impl Queue {
    pub(crate) fn take_in(&mut self, instance: u16, now: Now) {
        while let Some(event) = self.receivers.poll(instance) {
            match event {
                QueueEvent::Stage { transaction, bytes } => {
                    self.stage(instance, transaction, bytes);
                }
                QueueEvent::Accept { transaction, envelope, bytes } => {
                    self.accept(instance, transaction, *envelope, bytes, now);
                }
                QueueEvent::Unstage { transaction } => {
                    self.receivers.staged.remove(&transaction);
                    self.spool.unstage(transaction);
                }
                QueueEvent::Question { transaction } => self.question(instance, transaction),
            }
        }
    }

    fn stage(&mut self, instance: u16, transaction: TransactionId, bytes: Bytes) {
        let length = bytes.len() as u64;
        match self.spool.stage(transaction, bytes) {
            Ok(()) => {
                *self.receivers.staged.entry(transaction).or_insert(0) += length;
                if let Some(end) = self.receivers.ends.get_mut(&instance) {
                    end.taken(transaction, length);
                }
            }
            Err(refusal) => {
                self.spool.unstage(transaction);
                self.receivers.staged.remove(&transaction);
                self.counters.refused += 1;
                self.receivers.refuse(instance, transaction, refusal);
            }
        }
    }

    fn accept(
        &mut self,
        instance: u16,
        transaction: TransactionId,
        envelope: Envelope,
        last: Bytes,
        now: Now,
    ) {
        let staged_bytes = self.receivers.staged.remove(&transaction).unwrap_or(0);
        match self.keep(transaction, envelope, staged_bytes, last, now) {
            Ok((message, cached)) => {
                let pending = PendingMessage { instance: Some(instance), message, cached };
                self.receivers.expect(transaction, pending);
            }
            Err(refusal) => {
                self.spool.unstage(transaction);
                self.counters.refused += 1;
                self.receivers.refuse(instance, transaction, refusal);
            }
        }
    }

    /// Hands a client's message to the spool with its `Received` header, after `staged_bytes` of its body. Returns
    /// the id, and the part of the message that is kept in memory.
    fn keep(
        &mut self,
        transaction: TransactionId,
        envelope: Envelope,
        staged_bytes: u64,
        last: Bytes,
        now: Now,
    ) -> Result<(MessageId, CachedMessage), Refusal> {
        let whole_body = (staged_bytes == 0).then(|| last.clone());
        let body_bytes = staged_bytes + last.len() as u64;
        if !last.is_empty() {
            self.spool.stage_last(transaction, last)?;
        }
        let message = self.spool.next_message_id(now);
        let prefix = received(&self.settings.hostname, &envelope, message);
        self.spool.accept(message, transaction, &envelope, &prefix, now)?;
        let prefix_bytes = prefix.len() as u32;
        let bytes = body_bytes + u64::from(prefix_bytes);
        let content = whole_body.filter(|_| bytes <= INLINE_BYTES_MAX);
        let content = content.map(|body| [&prefix[..], &body[..]].concat().into());
        Ok((message, CachedMessage { envelope: Rc::new(envelope), bytes, prefix_bytes, content }))
    }

    fn question(&mut self, instance: u16, transaction: TransactionId) {
        // The message is not durable yet: the answer follows without a further question.
        if self.receivers.pending.contains_key(&transaction) {
            if let Some(end) = self.receivers.ends.get_mut(&instance) {
                end.asked(transaction);
            }
            return;
        }
        let known = self.spool.lookup_transaction(transaction);
        let Some(end) = self.receivers.ends.get_mut(&instance) else { return };
        match known {
            Some(message) => end.known(transaction, message),
            None => end.unknown(transaction),
        }
    }

    /// Answers the client of a durable message with 250 and schedules the message.
    pub(crate) fn durable(&mut self, durable: Durable, now: Now) {
        let transaction = durable.transaction();
        let Some(pending) = self.receivers.pending.remove(&transaction) else { return };
        debug_assert_eq!(pending.message, durable.message());
        if let Some(instance) = pending.instance {
            self.counters.accepted += 1;
            if let Some(end) = self.receivers.ends.get_mut(&instance) {
                end.committed(durable);
            }
        }
        self.schedule(pending.message, pending.cached, now);
    }

    pub(crate) fn refused(&mut self, transaction: TransactionId, refusal: Refusal) {
        self.counters.refused += 1;
        let Some(pending) = self.receivers.pending.remove(&transaction) else { return };
        if let Some(instance) = pending.instance {
            self.receivers.refuse(instance, transaction, refusal);
        }
    }

    fn schedule(&mut self, message: MessageId, cached: CachedMessage, now: Now) {
        let (routes, bytes) = (&self.settings.routes, cached.bytes);
        arrive(&mut self.scheduler, routes, message, &cached.envelope, bytes, now);
        self.message_cache.put(message, cached);
    }
}

/// Returns our `Received` line, which names the recipient only if there is one recipient.
fn received(hostname: &str, envelope: &Envelope, id: MessageId) -> Vec<u8> {
    let only = match &envelope.recipients[..] {
        [one] => Some(&one.address),
        _ => None,
    };
    mail::trace::received(&envelope.origin, id, hostname, envelope.arrived, only)
}
