//! The seam for a shared queue: what the queue asks of whoever keeps its mail.
//!
//! Must never mention segments, syncs or files; the local log is only the first to implement it.

use crate::{Group, Output, Plan, Refusal, SnapshotSlice, Ticket};
use bytes::Bytes;
use mail::{Instant, MessageId, Now, TransactionId};

/// Keeps messages durably. One group is one atomic change: all of it or nothing is there later.
pub trait Store {
    /// What it asks its driver to do.
    type Io;
    /// What the driver answers.
    type IoDone;

    /// Takes body bytes of a transaction, in order. See [`crate::Spool::stage`].
    fn stage(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal>;
    /// The same for a message of our own making. See [`crate::Spool::stage_own`].
    fn stage_own(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal>;
    /// Forgets them. See [`crate::Spool::unstage`].
    fn unstage(&mut self, transaction: TransactionId);
    /// New messages and changes, together. See [`crate::Spool::submit`].
    fn submit(&mut self, group: Group, now: Now) -> Result<(Ticket, Vec<MessageId>), Refusal>;
    /// An answer of the driver.
    fn handle(&mut self, done: Self::IoDone, now: Now);
    /// What happens next: a `Durable`, a refusal, an I/O to do.
    fn poll(&mut self, now: Now) -> Option<Output<Self::Io>>;
    /// When `poll` wants to be called although nothing else happened.
    fn next_wakeup(&self) -> Option<Instant>;
    /// How a message is read; its bytes stay until the plan is given back.
    fn plan(&mut self, message: MessageId) -> Option<Plan>;
    /// Gives a plan back.
    fn unplan(&mut self, plan: Plan);
    /// What became of a transaction, if it is among the latest.
    fn lookup_transaction(&self, transaction: TransactionId) -> Option<MessageId>;
    /// The caller's state of the messages that a [`Output::SnapshotWanted`] named.
    fn snapshot_slice(&mut self, slice: SnapshotSlice, blobs: Vec<(MessageId, Vec<u8>)>);
}

impl Store for crate::Spool {
    type Io = crate::Io;
    type IoDone = crate::IoDone;

    fn stage(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        crate::Spool::stage(self, transaction, bytes)
    }
    fn stage_own(&mut self, transaction: TransactionId, bytes: Bytes) -> Result<(), Refusal> {
        crate::Spool::stage_own(self, transaction, bytes)
    }
    fn unstage(&mut self, transaction: TransactionId) {
        crate::Spool::unstage(self, transaction);
    }
    fn submit(&mut self, group: Group, now: Now) -> Result<(Ticket, Vec<MessageId>), Refusal> {
        crate::Spool::submit(self, group, now)
    }
    fn handle(&mut self, done: crate::IoDone, now: Now) {
        crate::Spool::handle(self, done, now);
    }
    fn poll(&mut self, now: Now) -> Option<Output> {
        crate::Spool::poll(self, now)
    }
    fn next_wakeup(&self) -> Option<Instant> {
        crate::Spool::next_wakeup(self)
    }
    fn plan(&mut self, message: MessageId) -> Option<Plan> {
        crate::Spool::plan(self, message)
    }
    fn unplan(&mut self, plan: Plan) {
        crate::Spool::unplan(self, plan);
    }
    fn lookup_transaction(&self, transaction: TransactionId) -> Option<MessageId> {
        crate::Spool::lookup_transaction(self, transaction)
    }
    fn snapshot_slice(&mut self, slice: SnapshotSlice, blobs: Vec<(MessageId, Vec<u8>)>) {
        crate::Spool::snapshot_slice(self, slice, blobs);
    }
}
