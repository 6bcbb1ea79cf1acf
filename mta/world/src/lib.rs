//! The world outside of the machines: disk, clocks and random numbers, real and simulated.
//!
//! Must never know what is stored: no record, message or segment is named here.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod disk;
pub mod real;
pub mod sim;

pub use disk::{Disk, DiskError, Entry, Errno};
pub use synced::Synced;

/// The source of the two readings of a [`mail::Now`].
pub trait Clock {
    /// Reads both clocks.
    fn now(&self) -> mail::Now;
}

/// The source of random numbers for jitter, identities and nonces.
pub trait Rng {
    /// Returns 64 bits that nobody can guess (real) or that a seed repeats (simulated).
    fn u64(&mut self) -> u64;

    /// Returns a number in `0..bound`; 0 if `bound` is 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.u64()) * u128::from(bound)) >> 64) as u64
    }
}
