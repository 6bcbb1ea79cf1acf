//! Admits groups: waits until what a group needs is durable or in the gathered batch, and puts the
//! whole group into that batch.
//!
//! Must never let two batches under way be about one message, nor a record name a chunk that may
//! be lost without it.

use crate::batch::{BatchItem, MessageItem, OWN_SEGMENT};
use crate::format::batch::{RECORD_HEADER, RecordKind};
use crate::format::message::{self, ChunkAt, ChunkPlace};
use crate::format::snapshot::Extra;
use crate::format::{BLOCK, aligned};
use crate::{Refusal, Spool, Ticket};
use mail::{Change, Envelope, MessageId, Now, TransactionId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Stands in `unsettled` for a group that is in no batch yet.
const WAITING: u64 = u64::MAX;

/// Bytes that an envelope usually takes, and each of its recipients.
const ENVELOPE_BYTES: usize = 160;
const RECIPIENT_BYTES: usize = 48;

/// A group on its way into a batch.
pub(crate) struct WaitingGroup {
    ticket: Option<Ticket>,
    origin: GroupOrigin,
    messages: Vec<Ready>,
    changes: Vec<Change>,
}

/// Who hands in a group, which decides what may become of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupOrigin {
    /// A client, who can be told to try again.
    Client,
    /// Our own process: the group must be recorded.
    Own,
    /// Copying forward, which can be repeated.
    Copy,
}

/// A message with its id and its encoded envelope.
pub(crate) struct Ready {
    pub message: MessageId,
    /// The transaction that staged the body.
    pub transaction: TransactionId,
    /// The transaction that the record names; for a copy, that of the first record.
    pub original: TransactionId,
    pub prefix: Vec<u8>,
    pub envelope: Vec<u8>,
}

impl WaitingGroup {
    /// One message without changes.
    pub(crate) fn of_message(message: Ready, origin: GroupOrigin) -> WaitingGroup {
        WaitingGroup { ticket: None, origin, messages: vec![message], changes: Vec::new() }
    }

    /// A group of our own.
    pub(crate) fn own(ticket: Ticket, messages: Vec<Ready>, changes: Vec<Change>) -> WaitingGroup {
        WaitingGroup { ticket: Some(ticket), origin: GroupOrigin::Own, messages, changes }
    }

    pub(crate) fn origin(&self) -> GroupOrigin {
        self.origin
    }

    /// The transactions that staged its bodies.
    pub(crate) fn transactions(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.messages.iter().map(|message| message.transaction)
    }
}

/// The groups that wait, and the messages that groups under way are about.
#[derive(Default)]
pub(crate) struct PendingGroups {
    /// PendingGroups that need something which is not durable yet.
    waiting: VecDeque<WaitingGroup>,
    /// Messages with a change on its way, each with the number of the batch.
    unsettled: HashMap<MessageId, u64>,
}

impl PendingGroups {
    /// Whether no group waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The batch with this number no longer has a change of the message on its way.
    pub(crate) fn unsettle(&mut self, message: MessageId, number: u64) {
        if self.unsettled.get(&message) == Some(&number) {
            self.unsettled.remove(&message);
        }
    }

    fn wait(&mut self, group: WaitingGroup) {
        for change in &group.changes {
            self.unsettled.entry(change.message()).or_insert(WAITING);
        }
        self.waiting.push_back(group);
    }

    /// Drops the groups of clients; returns their transactions.
    pub(crate) fn refuse_clients(&mut self) -> Vec<TransactionId> {
        let refused = self.take(|group| group.origin == GroupOrigin::Client);
        refused.iter().flat_map(WaitingGroup::transactions).collect()
    }

    /// Takes the groups with a message of one of these transactions.
    pub(crate) fn take_of(&mut self, transactions: &HashSet<TransactionId>) -> Vec<WaitingGroup> {
        self.take(|group| group.transactions().any(|of| transactions.contains(&of)))
    }

    fn take(&mut self, wanted: impl Fn(&WaitingGroup) -> bool) -> Vec<WaitingGroup> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (taken, kept): (Vec<_>, Vec<_>) = waiting.partition(wanted);
        self.waiting = kept.into();
        taken
    }

    /// Whether a group with a ticket up to this one waits.
    pub(crate) fn has_ticket_up_to(&self, ticket: u64) -> bool {
        self.waiting.iter().any(|group| group.ticket.is_some_and(|of| of.0 <= ticket))
    }

    /// Messages whose end waits for a batch.
    pub(crate) fn ending(&self) -> HashSet<MessageId> {
        let changes = self.waiting.iter().flat_map(|group| &group.changes);
        let ends = changes.filter(|change| matches!(change, Change::Retire { .. }));
        ends.map(Change::message).collect()
    }
}

