//! The machine: what is handed in, what comes out, and in which order it looks at its parts.
//!
//! Must never decide what a part should; each part has its file, and its fields are private there.

use crate::admit::{GroupOrigin, PendingGroups, Ready, WaitingGroup, encoded};
use crate::fail::Failures;
use crate::format::segment::SegmentKind;
use crate::forward::Mover;
use crate::ids::Ids;
use crate::index::Index;
use crate::log_stream::{LogStream, LogStreams};
use crate::recent::RecentTransactions;
use crate::recover::Loaded;
use crate::retire::Supply;
use crate::segments::{Segments, State};
use crate::snapshot::Snapshots;
use crate::stage::Staging;
use crate::{Alarm, Group, IoDone, NewMessage, Output, Refusal, Settings, Ticket, Usage};
use mail::{Change, Envelope, Instant, MessageId, Now, TransactionId};
use std::collections::VecDeque;

/// The local log. See the crate's documentation for its shape.
pub struct Spool {
    pub(crate) settings: Settings,
    /// The segments that exist.
    pub(crate) segments: Segments,
    /// The live messages.
    pub(crate) index: Index,
    /// The batches of the log and of bulk.
    pub(crate) streams: LogStreams,
    /// Bodies on their way in.
    pub(crate) staging: Staging,
    /// PendingGroups that wait for something to become durable.
    pub(crate) groups: PendingGroups,
    pub(crate) ids: Ids,
    pub(crate) recent: RecentTransactions,
    pub(crate) supply: Supply,
    pub(crate) mover: Mover,
    pub(crate) snapshots: Snapshots,
    pub(crate) failures: Failures,
    /// Counts of commits. The other figures are asked of the parts.
    pub(crate) usage: Usage,
    outputs: VecDeque<Output>,
    /// When a poll last found nothing to do.
    idle_at: Instant,
}

impl Spool {
    /// Goes on after what recovery found. `secret` makes the nonces of this process.
    pub(crate) fn resume(loaded: Loaded, settings: Settings, secret: u64) -> Spool {
        let mut ids = Ids::after(&loaded, secret);
        let snapshots = Snapshots::of(&loaded);
        let bulk = LogStream::new(1, Vec::new(), &mut ids);
        let log = LogStream::new(loaded.last_commit + 1, loaded.voids, &mut ids);
        let recent = RecentTransactions::new(settings.recent_transactions_max, loaded.recent);
        Spool {
            settings,
            segments: loaded.segments,
            index: loaded.index,
            streams: LogStreams::new(log, bulk),
            staging: Staging::default(),
            groups: PendingGroups::default(),
            ids,
            recent,
            supply: Supply::new(),
            mover: Mover::default(),
            snapshots,
            failures: Failures::default(),
            usage: Usage::default(),
            outputs: VecDeque::new(),
            idle_at: Instant::ZERO,
        }
    }

    /// Returns the id of the next message: greater than every id before it, and close to the wall
    /// clock. An id that no message is accepted with is skipped.
    pub fn next_message_id(&mut self, now: Now) -> MessageId {
        self.ids.next_message(now)
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
        self.admit(WaitingGroup::of_message(ready, GroupOrigin::Client), now)
    }

    /// Records one change with the next commit.
    pub fn change(&mut self, change: Change, now: Now) -> Ticket {
        let group = Group { messages: Vec::new(), changes: vec![change] };
        let submitted = self.submit(group, now);
        submitted.expect("a group without messages is never refused").0
    }

