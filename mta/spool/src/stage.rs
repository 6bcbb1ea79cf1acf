//! Bodies on their way in: gathered into chunks that go to the log, or to bulk if large.
//!
//! Must never make anything live; staged bytes that nobody accepts are reclaimed.

use crate::batch::Item;
use crate::commit::Lane;
use crate::format::batch::RecordKind;
use crate::format::segment::Kind;
use crate::{Refusal, Spool};
use bytes::Bytes;
use mail::TransactionId;

/// Bodies have at most this length, because a place keeps it in 32 bits.
pub const BODY_BYTES_MAX: u64 = u32::MAX as u64;

/// One transaction's body so far.
#[derive(Default)]
pub(crate) struct Staged {
    /// Not yet in any batch, less than one chunk.
    pub pending: Vec<Bytes>,
    pub pending_bytes: usize,
    pub total: u64,
    pub chunks: Vec<StagedChunk>,
    /// Why it cannot be accepted any more.
    pub lost: Option<Refusal>,
}

/// One chunk that has gone into a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedChunk {
    pub batch: u64,
    /// Of the payload in the batch.
    pub offset: u32,
    pub length: u32,
    pub checksum: u32,
    /// Segment, epoch and offset of the payload, once durable.
    pub place: Option<(u32, u64, u32)>,
}

impl Spool {
    /// Takes body bytes of a transaction, in order; may be called any number of times.
    pub fn stage(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        if self.broken.is_some() {
            return Err(self.last_refusal);
        }
        if self.staged_bytes + bytes.len() as u64 > self.settings.staged_bytes_max {
            return Err(Refusal::Busy);
        }
        self.gather(transaction, bytes, true)
    }

    /// The same for a message of our own making: it has the reserve of a full disk, and waits in
    /// memory for a disk that fails. How many there are is for the caller to bound.
    pub fn stage_own(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        self.gather(transaction, bytes, false)
    }

    fn gather(
        &mut self,
        transaction: TransactionId,
        bytes: Bytes,
        client: bool,
    ) -> Result<(), Refusal> {
        let staged = self.staged.entry(transaction).or_default();
        if let Some(refusal) = staged.lost {
            return Err(refusal);
        }
        if staged.total + bytes.len() as u64 > BODY_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        staged.total += bytes.len() as u64;
        staged.pending_bytes += bytes.len();
        self.staged_bytes += bytes.len() as u64;
        staged.pending.push(bytes);
        while self.has_whole_chunk(transaction) {
            if client && !self.has_room(u64::from(self.settings.chunk_bytes_max)) {
                return Err(Refusal::Full);
            }
            self.flush_whole_chunk(transaction);
        }
        Ok(())
    }

    /// Forgets what was staged.
    pub fn unstage(&mut self, transaction: TransactionId) {
        let Some(staged) = self.staged.remove(&transaction) else { return };
        self.staged_bytes -= staged.pending_bytes as u64;
        for (slot, ..) in staged.chunks.iter().filter_map(|chunk| chunk.place) {
            self.segments.unhold(slot);
        }
    }

    fn has_whole_chunk(&self, transaction: TransactionId) -> bool {
        let size = self.settings.chunk_bytes_max as usize;
        self.staged.get(&transaction).is_some_and(|staged| staged.pending_bytes >= size)
    }

    /// Moves one chunk into the gathering batch of the lane that its body belongs to.
    fn flush_whole_chunk(&mut self, transaction: TransactionId) {
        let size = self.settings.chunk_bytes_max as usize;
        let Some(staged) = self.staged.get_mut(&transaction) else { return };
        let lane = match staged.total > u64::from(self.settings.bulk_bytes_min) {
            true => Kind::Bulk,
            false => Kind::Log,
        };
        let mut taken = Vec::new();
        let mut missing = size;
        while missing > 0 {
            let mut piece = staged.pending.remove(0);
            if piece.len() > missing {
                staged.pending.insert(0, piece.split_off(missing));
            }
            missing -= piece.len();
            taken.push(piece);
        }
        staged.pending_bytes -= size;
        self.staged_bytes -= size as u64;
        self.push_chunk(transaction, lane, &taken);
    }

    /// Appends a chunk record and notes it with its transaction.
    pub(crate) fn push_chunk(&mut self, transaction: TransactionId, kind: Kind, parts: &[Bytes]) {
        let length: usize = parts.iter().map(Bytes::len).sum();
        let batch_bytes_max = self.settings.batch_bytes_max;
        self.lane(kind).make_room(length, batch_bytes_max);
        self.number_batches();
        let sequence = self.next_sequence();
        let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let Lane { open, .. } = self.lane(kind);
        let (offset, checksum) = open.push(RecordKind::Chunk, sequence, &slices);
        let payload = (offset + crate::format::batch::RECORD_HEADER) as u32;
        let batch = open.number;
        let Some(staged) = self.staged.get_mut(&transaction) else { return };
        let nth = staged.chunks.len();
        let length = length as u32;
        staged.chunks.push(StagedChunk { batch, offset: payload, length, checksum, place: None });
        self.lane(kind).open.items.push(Item::Chunk { transaction, nth, offset: payload });
        self.lane(kind).open.urgent = true;
    }
}
