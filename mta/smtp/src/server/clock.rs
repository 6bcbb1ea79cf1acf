//! How long a client may take (RFC 5321 4.5.3.2): each wait has an end, and so has their sum: that of
//! a transaction, and that of everything between two messages, of which commands without end could
//! be made, or one BDAT that belongs to no transaction.
//!
//! Must never count our own time against the client: it stands still while the driver works.

use super::Settings;
use mail::Instant;
use std::time::Duration;

/// How long a client that holds a transaction may take for a command while memory is short: what Postfix gives under
/// stress.
pub(super) const STRESS_COMMAND_WAIT_MAX: Duration = Duration::from_secs(10);

/// The running waits of one session.
#[derive(Debug)]
pub(super) struct Clock {
    /// The last whole command, or the last bytes of a body.
    idle_since: Instant,
    /// The last message that was kept, or the beginning.
    message_since: Instant,
    /// MAIL of the running transaction.
    transaction_since: Option<Instant>,
    /// The first 354 or BDAT of the running transaction, and the octets since.
    body: Option<(Instant, u64)>,
    /// The driver is at work since then.
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

    /// The driver is at work.
    pub(super) fn stop(&mut self, now: Instant) {
        self.stopped.get_or_insert(now);
    }

    /// It is the client's turn again: what the driver took is not its fault.
    pub(super) fn go(&mut self, now: Instant) {
        let Some(stopped) = self.stopped.take() else { return };
        let pause = now.since(stopped);
        self.idle_since = self.idle_since + pause;
        self.message_since = self.message_since + pause;
        self.transaction_since = self.transaction_since.map(|since| since + pause);
        self.body = self.body.map(|(since, bytes)| (since + pause, bytes));
    }

    /// A command came whole.
    pub(super) fn command(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// A message was kept.
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

    /// A body may come now.
    pub(super) fn begin_body(&mut self, now: Instant) {
        self.body = Some((now, 0));
    }

    /// A chunk that nobody wanted is over.
    pub(super) fn end_body(&mut self) {
        self.body = None;
    }

    /// Octets of a body, or of a chunk nobody wants, came in.
    pub(super) fn bytes(&mut self, count: usize, now: Instant) {
        self.idle_since = now;
        let (_, bytes) = self.body.get_or_insert((now, 0));
        *bytes += count as u64;
    }

    /// When the client's time is over; `None` while the driver is at work. `hurried`: it holds memory that is short.
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

/// The time that `bytes` take at `bytes_per_second`.
fn at_rate(bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1_000) / bytes_per_second.max(1))
}
