//! How fast segments are zeroed ahead: at once while nothing is written, else in step with the log.
//!
//! Must never let the log wait for zeros: what it needs next is zeroed whatever the pace.

use mail::{Instant, Now};
use std::time::Duration;

/// Zeros that may be written for each byte of the log while mail comes in. One is what the log uses up; more makes the
/// spares complete even if the load never rests.
const ZEROS_PER_LOG_BYTE: u64 = 2;
/// Bytes of zeros that may be written in one go after a time of few commits.
const CREDIT_BYTES_MAX: u64 = 8 << 20;
/// How long no commit may have ended before zeros no longer compete with any.
const QUIET: Duration = Duration::from_millis(100);

/// What has been written lately.
#[derive(Default)]
pub(crate) struct Pace {
    credit: u64,
    /// When the disk is left to the zeros, if no more commits end.
    quiet_at: Option<Instant>,
    /// Zeros that wait for credit or quiet, in bytes.
    waits: Option<u64>,
}

impl Pace {
    /// A commit has ended; true if that was what zeros waited for.
    pub(crate) fn committed(&mut self, bytes: u64, now: Now) -> bool {
        self.credit = (self.credit + bytes * ZEROS_PER_LOG_BYTE).min(CREDIT_BYTES_MAX);
        self.quiet_at = Some(now.monotonic + QUIET);
        self.waits.is_some_and(|bytes| bytes <= self.credit)
    }

    /// Whether so many zeros may be written now.
    pub(crate) fn may(&mut self, bytes: u64, urgent: bool, now: Now) -> bool {
        let busy = self.quiet_at.is_some_and(|at| now.monotonic < at);
        // A slice longer than the greatest credit would wait for ever.
        let price = bytes.min(CREDIT_BYTES_MAX);
        let may = urgent || !busy || price <= self.credit;
        self.waits = (!may).then_some(price);
        if may && busy {
            self.credit = self.credit.saturating_sub(price);
        }
        may
    }

    /// When zeros that wait may be written if nothing else happens.
    pub(crate) fn wakeup(&self) -> Option<Instant> {
        self.quiet_at.filter(|_| self.waits.is_some())
    }
}
