//! Admits groups: names their messages, waits for what they need, and puts them into the gathering
//! batch whole.
//!
//! Must never let two batches under way be about one message, nor a record name a chunk that may
//! be lost without it.

use crate::batch::{BatchItem, MessageItem, OWN_SEGMENT};
use crate::format::batch::{RECORD_HEADER, RecordKind};
use crate::format::message::{self, ChunkAt, ChunkPlace, Place};
use crate::format::snapshot::Extra;
use crate::format::{BLOCK, aligned};
use crate::{Refusal, Spool, Ticket};
use mail::{Change, Envelope, MessageId, Now, TransactionId};
use std::collections::HashSet;
use std::time::Duration;

/// Stands in `unsettled` for a group that is in no batch yet.
const WAITING: u64 = u64::MAX;

/// What an envelope usually takes in bytes, and each recipient of it.
const ENVELOPE_BYTES: usize = 160;
const RECIPIENT_BYTES: usize = 48;

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
    pub(crate) fn may_accept(&self, transaction: TransactionId) -> Result<(), Refusal> {
        if self.broken.is_some() {
            return Err(self.last_refusal);
        }
        let staged = self.staged.get(&transaction);
        if let Some(lost) = staged.and_then(|staged| staged.lost) {
            return Err(lost);
        }
        let bytes = staged.map_or(0, |staged| staged.pending_bytes) + 2 * BLOCK;
        if self.has_room(bytes as u64) { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Nothing of its body has been given up.
    pub(crate) fn is_whole(&self, transaction: TransactionId) -> Result<(), Refusal> {
        let lost = self.staged.get(&transaction).and_then(|staged| staged.lost);
        lost.map_or(Ok(()), Err)
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
        group_bytes_max(self.settings.segment_bytes)
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
        let before = self.log.open.buffer.len();
        let deadline = now.monotonic + Duration::from_millis(self.settings.change_delay_ms_max);
        self.log.open.due_by(deadline);
        if !group.messages.is_empty() && !group.moved {
            self.log.open.since.get_or_insert(now.monotonic);
        }
        let group_is_moved = group.moved; // what ended meanwhile takes nothing
        for ready in &group.messages {
            self.append_message(ready, group.client, group.moved);
        }
        group.changes.into_iter().for_each(|change| self.append_change(&change));
        if let Some(ticket) = group.ticket {
            self.log.open.items.push(BatchItem::Group(ticket));
        }
        let grown = self.log.open.buffer.len() - before;
        debug_assert!(grown <= bytes, "{grown} bytes where there was room for {bytes}");
        debug_assert!(group_is_moved || bytes <= 6 * grown + BLOCK, "{bytes} for {grown} bytes");
        None
    }

    fn append_message(&mut self, ready: &Ready, client: bool, moved: bool) {
        if moved && self.index.get(ready.message).is_none() {
            return self.unstage(ready.transaction); // it ended while it was copied
        }
        let rest = self.staged.get_mut(&ready.transaction).map(|staged| {
            let bytes = std::mem::take(&mut staged.pending_bytes);
            (bytes, std::mem::take(&mut staged.pending), staged.own)
        });
        let before = self.log.open.items.len();
        if let Some((bytes, pending, own)) = rest.filter(|(bytes, ..)| *bytes > 0) {
            self.left_memory(own, bytes);
            self.log.open.own_bytes += if own { bytes as u64 } else { 0 };
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
        self.log.open.items.push(if moved {
            BatchItem::Moved(item)
        } else {
            BatchItem::Message(item)
        });
    }

    /// The last piece of a body goes right before its message, whatever stream the others took. Room
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
        self.log.open.items.push(BatchItem::Chunk { transaction, nth, offset });
    }

    fn append_change(&mut self, change: &Change) {
        let message = change.message();
        let sequence = self.next_sequence();
        let payload = postcard::to_stdvec(change).expect("a change has no map and no closure");
        debug_assert!(payload.len() <= change_bytes(change), "{change:?}");
        self.log.open.push(RecordKind::Change, sequence, &[&payload]);
        let retired = match change {
            Change::Retire { .. } => self.forget(message),
            _ => None,
        };
        self.unsettled.insert(message, self.log.open.number);
        self.log.open.items.push(BatchItem::Change { message, retired });
    }

    /// Takes a message out of the index; its segments are kept until that is durable.
    fn forget(&mut self, message: MessageId) -> Option<(Place, Vec<Extra>)> {
        let place = self.index.remove(message)?;
        let extras = self.extras.remove(&message).map(Vec::from).unwrap_or_default();
        Some((place, extras))
    }
}

/// Bytes that one group may take in a segment of this size.
pub const fn group_bytes_max(segment_bytes: u32) -> usize {
    segment_bytes as usize - 3 * BLOCK
}

pub(crate) fn encoded(envelope: &Envelope) -> Vec<u8> {
    let room = Vec::with_capacity(ENVELOPE_BYTES + RECIPIENT_BYTES * envelope.recipients.len());
    postcard::to_extend(envelope, room).expect("an envelope has no map and no closure")
}

/// Bytes of a change at most: what postcard takes for the few kinds there are.
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