    /// Records messages of our own and changes, all or nothing. Neither a full nor a failing disk refuses
    /// them: a known outcome must not be lost because there is no room for its notice.
    ///
    /// Only a group that is larger than a segment is refused, and its bodies are unstaged.
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
        let named = group.messages.into_iter().map(|new| ready(new, self.ids.next_message(now)));
        let messages: Vec<_> = named.collect();
        let ids = messages.iter().map(|message| message.message).collect();
        let ticket = self.ids.next_ticket();
        self.admit(WaitingGroup::own(ticket, messages, group.changes), now)?;
        Ok((ticket, ids))
    }

    /// A request to the disk has ended.
    pub fn handle(&mut self, done: IoDone, now: Now) {
        match self.streams.of_commit(done.id) {
            Some(kind) => self.finish_commit(done, kind, now),
            None => self.finish_other(done, now),
        }
    }

    /// What to do or to say next; `None` if there is nothing until `handle`, another call, or
    /// `next_wakeup`.
    pub fn poll(&mut self, now: Now) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let io = (self.start_commit(SegmentKind::Log, now))
            .or_else(|| self.start_commit(SegmentKind::Bulk, now))
            .or_else(|| self.activate(now))
            .or_else(|| self.background(now));
        if let Some(io) = io {
            self.usage.syncs += io.work.syncs();
            return Some(Output::Io(io));
        }
        let output = self.outputs.pop_front();
        if output.is_none() {
            self.idle_at = now.monotonic;
        }
        output
    }

    /// When to poll although nothing happened. What was due at the last poll and could not be done
    /// then waits for something else, and a wakeup for it would be a busy loop.
    pub fn next_wakeup(&self) -> Option<Instant> {
        // While the spool is broken nothing is due before the next attempt.
        let commit = match self.failures.retry_at() {
            Some(retry_at) => Some(retry_at),
            None => self.streams.log().wakeup(self.settings.commits_in_flight),
        };
        let due = commit.into_iter().chain(self.supply.wakeups()).chain(self.snapshots.retry_at());
        due.filter(|at| *at > self.idle_at).min()
    }

    /// Returns the message of a transaction, if it is among the latest that became durable.
    pub fn lookup_transaction(&self, transaction: TransactionId) -> Option<MessageId> {
        self.recent.get(transaction)
    }

    /// Whether the message is live.
    pub fn contains(&self, message: MessageId) -> bool {
        self.index.get(message).is_some()
    }

    /// Live messages above `after`, in the order of their ids.
    pub fn messages_above(&self, after: u64) -> impl Iterator<Item = MessageId> + '_ {
        self.index.above(after).map(|(message, _)| message)
    }

    /// Whether a segment is ready: what is handed in now need not wait for one to be made.
    pub fn is_ready(&self) -> bool {
        self.streams.log().has_next()
    }

    /// Whether everything that was handed in is durable or answered, and nothing is under way but
    /// the background.
    pub fn is_settled(&self) -> bool {
        self.streams.are_idle() && self.groups.is_empty() && self.outputs.is_empty()
    }

    /// Figures for status and measurements.
    pub fn usage(&self) -> Usage {
        let mut usage = self.usage.clone();
        usage.messages = self.index.len() as u64;
        for segment in self.segments.all.values() {
            usage.segments += 1;
            usage.segment_bytes += u64::from(segment.bytes);
            usage.live_bytes += segment.live_bytes;
            usage.segments_ready += u64::from(segment.state == State::Ready);
        }
        let (log, bulk) = (self.streams.log().gathered(), self.streams.bulk().gathered());
        usage.staged_bytes = self.staging.bytes() + log.bytes + bulk.bytes;
        (usage.recycled, usage.zeroing_fallbacks) = self.supply.figures();
        usage.copied_forward = self.mover.copied();
        usage.snapshots = self.snapshots.completed();
        usage.full = self.supply.is_full();
        usage.broken = self.failures.is_broken();
        usage
    }

    /// Says something at one of the next polls.
    pub(crate) fn say(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn alarm(&mut self, alarm: Alarm) {
        self.say(Output::Alarm(alarm));
    }

    /// The last record such that it and all before it are durable.
    pub(crate) fn frontier(&self) -> u64 {
        self.streams.log().first_record().unwrap_or(self.ids.last_record() + 1) - 1
    }
}
