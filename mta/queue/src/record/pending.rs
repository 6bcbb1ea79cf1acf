//! The records that are on their way into the spool, and who waits for each.
//!
//! Must never answer for a record before all that was expected of it is durable.

use crate::LogEvent;
use crate::dispatch::SenderKey;
use crate::parts::{Parts, outcomes};
use crate::slots::Slots;
use link::admin::Answer;
use mail::{Instant, MessageId};
use scheduler::MessageChanges;
use spool::Ticket;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Names what is told once everything that it called for is recorded.
pub(crate) type Acknowledgement = u64;
/// All that wait for one record.
pub(crate) type Acknowledgements = Vec<Acknowledgement>;

/// Messages whose notices wait for a read or for room in the spool: with so many, nothing new is
/// given up or bounced by its route.
const TELLING_MAX: usize = 64;
/// At this number of notices that wait for room, the queue begins no attempt either. Attempts that already wait for a
/// process still begin.
const STALLED_MAX: usize = 64;

/// What is on its way into the spool.
#[derive(Debug, Default)]
pub(crate) struct PendingRecords {
    waiting: Slots<PendingAnswer>,
    /// Results of which the scheduler has not yet given all records.
    fresh: BTreeMap<MessageId, Vec<Acknowledgement>>,
    pub(super) tickets: HashMap<Ticket, SubmittedGroup>,
    /// Recipients in `tickets` whose outcome is final.
    pub(super) outcomes: u64,
    /// Messages with a record that waits for a read or for room, each with what came after that
    /// record. At most a few for each recipient.
    pub(super) behind: HashMap<MessageId, VecDeque<(MessageChanges, Acknowledgements)>>,
    /// Records in `behind`.
    pub(super) behind_records: usize,
    /// What is left of records that the spool had no room for, oldest first.
    pub(super) stalled: VecDeque<(Parts, Acknowledgements)>,
    /// When the first of them is handed in again, if nothing becomes durable before.
    pub(super) retry_at: Option<Instant>,
}

/// A group that the spool has and that is not durable.
#[derive(Debug)]
pub(super) struct SubmittedGroup {
    pub(super) acknowledgements: Acknowledgements,
    pub(super) outcomes: u64,
    /// The message that ends with it.
    pub(super) retires: Option<MessageId>,
    /// The notice in it, for the log.
    pub(super) notice: Option<Box<LogEvent>>,
}

#[derive(Debug)]
pub(super) struct PendingAnswer {
    answer_to: AnswerTo,
    /// Groups that are not durable yet, and one more for each message whose records have not
    /// been counted.
    open: u32,
}

/// Who waits for a recording.
#[derive(Debug)]
pub(crate) enum AnswerTo {
    /// A sending process, with its results of these attempts at one message.
    Sender(SenderKey, Vec<u64>),
    /// An operator, with an action; the number of the question and its answer.
    Operator(u64, Box<Answer>),
}

impl PendingRecords {
    /// The scheduler is about to give the records that a result or an action calls for, about
    /// these messages, of which there is at least one.
    pub fn expect(&mut self, answer_to: AnswerTo, messages: &[MessageId]) {
        debug_assert!(!messages.is_empty(), "nothing would end the waiting");
        let name = self.waiting.insert(PendingAnswer { answer_to, open: messages.len() as u32 });
        for message in messages {
            self.fresh.entry(*message).or_default().push(name);
        }
    }

    /// The same for the result of an attempt. Those of one message that come together wait
    /// together: a list of thousands has one record for many, and not each waits for all.
    pub fn expect_result(&mut self, key: SenderKey, attempt: u64, message: MessageId) {
        for acknowledgement in self.fresh.get(&message).into_iter().flatten() {
            let waiting =
                self.waiting.get_mut(*acknowledgement).map(|waiting| &mut waiting.answer_to);
            if let Some(AnswerTo::Sender(other, attempts)) = waiting
                && *other == key
            {
                return attempts.push(attempt);
            }
        }
        self.expect(AnswerTo::Sender(key, vec![attempt]), &[message]);
    }

    /// The attempts of this process whose results wait to be durable: it will be told then. Looks at
    /// all that wait, which a new stream is worth and a message is not.
    pub fn awaited(&self, key: SenderKey) -> HashSet<u64> {
        let of_process = |waiting: &PendingAnswer| match &waiting.answer_to {
            AnswerTo::Sender(other, attempts) if *other == key => attempts.clone(),
            _ => Vec::new(),
        };
        self.waiting.values().flat_map(of_process).collect()
    }

    /// The scheduler has given all that it has.
    pub fn all_given(&mut self) -> Vec<Acknowledgement> {
        if self.fresh.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.fresh).into_values().flatten().collect()
    }

    /// Counts a record of this message in; gives back which results wait for it.
    pub(super) fn add(&mut self, message: MessageId) -> Acknowledgements {
        let Some(fresh) = self.fresh.get(&message) else { return Vec::new() };
        for acknowledgement in fresh {
            if let Some(waiting) = self.waiting.get_mut(*acknowledgement) {
                waiting.open += 1;
            }
        }
        fresh.clone()
    }

    /// Counts one group more that these wait for.
    pub(super) fn split(&mut self, acknowledgements: &Acknowledgements) {
        for acknowledgement in acknowledgements {
            if let Some(waiting) = self.waiting.get_mut(*acknowledgement) {
                waiting.open += 1;
            }
        }
    }

    /// Groups handed in that are not durable yet, messages with a record that waits, and records behind those.
    pub fn unrecorded(&self) -> usize {
        self.tickets.len() + self.behind.len() + self.behind_records
    }

    /// Recipients whose outcome is known, but not durable.
    pub fn outcomes(&self) -> u64 {
        let of_record = |(record, _): &(MessageChanges, Acknowledgements)| -> u64 {
            record.changes.iter().map(outcomes).sum()
        };
        let behind = self.behind.values().flatten().map(of_record).sum::<u64>();
        let stalled = self.stalled.iter().map(|(parts, _)| parts.outcomes()).sum::<u64>();
        self.outcomes + behind + stalled
    }

    /// As many notices wait as should.
    pub fn tells_enough(&self) -> bool {
        !self.stalled.is_empty() || self.behind.len() >= TELLING_MAX
    }

    /// As many notices wait for room as may.
    pub fn is_full(&self) -> bool {
        self.stalled.len() >= STALLED_MAX
    }

    /// When what the spool refused is handed in again.
    pub fn retry_due(&self) -> Option<Instant> {
        self.retry_at.filter(|_| !self.stalled.is_empty())
    }

    /// Whether the spool has all records of this message that there are.
    pub fn all_submitted(&self, message: MessageId) -> bool {
        !self.behind.contains_key(&message)
    }

    /// The same for all messages.
    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }

    /// One of them is done; returns who gets the answer if it was the last.
    pub(super) fn done(&mut self, acknowledgement: Acknowledgement) -> Option<AnswerTo> {
        let waiting = self.waiting.get_mut(acknowledgement)?;
        waiting.open -= 1;
        if waiting.open > 0 {
            return None;
        }
        self.waiting.remove(acknowledgement).map(|waiting| waiting.answer_to)
    }
}
