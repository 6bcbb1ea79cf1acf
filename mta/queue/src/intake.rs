//! From the receiving processes into the spool, and the promises back.
//!
//! Must never answer a transaction before the spool has.

use crate::Queue;
use crate::restore::arrive;
use crate::shelf::Opened;
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::receive::{QueueEnd, QueueEvent, Refusal, SessionMemory};
use link::send::INLINE_BYTES_MAX;
use mail::{Durable, Envelope, MessageId, Now, TransactionId};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// The receiving processes.
#[derive(Debug)]
pub(crate) struct Receivers {
    credit_bytes: u64,
    ends: HashMap<u16, QueueEnd>,
    /// Who brought what is with the spool and not answered yet.
    pending: HashMap<TransactionId, Pending>,
    /// Staged bytes of transactions that are not at their end, by transaction.
    staged: HashMap<TransactionId, u64>,
}

/// A message that the spool is making durable.
#[derive(Debug)]
pub(crate) struct Pending {
    /// `None`: a notice of our own.
    pub instance: Option<u16>,
    pub message: MessageId,
    pub opened: Opened,
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

    /// Ends a conversation; gives back the transactions that were not at their end.
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
        self.ends.get_mut(&instance).map(QueueEnd::output)
    }

    /// What each process has told of the memory of its sessions.
    pub fn memory(&self) -> impl Iterator<Item = (u16, SessionMemory)> + '_ {
        self.ends.iter().map(|(instance, end)| (*instance, end.memory()))
    }

    /// Gives back the credit of what has been answered: once for all of a commit.
    pub fn credit(&mut self) {
        self.ends.values_mut().for_each(QueueEnd::credit);
    }

    fn poll(&mut self, instance: u16) -> Option<QueueEvent> {
        self.ends.get_mut(&instance)?.poll()
    }

    pub fn expect(&mut self, transaction: TransactionId, pending: Pending) {
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
                self.receivers.refuse(instance, transaction, refusal_word(refusal));
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
        let staged_before = self.receivers.staged.remove(&transaction).unwrap_or(0);
        let whole = (staged_before == 0).then(|| last.clone());
        let bytes = staged_before + last.len() as u64;
        let kept = self.keep(Some(instance), transaction, envelope, last, bytes, whole, now);
        if let Err(refusal) = kept {
            self.spool.unstage(transaction);
            self.counters.refused += 1;
            self.receivers.refuse(instance, transaction, refusal_word(refusal));
        }
    }

    /// Gives a message of a client to the spool, with our headers in front.
    #[allow(clippy::too_many_arguments)]
    fn keep(
        &mut self,
        instance: Option<u16>,
        transaction: TransactionId,
        envelope: Envelope,
        last: Bytes,
        bytes: u64,
        whole: Option<Bytes>,
        now: Now,
    ) -> Result<(), spool::Refusal> {
        if !last.is_empty() {
            self.spool.stage_last(transaction, last)?;
        }
        let hostname = &self.settings.hostname;
        let mut prefix = Vec::new();
        let message = self.spool.accept_with(
            transaction,
            &envelope,
            |id| {
                prefix = received(hostname, &envelope, id);
                prefix.clone()
            },
            now,
        )?;
        let prefix_bytes = prefix.len() as u32;
        let bytes = bytes + u64::from(prefix_bytes);
        let content = whole.filter(|_| bytes <= INLINE_BYTES_MAX);
        let content = content.map(|body| [&prefix[..], &body[..]].concat().into());
        let opened = Opened { envelope: Rc::new(envelope), bytes, prefix_bytes, content };
        self.receivers.expect(transaction, Pending { instance, message, opened });
        Ok(())
    }

    fn question(&mut self, instance: u16, transaction: TransactionId) {
        // Still on its way: the answer follows by itself.
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

    /// The message is ours: its client hears `250`, and it is scheduled.
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
        self.schedule(pending.message, pending.opened, now);
    }

    pub(crate) fn refused(&mut self, transaction: TransactionId, refusal: spool::Refusal) {
        self.counters.refused += 1;
        let Some(pending) = self.receivers.pending.remove(&transaction) else { return };
        if let Some(instance) = pending.instance {
            self.receivers.refuse(instance, transaction, refusal_word(refusal));
        }
    }

    fn schedule(&mut self, message: MessageId, opened: Opened, now: Now) {
        let (routes, bytes) = (&self.settings.routes, opened.bytes);
        arrive(&mut self.scheduler, routes, message, &opened.envelope, bytes, now);
        self.shelf.put(message, opened);
    }
}

/// Our `Received` line; the recipient is named in it only where there is one.
fn received(hostname: &str, envelope: &Envelope, id: MessageId) -> Vec<u8> {
    let only = match &envelope.recipients[..] {
        [one] => Some(&one.address),
        _ => None,
    };
    mail::trace::received(&envelope.origin, id, hostname, envelope.arrived, only)
}

fn refusal_word(refusal: spool::Refusal) -> Refusal {
    match refusal {
        spool::Refusal::Full | spool::Refusal::Busy => Refusal::Full,
        spool::Refusal::TooLarge => Refusal::TooLarge,
        _ => Refusal::Trouble,
    }
}
