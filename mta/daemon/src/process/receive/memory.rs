//! What all sessions of this process hold for their clients, in bytes, against one bound.
//!
//! Each session counts with what the allocator gives out for it, and with [`SESSION_BYTES_MIN`] at least. Whoever
//! wants to hold more asks first whether there is room. What is on its way to the queue process is counted by the link
//! and comes in as `beside`. The process needs more than the bound for its code, for one envelope that is being
//! encoded, and for what the allocator cannot use again: `docs/knobs.md` and decision 0053 say how much.
//!
//! Must never count what a session has given back, nor end a session that is open.

use std::cell::Cell;
use std::rc::Rc;

/// What an open connection takes that holds nothing: its task, socket, timer and session. Measured: 4.2 KiB when it
/// has been greeted, 4.8 KiB with a transaction of one recipient.
const SESSION_BYTES: usize = 6 << 10;
/// Counted for each connection's unread input, unfinished command and waiting replies, whether they are there or not:
/// while the sum is full a session takes no more for them.
const BUFFERS_BYTES_MIN: usize = 6 << 10;
/// The least that a connection is counted with.
pub const SESSION_BYTES_MIN: usize = SESSION_BYTES + BUFFERS_BYTES_MIN;

/// What a session with these buffers counts for; `more`: everything else that it holds.
pub fn session_bytes(buffers: usize, more: usize) -> usize {
    SESSION_BYTES + buffers.max(BUFFERS_BYTES_MIN) + more
}

/// The sum and its bound.
#[derive(Clone, Debug, Default)]
pub struct Memory(Rc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    bytes: Cell<u64>,
    bytes_max: Cell<u64>,
}

/// What one session counts for; given back when dropped.
#[derive(Debug)]
pub struct Share {
    memory: Memory,
    bytes: u64,
}

impl Memory {
    /// Sets the bound, also while sessions are open.
    pub fn bound(&self, bytes_max: u64) {
        self.0.bytes_max.set(bytes_max);
    }

    /// Whether so many bytes more can be held, with `beside` bytes held outside of sessions.
    pub fn has_room(&self, bytes: usize, beside: u64) -> bool {
        let wanted = self.0.bytes.get().saturating_add(beside).saturating_add(bytes as u64);
        wanted <= self.0.bytes_max.get()
    }

    /// The place of a new session.
    pub fn share(&self) -> Share {
        let mut share = Share { memory: self.clone(), bytes: 0 };
        share.is_now(SESSION_BYTES_MIN);
        share
    }
}

impl Share {
    /// The session holds so many bytes now.
    pub fn is_now(&mut self, bytes: usize) {
        self.set(bytes as u64);
    }

    fn set(&mut self, bytes: u64) {
        let sum = &self.memory.0.bytes;
        sum.set(sum.get() - self.bytes + bytes);
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = SESSION_BYTES_MIN as u64;

    #[test]
    fn the_sum_follows_what_each_session_holds_and_what_it_gives_back() {
        let memory = Memory::default();
        memory.bound(100_000);
        let (mut one, mut other) = (memory.share(), memory.share());
        assert_eq!(memory.0.bytes.get(), 2 * MIN);
        one.is_now(60_000);
        other.is_now(40_000);
        assert!(memory.has_room(0, 0) && !memory.has_room(1, 0) && !memory.has_room(0, 1));
        one.is_now(20_000);
        assert!(memory.has_room(40_000, 0) && memory.has_room(30_000, 10_000));
        assert!(!memory.has_room(40_000, 1));
        drop(other);
        assert!(memory.has_room(80_000, 0));
        drop(one);
        assert_eq!(memory.0.bytes.get(), 0);
    }

    #[test]
    fn a_new_bound_counts_what_is_held_already() {
        let memory = Memory::default();
        memory.bound(100_000);
        let mut one = memory.share();
        one.is_now(50_000);
        memory.bound(40_000);
        assert!(!memory.has_room(0, 0));
    }

    #[test]
    fn r211_a_session_counts_with_its_smallest_need_before_it_needs_that() {
        assert_eq!(session_bytes(0, 0), SESSION_BYTES_MIN);
        assert_eq!(session_bytes(BUFFERS_BYTES_MIN, 7), SESSION_BYTES_MIN + 7);
        assert_eq!(session_bytes(BUFFERS_BYTES_MIN + 9, 7), SESSION_BYTES_MIN + 16);
    }
}
