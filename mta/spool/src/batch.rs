//! A batch while it is gathered: its bytes, and what must happen once they are durable.
//!
//! Must never know its place on the disk; that is decided when it is written.

use crate::Ticket;
use crate::format::batch::{self, BATCH_HEADER, RECORD_HEADER, RecordKind};
use crate::format::message::Place;
use crate::format::snapshot::Extra;
use mail::{Instant, MessageId, TransactionId};
use std::time::Duration;

/// Stands for the batch's own segment in an [`Extra`] until that is known.
pub(crate) const OWN_SEGMENT: u32 = u32::MAX;

/// What to do when the batch is durable.
#[derive(Debug)]
pub(crate) enum BatchItem {
    /// The n-th chunk of a staged body has a place.
    Chunk { transaction: TransactionId, nth: usize, offset: u32 },
    /// A message is live.
    Message(MessageItem),
    /// A live message has a new place.
    Moved(MessageItem),
    /// A change is recorded; of a retired message the place is free.
    Change { message: MessageId, retired: Option<(Place, Vec<Extra>)> },
    /// A whole group is recorded.
    Group(Ticket),
}

/// A message record in a batch.
#[derive(Debug)]
pub(crate) struct MessageItem {
    pub message: MessageId,
    pub transaction: TransactionId,
    /// Came from a client who can be told to try again.
    pub client: bool,
    /// Of the record's header in the batch.
    pub offset: u32,
    pub length: u32,
    pub adjacent: bool,
    pub body_bytes: u32,
    pub extras: Vec<Extra>,
}

pub(crate) struct Batch {
    /// Names it in memory, through failures and rewrites.
    pub number: u64,
    pub buffer: Vec<u8>,
    pub items: Vec<BatchItem>,
    pub first_record: u64,
    pub last_record: u64,
    pub records: u32,
    pub messages: u32,
    /// Of the buffer, what bodies of our own messages take.
    pub own_bytes: u64,
    /// Somebody waits for it.
    pub urgent: bool,
    /// Latest time at which it must be written.
    pub deadline: Option<Instant>,
    /// When the first message came whose sender waits for it.
    pub since: Option<Instant>,
}

impl Batch {
    /// An empty batch in a used buffer.
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

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

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

    /// Must be written by `at`.
    pub(crate) fn due_by(&mut self, at: Instant) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    /// When it is to be written, where its messages wait for company for so long.
    pub(crate) fn due_at(&self, patience: Duration) -> Option<Instant> {
        let for_senders = self.since.map(|since| since + patience);
        for_senders.into_iter().chain(self.deadline).min()
    }

    /// Takes the clients' messages out: their records become chunks that nothing refers to, so
    /// that every other record keeps its place and distance.
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