impl Spool {
    /// Whether a client's message can be accepted at all.
    pub(crate) fn may_accept(&self, transaction: TransactionId) -> Result<(), Refusal> {
        if let Some(refusal) = self.failures.refusal() {
            return Err(refusal);
        }
        let staged = self.staging.body(transaction);
        if let Some(lost) = staged.and_then(|staged| staged.lost()) {
            return Err(lost);
        }
        let bytes = staged.map_or(0, |staged| staged.pending_bytes()) + 2 * BLOCK;
        if self.has_room(bytes as u64) { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Whether nothing of a staged body has been given up.
    pub(crate) fn is_whole(&self, transaction: TransactionId) -> Result<(), Refusal> {
        let lost = self.staging.body(transaction).and_then(|staged| staged.lost());
        lost.map_or(Ok(()), Err)
    }

    pub(crate) fn admit(&mut self, group: WaitingGroup, now: Now) -> Result<(), Refusal> {
        if self.bytes_of(&group) > group_bytes_max(self.settings.segment_bytes) {
            return Err(Refusal::TooLarge);
        }
        // A message without a body was never staged; it is from here on.
        group.transactions().for_each(|transaction| self.staging.begin(transaction));
        let blocked = self.is_blocked(&group, &HashSet::new());
        let left = if blocked { Some(group) } else { self.append(group, now) };
        if let Some(group) = left {
            self.groups.wait(group);
        }
        Ok(())
    }

    /// Upper bound on the bytes that the group takes in a batch.
    fn bytes_of(&self, group: &WaitingGroup) -> usize {
        let message = |ready: &Ready| {
            let staged = self.staging.body(ready.transaction);
            let chunks = staged.map_or(0, |staged| staged.chunks().len() + 1);
            let pending = staged.map_or(0, |staged| staged.pending_bytes());
            let head = message::head_bytes(chunks, ready.prefix.len());
            2 * RECORD_HEADER + 2 * 8 + pending + head + ready.envelope.len()
        };
        let changes = group.changes.iter().map(|change| RECORD_HEADER + 8 + change_bytes(change));
        group.messages.iter().map(message).sum::<usize>() + changes.sum::<usize>()
    }

    /// Whether the group needs something in a batch that is neither durable nor the gathered one.
    fn is_blocked(&self, group: &WaitingGroup, held: &HashSet<MessageId>) -> bool {
        let open = self.streams.log().open().number();
        let change_blocked = |change: &Change| {
            let message = change.message();
            let other = self.groups.unsettled.get(&message).is_some_and(|number| *number != open);
            held.contains(&message) || other
        };
        let chunk_blocked =
            |of| self.staging.body(of).is_some_and(|staged| staged.waits_beside(open));
        group.changes.iter().any(change_blocked) || group.transactions().any(chunk_blocked)
    }

    /// Something became durable; perhaps a group waited for it.
    pub(crate) fn retry_waiting(&mut self, now: Now) {
        if self.groups.is_empty() {
            return;
        }
        let mut held = HashSet::new();
        for group in std::mem::take(&mut self.groups.waiting) {
            for change in &group.changes {
                self.groups.unsettle(change.message(), WAITING);
            }
            let blocked = self.is_blocked(&group, &held);
            let left = if blocked { Some(group) } else { self.append(group, now) };
            if let Some(group) = left {
                held.extend(group.changes.iter().map(Change::message));
                self.groups.wait(group);
            }
        }
    }

    /// Puts the group into the gathered batch. Gives it back if that batch had to be closed and now
    /// holds what the group needs.
    fn append(&mut self, group: WaitingGroup, now: Now) -> Option<WaitingGroup> {
        let bytes = self.bytes_of(&group);
        let batch_bytes_max = self.settings.batch_bytes_max;
        self.streams.log_mut().make_room(bytes, batch_bytes_max, &mut self.ids);
        if self.is_blocked(&group, &HashSet::new()) {
            return Some(group);
        }
        let is_copy = group.origin == GroupOrigin::Copy;
        let deadline = now.monotonic + Duration::from_millis(self.settings.change_delay_ms_max);
        let batch = self.streams.log_mut().open_mut();
        let before = batch.bytes();
        batch.due_by(deadline);
        if !group.messages.is_empty() && !is_copy {
            batch.awaited_since(now.monotonic);
        }
        for ready in &group.messages {
            self.append_message(ready, group.origin);
        }
        group.changes.into_iter().for_each(|change| self.append_change(&change));
        let batch = self.streams.log_mut().open_mut();
        if let Some(ticket) = group.ticket {
            batch.then(BatchItem::Group(ticket));
        }
        let grown = batch.bytes() - before;
        debug_assert!(grown <= bytes, "{grown} bytes where there was room for {bytes}");
        // A copy takes nothing if its message has ended meanwhile.
        debug_assert!(is_copy || bytes <= 6 * grown + BLOCK, "{bytes} for {grown} bytes");
        None
    }

    fn append_message(&mut self, ready: &Ready, origin: GroupOrigin) {
        let Ready { message, transaction, original, prefix, envelope } = ready;
        let is_copy = origin == GroupOrigin::Copy;
        if is_copy && self.index.get(*message).is_none() {
            return self.unstage(*transaction); // it ended while it was copied
        }
        // The last chunk of a body goes right before its message, whatever stream the others took.
        let last_is_here = self.push_rest(*transaction);
        let Some(staged) = self.staging.body(*transaction) else { return };
        let batch = self.streams.log_mut().open_mut();
        let at = batch.bytes() as u32;
        let chunks = staged.places(at);
        let adjacent = chunks.is_empty() || chunks.len() == 1 && last_is_here;
        let extras = if adjacent { Vec::new() } else { extras(&chunks) };
        let body_bytes = staged.total();
        let mut head = Vec::with_capacity(message::head_bytes(chunks.len(), prefix.len()));
        message::encode_head(&mut head, *message, *original, body_bytes, &chunks, prefix);
        let sequence = self.ids.next_record();
        let kind = if is_copy { RecordKind::Moved } else { RecordKind::Message };
        let (offset, _) = batch.push(kind, sequence, &[&head, envelope]);
        let item = MessageItem {
            message: *message,
            transaction: *transaction,
            client: origin == GroupOrigin::Client,
            offset: offset as u32,
            length: (head.len() + envelope.len()) as u32,
            adjacent,
            body_bytes: body_bytes as u32,
            extras,
        };
        batch.then(if is_copy { BatchItem::Moved(item) } else { BatchItem::Message(item) });
    }

    fn append_change(&mut self, change: &Change) {
        let message = change.message();
        let sequence = self.ids.next_record();
        let payload = postcard::to_stdvec(change).expect("a change has no map and no closure");
        debug_assert!(payload.len() <= change_bytes(change), "{change:?}");
        // A retired message leaves the index now. Its segments are kept until that is durable.
        let retired = match change {
            Change::Retire { .. } => self.index.remove(message),
            _ => None,
        };
        let batch = self.streams.log_mut().open_mut();
        batch.push(RecordKind::Change, sequence, &[&payload]);
        batch.then(BatchItem::Change { message, retired });
        self.groups.unsettled.insert(message, batch.number());
    }
}

/// Upper bound on the bytes that one group takes in a segment of this size.
pub const fn group_bytes_max(segment_bytes: u32) -> usize {
    segment_bytes as usize - 3 * BLOCK
}

pub(crate) fn encoded(envelope: &Envelope) -> Vec<u8> {
    let room = Vec::with_capacity(ENVELOPE_BYTES + RECIPIENT_BYTES * envelope.recipients.len());
    postcard::to_extend(envelope, room).expect("an envelope has no map and no closure")
}

/// Upper bound on the bytes that postcard takes for a change.
pub fn change_bytes(change: &Change) -> usize {
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

/// Sums up the bytes that chunks take in each segment.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_in_each_segment_what_its_records_take_there() {
        let piece = |at, length| ChunkPlace { at, length, checksum: 0 };
        let other = |offset| ChunkAt::Segment { slot: 3, epoch: 1, offset };
        let all = [
            piece(ChunkAt::Before(9_000), 100),
            piece(other(4_096), 5_000),
            piece(ChunkAt::Before(8_000), 8),
            piece(other(16_384), 1),
        ];
        let record = |length: usize| aligned(RECORD_HEADER + length, 8) as u32;
        let own = Extra { slot: OWN_SEGMENT, bytes: record(100) + record(8) };
        assert_eq!(extras(&all), [own, Extra { slot: 3, bytes: record(5_000) + record(1) }]);
        // As large as they are in a batch.
        let mut batch = Vec::new();
        crate::format::batch::append(&mut batch, RecordKind::Chunk, 1, &[&[0; 5_000]]);
        assert_eq!(batch.len() as u32, record(5_000));
    }
}
