//! What all sessions of this process hold for their clients, in bytes, against one bound.
//!
//! Must never count what a session has given back, nor end a session that is open: each has bounds
//! of its own, so that with no new work the sum stays bounded too.

use std::cell::Cell;
use std::rc::Rc;

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

    /// Nothing new is to be begun: no session, no transaction.
    pub fn is_full(&self) -> bool {
        self.0.bytes.get() > self.0.bytes_max.get()
    }

    /// The place of a new session, which holds nothing yet.
    pub fn share(&self) -> Share {
        Share { memory: self.clone(), bytes: 0 }
    }
}

impl Share {
    /// The session holds so many bytes now.
    pub fn is_now(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        let sum = &self.memory.0.bytes;
        sum.set(sum.get() - self.bytes + bytes);
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.is_now(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_follows_what_each_session_holds_and_what_it_gives_back() {
        let memory = Memory::default();
        memory.bound(100);
        let (mut one, mut other) = (memory.share(), memory.share());
        one.is_now(60);
        other.is_now(40);
        assert!(!memory.is_full());
        one.is_now(61);
        assert!(memory.is_full());
        one.is_now(10);
        assert!(!memory.is_full());
        other.is_now(91);
        assert!(memory.is_full());
        drop(other);
        assert!(!memory.is_full());
        assert_eq!(memory.0.bytes.get(), 10);
        drop(one);
        assert_eq!(memory.0.bytes.get(), 0);
    }

    #[test]
    fn a_new_bound_counts_what_is_held_already() {
        let memory = Memory::default();
        memory.bound(100);
        let mut one = memory.share();
        one.is_now(50);
        memory.bound(40);
        assert!(memory.is_full());
    }
}
