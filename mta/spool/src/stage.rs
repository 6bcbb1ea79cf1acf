//! Staging: bodies on their way in, cut into chunks that go to the log, or to bulk if the body is
//! large.
//!
//! Must never make anything live; staged bytes that nobody accepts are reclaimed. Must never let
//! messages of our own use up what clients may have staged.

mod chunks;

use crate::format::message::{ChunkAt, ChunkPlace};
use crate::{Refusal, Spool};
use bytes::Bytes;
use mail::TransactionId;
use std::collections::{HashMap, VecDeque};

/// Upper bound on the length of a body, because a place keeps it in 32 bits.
pub const BODY_BYTES_MAX: u64 = u32::MAX as u64;

/// The shortest piece, in bytes, that is written before its chunk is full.
const SHORT_CHUNK_BYTES_MIN: usize = 4 << 10;
/// A short chunk holds at least this part of its body, so that no body becomes thousands of
/// chunks.
const SHORT_CHUNK_BODY_DIVISOR: u64 = 256;
/// Upper bound on the bodies that one call looks at for pieces to write.
const RESTING_LOOKED_AT_MAX: usize = 64;
/// Entries of `resting` whose body is gone are dropped when there are this many more entries than
/// bodies.
const RESTING_GONE_MAX: usize = 1_024;

/// All staged bodies.
#[derive(Default)]
pub(crate) struct Staging {
    bodies: HashMap<TransactionId, StagedBody>,
    /// Bytes of clients' bodies that are in memory and in no batch yet.
    client_bytes: u64,
    /// The same of our own messages.
    own_bytes: u64,
    /// Bodies of clients with pieces in memory, in the order in which they began to wait.
    resting: VecDeque<TransactionId>,
}

/// The body of one transaction, as far as it has come.
#[derive(Default)]
pub(crate) struct StagedBody {
    /// A message of our own: counted apart from those of clients, and never in bulk.
    own: bool,
    /// Has an entry in `Staging::resting`.
    resting: bool,
    /// Pieces that are in no batch yet, together less than one chunk.
    pending: Vec<Bytes>,
    pending_bytes: usize,
    total: u64,
    chunks: Vec<StagedChunk>,
    /// Why the body can no longer be accepted.
    lost: Option<Refusal>,
}

/// One chunk that has gone into a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedChunk {
    batch: u64,
    /// Of the payload in the batch.
    offset: u32,
    length: u32,
    checksum: u32,
    /// Segment, epoch and offset of the payload, once durable.
    place: Option<(u32, u64, u32)>,
}

impl StagedChunk {
    /// A chunk that is durable already.
    pub(crate) fn kept(length: u32, checksum: u32, place: (u32, u64, u32)) -> StagedChunk {
        StagedChunk { batch: 0, offset: 0, length, checksum, place: Some(place) }
    }
}

impl StagedBody {
    /// Why the body can no longer be accepted.
    pub(crate) fn lost(&self) -> Option<Refusal> {
        self.lost
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Length in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn chunks(&self) -> &[StagedChunk] {
        &self.chunks
    }

    /// Whether a chunk is not durable and in another batch than this one.
    pub(crate) fn waits_beside(&self, batch: u64) -> bool {
        self.chunks.iter().any(|chunk| chunk.place.is_none() && chunk.batch != batch)
    }

    /// The places of the chunks as a message record at `offset` of the gathered batch names them.
    pub(crate) fn places(&self, offset: u32) -> Vec<ChunkPlace> {
        let place = |chunk: &StagedChunk| {
            let at = match chunk.place {
                Some((slot, epoch, offset)) => ChunkAt::Segment { slot, epoch, offset },
                None => ChunkAt::Before(offset - chunk.offset),
            };
            ChunkPlace { at, length: chunk.length, checksum: chunk.checksum }
        };
        self.chunks.iter().map(place).collect()
    }

    /// Takes this many of the bytes that wait.
    fn take_pending(&mut self, bytes: usize) -> Vec<Bytes> {
        self.pending_bytes -= bytes;
        if self.pending_bytes == 0 {
            return std::mem::take(&mut self.pending);
        }
        let mut taken = Vec::new();
        let mut missing = bytes;
        while missing > 0 {
            let mut piece = self.pending.remove(0);
            if piece.len() > missing {
                self.pending.insert(0, piece.split_off(missing));
            }
            missing -= piece.len();
            taken.push(piece);
        }
        taken
    }
}

impl Staging {
    pub(crate) fn body(&self, transaction: TransactionId) -> Option<&StagedBody> {
        self.bodies.get(&transaction)
    }

