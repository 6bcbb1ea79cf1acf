//! What becomes of the batches of a stream whose commit failed: they are voided, and written elsewhere.
//!
//! Must never write a client's message again after its client was refused.

use super::{CommitInFlight, LogStream};
use crate::batch::Batch;
use crate::format::batch::{RecordKind, encode_void};
use crate::ids::Ids;
use mail::TransactionId;

impl LogStream {
    /// Sets a failed batch aside, leaves its segment, and dooms what is under way in the same
    /// segment.
    pub(crate) fn fail(&mut self, flight: CommitInFlight) {
        let slot = flight.slot;
        self.active.take_if(|active| active.slot == slot);
        self.flights.iter_mut().filter(|f| f.slot == slot).for_each(|f| f.doomed = true);
        self.failed.push((flight.commit, flight.batch));
    }

    /// Whether a batch is under way whose success would prove nothing.
    pub(crate) fn has_doomed(&self) -> bool {
        self.flights.iter().any(|flight| flight.doomed)
    }

    /// Puts all failed batches back to the front of the queue, without their clients' messages, whose
    /// transactions are returned. With `voided` their commits are noted to be voided.
    pub(crate) fn requeue_failed(&mut self, voided: bool) -> Vec<TransactionId> {
        let mut failed = std::mem::take(&mut self.failed);
        failed.sort_by_key(|(commit, _)| *commit);
        let old_void = self.void_batch.take();
        let mut refused = Vec::new();
        for (commit, mut batch) in failed.into_iter().rev() {
            if voided {
                self.voids.push(commit);
            }
            if old_void == Some(batch.number()) {
                continue;
            }
            batch.urge();
            refused.extend(batch.refuse_clients().into_iter().map(|item| item.transaction));
            self.closed.push_front(batch);
        }
        refused
    }

    /// Queues the batch that voids the noted commits; it goes first and alone.
    pub(crate) fn push_void(&mut self, ids: &mut Ids) {
        let number = ids.next_batch();
        let mut batch = Batch::new(number, self.buffers.pop().unwrap_or_default());
        self.voids.sort_unstable();
        batch.push(RecordKind::Void, ids.next_record(), &[&encode_void(&self.voids)]);
        batch.urge();
        self.void_batch = Some(number);
        self.closed.push_front(batch);
    }

    /// A batch is durable; true if it was the one that voids.
    pub(crate) fn voided(&mut self, number: u64) -> bool {
        let voided = self.void_batch == Some(number);
        if voided {
            self.void_batch = None;
            self.voids.clear();
        }
        voided
    }

    /// Whether a batch that voids is not durable yet.
    pub(crate) fn is_voiding(&self) -> bool {
        self.void_batch.is_some()
    }

    /// Whether no commit waits to be voided or written elsewhere.
    pub(crate) fn has_nothing_to_void(&self) -> bool {
        self.voids.is_empty() && self.failed.is_empty()
    }

    /// Takes the clients' messages out of all batches that were never written; returns their
    /// transactions.
    pub(crate) fn refuse_clients(&mut self) -> Vec<TransactionId> {
        let batches = self.closed.iter_mut().chain(std::iter::once(&mut self.open));
        let refused = batches.flat_map(Batch::refuse_clients);
        refused.map(|item| item.transaction).collect()
    }

    /// Drops all batches that were never written; returns the transactions of the chunks in them.
    pub(crate) fn drop_unwritten(&mut self, ids: &mut Ids) -> Vec<TransactionId> {
        let fresh = Batch::new(ids.next_batch(), Vec::new());
        let open = std::mem::replace(&mut self.open, fresh);
        let batches = std::mem::take(&mut self.closed).into_iter().chain([open]);
        batches.flat_map(Batch::into_chunks).collect()
    }
}
