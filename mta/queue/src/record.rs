//! Outcomes and the notices they call for, each pair in one group: a failed recipient's outcome
//! and its bounce are durable together or not at all.
//!
//! Must never tell a sending process or an operator that something is recorded before it is, and
//! never forget a record that the spool refuses: it is kept, in order, and handed in again.

use crate::dispatch::SenderKey;
use crate::intake::PendingMessage;
use crate::message_cache::CachedMessage;
use crate::parts::{Manner, Parts, outcomes};
use crate::reads::ReadFor;
use crate::slots::Slots;
use crate::{LogEvent, Output, Queue};
use bytes::Bytes;
use link::admin::Answer;
use link::send::INLINE_BYTES_MAX;
use mail::bounce::{Bounce, BounceKind, Excerpt};
use mail::{Change, Instant, MessageId, Now, Report, TransactionId};
use scheduler::{MessageChanges, NoticeKind};
use spool::{Refusal, Ticket};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

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
/// What the spool refused is handed in again at the latest after this.
const STALL_TIME_MAX: Duration = Duration::from_secs(1);

/// What is on its way into the spool.
#[derive(Debug, Default)]
pub(crate) struct PendingRecords {
    waiting: Slots<PendingAnswer>,
    /// Results of which the scheduler has not yet given all records.
    fresh: BTreeMap<MessageId, Vec<Acknowledgement>>,
    tickets: HashMap<Ticket, SubmittedGroup>,
    /// Recipients in `tickets` whose outcome is final.
    outcomes: u64,
    /// Messages with a record that waits for a read or for room, each with what came after that
    /// record. At most a few for each recipient.
    behind: HashMap<MessageId, VecDeque<(MessageChanges, Acknowledgements)>>,
    /// Records in `behind`.
    behind_records: usize,
    /// What is left of records that the spool had no room for, oldest first.
    stalled: VecDeque<(Parts, Acknowledgements)>,
    /// When the first of them is handed in again, if nothing becomes durable before.
    retry_at: Option<Instant>,
}

/// A group that the spool has and that is not durable.
#[derive(Debug)]
struct SubmittedGroup {
    acknowledgements: Acknowledgements,
    outcomes: u64,
    /// The message that ends with it.
    retires: Option<MessageId>,
    /// The notice in it, for the log.
    notice: Option<Box<LogEvent>>,
}

#[derive(Debug)]
struct PendingAnswer {
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

/// A message that notices are about, and as much of it as they can need.
type Original<'a> = (&'a CachedMessage, &'a [u8]);

/// How far a record came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// The spool has all of it.
    In,
    /// Its message is being read.
    Reads,
    /// The spool has no room for the rest.
    Stalled,
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
    fn add(&mut self, message: MessageId) -> Acknowledgements {
        let Some(fresh) = self.fresh.get(&message) else { return Vec::new() };
        for acknowledgement in fresh {
            if let Some(waiting) = self.waiting.get_mut(*acknowledgement) {
                waiting.open += 1;
            }
        }
        fresh.clone()
    }

    /// Counts one group more that these wait for.
    fn split(&mut self, acknowledgements: &Acknowledgements) {
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
    fn done(&mut self, acknowledgement: Acknowledgement) -> Option<AnswerTo> {
        let waiting = self.waiting.get_mut(acknowledgement)?;
        waiting.open -= 1;
        if waiting.open > 0 {
            return None;
        }
        self.waiting.remove(acknowledgement).map(|waiting| waiting.answer_to)
    }
}

impl Queue {
    /// Gives a record to the spool, behind those of the same message that came before: a message
    /// must not end before the notice that it calls for is stored.
    pub(crate) fn record(&mut self, record: MessageChanges, now: Now) {
        let acknowledgements = self.records.add(record.message);
        match self.records.behind.get_mut(&record.message) {
            Some(behind) => {
                behind.push_back((record, acknowledgements));
                self.records.behind_records += 1;
            }
            None => self.record_next(record, acknowledgements, None, now),
        }
    }

    /// `original`: the message, if it has just been read.
    fn record_next(
        &mut self,
        mut record: MessageChanges,
        acknowledgements: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) {
        for silent in std::mem::take(&mut record.silent) {
            self.log(LogEvent::Silent { message: record.message, silent });
        }
        if Parts::is_one_group(&record) {
            return self.submit(record.changes, acknowledgements, now);
        }
        let parts = Parts::of(record);
        // Who came first goes first.
        if parts.tells() && !(self.records.stalled.is_empty() && self.spool.has_own_room()) {
            return self.stall(parts, acknowledgements, now);
        }
        self.go_on_recording(parts, acknowledgements, original, now);
    }