    /// Makes an empty body unless there is one.
    pub(crate) fn begin(&mut self, transaction: TransactionId) {
        self.bodies.entry(transaction).or_default();
    }

    /// Stages a copy of a stored body of `total` bytes. What is read of it is `body`.
    pub(crate) fn begin_copy(
        &mut self,
        transaction: TransactionId,
        total: u64,
        body: Option<Bytes>,
    ) {
        let pending: Vec<_> = body.into_iter().filter(|body| !body.is_empty()).collect();
        let pending_bytes = pending.iter().map(Bytes::len).sum();
        self.client_bytes += pending_bytes as u64;
        let staged = StagedBody { total, pending, pending_bytes, ..StagedBody::default() };
        self.bodies.insert(transaction, staged);
    }

    /// Adds a chunk that stays where it is.
    pub(crate) fn keep_chunk(&mut self, transaction: TransactionId, chunk: StagedChunk) {
        if let Some(staged) = self.bodies.get_mut(&transaction) {
            staged.chunks.push(chunk);
        }
    }

    /// The n-th chunk is durable at this place; false if it is no longer wanted or was placed before.
    pub(crate) fn place_chunk(
        &mut self,
        transaction: TransactionId,
        nth: usize,
        place: (u32, u64, u32),
    ) -> bool {
        let chunk = self.bodies.get_mut(&transaction).and_then(|staged| staged.chunks.get_mut(nth));
        let Some(chunk) = chunk.filter(|chunk| chunk.place.is_none()) else { return false };
        chunk.place = Some(place);
        true
    }

    /// The body is incomplete for good.
    pub(crate) fn lose(&mut self, transaction: TransactionId, refusal: Refusal) {
        if let Some(staged) = self.bodies.get_mut(&transaction) {
            staged.lost = Some(refusal);
        }
    }

    /// Bytes in memory and in no batch yet.
    pub(crate) fn bytes(&self) -> u64 {
        self.client_bytes + self.own_bytes
    }

    fn count_in(&mut self, own: bool, bytes: usize) {
        *(if own { &mut self.own_bytes } else { &mut self.client_bytes }) += bytes as u64;
    }

    fn count_out(&mut self, own: bool, bytes: usize) {
        *(if own { &mut self.own_bytes } else { &mut self.client_bytes }) -= bytes as u64;
    }

    /// Notes that pieces of a body wait in memory.
    fn rest(&mut self, transaction: TransactionId) {
        let Some(staged) = self.bodies.get_mut(&transaction) else { return };
        if staged.pending_bytes == 0 || staged.resting {
            return;
        }
        staged.resting = true;
        self.resting.push_back(transaction);
        if self.resting.len() > self.bodies.len() + RESTING_GONE_MAX {
            let bodies = &self.bodies;
            self.resting.retain(|transaction| bodies.contains_key(transaction));
        }
    }
}

impl Spool {
    /// Takes body bytes of a transaction, in order. May be called any number of times.
    pub fn stage(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        self.write_resting(bytes.len() as u64);
        self.stage_last(transaction, bytes)?;
        self.staging.rest(transaction);
        Ok(())
    }

    /// Takes the last bytes of a body, which is accepted at once.
    pub fn stage_last(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        if let Some(refusal) = self.failures.refusal() {
            return Err(refusal);
        }
        if self.staging.client_bytes + bytes.len() as u64 > self.settings.staged_bytes_max {
            return Err(Refusal::Busy);
        }
        self.gather(transaction, bytes, true)
    }

