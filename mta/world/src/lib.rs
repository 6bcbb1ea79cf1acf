//! What lies outside: disk, clock, chance; the real ones and the simulated ones.
//!
//! Must never know what is stored: no record, message or segment is named here.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod disk;
pub mod real;
pub mod sim;

pub use disk::{Disk, DiskError, Entry, Errno};
pub use synced::Synced;

/// Where the two readings of a [`mail::Now`] come from.
pub trait Clock {
    /// Reads both clocks.
    fn now(&self) -> mail::Now;
}

/// Where chance comes from: jitter, identities, nonces.
pub trait Chance {
    /// 64 bits that nobody can guess (real) or that a seed repeats (simulated).
    fn u64(&mut self) -> u64;

    /// A number in `0..bound`; 0 where `bound` is 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.u64()) * u128::from(bound)) >> 64) as u64
    }
}
