//! Named points in the code at which a test stops, breaks or kills the real daemon, and a wall clock
//! that a test can move. They exist only in builds with debug assertions.
//!
//! Must never do anything in a release build: there `reach` is empty, the clock has no offset, and
//! `armed`, which reads the environment, is not compiled (`compile_error!`).

#[cfg(debug_assertions)]
pub mod armed;

/// A point in the code. A test writes its number into the file of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Point {
    /// Receive: a connection was accepted, and nothing was sent.
    Accepted = 1,
    /// Receive: bytes of a client are about to be given to its session.
    Parse = 2,
    /// Receive: the end of a body was read, and nothing was sent to queue.
    EndOfData = 3,
    /// Queue, a thread that commits: before and after the write, before and after the sync.
    BeforeWrite = 4,
    /// See there.
    AfterWrite = 5,
    /// See there.
    BeforeSync = 6,
    /// See there.
    AfterSync = 7,
    /// Queue: a commit has ended, and no process was told.
    Committed = 8,
    /// Receive: holds the proof, has not written the `250`.
    BeforePromise = 9,
    /// Receive: the `250` was sent.
    AfterPromise = 10,
    /// Send: an attempt has come from queue. Its key is the message's id.
    Attempt = 11,
    /// Send: a next hop's reply was read, and not handled. Its key is the reply's code.
    NextHopSpoke = 12,
    /// Send: an outcome is known, and queue was not told.
    OutcomeKnown = 13,
    /// Queue: a message's last record was handed to the spool, and not written.
    Retired = 14,
    /// Queue: bytes of another process are about to be decoded.
    PeerSpoke = 15,
    /// Local: a message is about to be written to a mailbox.
    Mailbox = 16,
}

/// Reaches a point. Does nothing unless a test has armed it.
#[inline(always)]
pub fn reach(point: Point) {
    reach_with(point, || 0);
}

/// Reaches a point with a key, which must match if the test asks for one.
#[inline(always)]
#[cfg_attr(not(debug_assertions), allow(unused_variables))]
pub fn reach_with(point: Point, key: impl FnOnce() -> u64) {
    #[cfg(debug_assertions)]
    armed::reach(point, key);
}

/// Microseconds to add to the wall clock.
#[inline(always)]
pub fn wall_offset_micros() -> i64 {
    #[cfg(debug_assertions)]
    return armed::wall_offset_micros();
    #[cfg(not(debug_assertions))]
    0
}
