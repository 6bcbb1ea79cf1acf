//! Outcomes and the notices they call for, each pair in one group: a failed recipient's outcome
//! and its bounce are durable together or not at all.
//!
//! Must never tell a sending process or an operator that something is recorded before it is.

use crate::dispatch::SenderKey;
use crate::intake::Pending;
use crate::reads::ReadFor;
use crate::shelf::Opened;
use crate::{Logged, Output, Queue};
use bytes::Bytes;
use link::admin::Answer;
use link::send::INLINE_BYTES_MAX;
use mail::bounce::{Bounce, Kind, NOTICE_RECIPIENTS_MAX};
use mail::{Change, MessageId, Now, TransactionId};
use scheduler::{Notice, NoticeKind, Record};
use spool::Ticket;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

/// Names what is told once everything that it called for is recorded.
pub(crate) type Acknowledgement = u64;
/// All that wait for one record.
pub(crate) type Acknowledgements = Vec<Acknowledgement>;

/// What is on its way into the spool.
#[derive(Debug, Default)]
pub(crate) struct Records {
    next: Acknowledgement,
    waiting: HashMap<Acknowledgement, Waiting>,
    /// Results of which the scheduler has not yet given all records.
    fresh: BTreeMap<MessageId, Vec<Acknowledgement>>,
    tickets: HashMap<Ticket, Acknowledgements>,
    /// Messages that are being read for a notice, each with what came after the record that the
    /// notice belongs to. At most a few for each recipient.
    behind: HashMap<MessageId, VecDeque<(Record, Acknowledgements)>>,
}

#[derive(Debug)]
struct Waiting {
    whom: Whom,
    /// Records that are not durable yet, and one more for each message whose records have not
    /// been counted.
    open: u32,
}

/// Who waits for a recording.
#[derive(Debug)]
pub(crate) enum Whom {
    /// A sending process, with its results of these attempts at one message.
    Sender(SenderKey, Vec<u64>),
    /// An operator, with an action; the number of the question and its answer.
    Operator(u64, Box<Answer>),
}

impl Records {
    /// The scheduler is about to give the records that a result or an action calls for, about
    /// these messages, of which there is at least one.
    pub fn expect(&mut self, whom: Whom, messages: &[MessageId]) {
        debug_assert!(!messages.is_empty(), "nothing would end the waiting");
        self.next += 1;
        self.waiting.insert(self.next, Waiting { whom, open: messages.len() as u32 });
        for message in messages {
            self.fresh.entry(*message).or_default().push(self.next);
        }
    }

    /// The same for the result of an attempt. Those of one message that come together wait
    /// together: a list of thousands has one record for many, and not each waits for all.
    pub fn expect_result(&mut self, key: SenderKey, attempt: u64, message: MessageId) {
        for acknowledgement in self.fresh.get(&message).into_iter().flatten() {
            let waiting = self.waiting.get_mut(acknowledgement).map(|waiting| &mut waiting.whom);
            if let Some(Whom::Sender(other, attempts)) = waiting
                && *other == key
            {
                return attempts.push(attempt);
            }
        }
        self.expect(Whom::Sender(key, vec![attempt]), &[message]);
    }

    /// Whether the result of this attempt waits to be durable: its process will be told then.
    pub fn awaits(&self, key: SenderKey, attempt: u64) -> bool {
        let is_it =
            |whom: &Whom| matches!(whom, Whom::Sender(k, a) if *k == key && a.contains(&attempt));
        self.waiting.values().any(|waiting| is_it(&waiting.whom))
    }

