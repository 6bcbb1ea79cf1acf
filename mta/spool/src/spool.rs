//! The machine: what is handed in, what comes out, and in which order it looks at its parts.
//!
//! Must never decide what a part should; each part has its file.

use crate::batch::{Batch, Item, MessageItem, OWN_SEGMENT};
use crate::commit::Lane;
use crate::fail::Broken;
use crate::format::batch::{RECORD_HEADER, RecordKind};
use crate::format::message::{self, ChunkAt, ChunkPlace, Place};
use crate::format::segment::Kind;
use crate::format::snapshot::Extra;
use crate::format::{BLOCK, aligned};
use crate::index::Index;
use crate::retire::{Mover, Supply};
use crate::segments::{Segments, State};
use crate::snapshot::Snapshots;
use crate::stage::Staged;
use crate::{Alarm, Group, IoDone, NewMessage, Output, Refusal, Settings, Ticket, Usage};
use mail::{Change, Envelope, Instant, MessageId, Now, TransactionId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Stands in `unsettled` for a group that is in no batch yet.
const WAITING: u64 = u64::MAX;

/// The local log. See the crate's documentation for its shape.
pub struct Spool {
    pub(crate) settings: Settings,
    pub(crate) segments: Segments,
    pub(crate) log: Lane,
    pub(crate) bulk: Lane,
    pub(crate) index: Index,
    pub(crate) extras: HashMap<MessageId, Box<[Extra]>>,
    pub(crate) staged: HashMap<TransactionId, Staged>,
    pub(crate) staged_bytes: u64,
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
    pub(crate) last_refusal: Refusal,
    pub(crate) broken: Option<Broken>,
    pub(crate) usage: Usage,
}

/// A group on its way into a batch.
pub(crate) struct Waiting {
    pub ticket: Option<Ticket>,
    pub client: bool,
    pub moved: bool,
    pub messages: Vec<Ready>,
    pub changes: Vec<Change>,
}

/// A message with its id and its envelope's bytes.
pub(crate) struct Ready {
    pub message: MessageId,
    /// Names the staged body,
    pub transaction: TransactionId,
    /// and what the record says, which differs for a copy.
    pub original: TransactionId,
    pub prefix: Vec<u8>,
    pub envelope: Vec<u8>,
}

impl Spool {
    /// Keeps a client's message: its staged body, the envelope, and header lines of ours. Answered
    /// by `Durable` or `Refused`.
    pub fn accept(
        &mut self,
        transaction: TransactionId,
        envelope: &Envelope,
        prefix: &[u8],
        now: Now,
    ) -> Result<MessageId, Refusal> {
        self.accept_with(transaction, envelope, |_| prefix.to_vec(), now)
    }

    /// The same, where the header lines name the id.
    pub fn accept_with(
        &mut self,
        transaction: TransactionId,
        envelope: &Envelope,
        prefix: impl FnOnce(MessageId) -> Vec<u8>,
        now: Now,
    ) -> Result<MessageId, Refusal> {
        self.may_accept(transaction)?;
        let message = self.name_message(now);
        let ready = Ready {
            message,
            transaction,
            original: transaction,
            prefix: prefix(message),
            envelope: encoded(envelope),
        };
        let messages = vec![ready];
        let waiting =
            Waiting { ticket: None, client: true, moved: false, messages, changes: Vec::new() };
        self.admit(waiting, now)?;
        Ok(message)
    }

    /// One change; rides in the next commit.
    pub fn change(&mut self, change: Change, now: Now) -> Ticket {
        let group = Group { messages: Vec::new(), changes: vec![change] };
        let submitted = self.submit(group, now);
        submitted.expect("a group without messages is never refused").0
    }

    /// Messages of our own and changes, all or nothing. Only a group with messages can be refused.
    pub fn submit(&mut self, group: Group, now: Now) -> Result<(Ticket, Vec<MessageId>), Refusal> {
        for message in &group.messages {
            self.may_accept(message.transaction)?;
        }
        let ready = |new: NewMessage, message| Ready {
            message,
            transaction: new.transaction,
            original: new.transaction,
            prefix: new.prefix,
            envelope: encoded(&new.envelope),
        };
        let named = group.messages.into_iter().map(|new| ready(new, self.name_message(now)));
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
        let of = |lane: &Lane| lane.flights.iter().any(|flight| flight.io == done.id);
        if of(&self.log) {
            self.finish_commit(done, Kind::Log, now);
        } else if of(&self.bulk) {
            self.finish_commit(done, Kind::Bulk, now);
        } else {
            self.finish_other(done, now);
        }
    }

    /// What is to be done or said next; `None`: nothing until `handle`, a call, or `next_wakeup`.
    pub fn poll(&mut self, now: Now) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let io = (self.start_commit(Kind::Log, now))
            .or_else(|| self.start_commit(Kind::Bulk, now))
            .or_else(|| self.activate(now))
            .or_else(|| self.background(now));
        io.map(Output::Io).or_else(|| self.outputs.pop_front())
    }

    /// When to poll although nothing happened.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let broken = self.broken.as_ref().map(|broken| broken.retry_at);
        // With anything else in the way it is an I/O's end that is waited for.
        let can_start = self.log.flights.len() < self.settings.commits_in_flight
            && self.log.closed.is_empty()
            && self.log.failed.is_empty();
        let deadline = self.log.open.deadline.filter(|_| can_start);
        // While broken nothing is due before the next attempt.
        let commit = if broken.is_some() { broken } else { deadline };
        commit.into_iter().chain(self.supply.retry_at).chain(self.snapshots.retry_at).min()
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
        let idle = |lane: &Lane| {
            lane.open.is_empty()
                && lane.closed.is_empty()
                && lane.flights.is_empty()
                && lane.failed.is_empty()
        };
        idle(&self.log) && idle(&self.bulk) && self.waiting.is_empty() && self.outputs.is_empty()
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
        usage.staged_bytes =
            self.staged_bytes + gathered.map(|b| b.buffer.len() as u64).sum::<u64>();
        usage.full = self.supply.full;
        usage.broken = self.broken.is_some();
        usage
    }

    fn may_accept(&self, transaction: TransactionId) -> Result<(), Refusal> {
        if self.broken.is_some() {
            return Err(Refusal::Broken);
        }
        let staged = self.staged.get(&transaction);
        if let Some(refusal) = staged.and_then(|staged| staged.lost) {
            return Err(refusal);
        }
        let bytes = staged.map_or(0, |staged| staged.pending_bytes) + 2 * BLOCK;
        if self.has_room(bytes as u64) { Ok(()) } else { Err(Refusal::Full) }
    }

    /// An id above all before it, close to the wall clock.
    fn name_message(&mut self, now: Now) -> MessageId {
        let wall = u64::try_from(now.wall.micros()).unwrap_or(0);
        self.last_message = (self.last_message + 1).max(wall);
        MessageId(self.last_message)
    }

    pub(crate) fn admit(&mut self, group: Waiting, now: Now) -> Result<(), Refusal> {
        if self.bytes_of(&group) > self.group_bytes_max() {
            return Err(Refusal::TooLarge);
        }
        self.staged_messages(&group);
        if self.is_blocked(&group, &HashSet::new()) {
            self.mark_waiting(&group);
            self.waiting.push_back(group);
        } else if let Some(group) = self.append(group, now) {
            self.mark_waiting(&group);
            self.waiting.push_back(group);
        }
        Ok(())
    }

    /// A message without a body was never staged; it is from here on.
    fn staged_messages(&mut self, group: &Waiting) {
        for message in &group.messages {
            self.staged.entry(message.transaction).or_default();
        }
    }

    fn group_bytes_max(&self) -> usize {
        self.settings.segment_bytes as usize - 3 * BLOCK
    }

    /// Bytes that the group will take in a batch.
    fn bytes_of(&self, group: &Waiting) -> usize {
        let message = |ready: &Ready| {
            let staged = self.staged.get(&ready.transaction);
            let chunks = staged.map_or(0, |staged| staged.chunks.len() + 1);
            let pending = staged.map_or(0, |staged| staged.pending_bytes);
            let head = message::head_bytes(chunks, ready.prefix.len());
            2 * RECORD_HEADER + 2 * 8 + pending + head + ready.envelope.len()
        };
        let changes = group.changes.iter().map(|change| RECORD_HEADER + 8 + change_bytes(change));
        group.messages.iter().map(message).sum::<usize>() + changes.sum::<usize>()
    }

    /// Whether something it needs is in a batch that is neither durable nor the gathering one.
    fn is_blocked(&self, group: &Waiting, held: &HashSet<MessageId>) -> bool {
        let open = self.log.open.number;
        let elsewhere = |number: u64| number != open;
        let change_blocked = |change: &Change| {
            let message = change.message();
            let other = self.unsettled.get(&message).is_some_and(|number| elsewhere(*number));
            held.contains(&message) || other
        };
        let chunk_blocked = |ready: &Ready| {
            let chunks = self.staged.get(&ready.transaction).map(|staged| &staged.chunks);
            chunks.is_some_and(|c| c.iter().any(|c| c.place.is_none() && elsewhere(c.batch)))
        };
        group.changes.iter().any(change_blocked) || group.messages.iter().any(chunk_blocked)
    }

    fn mark_waiting(&mut self, group: &Waiting) {
        for change in &group.changes {
            self.unsettled.entry(change.message()).or_insert(WAITING);
        }
    }

    pub(crate) fn unsettle(&mut self, message: MessageId, number: u64) {
        if self.unsettled.get(&message) == Some(&number) {
            self.unsettled.remove(&message);
        }
    }

    /// Something became durable: perhaps what a group waited for.
    pub(crate) fn retry_waiting(&mut self, now: Now) {
        if self.waiting.is_empty() {
            return;
        }
        let mut held = HashSet::new();
        for group in std::mem::take(&mut self.waiting) {
            for change in &group.changes {
                self.unsettle(change.message(), WAITING);
            }
            let blocked = self.is_blocked(&group, &held);
            let left = if blocked { Some(group) } else { self.append(group, now) };
            if let Some(group) = left {
                held.extend(group.changes.iter().map(Change::message));
                self.mark_waiting(&group);
                self.waiting.push_back(group);
            }
        }
    }

    /// Puts the group into the gathering batch; gives it back where that had to be closed and now
    /// holds what the group needs.
    fn append(&mut self, group: Waiting, now: Now) -> Option<Waiting> {
        let bytes = self.bytes_of(&group);
        self.log.make_room(bytes, self.settings.batch_bytes_max);
        self.number_batches();
        if self.is_blocked(&group, &HashSet::new()) {
            return Some(group);
        }
        let deadline = now.monotonic + Duration::from_millis(self.settings.change_delay_ms_max);
        self.log.open.due_by(deadline);
        self.log.open.urgent |= !group.messages.is_empty() && !group.moved;
        for ready in &group.messages {
            self.append_message(ready, group.client, group.moved);
        }
        group.changes.into_iter().for_each(|change| self.append_change(&change));
        if let Some(ticket) = group.ticket {
            self.log.open.items.push(Item::Group(ticket));
        }
        None
    }

    fn append_message(&mut self, ready: &Ready, client: bool, moved: bool) {
        if moved && self.index.get(ready.message).is_none() {
            return self.unstage(ready.transaction); // it ended while it was copied
        }
        let rest = self.staged.get_mut(&ready.transaction).map(|staged| {
            let bytes = std::mem::take(&mut staged.pending_bytes);
            (bytes, std::mem::take(&mut staged.pending))
        });
        let before = self.log.open.items.len();
        if let Some((bytes, pending)) = rest.filter(|(bytes, _)| *bytes > 0) {
            self.staged_bytes -= bytes as u64;
            self.push_rest(ready.transaction, &pending);
        }
        let last_is_ours = self.log.open.items.len() > before;
        let Some(staged) = self.staged.get(&ready.transaction) else { return };
        let at = self.log.open.buffer.len() as u32;
        let chunks: Vec<_> = staged.chunks.iter().map(|chunk| chunk_place(chunk, at)).collect();
        let adjacent = chunks.is_empty() || chunks.len() == 1 && last_is_ours;
        let extras = if adjacent { Vec::new() } else { extras(&chunks) };
        let body_bytes = staged.total;
        let mut head = Vec::with_capacity(message::head_bytes(chunks.len(), ready.prefix.len()));
        let Ready { message, transaction, original, prefix, envelope } = ready;
        message::encode_head(&mut head, *message, *original, body_bytes, &chunks, prefix);
        let sequence = self.next_sequence();
        let kind = if moved { RecordKind::Moved } else { RecordKind::Message };
        let (offset, _) = self.log.open.push(kind, sequence, &[&head, envelope]);
        let item = MessageItem {
            message: *message,
            transaction: *transaction,
            client,
            offset: offset as u32,
            length: (head.len() + envelope.len()) as u32,
            adjacent,
            body_bytes: body_bytes as u32,
            extras,
        };
        self.log.open.messages += u32::from(!moved);
        self.log.open.items.push(if moved { Item::Moved(item) } else { Item::Message(item) });
    }

    /// The last piece of a body goes right before its message, whatever lane the others took. Room
    /// has been made.
    fn push_rest(&mut self, transaction: TransactionId, pending: &[bytes::Bytes]) {
        let sequence = self.next_sequence();
        let slices: Vec<&[u8]> = pending.iter().map(|part| &part[..]).collect();
        let (offset, checksum) = self.log.open.push(RecordKind::Chunk, sequence, &slices);
        let (offset, batch) = ((offset + RECORD_HEADER) as u32, self.log.open.number);
        let length = pending.iter().map(bytes::Bytes::len).sum::<usize>() as u32;
        let Some(staged) = self.staged.get_mut(&transaction) else { return };
        let nth = staged.chunks.len();
        let chunk = crate::stage::StagedChunk { batch, offset, length, checksum, place: None };
        staged.chunks.push(chunk);
        self.log.open.items.push(Item::Chunk { transaction, nth, offset });
    }

    fn append_change(&mut self, change: &Change) {
        let message = change.message();
        let sequence = self.next_sequence();
        let payload = postcard::to_stdvec(change).expect("a change has no map and no closure");
        self.log.open.push(RecordKind::Change, sequence, &[&payload]);
        let retired = match change {
            Change::Retire { .. } => self.forget(message),
            _ => None,
        };
        self.unsettled.insert(message, self.log.open.number);
        self.log.open.items.push(Item::Change { message, retired });
    }

    /// Takes a message out of the index; its segments are kept until that is durable.
    fn forget(&mut self, message: MessageId) -> Option<(Place, Vec<Extra>)> {
        let place = self.index.remove(message)?;
        let extras = self.extras.remove(&message).map(Vec::from).unwrap_or_default();
        Some((place, extras))
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

    pub(crate) fn lane(&mut self, kind: Kind) -> &mut Lane {
        match kind {
            Kind::Log => &mut self.log,
            Kind::Bulk => &mut self.bulk,
        }
    }

    /// A lane that has just closed a batch has a new one without a number.
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

pub(crate) fn encoded(envelope: &Envelope) -> Vec<u8> {
    postcard::to_stdvec(envelope).expect("an envelope has no map and no closure")
}

/// An upper bound: what postcard takes for the few kinds there are.
fn change_bytes(change: &Change) -> usize {
    match change {
        Change::Delivered { recipients, .. }
        | Change::Failed { recipients, .. }
        | Change::DelayNoticed { recipients, .. } => 24 + 5 * recipients.len(),
        Change::Due { recipients, report, .. } => {
            64 + 5 * recipients.len() + report.peer.len() + report.reply.text.len()
        }
        _ => 24,
    }
}

fn chunk_place(chunk: &crate::stage::StagedChunk, record: u32) -> ChunkPlace {
    let at = match chunk.place {
        Some((slot, epoch, offset)) => ChunkAt::Segment { slot, epoch, offset },
        None => ChunkAt::Before(record - chunk.offset),
    };
    ChunkPlace { at, length: chunk.length, checksum: chunk.checksum }
}

/// What the chunks take in each segment.
pub(crate) fn extras(chunks: &[ChunkPlace]) -> Vec<Extra> {
    let mut extras: Vec<Extra> = Vec::new();
    for chunk in chunks {
        let slot = match chunk.at {
            ChunkAt::Before(_) => OWN_SEGMENT,
            ChunkAt::Segment { slot, .. } => slot,
        };
        let bytes = aligned(RECORD_HEADER + chunk.length as usize, 8) as u32;
        match extras.iter_mut().find(|extra| extra.slot == slot) {
            Some(extra) => extra.bytes += bytes,
            None => extras.push(Extra { slot, bytes }),
        }
    }
    extras
}
