//! The client's timeouts (RFC 5321 4.5.3.2).
//!
//! Each single wait has a limit. Each transaction has a limit for its whole duration, and so has the
//! time between two messages, which a client could otherwise extend by endless commands or by a BDAT
//! outside of a transaction.
//!
//! Must never count the driver's time against the client: the clock is paused while the driver works.

use super::Settings;
use mail::Instant;
use std::time::Duration;

/// Upper bound on the wait for a command of a client with an open transaction while memory is short. Postfix uses the
/// same time under stress.
pub(super) const STRESS_COMMAND_WAIT_MAX: Duration = Duration::from_secs(10);

/// The moments from which the timeouts of one session run.
#[derive(Debug)]
pub(super) struct Clock {
    /// When the last complete command or the last bytes of a body arrived.
    idle_since: Instant,
    /// When the last message was accepted, or when the session began.
    message_since: Instant,
    /// When the current transaction began.
    transaction_since: Option<Instant>,
    /// When the body of the current transaction began, and its octets so far.
    body: Option<(Instant, u64)>,
    /// Since when the clock has been paused because the driver works.
    stopped: Option<Instant>,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Clock {
        Clock {
            idle_since: now,
            message_since: now,
            transaction_since: None,
            body: None,
            stopped: None,
        }
    }

    /// Pauses the clock while the driver works.
    pub(super) fn stop(&mut self, now: Instant) {
        self.stopped.get_or_insert(now);
    }

    /// Resumes the clock. The time of the pause is not counted against the client.
    pub(super) fn go(&mut self, now: Instant) {
        let Some(stopped) = self.stopped.take() else { return };
        let pause = now.since(stopped);
        self.idle_since = self.idle_since + pause;
        self.message_since = self.message_since + pause;
        self.transaction_since = self.transaction_since.map(|since| since + pause);
        self.body = self.body.map(|(since, bytes)| (since + pause, bytes));
    }

    /// Records a complete command.
    pub(super) fn command(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// Records that a message was accepted.
    pub(super) fn message(&mut self, now: Instant) {
        self.message_since = now;
    }

    pub(super) fn begin_transaction(&mut self, now: Instant) {
        self.transaction_since = Some(now);
        self.body = None;
    }

    pub(super) fn end_transaction(&mut self) {
        self.transaction_since = None;
        self.body = None;
    }

    /// Records that the client may send the body.
    pub(super) fn begin_body(&mut self, now: Instant) {
        self.body = Some((now, 0));
    }

    /// Records the end of a discarded chunk.
    pub(super) fn end_body(&mut self) {
        self.body = None;
    }

    /// Counts octets of a body or of a discarded chunk.
    pub(super) fn bytes(&mut self, count: usize, now: Instant) {
        self.idle_since = now;
        let (_, bytes) = self.body.get_or_insert((now, 0));
        *bytes += count as u64;
    }

    /// Returns when the client exceeds a timeout, or `None` while the clock is paused. `hurried` is true if memory is
    /// short and the client has an open transaction.
    pub(super) fn deadline(
        &self,
        settings: &Settings,
        within_body: bool,
        hurried: bool,
    ) -> Option<Instant> {
        if self.stopped.is_some() {
            return None;
        }
        let total_since = self.transaction_since.unwrap_or(self.message_since);
        let total = Some(total_since + settings.transaction_time_max);
        let wait = match within_body {
            true => settings.data_timeout,
            false if hurried => settings.command_timeout.min(STRESS_COMMAND_WAIT_MAX),
            false => settings.command_timeout,
        };
        let rate = self.body.filter(|_| within_body).map(|(since, bytes)| {
            since + settings.data_timeout + at_rate(bytes, settings.data_bytes_per_second_min)
        });
        [Some(self.idle_since + wait), total, rate].into_iter().flatten().min()
    }
}

/// Returns the time that `bytes` take at `bytes_per_second`.
fn at_rate(bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1_000) / bytes_per_second.max(1))
}