    /// The scheduler has given all that it has.
    pub fn all_given(&mut self) -> Vec<Acknowledgement> {
        if self.fresh.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.fresh).into_values().flatten().collect()
    }

    /// Counts a record of this message in; gives back which results wait for it.
    fn add(&mut self, message: MessageId) -> Acknowledgements {
        let Some(fresh) = self.fresh.get(&message) else { return Vec::new() };
        for acknowledgement in fresh {
            if let Some(waiting) = self.waiting.get_mut(acknowledgement) {
                waiting.open += 1;
            }
        }
        fresh.clone()
    }

    /// Groups handed in that are not durable yet and that somebody waits for.
    pub fn unrecorded(&self) -> usize {
        self.tickets.len()
    }

    /// Whether the spool has all records of this message that there are.
    pub fn all_submitted(&self, message: MessageId) -> bool {
        !self.behind.contains_key(&message)
    }

    /// The same for all messages.
    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }

    /// One of them is done; gives back whom to answer if it was the last.
    fn done(&mut self, acknowledgement: Acknowledgement) -> Option<Whom> {
        let waiting = self.waiting.get_mut(&acknowledgement)?;
        waiting.open -= 1;
        if waiting.open > 0 {
            return None;
        }
        self.waiting.remove(&acknowledgement).map(|waiting| waiting.whom)
    }
}

impl Queue {
    /// Gives a record to the spool, behind those of the same message that came before: a message
    /// must not end before the notice that it calls for is stored.
    pub(crate) fn record(&mut self, record: Record, now: Now) {
        let acknowledgements = self.records.add(record.message);
        match self.records.behind.get_mut(&record.message) {
            Some(behind) => behind.push_back((record, acknowledgements)),
            None => self.record_next(record, acknowledgements, now),
        }
    }

    /// One with notices first needs the message it is about.
    fn record_next(&mut self, record: Record, acknowledgements: Acknowledgements, now: Now) {
        for silent in &record.silent {
            self.log(Logged::Silent { message: record.message, silent: silent.clone() });
        }
        if record.notices.is_empty() {
            self.submit(Vec::new(), record.changes, acknowledgements, now);
            return;
        }
        let message = record.message;
        let whole = self.shelf.get(message).filter(|opened| opened.content.is_some()).cloned();
        match whole {
            Some(opened) => {
                let original = opened.content.clone().unwrap_or_default();
                self.record_with_notices(record, acknowledgements, &opened, &original, now);
            }
            None => {
                self.records.behind.entry(message).or_default();
                self.read(message, ReadFor::Notice { record, acknowledgements }, now);
            }
        }
    }

    /// The notice of a record has been made, or cannot be; what came behind it goes on.
    pub(crate) fn record_behind(&mut self, message: MessageId, now: Now) {
        let mut behind = self.records.behind.remove(&message).unwrap_or_default();
        while let Some((record, acknowledgements)) = behind.pop_front() {
            self.record_next(record, acknowledgements, now);
            if let Some(again) = self.records.behind.get_mut(&message) {
                return again.extend(behind);
            }
        }
    }

    /// Builds the notices and gives all to the spool as one group.
    pub(crate) fn record_with_notices(
        &mut self,
        record: Record,
        acknowledgements: Acknowledgements,
        opened: &Opened,
        original: &[u8],
        now: Now,
    ) {
        let mut bounces = Vec::new();
        for notice in &record.notices {
            for recipients in notice.recipients.chunks(NOTICE_RECIPIENTS_MAX) {
                let bounce = self.notice(&record, notice, recipients, opened, original, now);
                bounces.extend(bounce.map(|bounce| (bounce, notice.kind, recipients.len())));
            }
        }
        let about = record.message;
        let ids = self.submit(
            bounces.iter().map(|(bounce, ..)| bounce.clone()).collect(),
            record.changes,
            acknowledgements,
            now,
        );
        for ((bounce, kind, recipients), notice) in bounces.into_iter().zip(ids) {
            self.counters.notices += 1;
            let to = bounce.envelope.recipients.first();
            let to = to.map(|recipient| recipient.address.to_string()).unwrap_or_default();
            self.log(Logged::Bounce { about, notice, kind, to, recipients });
        }
    }