    /// Hands in what is left of a record; if notices are to be made, the message that they are about
    /// is needed first.
    fn go_on_recording(
        &mut self,
        parts: Parts,
        waits: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) -> Went {
        if original.is_some() || !parts.tells() {
            return self.hand_in(parts, waits, original, now);
        }
        let message = parts.message;
        let whole =
            self.message_cache.get(message).filter(|cached| cached.content.is_some()).cloned();
        match whole {
            Some(cached) => {
                let original = cached.content.clone().unwrap_or_default();
                self.hand_in(parts, waits, Some((&cached, &original)), now)
            }
            None => {
                self.records.behind.entry(message).or_default();
                self.read(message, ReadFor::Notice { parts, acknowledgements: waits }, now);
                Went::Reads
            }
        }
    }

    /// The message that a record's notices are about has been read, or cannot be.
    pub(crate) fn record_read(
        &mut self,
        parts: Parts,
        acknowledgements: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) {
        let message = parts.message;
        if self.hand_in(parts, acknowledgements, original, now) == Went::In {
            self.record_behind(message, original, now);
        }
    }

    /// All of a record has been handed in; what came behind it goes on. The `original` that was read for
    /// it serves all of them: each read of a list looks at every recipient.
    fn record_behind(&mut self, message: MessageId, original: Option<Original<'_>>, now: Now) {
        let mut behind = self.records.behind.remove(&message).unwrap_or_default();
        while let Some((record, acknowledgements)) = behind.pop_front() {
            self.records.behind_records -= 1;
            self.record_next(record, acknowledgements, original, now);
            if let Some(again) = self.records.behind.get_mut(&message) {
                debug_assert!(again.is_empty(), "nothing else has come meanwhile");
                *again = behind;
                return;
            }
        }
    }

    /// Keeps what is left of a record until the spool has room.
    fn stall(&mut self, parts: Parts, acknowledgements: Acknowledgements, now: Now) {
        self.records.behind.entry(parts.message).or_default();
        self.records.stalled.push_back((parts, acknowledgements));
        self.records.retry_at.get_or_insert(now.monotonic + STALL_TIME_MAX);
    }

    /// Something has become durable, or time has passed: hands in again what the spool refused.
    pub(crate) fn record_stalled(&mut self, now: Now) {
        if self.records.stalled.is_empty() {
            return;
        }
        self.records.retry_at = Some(now.monotonic + STALL_TIME_MAX);
        while self.spool.has_own_room() {
            let Some((parts, acknowledgements)) = self.records.stalled.pop_front() else { return };
            let message = parts.message;
            match self.go_on_recording(parts, acknowledgements, None, now) {
                Went::In => self.record_behind(message, None, now),
                Went::Reads => {}
                Went::Stalled => {
                    // It was the first, and stays so.
                    let back = self.records.stalled.pop_back();
                    return back
                        .into_iter()
                        .for_each(|first| self.records.stalled.push_front(first));
                }
            }
        }
    }

    /// Gives the spool group after group of a record. Without the original no notice can be made,
    /// and the outcomes are recorded alone: they count more.
    fn hand_in(
        &mut self,
        mut parts: Parts,
        waits: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) -> Went {
        if original.is_none() {
            parts.manner = Manner::Untold;
        }
        while !parts.is_done() {
            let (bounce, told) = self.next_notice(&parts, original, now);
            let part = parts.part(told);
            let logged = bounce.as_ref().map(|bounce| self.logged(&parts, bounce, told));
            let changes = part.changes.clone();
            match self.submit_with(bounce, changes, waits.clone(), logged, now) {
                Ok(()) if part.is_last => parts.taken(&part),
                Ok(()) => {
                    parts.taken(&part);
                    self.records.split(&waits);
                }
                Err(Refusal::TooLarge) if parts.make_smaller(told) => {
                    if parts.manner == Manner::Untold {
                        self.no_notice(
                            parts.message,
                            "the spool refuses every notice as too large",
                        );
                    }
                }
                Err(_) => {
                    self.stall(parts, waits, now);
                    return Went::Stalled;
                }
            }
        }
        Went::In
    }

    /// Says in the log that a sender is not told of an outcome.
    pub(crate) fn no_notice(&mut self, message: MessageId, why: &str) {
        let text = format!("no notice could be made: {why}");
        self.log(LogEvent::Damaged { message, text });
    }

