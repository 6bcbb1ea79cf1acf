//! How fast segments are zeroed ahead: at full speed while nothing is written, otherwise in step with the
//! log.
//!
//! Must never let the log wait for zeros: the segment that it needs next is zeroed at full speed.

use mail::{Instant, Now};
use std::time::Duration;

/// Bytes of zeros that may be written for each byte of the log while mail comes in. The log uses up one;
/// with more the spare segments are completed even if the load never pauses.
const ZEROS_PER_LOG_BYTE: u64 = 2;
/// Upper bound on the bytes of zeros that may be written at once after a time of few commits.
const CREDIT_BYTES_MAX: u64 = 8 << 20;
/// If no commit has ended for this long, zeros compete with nothing.
const QUIET: Duration = Duration::from_millis(100);

/// How many zeros may be written after recent commits.
#[derive(Default)]
pub(crate) struct Pace {
    credit: u64,
    /// When zeros may be written at full speed, if no further commit ends.
    quiet_at: Option<Instant>,
    /// Bytes of zeros that wait for credit or quiet.
    waits: Option<u64>,
}

impl Pace {
    /// A commit has ended. Returns whether zeros waited for that.
    pub(crate) fn committed(&mut self, bytes: u64, now: Now) -> bool {
        self.credit = (self.credit + bytes * ZEROS_PER_LOG_BYTE).min(CREDIT_BYTES_MAX);
        self.quiet_at = Some(now.monotonic + QUIET);
        self.waits.is_some_and(|bytes| bytes <= self.credit)
    }

    /// Whether this many bytes of zeros may be written now.
    pub(crate) fn may(&mut self, bytes: u64, urgent: bool, now: Now) -> bool {
        let busy = self.quiet_at.is_some_and(|at| now.monotonic < at);
        // A slice longer than the largest credit would wait forever.
        let price = bytes.min(CREDIT_BYTES_MAX);
        let may = urgent || !busy || price <= self.credit;
        self.waits = (!may).then_some(price);
        if may && busy {
            self.credit = self.credit.saturating_sub(price);
        }
        may
    }

    /// When zeros that wait may be written, if nothing else happens.
    pub(crate) fn wakeup(&self) -> Option<Instant> {
        self.quiet_at.filter(|_| self.waits.is_some())
    }
}
