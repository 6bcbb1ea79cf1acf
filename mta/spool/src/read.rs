//! Reading a message: one read for its envelope and a small body, and one for each chunk of a large
//! body. All checksums are verified.
//!
//! Must never return a byte whose checksum was wrong.

use crate::Spool;
use crate::format::aligned;
use crate::format::batch::{RECORD_HEADER, RecordKind, record_at};
use crate::format::message::{ChunkAt, MessagePlace, MessageRecord};
use crate::io::{File, IoWork};
use bytes::Bytes;
use mail::{Envelope, MessageId, TransactionId};
use world::{Disk, DiskError};

/// How to read a message. Its segments are kept until [`Spool::unplan`].
#[derive(Debug)]
#[must_use]
pub struct ReadPlan {
    /// The message.
    pub message: MessageId,
    pub(crate) place: MessagePlace,
    pub(crate) epoch: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) held: Vec<u32>,
}

/// A message as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its queue id.
    pub message: MessageId,
    /// The transaction that brought it.
    pub transaction: TransactionId,
    /// Sender and recipients.
    pub envelope: Envelope,
    /// The trace header that goes before the body.
    pub prefix: Bytes,
    /// Length of the body without the prefix.
    pub body_bytes: u64,
    /// The whole body, if it was read along with the record.
    pub body: Option<Bytes>,
    /// The chunks of the body otherwise, in order.
    pub chunks: Vec<Chunk>,
}

/// One chunk of a stored body. Its size was bounded by the settings when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub(crate) slot: u32,
    pub(crate) epoch: u64,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

/// The bytes on the disk are not those that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

/// A read failed or found damage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The disk returned other bytes than those that were written.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

impl Spool {
    /// Returns how to read a live message. The plan must be given back when its last chunk has been read.
    pub fn plan(&mut self, message: MessageId) -> Option<ReadPlan> {
        let place = self.index.get(message)?;
        let segment = self.segments.get(place.slot)?;
        let (epoch, segment_bytes) = (segment.epoch, segment.bytes);
        let mut held = vec![place.slot];
        held.extend(self.index.extras(message).iter().map(|extra| extra.slot));
        held.iter().for_each(|slot| self.segments.hold(*slot));
        Some(ReadPlan { message, place, epoch, segment_bytes, held })
    }

    /// Gives a plan back; inverse of `plan`.
    pub fn unplan(&mut self, plan: ReadPlan) {
        plan.held.iter().for_each(|slot| self.segments.unhold(*slot));
    }
}

impl ReadPlan {
    /// Bytes before the record's header that are read along with it: an adjacent body.
    fn before(&self) -> usize {
        match self.place.is_adjacent() {
            true => aligned(self.place.body_bytes as usize, 8),
            false => 0,
        }
    }

    /// Whether the place is inside its segment. A damaged place must not make a reader allocate.
    pub(crate) fn is_inside(&self) -> bool {
        let end =
            u64::from(self.place.offset) + (RECORD_HEADER as u64) + u64::from(self.place.length());
        self.before() as u64 <= u64::from(self.place.offset) && end <= u64::from(self.segment_bytes)
    }

    /// The read whose result goes to [`ReadPlan::parse`].
    pub fn work(&self) -> IoWork {
        let length = self.before() + RECORD_HEADER + self.place.length() as usize;
        IoWork::Read {
            file: File::Segment(self.place.slot),
            offset: u64::from(self.place.offset).saturating_sub(self.before() as u64),
            buffer: vec![0; length],
        }
    }

    /// Verifies and decodes what was read.
    pub fn parse(&self, bytes: &Bytes) -> Result<StoredMessage, Damaged> {
        let before = self.before();
        let record = record_at(bytes, before, self.epoch).ok_or(Damaged("bad message record"))?;
        if !matches!(record.kind, RecordKind::Message | RecordKind::Moved) {
            return Err(Damaged("not a message record"));
        }
        let record = MessageRecord::decode(record.payload).ok_or(Damaged("bad message payload"))?;
        if record.message != self.message {
            return Err(Damaged("another message's record"));
        }
        let chunks: Vec<_> = record.chunks.iter().map(|chunk| self.chunk(chunk)).collect();
        let mut stored = StoredMessage {
            message: record.message,
            transaction: record.transaction,
            envelope: record.envelope,
            prefix: record.prefix.into(),
            body_bytes: record.body_bytes,
            body: None,
            chunks,
        };
        if self.place.is_adjacent() {
            let body = bytes.slice(..self.place.body_bytes as usize);
            match stored.chunks.pop() {
                Some(chunk) => chunk.verify(&body)?,
                None if body.is_empty() => {}
                None => return Err(Damaged("body without chunks")),
            }
            stored.body = Some(body);
        }
        Ok(stored)
    }

    fn chunk(&self, chunk: &crate::format::message::ChunkPlace) -> Chunk {
        let (slot, epoch, offset) = match chunk.at {
            ChunkAt::Segment { slot, epoch, offset } => (slot, epoch, offset),
            ChunkAt::Before(distance) => {
                (self.place.slot, self.epoch, self.place.offset.saturating_sub(distance))
            }
        };
        Chunk { slot, epoch, offset, length: chunk.length, checksum: chunk.checksum }
    }
}

impl Chunk {
    /// Length in bytes.
    pub fn bytes(&self) -> u32 {
        self.length
    }

    /// The read of the chunk.
    pub fn work(&self) -> IoWork {
        let buffer = vec![0; self.length as usize];
        IoWork::Read { file: File::Segment(self.slot), offset: self.offset.into(), buffer }
    }

    /// Whether these are the bytes that were written.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), Damaged> {
        let right = bytes.len() == self.length as usize && crc32c::crc32c(bytes) == self.checksum;
        if right { Ok(()) } else { Err(Damaged("bad chunk")) }
    }
}

/// Reads envelope and trace header, and the body or the list of its chunks.
pub fn read_message(disk: &dyn Disk, plan: &ReadPlan) -> Result<StoredMessage, ReadError> {
    if !plan.is_inside() {
        return Err(Damaged("the message is outside of its segment").into());
    }
    Ok(plan.parse(&read(disk, plan.work())?)?)
}

/// Reads one chunk.
pub fn read_chunk(disk: &dyn Disk, chunk: &Chunk) -> Result<Bytes, ReadError> {
    let bytes = read(disk, chunk.work())?;
    chunk.verify(&bytes)?;
    Ok(bytes)
}

fn read(disk: &dyn Disk, work: IoWork) -> Result<Bytes, DiskError> {
    let IoWork::Read { file, offset, mut buffer } = work else { return Ok(Bytes::new()) };
    disk.read_at(&file.to_string(), offset, &mut buffer)?;
    Ok(buffer.into())
}
