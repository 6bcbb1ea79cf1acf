//! What is counted and what is not: the marks that callgrind looks for, and the allocations.
//!
//! Must never be inlined or optimized away: callgrind finds the two functions by their names.

use crate::allocator;
use std::fmt;
use std::hint::black_box;

/// The stations of a message. Work of one is counted, work of the others only done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// From a client's bytes to its `250`.
    Receive,
    /// From a receiving process's frames to the answer that promises.
    Commit,
    /// From the scheduler's attempt to the recorded outcome.
    Send,
    /// The scheduler alone.
    Schedule,
    /// A fixed piece of work of no crate of ours.
    Reference,
}

/// Counts the work of one station.
#[derive(Debug)]
pub struct Meter {
    part: Part,
    is_on: bool,
    messages: u64,
    /// What this thread had counted before.
    before: (u64, u64),
}

/// What was counted, over all messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Messages that were carried while it was counted.
    pub messages: u64,
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Bytes asked for by them.
    pub bytes: u64,
}

impl Meter {
    /// For this station; counts nothing until it is started.
    pub fn new(part: Part) -> Meter {
        Meter { part, is_on: false, messages: 0, before: allocator::counted() }
    }

    /// Warmed up: counts from here on.
    pub fn start(&mut self) {
        self.is_on = true;
    }

    /// Counts messages that have passed the station.
    pub fn passed(&mut self, messages: u64) {
        self.messages += if self.is_on { messages } else { 0 };
    }

    /// Messages that were counted so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Does a piece of work, and counts it if it belongs to the station.
    pub fn run<T>(&self, part: Part, work: impl FnOnce() -> T) -> T {
        if !self.is_on || part != self.part {
            return work();
        }
        let (mut work, mut result) = (Some(work), None);
        allocator::count(true);
        counted_by_callgrind(&mut || result = work.take().map(|work| work()));
        allocator::count(false);
        result.expect("it was done just now")
    }

    /// What came together.
    pub fn count(&self) -> Count {
        let (allocations, bytes) = allocator::counted();
        let (allocations, bytes) = (allocations - self.before.0, bytes - self.before.1);
        Count { messages: self.messages, allocations, bytes }
    }
}

/// Leaves a piece of work out that the outside world does within a counted one.
pub fn outside<T>(work: impl FnOnce() -> T) -> T {
    if !allocator::count(false) {
        return work();
    }
    let (mut work, mut result) = (Some(work), None);
    left_out_by_callgrind(&mut || result = work.take().map(|work| work()));
    allocator::count(true);
    result.expect("it was done just now")
}

/// Callgrind turns its counting over whenever this is entered and left. The two differ in what they
/// do at their end, so that the compiler does not make one of them.
#[inline(never)]
fn counted_by_callgrind(work: &mut dyn FnMut()) {
    work();
    black_box(1);
}

/// The same, under another name: within the one above it means not to count.
#[inline(never)]
fn left_out_by_callgrind(work: &mut dyn FnMut()) {
    work();
    black_box(2);
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { messages, allocations, bytes } = self;
        write!(f, "messages={messages} allocations={allocations} bytes={bytes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_chosen_part_counts_and_only_after_the_start() {
        let mut meter = Meter::new(Part::Commit);
        let make = |bytes: usize| black_box(vec![1u8; black_box(bytes)]);
        meter.run(Part::Commit, || make(100));
        meter.start();
        meter.run(Part::Send, || make(1_000));
        let kept = meter.run(Part::Commit, || {
            outside(|| drop(make(10_000)));
            make(32)
        });
        assert_eq!(kept.len(), 32);
        meter.passed(1);
        assert_eq!(meter.count(), Count { messages: 1, allocations: 1, bytes: 32 });
    }
}
