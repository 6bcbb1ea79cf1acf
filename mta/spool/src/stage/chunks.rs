//! Chunks: pieces of staged bodies that go into the gathered batch of a stream.
//!
//! Must never put a chunk of our own messages into bulk.

use super::StagedChunk;
use crate::Spool;
use crate::format::segment::SegmentKind;
use bytes::Bytes;
use mail::TransactionId;

impl Spool {
    pub(super) fn has_whole_chunk(&self, transaction: TransactionId) -> bool {
        let size = self.settings.chunk_bytes_max as usize;
        self.staging.body(transaction).is_some_and(|staged| staged.pending_bytes >= size)
    }

    /// Moves one chunk of this size, which is there, into the gathered batch of the stream that its
    /// body belongs to.
    pub(super) fn flush_chunk(&mut self, transaction: TransactionId, size: usize) {
        let Some(staged) = self.staging.bodies.get_mut(&transaction) else { return };
        // A full disk refuses bulk, but it must not refuse messages of our own.
        let kind = match staged.total > u64::from(self.settings.bulk_body_bytes_min) && !staged.own
        {
            true => SegmentKind::Bulk,
            false => SegmentKind::Log,
        };
        let own = staged.own;
        let parts = staged.take_pending(size);
        self.staging.count_out(own, size);
        self.push_chunk(transaction, kind, &parts);
    }

    /// Makes a chunk of `parts` and puts it into the gathered batch of a stream.
    pub(crate) fn push_chunk(
        &mut self,
        transaction: TransactionId,
        kind: SegmentKind,
        parts: &[Bytes],
    ) {
        let length: usize = parts.iter().map(Bytes::len).sum();
        let batch_bytes_max = self.settings.batch_bytes_max;
        self.streams.of(kind).make_room(length, batch_bytes_max, &mut self.ids);
        self.append_chunk(transaction, kind, parts);
        self.streams.of(kind).open_mut().urge();
    }

    /// Puts what still waits of a body into the gathered batch of the log, which has room for it;
    /// false if nothing waits.
    pub(crate) fn push_rest(&mut self, transaction: TransactionId) -> bool {
        let Some(staged) = self.staging.bodies.get_mut(&transaction) else { return false };
        let (bytes, own) = (staged.pending_bytes, staged.own);
        if bytes == 0 {
            return false;
        }
        let parts = staged.take_pending(bytes);
        self.staging.count_out(own, bytes);
        self.append_chunk(transaction, SegmentKind::Log, &parts);
        true
    }

    fn append_chunk(&mut self, transaction: TransactionId, kind: SegmentKind, parts: &[Bytes]) {
        let Some(staged) = self.staging.bodies.get_mut(&transaction) else { return };
        let batch = self.streams.of(kind).open_mut();
        let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let of = (transaction, staged.chunks.len());
        let (offset, checksum) = batch.push_chunk(of, self.ids.next_record(), &slices);
        let length: usize = parts.iter().map(Bytes::len).sum();
        if staged.own {
            batch.count_own(length as u64);
        }
        let (batch, length) = (batch.number(), length as u32);
        staged.chunks.push(StagedChunk { batch, offset, length, checksum, place: None });
    }
}
