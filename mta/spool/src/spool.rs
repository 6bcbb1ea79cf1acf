//! The machine: what is handed in, what comes out, and in which order it looks at its parts.
//!
//! Must never decide what a part should; each part has its file.

use crate::admit::{Ready, Waiting, encoded};
use crate::batch::Batch;
use crate::commit::LogStream;
use crate::fail::Broken;
use crate::format::segment::SegmentKind;
use crate::format::snapshot::Extra;
use crate::index::Index;
use crate::retire::{Mover, Supply};
use crate::segments::{Segments, State};
use crate::snapshot::Snapshots;
use crate::stage::Staged;
use crate::{Alarm, Group, IoDone, NewMessage, Output, Refusal, Settings, Ticket, Usage};
use mail::{Change, Envelope, Instant, MessageId, Now, TransactionId};
use std::collections::{HashMap, VecDeque};

/// The local log. See the crate's documentation for its shape.
pub struct Spool {
    pub(crate) settings: Settings,
    pub(crate) segments: Segments,
    pub(crate) log: LogStream,
    pub(crate) bulk: LogStream,
    pub(crate) index: Index,
    pub(crate) extras: HashMap<MessageId, Box<[Extra]>>,
    pub(crate) staged: HashMap<TransactionId, Staged>,
    /// Of clients, in memory and in no batch yet.
    pub(crate) staged_bytes: u64,
    /// The same of our own messages.
    pub(crate) own_staged_bytes: u64,
    /// Bodies of clients with pieces in memory, those first whose pieces have waited longest.
    pub(crate) resting: VecDeque<TransactionId>,
    /// Groups that need something which is not durable yet.
    pub(crate) waiting: VecDeque<Waiting>,
    /// Messages with a change in this batch, so that no two batches under way are about one
    /// message.
    pub(crate) unsettled: HashMap<MessageId, u64>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) refusing: Vec<(TransactionId, Refusal)>,
    pub(crate) last_message: u64,
    pub(crate) last_record: u64,
    pub(crate) last_batch: u64,
    pub(crate) last_ticket: u64,
    pub(crate) last_io: u64,
    pub(crate) last_epoch: u64,
    pub(crate) nonce_seed: u64,
    pub(crate) written_lengths: HashMap<u64, usize>,
    pub(crate) recent: HashMap<TransactionId, MessageId>,
    pub(crate) recent_order: VecDeque<TransactionId>,
    pub(crate) supply: Supply,
    pub(crate) mover: Mover,
    pub(crate) snapshots: Snapshots,
    pub(crate) log_bytes: u64,
    pub(crate) failures: u32,
    /// The last of them was about a file that is deleted.
    pub(crate) deleted: bool,
    pub(crate) last_refusal: Refusal,
    pub(crate) broken: Option<Broken>,
    /// When a poll last found nothing to do.
    pub(crate) idle_at: Instant,
    pub(crate) usage: Usage,
}

impl Spool {
    /// Returns the id of the next message: greater than every id before it, and close to the wall
    /// clock. An id that no message is accepted with is skipped.
    pub fn next_message_id(&mut self, now: Now) -> MessageId {
        let wall = u64::try_from(now.wall.micros()).unwrap_or(0);
        self.last_message = (self.last_message + 1).max(wall);
        MessageId(self.last_message)
    }

    /// Accepts a client's message: the staged body of `transaction`, its envelope, and the trace
    /// header that goes before the body. `message` comes from [`Spool::next_message_id`].
    ///
    /// The answer is [`Output::Durable`] or [`Output::Refused`].
    pub fn accept(
        &mut self,
        message: MessageId,
        transaction: TransactionId,
        envelope: &Envelope,
        prefix: &[u8],
        now: Now,
    ) -> Result<(), Refusal> {
        self.may_accept(transaction)?;
        let ready = Ready {
            message,
            transaction,
            original: transaction,
            prefix: prefix.to_vec(),
            envelope: encoded(envelope),
        };
        let messages = vec![ready];
        let waiting =
            Waiting { ticket: None, client: true, moved: false, messages, changes: Vec::new() };
        self.admit(waiting, now)
    }

    /// One change; rides in the next commit.
    pub fn change(&mut self, change: Change, now: Now) -> Ticket {
        let group = Group { messages: Vec::new(), changes: vec![change] };
        let submitted = self.submit(group, now);
        submitted.expect("a group without messages is never refused").0
    }

    /// Messages of our own and changes, all or nothing. Neither a full nor a failing disk refuses
    /// them: an outcome that is known must not be lost for want of its notice's room. Only a group
    /// that is larger than a segment is refused; its bodies are unstaged.
    pub fn submit(&mut self, group: Group, now: Now) -> Result<(Ticket, Vec<MessageId>), Refusal> {
        let staged: Vec<_> = group.messages.iter().map(|message| message.transaction).collect();
        let taken = self.submit_staged(group, now);
        if taken.is_err() {
            staged.into_iter().for_each(|transaction| self.unstage(transaction));
        }
        taken
    }

    fn submit_staged(
        &mut self,
        group: Group,
        now: Now,
    ) -> Result<(Ticket, Vec<MessageId>), Refusal> {
        for message in &group.messages {
            self.is_whole(message.transaction)?;
        }
        let ready = |new: NewMessage, message| Ready {
            message,
            transaction: new.transaction,
            original: new.transaction,
            prefix: new.prefix,
            envelope: encoded(&new.envelope),
        };
        let named = group.messages.into_iter().map(|new| ready(new, self.next_message_id(now)));
        let messages: Vec<_> = named.collect();
        let ids = messages.iter().map(|message| message.message).collect();
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let changes = group.changes;
        let waiting =
            Waiting { ticket: Some(ticket), client: false, moved: false, messages, changes };
        self.admit(waiting, now)?;
        Ok((ticket, ids))
    }