    fn notice(
        &self,
        record: &Record,
        notice: &Notice,
        recipients: &[(u32, mail::Report)],
        opened: &Opened,
        original: &[u8],
        now: Now,
    ) -> Option<Bounce> {
        let kind = match notice.kind {
            NoticeKind::Failed | NoticeKind::Expired => Kind::Failed,
            NoticeKind::Delayed => Kind::Delayed,
            NoticeKind::Relayed => Kind::Relayed,
            NoticeKind::Delivered => Kind::Delivered,
        };
        let envelope = &opened.envelope;
        let part = mail::bounce::part(kind, envelope, opened.bytes, self.settings.bounce_bytes_max);
        let expire = self.settings.scheduler.retry.expire;
        mail::bounce::bounce(&mail::bounce::Notice {
            kind,
            hostname: &self.settings.hostname,
            postmaster: &self.settings.postmaster,
            id: record.message,
            envelope,
            recipients,
            part,
            original,
            now: now.wall,
            retry_until: (kind == Kind::Delayed).then(|| envelope.arrived + expire),
        })
    }

    /// One group: messages of our own and changes.
    pub(crate) fn submit(
        &mut self,
        bounces: Vec<Bounce>,
        changes: Vec<Change>,
        acknowledgements: Acknowledgements,
        now: Now,
    ) -> Vec<MessageId> {
        for change in &changes {
            if let Change::Retire { message } = change
                && self.spool.contains(*message)
            {
                self.shelf.remove(*message);
                self.log(Logged::Retire { message: *message });
            }
        }
        let mut pending = Vec::new();
        let mut messages = Vec::new();
        for bounce in bounces {
            let (transaction, opened, new) = self.own(bounce);
            pending.push((transaction, opened));
            messages.push(new);
        }
        match self.spool.submit(spool::Group { messages, changes }, now) {
            Ok((ticket, ids)) => {
                for ((transaction, opened), message) in pending.into_iter().zip(&ids) {
                    let message = *message;
                    self.receivers.expect(transaction, Pending { instance: None, message, opened });
                }
                if !acknowledgements.is_empty() {
                    self.records.tickets.insert(ticket, acknowledgements);
                }
                ids
            }
            // Taken even where the disk is full or fails; a refusal here means that the notices
            // are larger than a segment, and the attempt is repeated after a restart.
            Err(refusal) => {
                self.log(Logged::Damaged {
                    message: MessageId(0),
                    text: format!("an outcome could not be recorded: {refusal}"),
                });
                Vec::new()
            }
        }
    }

    /// A message was deleted while it was tried, and the attempt has ended. That is answered when the
    /// deletion is durable: a cut before would have the message there again, and tried again. The
    /// spool keeps changes of one message in their order, so it is enough to say it once more.
    pub(crate) fn record_deletion(&mut self, message: MessageId, now: Now) {
        let changes = vec![Change::Retire { message }];
        self.record(Record { message, changes, notices: Vec::new(), silent: Vec::new() }, now);
    }

    /// A notice needs no `Received` line: nobody handed it to us.
    fn own(&mut self, bounce: Bounce) -> (TransactionId, Opened, spool::NewMessage) {
        self.own_number += 1;
        let transaction = TransactionId { origin: self.own_origin, number: self.own_number };
        let Bounce { envelope, bytes } = bounce;
        let total = bytes.len() as u64;
        let bytes = Bytes::from(bytes);
        let content = (total <= INLINE_BYTES_MAX).then(|| bytes.clone());
        // Refused only where it is longer than any body may be; the group with it is refused, too.
        let _ = self.spool.stage_own(transaction, bytes);
        let shared = Rc::new(envelope.clone());
        let opened = Opened { envelope: shared, bytes: total, prefix_bytes: 0, content };
        (transaction, opened, spool::NewMessage { transaction, envelope, prefix: Vec::new() })
    }

    /// A group is durable.
    pub(crate) fn recorded(&mut self, ticket: Ticket, now: Now) {
        for acknowledgement in self.records.tickets.remove(&ticket).unwrap_or_default() {
            self.records_settled(acknowledgement, now);
        }
    }

    /// One part of an acknowledgement is done.
    pub(crate) fn records_settled(&mut self, acknowledgement: Acknowledgement, now: Now) {
        match self.records.done(acknowledgement) {
            Some(Whom::Sender(key, attempts)) => {
                self.senders.recorded(key, attempts, now.monotonic);
            }
            Some(Whom::Operator(question, answer)) => {
                self.output.push_back(Output::Answer(question, *answer));
            }
            None => {}
        }
    }
}