    /// Takes the whole body of a message of our own making. It may use the reserve of a full disk,
    /// and waits in memory for a disk that fails.
    ///
    /// Refused before anything of it is kept: as too large if it is longer than all messages of our
    /// own together may be, otherwise if it has to wait for others to become durable first.
    pub fn stage_own(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        let length = bytes.len() as u64;
        if length > self.settings.own_bytes_max {
            return Err(Refusal::TooLarge);
        }
        if self.own_bytes() + length > self.settings.own_bytes_max {
            return Err(match (self.failures.refusal(), self.supply.is_full()) {
                (Some(refusal), _) => refusal,
                (None, true) => Refusal::Full,
                (None, false) => Refusal::Busy,
            });
        }
        self.staging.bodies.entry(transaction).or_default().own = true;
        self.gather(transaction, bytes, false)
    }

    /// Bytes of messages of our own that are staged or gathered and not durable yet.
    pub fn own_bytes(&self) -> u64 {
        self.staging.own_bytes + self.streams.log().own_bytes()
    }

    /// Whether more messages of our own should be handed in: less than half of what they may take
    /// is on its way.
    pub fn has_own_room(&self) -> bool {
        self.own_bytes() <= self.settings.own_bytes_max / 2
    }

    /// Writes pieces of bodies that stand still, so that those do not keep others out. While more
    /// than half of what clients may have staged is in memory, the pieces that have waited longest
    /// go to the disk as short chunks, twice as many bytes as are `coming`.
    fn write_resting(&mut self, coming: u64) {
        let half = self.settings.staged_bytes_max / 2;
        let aim = (self.staging.client_bytes + coming).saturating_sub(half).min(2 * coming);
        let goal = self.staging.client_bytes.saturating_sub(aim);
        for _ in 0..RESTING_LOOKED_AT_MAX.min(self.staging.resting.len()) {
            let enough = self.staging.client_bytes <= goal;
            if enough || !self.has_room(self.settings.chunk_bytes_max.into()) {
                return;
            }
            let Some(transaction) = self.staging.resting.pop_front() else { return };
            let Some(staged) = self.staging.bodies.get_mut(&transaction) else { continue };
            staged.resting = false;
            let share = staged.total / SHORT_CHUNK_BODY_DIVISOR;
            let bytes = staged.pending_bytes;
            if bytes >= SHORT_CHUNK_BYTES_MIN && bytes as u64 >= share && staged.lost.is_none() {
                self.flush_chunk(transaction, bytes);
            } else {
                self.staging.rest(transaction);
            }
        }
    }

    fn gather(
        &mut self,
        transaction: TransactionId,
        bytes: Bytes,
        client: bool,
    ) -> Result<(), Refusal> {
        let staged = self.staging.bodies.entry(transaction).or_default();
        if let Some(refusal) = staged.lost {
            return Err(refusal);
        }
        if staged.total + bytes.len() as u64 > BODY_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        let (own, length) = (staged.own, bytes.len());
        staged.total += length as u64;
        staged.pending_bytes += length;
        staged.pending.push(bytes);
        self.staging.count_in(own, length);
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
        let Some(staged) = self.staging.bodies.remove(&transaction) else { return };
        self.staging.count_out(staged.own, staged.pending_bytes);
        for (slot, ..) in staged.chunks.iter().filter_map(|chunk| chunk.place) {
            self.segments.unhold(slot);
        }
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
        let transaction = TransactionId { incarnation: 1, number: 1 };
        spool.staging.bodies.entry(transaction).or_default().total = BODY_BYTES_MAX - 5;
        assert_eq!(spool.stage(transaction, Bytes::from_static(b"12345")), Ok(()));
        assert_eq!(spool.stage(transaction, Bytes::from_static(b"6")), Err(Refusal::TooLarge));
    }
}