    /// The end of an [`crate::Io`].
    pub fn handle(&mut self, done: IoDone, now: Now) {
        let of = |stream: &LogStream| stream.flights.iter().any(|flight| flight.io == done.id);
        if of(&self.log) {
            self.finish_commit(done, SegmentKind::Log, now);
        } else if of(&self.bulk) {
            self.finish_commit(done, SegmentKind::Bulk, now);
        } else {
            self.finish_other(done, now);
        }
    }

    /// What is to be done or said next; `None`: nothing until `handle`, a call, or `next_wakeup`.
    pub fn poll(&mut self, now: Now) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let io = (self.start_commit(SegmentKind::Log, now))
            .or_else(|| self.start_commit(SegmentKind::Bulk, now))
            .or_else(|| self.activate(now))
            .or_else(|| self.background(now));
        let output = io.map(Output::Io).or_else(|| self.outputs.pop_front());
        if output.is_none() {
            self.idle_at = now.monotonic;
        }
        output
    }

    /// When to poll although nothing happened. What was due at the last poll and could not be
    /// done then waits for something else: to wake for it would be to spin.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let broken = self.broken.as_ref().map(|broken| broken.retry_at);
        // With anything else in the way it is an I/O's end that is waited for.
        let can_start = self.log.flights.len() < self.settings.commits_in_flight
            && self.log.closed.is_empty()
            && self.log.failed.is_empty();
        let deadline = self.log.due_at().filter(|_| can_start);
        // While broken nothing is due before the next attempt.
        let commit = if broken.is_some() { broken } else { deadline };
        let due = commit.into_iter().chain(self.supply.retry_at).chain(self.snapshots.retry_at);
        let due = due.chain(self.supply.pace.wakeup());
        due.filter(|at| *at > self.idle_at).min()
    }

    /// What became of a transaction, if it is among the latest that became durable.
    pub fn lookup_transaction(&self, transaction: TransactionId) -> Option<MessageId> {
        self.recent.get(&transaction).copied()
    }

    /// Whether the message is live.
    pub fn contains(&self, message: MessageId) -> bool {
        self.index.get(message).is_some()
    }

    /// Live messages above `after`, in the order of their ids.
    pub fn messages_above(&self, after: u64) -> impl Iterator<Item = MessageId> + '_ {
        self.index.above(after).map(|(message, _)| message)
    }

    /// There is a segment to write: what is handed in now need not wait for one to be made.
    pub fn is_ready(&self) -> bool {
        self.log.next.is_some()
    }

    /// The disk fails again and again: what is handed in is kept in memory, so no new attempts should
    /// begin until [`crate::Alarm::Healthy`].
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Everything handed in is durable or answered, and nothing is under way but the background.
    pub fn is_settled(&self) -> bool {
        self.nothing_to_commit() && self.waiting.is_empty() && self.outputs.is_empty()
    }

    /// No batch is under way, nor gathered.
    pub(crate) fn nothing_to_commit(&self) -> bool {
        let idle = |stream: &LogStream| {
            stream.open.is_empty()
                && stream.closed.is_empty()
                && stream.flights.is_empty()
                && stream.failed.is_empty()
        };
        idle(&self.log) && idle(&self.bulk)
    }

    /// Figures.
    pub fn usage(&self) -> Usage {
        let mut usage = self.usage.clone();
        usage.messages = self.index.len() as u64;
        for segment in self.segments.all.values() {
            usage.segments += 1;
            usage.segment_bytes += u64::from(segment.bytes);
            usage.live_bytes += segment.live_bytes;
            usage.segments_ready += u64::from(segment.state == State::Ready);
        }
        let gathered = self.log.batches().chain(self.bulk.batches());
        usage.staged_bytes = self.staged_bytes
            + self.own_staged_bytes
            + gathered.map(|b| b.buffer.len() as u64).sum::<u64>();
        usage.full = self.supply.full;
        usage.broken = self.broken.is_some();
        usage
    }

    pub(crate) fn remember(&mut self, transaction: TransactionId, message: MessageId) {
        if self.recent.insert(transaction, message).is_none() {
            self.recent_order.push_back(transaction);
        }
        while self.recent_order.len() > self.settings.recent_transactions_max {
            if let Some(oldest) = self.recent_order.pop_front() {
                self.recent.remove(&oldest);
            }
        }
    }

    pub(crate) fn stream(&mut self, kind: SegmentKind) -> &mut LogStream {
        match kind {
            SegmentKind::Log => &mut self.log,
            SegmentKind::Bulk => &mut self.bulk,
        }
    }

    /// A stream that has just closed a batch has a new one without a number.
    pub(crate) fn number_batches(&mut self) {
        if self.log.open.number == 0 {
            self.log.open.number = self.next_batch();
        }
        if self.bulk.open.number == 0 {
            self.bulk.open.number = self.next_batch();
        }
    }

    pub(crate) fn next_batch(&mut self) -> u64 {
        self.last_batch += 1;
        self.last_batch
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.last_record += 1;
        self.last_record
    }

    pub(crate) fn next_io(&mut self) -> u64 {
        self.last_io += 1;
        self.last_io
    }

    pub(crate) fn alarm(&mut self, alarm: Alarm) {
        self.outputs.push_back(Output::Alarm(alarm));
    }

    /// Records up to this one are durable, and all before it.
    pub(crate) fn frontier(&self) -> u64 {
        let batches = self.log.batches().filter(|batch| !batch.is_empty());
        let first = batches.map(|batch: &Batch| batch.first_record).min();
        first.unwrap_or(self.last_record + 1) - 1
    }
}
