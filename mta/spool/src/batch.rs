//! A batch: its bytes, and what must happen once they are durable.
//!
//! Must never know its place on the disk; that is decided when it is launched.

use crate::Ticket;
use crate::format::batch::{self, BATCH_HEADER, RECORD_HEADER, RecordKind};
use crate::format::message::MessagePlace;
use crate::format::snapshot::Extra;
use mail::{Instant, MessageId, TransactionId};
use std::time::Duration;

/// Stands in an [`Extra`] for the segment of the batch until that is known.
pub(crate) const OWN_SEGMENT: u32 = u32::MAX;

/// What to do when the batch is durable.
#[derive(Debug)]
pub(crate) enum BatchItem {
    /// The n-th chunk of a staged body is durable.
    Chunk { transaction: TransactionId, nth: usize, offset: u32 },
    /// A message becomes live.
    Message(MessageItem),
    /// A live message gets a new place.
    Moved(MessageItem),
    /// A change is recorded; the place of a retired message becomes free.
    Change { message: MessageId, retired: Option<(MessagePlace, Vec<Extra>)> },
    /// A whole group is recorded.
    Group(Ticket),
}

/// A message record in a batch.
#[derive(Debug)]
pub(crate) struct MessageItem {
    pub message: MessageId,
    pub transaction: TransactionId,
    /// It came from a client, who can be told to try again.
    pub client: bool,
    /// Offset of the record's header in the batch.
    pub offset: u32,
    pub length: u32,
    pub adjacent: bool,
    pub body_bytes: u32,
    pub extras: Vec<Extra>,
}

/// Records that become durable together.
pub(crate) struct Batch {
    /// Identifies the batch in memory, through failures and rewrites.
    number: u64,
    buffer: Vec<u8>,
    items: Vec<BatchItem>,
    first_record: u64,
    last_record: u64,
    records: u32,
    messages: u32,
    /// The part of the buffer that bodies of our own messages take.
    own_bytes: u64,
    /// Must be written as soon as possible.
    urgent: bool,
    /// Latest time at which it must be written.
    deadline: Option<Instant>,
    /// When the first message came whose sender waits for an answer.
    since: Option<Instant>,
}

impl Batch {
    /// Returns an empty batch that uses the buffer of an earlier one.
    pub(crate) fn new(number: u64, mut buffer: Vec<u8>) -> Batch {
        buffer.clear();
        buffer.resize(BATCH_HEADER, 0);
        Batch {
            number,
            buffer,
            items: Vec::new(),
            first_record: u64::MAX,
            last_record: 0,
            records: 0,
            messages: 0,
            own_bytes: 0,
            urgent: false,
            deadline: None,
            since: None,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Length in bytes; 0 while the buffer is with the disk.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn own_bytes(&self) -> u64 {
        self.own_bytes
    }

    /// How many messages in it are new.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    /// The first record, and how many there are.
    pub(crate) fn records(&self) -> (u64, u32) {
        (self.first_record, self.records)
    }

    pub(crate) fn last_record(&self) -> u64 {
        self.last_record
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    pub(crate) fn urge(&mut self) {
        self.urgent = true;
    }

    /// Appends one record; returns its offset and the checksum of its payload.
    pub(crate) fn push(
        &mut self,
        kind: RecordKind,
        sequence: u64,
        payload: &[&[u8]],
    ) -> (usize, u32) {
        self.first_record = self.first_record.min(sequence);
        self.last_record = self.last_record.max(sequence);
        self.records += 1;
        batch::append(&mut self.buffer, kind, sequence, payload)
    }

    /// Appends a chunk of a staged body, the `nth` of that body. Returns the offset of the payload and
    /// its checksum.
    pub(crate) fn push_chunk(
        &mut self,
        (transaction, nth): (TransactionId, usize),
        sequence: u64,
        payload: &[&[u8]],
    ) -> (u32, u32) {
        let (offset, checksum) = self.push(RecordKind::Chunk, sequence, payload);
        let offset = (offset + RECORD_HEADER) as u32;
        self.items.push(BatchItem::Chunk { transaction, nth, offset });
        (offset, checksum)
    }

    /// Notes what to do when the batch is durable.
    pub(crate) fn then(&mut self, item: BatchItem) {
        self.messages += u32::from(matches!(item, BatchItem::Message(_)));
        self.items.push(item);
    }

    /// Counts bytes of the buffer as those of our own messages.
    pub(crate) fn count_own(&mut self, bytes: u64) {
        self.own_bytes += bytes;
    }

    /// Gives the buffer to the disk; inverse of `put_buffer`.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Puts the buffer back for another attempt.
    pub(crate) fn put_buffer(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// Takes what to do now that the batch is durable.
    pub(crate) fn take_items(&mut self) -> Vec<BatchItem> {
        std::mem::take(&mut self.items)
    }

    /// The transactions of the chunks in it.
    pub(crate) fn into_chunks(self) -> impl Iterator<Item = TransactionId> {
        self.items.into_iter().filter_map(|item| match item {
            BatchItem::Chunk { transaction, .. } => Some(transaction),
            _ => None,
        })
    }

    /// A sender waits for it since `now`.
    pub(crate) fn awaited_since(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// It must be written by `at`.
    pub(crate) fn due_by(&mut self, at: Instant) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    /// When it must be written, if its messages wait for company for the time `patience`.
    pub(crate) fn due_at(&self, patience: Duration) -> Option<Instant> {
        let for_senders = self.since.map(|since| since + patience);
        for_senders.into_iter().chain(self.deadline).min()
    }

    /// Takes the clients' messages out. Their records become chunks that nothing refers to, so that all
    /// other records keep their places.
    pub(crate) fn refuse_clients(&mut self) -> Vec<MessageItem> {
        let mut refused = Vec::new();
        for item in std::mem::take(&mut self.items) {
            match item {
                BatchItem::Message(item) if item.client => refused.push(item),
                other => self.items.push(other),
            }
        }
        for item in &refused {
            let end = item.offset as usize + RECORD_HEADER;
            batch::disarm(&mut self.buffer[item.offset as usize..end]);
        }
        self.messages -= refused.len() as u32;
        refused
    }
}

#[cfg(test)]
impl Batch {
    pub(crate) fn grow_to(&mut self, bytes: usize) {
        self.buffer.resize(bytes, 0);
    }
}
