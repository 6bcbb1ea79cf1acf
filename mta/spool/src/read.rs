//! Reading a message back: one read for its envelope and a small body, one for each chunk of a
//! large one, all of it checked.
//!
//! Must never give out a byte whose checksum was not right.

use crate::Spool;
use crate::format::aligned;
use crate::format::batch::{RECORD_HEADER, RecordKind, record_at};
use crate::format::message::{ChunkAt, MessageRecord, Place};
use crate::io::{File, Work};
use bytes::Bytes;
use mail::{Envelope, MessageId, TransactionId};
use world::{Disk, DiskError};

/// How a message is read. Its segments are kept until [`Spool::unplan`].
#[derive(Debug)]
#[must_use]
pub struct Plan {
    /// Which message.
    pub message: MessageId,
    pub(crate) place: Place,
    pub(crate) epoch: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) held: Vec<u32>,
}

/// A message as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its queue id.
    pub message: MessageId,
    /// What brought it.
    pub transaction: TransactionId,
    /// Who to whom.
    pub envelope: Envelope,
    /// Header lines of ours, before the body.
    pub prefix: Bytes,
    /// Length of the body without the prefix.
    pub body_bytes: u64,
    /// The whole body, where it was read along with the record.
    pub body: Option<Bytes>,
    /// Else its chunks, in order.
    pub chunks: Vec<Chunk>,
}

/// One piece of a body, of at most the size that was set when it came.
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
    /// The disk said no.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The disk said something else than what was written.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

impl Spool {
    /// How a live message is read. Give the plan back when its last chunk has been read.
    pub fn plan(&mut self, message: MessageId) -> Option<Plan> {
        let place = self.index.get(message)?;
        let segment = self.segments.get(place.slot)?;
        let (epoch, segment_bytes) = (segment.epoch, segment.bytes);
        let mut held = vec![place.slot];
        held.extend(self.index.extras(message).iter().map(|extra| extra.slot));
        held.iter().for_each(|slot| self.segments.hold(*slot));
        Some(Plan { message, place, epoch, segment_bytes, held })
    }

    /// The reader is done.
    pub fn unplan(&mut self, plan: Plan) {
        plan.held.iter().for_each(|slot| self.segments.unhold(*slot));
    }
}

impl Plan {
    /// Bytes before the record's header that are read along: an adjacent body.
    fn before(&self) -> usize {
        match self.place.is_adjacent() {
            true => aligned(self.place.body_bytes as usize, 8),
            false => 0,
        }
    }

    /// Whether the place is inside its segment: a damaged one must not make a reader allocate.
    pub(crate) fn is_inside(&self) -> bool {
        let end =
            u64::from(self.place.offset) + (RECORD_HEADER as u64) + u64::from(self.place.length());
        self.before() as u64 <= u64::from(self.place.offset) && end <= u64::from(self.segment_bytes)
    }

    /// The read that [`Plan::parse`] wants the result of.
    pub fn work(&self) -> Work {
        let length = self.before() + RECORD_HEADER + self.place.length() as usize;
        Work::Read {
            file: File::Segment(self.place.slot),
            offset: u64::from(self.place.offset).saturating_sub(self.before() as u64),
            buffer: vec![0; length],
        }
    }

    /// Checks and takes apart what was read.
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
    /// Bytes of the piece.
    pub fn bytes(&self) -> u32 {
        self.length
    }

    /// The read of the piece.
    pub fn work(&self) -> Work {
        let buffer = vec![0; self.length as usize];
        Work::Read { file: File::Segment(self.slot), offset: self.offset.into(), buffer }
    }

    /// Whether these are the bytes that were written.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), Damaged> {
        let right = bytes.len() == self.length as usize && crc32c::crc32c(bytes) == self.checksum;
        if right { Ok(()) } else { Err(Damaged("bad chunk")) }
    }
}

/// Reads envelope, prefix, and body or list of chunks.
pub fn read_message(disk: &dyn Disk, plan: &Plan) -> Result<StoredMessage, ReadError> {
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

fn read(disk: &dyn Disk, work: Work) -> Result<Bytes, DiskError> {
    let Work::Read { file, offset, mut buffer } = work else { return Ok(Bytes::new()) };
    disk.read_at(&file.to_string(), offset, &mut buffer)?;
    Ok(buffer.into())
}