    /// The notice of the next group, and of how many recipients it tells. Outcomes that a record is
    /// to hold without a notice are told of by none.
    fn next_notice(
        &self,
        parts: &Parts,
        original: Option<Original<'_>>,
        now: Now,
    ) -> (Option<Bounce>, usize) {
        let Some((kind, recipients)) = parts.next_told() else { return (None, 0) };
        match original.filter(|_| parts.manner != Manner::Untold) {
            Some((cached, original)) => self.notice(parts, kind, recipients, cached, original, now),
            None => (None, recipients.len()),
        }
    }

    fn notice(
        &self,
        parts: &Parts,
        kind: NoticeKind,
        recipients: &[(u32, Report)],
        cached: &CachedMessage,
        original: &[u8],
        now: Now,
    ) -> (Option<Bounce>, usize) {
        let kind = match kind {
            NoticeKind::Failed => BounceKind::Failed,
            NoticeKind::Expired => BounceKind::Expired,
            NoticeKind::Delayed => BounceKind::Delayed,
            NoticeKind::Relayed => BounceKind::Relayed,
            NoticeKind::Delivered => BounceKind::Delivered,
        };
        let envelope = &cached.envelope;
        let bytes_max = self.settings.original_bytes_max;
        let excerpt = match parts.manner {
            Manner::Ordinary => mail::bounce::excerpt(kind, envelope, cached.bytes, bytes_max),
            _ => Excerpt::Headers,
        };
        let is_bare = parts.manner == Manner::Bare;
        let bare = if is_bare { without_words(recipients) } else { Vec::new() };
        let expire = self.settings.scheduler.retry.expire;
        mail::bounce::first_bounce(&mail::bounce::Notice {
            kind,
            hostname: &self.settings.hostname,
            postmaster: &self.settings.postmaster,
            id: parts.message,
            envelope,
            recipients: if is_bare { &bare } else { recipients },
            excerpt,
            original: if is_bare { &[] } else { original },
            original_bytes: cached.bytes,
            now: now.wall,
            retry_until: matches!(kind, BounceKind::Delayed | BounceKind::Expired)
                .then(|| envelope.arrived + expire),
        })
    }

    /// A notice for the log; its id is not known yet.
    fn logged(&self, parts: &Parts, bounce: &Bounce, recipients: usize) -> Box<LogEvent> {
        let to = bounce.envelope.recipients.first();
        let to = to.map(|recipient| recipient.address.to_string()).unwrap_or_default();
        let kind = parts.next_told().map_or(NoticeKind::Failed, |(kind, _)| kind);
        let (about, notice) = (parts.message, MessageId(0));
        Box::new(LogEvent::Bounce { about, notice, kind, to, recipients })
    }

    /// One small group without a message of ours.
    fn submit(&mut self, changes: Vec<Change>, acknowledgements: Acknowledgements, now: Now) {
        let taken = self.submit_with(None, changes, acknowledgements, None, now);
        taken.expect("a group without a message is refused only if it is larger than a segment");
    }

    /// One group: perhaps a message of our own, and changes. Refused, it leaves nothing behind.
    fn submit_with(
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

    /// A message was deleted while it was tried, and the attempt has ended. That is answered when the
    /// deletion is durable: a cut before would have the message there again, and tried again. The
    /// spool keeps changes of one message in their order, so it is enough to say it once more.
    pub(crate) fn record_deletion(&mut self, message: MessageId, now: Now) {
        let changes = vec![Change::Retire { message }];
        self.record(
            MessageChanges { message, changes, notices: Vec::new(), silent: Vec::new() },
            now,
        );
    }

    /// A notice needs no `Received` line: nobody handed it to us.
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

    /// A group is durable.
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

    /// One part of an acknowledgement is done.
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

/// The message that ends with these changes.
fn retired_by(changes: &[Change]) -> Option<MessageId> {
    match changes.last() {
        Some(Change::Retire { message }) => Some(*message),
        _ => None,
    }
}

/// The evidence without what peers said.
fn without_words(recipients: &[(u32, Report)]) -> Vec<(u32, Report)> {
    let mut bare = recipients.to_vec();
    bare.iter_mut().for_each(|(_, report)| report.reply.text = WORDS_LEFT_OUT.into());
    bare
}

/// Stands for the words of a reply in a notice that would be too large with them.
const WORDS_LEFT_OUT: &str = "(the words of this reply are left out)";
