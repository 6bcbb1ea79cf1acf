//! The settings of the queue.
//!
//! Must never have a default: the caller gives every field.

use mail::Address;

/// Upper bound on the memory in the queue process for messages that will be tried soon, in bytes.
pub const MESSAGE_CACHE_BYTES_MAX: usize = 16 << 20;

/// The settings of the queue, given at its start and at each reload.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this mailer.
    pub hostname: String,
    /// The `From` address of notices.
    pub postmaster: Address,
    /// The next hop for each domain.
    pub routes: policy::Routes,
    /// The settings of the scheduler.
    pub scheduler: scheduler::Settings,
    /// Upper bound on the bytes of the original message that a bounce returns; at most `NOTICE_BYTES_MAX`.
    pub original_bytes_max: u64,
    /// Upper bound on the memory for messages in the cache, in bytes.
    pub message_cache_bytes_max: usize,
    /// Upper bound on the bytes that all receiving processes together may have staged and unanswered.
    pub credit_bytes: u64,
    /// The number of receiving processes that share the credit.
    pub receivers: u16,
}
