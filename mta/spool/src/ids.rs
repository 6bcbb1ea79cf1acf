//! The numbers that the spool hands out: ids of messages, records, batches, tickets, requests to
//! the disk, and epochs of segments.
//!
//! Must never hand out a number twice, nor one that is in the log already.

use crate::Ticket;
use crate::recover::Loaded;
use mail::{MessageId, Now};

/// The last number of each kind.
pub(crate) struct Ids {
    message: u64,
    record: u64,
    batch: u64,
    ticket: u64,
    io: u64,
    epoch: u64,
    /// Drawn at random for this process, so that nobody can guess a nonce.
    nonce_seed: u64,
}

impl Ids {
    /// Goes on after what recovery found. Batches, tickets and requests are numbered anew by each
    /// process, because the log does not name them.
    pub(crate) fn after(loaded: &Loaded, nonce_seed: u64) -> Ids {
        let (message, record) = (loaded.last_message, loaded.last_record);
        let epoch = loaded.last_epoch;
        Ids { message, record, batch: 0, ticket: 0, io: 0, epoch, nonce_seed }
    }

    /// Greater than every id before, and close to the wall clock.
    pub(crate) fn next_message(&mut self, now: Now) -> MessageId {
        let wall = u64::try_from(now.wall.micros()).unwrap_or(0);
        self.message = (self.message + 1).max(wall);
        MessageId(self.message)
    }

    pub(crate) fn next_record(&mut self) -> u64 {
        self.record += 1;
        self.record
    }

    pub(crate) fn next_batch(&mut self) -> u64 {
        self.batch += 1;
        self.batch
    }

    pub(crate) fn next_ticket(&mut self) -> Ticket {
        self.ticket += 1;
        Ticket(self.ticket)
    }

    pub(crate) fn next_io(&mut self) -> u64 {
        self.io += 1;
        self.io
    }

    /// The next epoch of a segment, and its nonce.
    pub(crate) fn next_epoch(&mut self) -> (u64, u64) {
        self.epoch += 1;
        (self.epoch, mixed(self.nonce_seed ^ self.epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(crate) fn last_message(&self) -> u64 {
        self.message
    }

    pub(crate) fn last_record(&self) -> u64 {
        self.record
    }

    pub(crate) fn last_ticket(&self) -> u64 {
        self.ticket
    }

    pub(crate) fn last_epoch(&self) -> u64 {
        self.epoch
    }
}

/// The last step of SplitMix64: without the seed nobody can compute one nonce from another.
fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
