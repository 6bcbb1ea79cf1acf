//! Groups: a notice of our own and the outcomes that it tells of, which the spool makes durable together.
//!
//! Must never log a notice or answer for a group before the group is durable.

use super::pending::SubmittedGroup;
use super::{Acknowledgement, Acknowledgements, AnswerTo};
use crate::intake::PendingMessage;
use crate::message_cache::CachedMessage;
use crate::parts::outcomes;
use crate::{LogEvent, Output, Queue};
use bytes::Bytes;
use link::send::INLINE_BYTES_MAX;
use mail::bounce::Bounce;
use mail::{Change, MessageId, Now, TransactionId};
use scheduler::MessageChanges;
use spool::{Refusal, Ticket};
use std::rc::Rc;

impl Queue {
    /// Submits one small group without a message of our own.
    pub(super) fn submit(
        &mut self,
        changes: Vec<Change>,
        acknowledgements: Acknowledgements,
        now: Now,
    ) {
        let taken = self.submit_with(None, changes, acknowledgements, None, now);
        taken.expect("a group without a message is refused only if it is larger than a segment");
    }

    /// Submits one group: changes, and perhaps a notice. If the spool refuses the group, nothing of it is kept.
    pub(super) fn submit_with(
        &mut self,
        bounce: Option<Bounce>,
        changes: Vec<Change>,
        acknowledgements: Acknowledgements,
        mut notice: Option<Box<LogEvent>>,
        now: Now,
    ) -> Result<(), Refusal> {
        let live = |message: &MessageId| self.spool.contains(*message);
        let retires = retired_by(&changes).filter(live);
        let outcomes = changes.iter().map(outcomes).sum();
        let own = bounce.map(|bounce| self.own(bounce)).transpose()?;
        let (pending, messages) = match own {
            Some((transaction, cached, new)) => (Some((transaction, cached)), vec![new]),
            None => (None, Vec::new()),
        };
        let (ticket, ids) = self.spool.submit(spool::Group { messages, changes }, now)?;
        for ((transaction, cached), message) in pending.into_iter().zip(ids) {
            self.receivers.expect(transaction, PendingMessage { instance: None, message, cached });
            if let Some(LogEvent::Bounce { notice, .. }) = notice.as_deref_mut() {
                *notice = message;
            }
        }
        if !acknowledgements.is_empty() || retires.is_some() || notice.is_some() {
            self.records.outcomes += outcomes;
            let group = SubmittedGroup { acknowledgements, outcomes, retires, notice };
            self.records.tickets.insert(ticket, group);
        }
        Ok(())
    }

    /// Records the deletion of a message again after its last attempt has ended. The result is acknowledged when the
    /// deletion is durable, because a crash before that would restore the message and try it again. The spool keeps
    /// the changes of one message in order, so a second `Retire` is enough.
    pub(crate) fn record_deletion(&mut self, message: MessageId, now: Now) {
        let changes = vec![Change::Retire { message }];
        self.record(
            MessageChanges { message, changes, notices: Vec::new(), silent: Vec::new() },
            now,
        );
    }

    /// Stages a notice. It needs no `Received` line, because no client sent it.
    fn own(
        &mut self,
        bounce: Bounce,
    ) -> Result<(TransactionId, CachedMessage, spool::NewMessage), Refusal> {
        self.own_number += 1;
        let transaction =
            TransactionId { incarnation: self.own_incarnation, number: self.own_number };
        let Bounce { envelope, bytes } = bounce;
        let total = bytes.len() as u64;
        let bytes = Bytes::from(bytes);
        let content = (total <= INLINE_BYTES_MAX).then(|| bytes.clone());
        self.spool.stage_own(transaction, bytes)?;
        let shared = Rc::new(envelope.clone());
        let cached = CachedMessage { envelope: shared, bytes: total, prefix_bytes: 0, content };
        Ok((transaction, cached, spool::NewMessage { transaction, envelope, prefix: Vec::new() }))
    }

    /// Takes note that a group is durable: logs its notice and its retirement, and answers who waited for it.
    pub(crate) fn recorded(&mut self, ticket: Ticket, now: Now) {
        let Some(group) = self.records.tickets.remove(&ticket) else { return };
        self.records.outcomes -= group.outcomes;
        if let Some(bounce) = group.notice {
            self.counters.notices += 1;
            self.log(*bounce);
        }
        if let Some(message) = group.retires {
            self.message_cache.remove(message);
            self.log(LogEvent::Retire { message });
        }
        for acknowledgement in group.acknowledgements {
            self.records_settled(acknowledgement, now);
        }
    }

    /// Counts one group of an answer as done and sends the answer after the last one.
    pub(crate) fn records_settled(&mut self, acknowledgement: Acknowledgement, now: Now) {
        match self.records.done(acknowledgement) {
            Some(AnswerTo::Sender(key, attempts)) => {
                self.senders.recorded(key, attempts, now.monotonic);
            }
            Some(AnswerTo::Operator(question, answer)) => {
                self.output.push_back(Output::Answer(question, *answer));
            }
            None => {}
        }
    }
}

/// Returns the message that ends with these changes.
fn retired_by(changes: &[Change]) -> Option<MessageId> {
    match changes.last() {
        Some(Change::Retire { message }) => Some(*message),
        _ => None,
    }
}
