//! Bodies on their way in: gathered into chunks that go to the log, or to bulk if large.
//!
//! Must never make anything live; staged bytes that nobody accepts are reclaimed. Must never let
//! messages of our own use up what clients may have staged.

use crate::batch::BatchItem;
use crate::commit::LogStream;
use crate::format::batch::RecordKind;
use crate::format::segment::SegmentKind;
use crate::{Refusal, Spool};
use bytes::Bytes;
use mail::TransactionId;

/// Bodies have at most this length, because a place keeps it in 32 bits.
pub const BODY_BYTES_MAX: u64 = u32::MAX as u64;

/// The shortest piece, in bytes, that is written before its chunk is full.
const SHORT_CHUNK_BYTES_MIN: usize = 4 << 10;
/// A short chunk holds at least this part of its body, so that no body becomes thousands of
/// chunks.
const SHORT_CHUNK_BODY_DIVISOR: u64 = 256;
/// Bodies looked at in one call for pieces to write.
const RESTING_LOOKED_AT_MAX: usize = 64;
/// Entries of `resting` whose body is gone are dropped when there are this many more than bodies.
const RESTING_GONE_MAX: usize = 1_024;

/// One transaction's body so far.
#[derive(Default)]
pub(crate) struct Staged {
    /// A message of our own: counted apart from those of clients, and never in bulk.
    pub own: bool,
    /// Has an entry in `Spool::resting`.
    pub resting: bool,
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
        self.write_resting(bytes.len() as u64);
        self.stage_last(transaction, bytes)?;
        self.rest(transaction);
        Ok(())
    }

    /// The same for the last piece of a body, which is accepted at once.
    pub fn stage_last(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        if self.broken.is_some() {
            return Err(self.last_refusal);
        }
        if self.staged_bytes + bytes.len() as u64 > self.settings.staged_bytes_max {
            return Err(Refusal::Busy);
        }
        self.gather(transaction, bytes, true)
    }

    /// The same for the whole body of a message of our own making: it has the reserve of a full disk,
    /// and waits in memory for a disk that fails. Refused before anything of it is kept: as too large
    /// if it is longer than all messages of our own together may be, else if it has to wait for
    /// others to become durable first.
    pub fn stage_own(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        let length = bytes.len() as u64;
        if length > self.settings.own_bytes_max {
            return Err(Refusal::TooLarge);
        }
        if self.own_bytes() + length > self.settings.own_bytes_max {
            return Err(match (&self.broken, self.supply.full) {
                (Some(_), _) => self.last_refusal,
                (None, true) => Refusal::Full,
                (None, false) => Refusal::Busy,
            });
        }
        self.staged.entry(transaction).or_default().own = true;
        self.gather(transaction, bytes, false)
    }

    /// Bytes of messages of our own that are staged or gathered and not durable yet.
    pub fn own_bytes(&self) -> u64 {
        self.own_staged_bytes + self.log.batches().map(|batch| batch.own_bytes).sum::<u64>()
    }

    /// Whether more messages of our own should be handed in: less than half of what they may take
    /// is on its way.
    pub fn has_own_room(&self) -> bool {
        self.own_bytes() <= self.settings.own_bytes_max / 2
    }

    /// Notes that pieces of a body wait in memory.
    fn rest(&mut self, transaction: TransactionId) {
        let Some(staged) = self.staged.get_mut(&transaction) else { return };
        if staged.pending_bytes == 0 || staged.resting {
            return;
        }
        staged.resting = true;
        self.resting.push_back(transaction);
        if self.resting.len() > self.staged.len() + RESTING_GONE_MAX {
            let staged = &self.staged;
            self.resting.retain(|transaction| staged.contains_key(transaction));
        }
    }

    /// While more than half of what clients may have staged is in memory, pieces that have waited
    /// longest go to the disk as short chunks, twice as many bytes as are to come: bodies that
    /// stand still must not keep others out.
    fn write_resting(&mut self, coming: u64) {
        let half = self.settings.staged_bytes_max / 2;
        let aim = (self.staged_bytes + coming).saturating_sub(half).min(2 * coming);
        let goal = self.staged_bytes.saturating_sub(aim);
        for _ in 0..RESTING_LOOKED_AT_MAX.min(self.resting.len()) {
            if self.staged_bytes <= goal || !self.has_room(self.settings.chunk_bytes_max.into()) {
                return;
            }
            let Some(transaction) = self.resting.pop_front() else { return };
            let Some(staged) = self.staged.get_mut(&transaction) else { continue };
            staged.resting = false;
            let share = staged.total / SHORT_CHUNK_BODY_DIVISOR;
            let bytes = staged.pending_bytes;
            if bytes >= SHORT_CHUNK_BYTES_MIN && bytes as u64 >= share && staged.lost.is_none() {
                self.flush_chunk(transaction, bytes);
            } else {
                self.rest(transaction);
            }
        }
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
        if staged.own {
            self.own_staged_bytes += bytes.len() as u64;
        } else {
            self.staged_bytes += bytes.len() as u64;
        }
        staged.pending.push(bytes);
        while self.has_whole_chunk(transaction) {
            if client && !self.has_room(u64::from(self.settings.chunk_bytes_max)) {
                return Err(Refusal::Full);
            }
            self.flush_chunk(transaction, self.settings.chunk_bytes_max as usize);
        }
        Ok(())
    }

    /// Forgets what was staged.
    pub fn unstage(&mut self, transaction: TransactionId) {
        let Some(staged) = self.staged.remove(&transaction) else { return };
        self.left_memory(staged.own, staged.pending_bytes);
        for (slot, ..) in staged.chunks.iter().filter_map(|chunk| chunk.place) {
            self.segments.unhold(slot);
        }
    }

    /// Counts bytes out that are no longer staged.
    pub(crate) fn left_memory(&mut self, own: bool, bytes: usize) {
        if own {
            self.own_staged_bytes -= bytes as u64;
        } else {
            self.staged_bytes -= bytes as u64;
        }
    }

    fn has_whole_chunk(&self, transaction: TransactionId) -> bool {
        let size = self.settings.chunk_bytes_max as usize;
        self.staged.get(&transaction).is_some_and(|staged| staged.pending_bytes >= size)
    }

    /// Moves one chunk of so many bytes, which are there, into the gathering batch of the stream that
    /// its body belongs to.
    fn flush_chunk(&mut self, transaction: TransactionId, size: usize) {
        let Some(staged) = self.staged.get_mut(&transaction) else { return };
        // A full disk refuses bulk, but not what is our own.
        let stream = match staged.total > u64::from(self.settings.bulk_bytes_min) && !staged.own {
            true => SegmentKind::Bulk,
            false => SegmentKind::Log,
        };
        let own = staged.own;
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
        self.left_memory(own, size);
        self.push_chunk(transaction, stream, &taken);
    }

    /// Appends a chunk record and notes it with its transaction.
    pub(crate) fn push_chunk(
        &mut self,
        transaction: TransactionId,
        kind: SegmentKind,
        parts: &[Bytes],
    ) {
        let length: usize = parts.iter().map(Bytes::len).sum();
        let batch_bytes_max = self.settings.batch_bytes_max;
        self.stream(kind).make_room(length, batch_bytes_max);
        self.number_batches();
        let sequence = self.next_sequence();
        let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let LogStream { open, .. } = self.stream(kind);
        let (offset, checksum) = open.push(RecordKind::Chunk, sequence, &slices);
        let payload = (offset + crate::format::batch::RECORD_HEADER) as u32;
        let batch = open.number;
        let Some(staged) = self.staged.get_mut(&transaction) else { return };
        let nth = staged.chunks.len();
        let own = if staged.own { length as u64 } else { 0 };
        let length = length as u32;
        staged.chunks.push(StagedChunk { batch, offset: payload, length, checksum, place: None });
        self.stream(kind).open.items.push(BatchItem::Chunk { transaction, nth, offset: payload });
        self.stream(kind).open.own_bytes += own;
        self.stream(kind).open.urgent = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_the_longest_kind_is_taken_and_one_byte_more_is_refused() {
        let disk = world::sim::Disk::new(1);
        let (mut spool, _) =
            crate::open(&disk, crate::Settings::for_tests(), 1, &mut |_| {}).unwrap();
        let transaction = TransactionId { origin: 1, number: 1 };
        spool.staged.entry(transaction).or_default().total = BODY_BYTES_MAX - 5;
        assert_eq!(spool.stage(transaction, Bytes::from_static(b"12345")), Ok(()));
        assert_eq!(spool.stage(transaction, Bytes::from_static(b"6")), Err(Refusal::TooLarge));
    }
}
