//! The payload of a message record: id, transaction, places of the body, trace header, and envelope.
//!
//! Must never hold the body itself.

use super::{Cursor, are_counts, put32, put64};
use mail::{Envelope, MessageId, TransactionId};

/// Stands for a slot where a chunk's place is counted back from the message record.
const BACKWARDS: u32 = u32::MAX;
/// Upper bound on a chunk's length: an eighth of the longest segment that the settings allow.
const CHUNK_BYTES_MAX: u32 = 1 << 27;
const FIXED: usize = 40;
const CHUNK: usize = 24;

/// Where one piece of a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPlace {
    /// The segment, its epoch, and the offset of the payload; or the distance back from the header of
    /// the message record in the same batch.
    pub at: ChunkAt,
    /// Length in bytes.
    pub length: u32,
    /// Checksum of the payload.
    pub checksum: u32,
}

/// See [`ChunkPlace::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ChunkAt {
    Before(u32),
    Segment { slot: u32, epoch: u64, offset: u32 },
}

/// The content of a message record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    /// Its queue id.
    pub message: MessageId,
    /// The transaction that brought it.
    pub transaction: TransactionId,
    /// Length of the body in bytes, without the prefix.
    pub body_bytes: u64,
    /// The pieces of the body, in order.
    pub chunks: Vec<ChunkPlace>,
    /// The trace header that goes before the body.
    pub prefix: Vec<u8>,
    /// Sender and recipients.
    pub envelope: Envelope,
}

/// Appends the payload without the envelope, which the caller has encoded already.
pub fn encode_head(
    into: &mut Vec<u8>,
    message: MessageId,
    transaction: TransactionId,
    body_bytes: u64,
    chunks: &[ChunkPlace],
    prefix: &[u8],
) {
    let start = into.len();
    into.resize(start + FIXED + chunks.len() * CHUNK, 0);
    let bytes = &mut into[start..];
    put64(bytes, 0, message.0);
    put64(bytes, 8, transaction.incarnation);
    put64(bytes, 16, transaction.number);
    put64(bytes, 24, body_bytes);
    put32(bytes, 32, prefix.len() as u32);
    put32(bytes, 36, chunks.len() as u32);
    for (chunk, bytes) in chunks.iter().zip(bytes[FIXED..].chunks_exact_mut(CHUNK)) {
        let (slot, epoch, offset) = match chunk.at {
            ChunkAt::Before(distance) => (BACKWARDS, 0, distance),
            ChunkAt::Segment { slot, epoch, offset } => (slot, epoch, offset),
        };
        put32(bytes, 0, slot);
        put32(bytes, 4, offset);
        put64(bytes, 8, epoch);
        put32(bytes, 16, chunk.length);
        put32(bytes, 20, chunk.checksum);
    }
    into.extend_from_slice(prefix);
    debug_assert_eq!(into.len() - start, head_bytes(chunks.len(), prefix.len()));
}

/// Bytes that [`encode_head`] appends.
pub fn head_bytes(chunks: usize, prefix: usize) -> usize {
    FIXED + chunks * CHUNK + prefix
}

/// Reads the id alone, even from a damaged payload: a hint for a report, nothing to act on.
pub fn peek_id(payload: &[u8]) -> Option<MessageId> {
    Cursor(payload).u64().map(MessageId).filter(|id| id.0 > 0 && id.0 < 1 << 55)
}

impl MessageRecord {
    /// Decodes a payload whose checksum was right.
    pub fn decode(payload: &[u8]) -> Option<MessageRecord> {
        let mut cursor = Cursor(payload);
        let message = MessageId(cursor.u64().filter(|id| are_counts(&[*id]))?);
        let transaction = TransactionId { incarnation: cursor.u64()?, number: cursor.u64()? };
        let body_bytes = cursor.u64()?;
        let prefix_bytes = cursor.u32()? as usize;
        let count = cursor.u32()? as usize;
        let places = cursor.take(count.checked_mul(CHUNK)?)?;
        let chunks = places.chunks_exact(CHUNK).map(decode_chunk).collect::<Option<_>>()?;
        let prefix = cursor.take(prefix_bytes)?.to_vec();
        let envelope = postcard::from_bytes(cursor.0).ok()?;
        Some(MessageRecord { message, transaction, body_bytes, chunks, prefix, envelope })
    }
}

fn decode_chunk(bytes: &[u8]) -> Option<ChunkPlace> {
    let mut cursor = Cursor(bytes);
    let (slot, offset, epoch) = (cursor.u32()?, cursor.u32()?, cursor.u64()?);
    let at = match slot {
        BACKWARDS => ChunkAt::Before(offset),
        slot => ChunkAt::Segment { slot, epoch, offset },
    };
    let length = cursor.u32().filter(|length| *length <= CHUNK_BYTES_MAX)?;
    Some(ChunkPlace { at, length, checksum: cursor.u32()? })
}

/// The place of a live message: 16 bytes in memory, 24 with the message's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePlace {
    /// Segment of the message record.
    pub slot: u32,
    /// Offset of the record's header in it.
    pub offset: u32,
    /// Length of the record's payload. The top bit says that the whole body is the one chunk right
    /// before the record.
    length: u32,
    /// Length of the body in bytes.
    pub body_bytes: u32,
}

const ADJACENT: u32 = 1 << 31;

impl MessagePlace {
    /// Returns the place of a record, whose body is right before it if `adjacent`.
    pub fn new(
        slot: u32,
        offset: u32,
        length: u32,
        adjacent: bool,
        body_bytes: u32,
    ) -> MessagePlace {
        let length = if adjacent { length | ADJACENT } else { length };
        MessagePlace { slot, offset, length, body_bytes }
    }

    /// Bytes of the record's payload.
    pub fn length(self) -> u32 {
        self.length & !ADJACENT
    }

    /// Whether the whole body is the one chunk right before the record, or empty.
    pub fn is_adjacent(self) -> bool {
        self.length & ADJACENT != 0
    }

    /// The length with its mark, as snapshots keep it.
    pub fn marked_length(self) -> u32 {
        self.length
    }

    /// Bytes that the record and an adjacent body take in their segment.
    pub fn own_bytes(self) -> u64 {
        let record = super::aligned(super::batch::RECORD_HEADER + self.length() as usize, 8);
        let body = match self.is_adjacent() && self.body_bytes > 0 {
            true => super::aligned(super::batch::RECORD_HEADER + self.body_bytes as usize, 8),
            false => 0,
        };
        (record + body) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn s131_garbage_payloads_neither_panic_nor_allocate_what_they_claim(
            bytes in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            if let Some(record) = MessageRecord::decode(&bytes) {
                prop_assert!(record.chunks.len() * CHUNK + record.prefix.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn s131_counts_of_four_billion_are_refused() {
        let mut bytes = vec![0; 64];
        put32(&mut bytes, 32, u32::MAX);
        put32(&mut bytes, 36, u32::MAX);
        assert_eq!(MessageRecord::decode(&bytes), None);
    }
}
