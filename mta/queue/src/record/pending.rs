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

/// The number of an answer that is sent once all records that it waits for are durable.
pub(crate) type Acknowledgement = u64;
/// The answers that wait for one record.
pub(crate) type Acknowledgements = Vec<Acknowledgement>;

/// Upper bound on the messages whose notices wait for a read or for room in the spool. At this number no other
/// message expires or is bounced by its route.
const TELLING_MAX: usize = 64;
/// Upper bound on the records with notices that wait for room. At this number no attempt is taken from the scheduler.
/// Attempts that already wait for a process still begin.
const STALLED_MAX: usize = 64;

/// The records that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct PendingRecords {
    waiting: Slots<PendingAnswer>,
    /// Answers that wait for records which the scheduler has not given yet, by message.
    fresh: BTreeMap<MessageId, Vec<Acknowledgement>>,
    pub(super) tickets: HashMap<Ticket, SubmittedGroup>,
    /// Recipients in `tickets` whose outcome is final.
    pub(super) outcomes: u64,
    /// Messages with a record that waits for a read or for room, each with the records that came later. There are at
    /// most a few for each recipient.
    pub(super) behind: HashMap<MessageId, VecDeque<(MessageChanges, Acknowledgements)>>,
    /// The number of records in `behind`.
    pub(super) behind_records: usize,
    /// What is left of records that the spool had no room for, oldest first.
    pub(super) stalled: VecDeque<(Parts, Acknowledgements)>,
    /// When the first of `stalled` is handed in again if nothing becomes durable before.
    pub(super) retry_at: Option<Instant>,
}

/// A group that the spool has and that is not durable.
#[derive(Debug)]
pub(super) struct SubmittedGroup {
    pub(super) acknowledgements: Acknowledgements,
    pub(super) outcomes: u64,
    /// The message that ends with the group.
    pub(super) retires: Option<MessageId>,
    /// The log event of the notice in the group.
    pub(super) notice: Option<Box<LogEvent>>,
}

#[derive(Debug)]
pub(super) struct PendingAnswer {
    answer_to: AnswerTo,
    /// The number of groups that are not durable, and one more for each message whose records have not been counted.
    open: u32,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) enum AnswerTo {
    /// A sending process, for its results of these attempts at one message.
    Sender(SenderKey, Vec<u64>),
    /// An operator, for an action: the number of the question, and the answer.
    Operator(u64, Box<Answer>),
}

impl PendingRecords {
    /// Notes an answer that waits for the records which the scheduler is about to give for these messages. There must
    /// be at least one message.
    pub fn expect(&mut self, answer_to: AnswerTo, messages: &[MessageId]) {
        debug_assert!(!messages.is_empty(), "nothing would end the waiting");
        let name = self.waiting.insert(PendingAnswer { answer_to, open: messages.len() as u32 });
        for message in messages {
            self.fresh.entry(*message).or_default().push(name);
        }
    }

    /// Notes the result of an attempt. Results of one process and message that come together wait together, so that a
    /// record of a list does not look at each of them.
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

    /// Returns the attempts of this process whose results are not durable yet. Looks at all pending answers, which is
    /// acceptable for each new stream but not for each message.
    pub fn awaited(&self, key: SenderKey) -> HashSet<u64> {
        let of_process = |waiting: &PendingAnswer| match &waiting.answer_to {
            AnswerTo::Sender(other, attempts) if *other == key => attempts.clone(),
            _ => Vec::new(),
        };
        self.waiting.values().flat_map(of_process).collect()
    }

    /// Notes that the scheduler has given all its records. Returns the answers that waited for them.
    pub fn all_given(&mut self) -> Vec<Acknowledgement> {
        if self.fresh.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.fresh).into_values().flatten().collect()
    }

    /// Counts a record of this message. Returns the answers that wait for the record.
    pub(super) fn add(&mut self, message: MessageId) -> Acknowledgements {
        let Some(fresh) = self.fresh.get(&message) else { return Vec::new() };
        for acknowledgement in fresh {
            if let Some(waiting) = self.waiting.get_mut(*acknowledgement) {
                waiting.open += 1;
            }
        }
        fresh.clone()
    }

    /// Counts one more group that these answers wait for.
    pub(super) fn split(&mut self, acknowledgements: &Acknowledgements) {
        for acknowledgement in acknowledgements {
            if let Some(waiting) = self.waiting.get_mut(*acknowledgement) {
                waiting.open += 1;
            }
        }
    }

    /// Returns the number of groups that are not durable, messages with a record that waits, and records after those.
    pub fn unrecorded(&self) -> usize {
        self.tickets.len() + self.behind.len() + self.behind_records
    }

    /// Returns the number of recipients whose outcome is known and not durable.
    pub fn outcomes(&self) -> u64 {
        let of_record = |(record, _): &(MessageChanges, Acknowledgements)| -> u64 {
            record.changes.iter().map(outcomes).sum()
        };
        let behind = self.behind.values().flatten().map(of_record).sum::<u64>();
        let stalled = self.stalled.iter().map(|(parts, _)| parts.outcomes()).sum::<u64>();
        self.outcomes + behind + stalled
    }

    /// Returns true if no more notices should be made for now.
    pub fn tells_enough(&self) -> bool {
        !self.stalled.is_empty() || self.behind.len() >= TELLING_MAX
    }

    /// Returns true if as many records wait for room as may.
    pub fn is_full(&self) -> bool {
        self.stalled.len() >= STALLED_MAX
    }

    /// Returns when records that the spool refused are handed in again.
    pub fn retry_due(&self) -> Option<Instant> {
        self.retry_at.filter(|_| !self.stalled.is_empty())
    }

    /// Returns true if the spool has all records of this message.
    pub fn all_submitted(&self, message: MessageId) -> bool {
        !self.behind.contains_key(&message)
    }

    /// Returns true if the spool has all records of all messages.
    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }

    /// Counts one group as done. Returns who gets the answer if the group was the last.
    pub(super) fn done(&mut self, acknowledgement: Acknowledgement) -> Option<AnswerTo> {
        let waiting = self.waiting.get_mut(acknowledgement)?;
        waiting.open -= 1;
        if waiting.open > 0 {
            return None;
        }
        self.waiting.remove(acknowledgement).map(|waiting| waiting.answer_to)
    }
}
