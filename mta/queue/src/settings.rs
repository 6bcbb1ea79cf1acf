//! The settings of the queue.
//!
//! Must never have a default: the caller gives every field.

use mail::Address;

/// Bytes of memory in the queue process for messages that are about to be tried.
pub const MESSAGE_CACHE_BYTES_MAX: usize = 16 << 20;

/// What the queue is told at its start and at a reload.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our name.
    pub hostname: String,
    /// From of the notices.
    pub postmaster: Address,
    /// Where mail goes.
    pub routes: policy::Routes,
    /// For the scheduler.
    pub scheduler: scheduler::Settings,
    /// Bytes of the original that a bounce returns; at most `NOTICE_BYTES_MAX`.
    pub original_bytes_max: u64,
    /// Memory for messages at hand.
    pub message_cache_bytes_max: usize,
    /// What all receiving processes together may have staged and unanswered.
    pub credit_bytes: u64,
    /// Receiving processes that share the credit.
    pub receivers: u16,
}
