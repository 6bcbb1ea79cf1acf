//! One destination, and how many attempts it may have at once, learned from its answers.
//!
//! Must never look at single messages: a dead destination costs one probe from time to time, however many messages wait for
//! it.

use crate::memory::NONE;
use crate::order::Key;
use crate::settings::{DestinationLimits, Retry};
use mail::{NextHop, Outcome, Stage};
use std::collections::BTreeSet;
use std::time::Duration;

/// Number of consecutive failures from which on a destination is only probed.
pub(crate) const FAILURES_MAX: u16 = 3;
/// The wait for the first probe is one of this many parts of the first retry. Further probes are spaced as retries are.
const PROBE_SHARE: u32 = 5;
/// Time in which missed attempts may be caught up: a rate is kept on average.
const RATE_SLACK: Duration = Duration::from_millis(100);
/// Number of classes of mail: ahead of others, usual, behind others.
pub(crate) const CLASSES: usize = 3;

#[derive(Debug)]
pub(crate) struct Destination {
    pub hop: NextHop,
    /// Index of its limits.
    pub limits: u16,
    /// Symbol of the recipient's domain that opened it, by which its limits are found. `NONE` if the place is free.
    pub opened_by: u32,
    /// Attempts that it may have at once: one more after each success, half as many after each failure to reach it.
    pub window: f32,
    /// Number of groups: all, ready ones, those in flight.
    pub groups: u32,
    pub ready: u32,
    pub in_flight: u32,
    /// Number of consecutive failures to reach it.
    pub failures: u16,
    /// Number of back-offs so far. A failure of an attempt that began before the last one does not count.
    pub epoch: u8,
    pub flags: u8,
    /// For each class, the number of groups in a row that went ahead of lower classes.
    pub runs: [u8; CLASSES - 1],
    /// Additional attempts since its turn, see `GOES_ON`.
    pub went_on: u8,
    /// Number of sender queues let in at the head of the ring, and how many such queues had their turn in a row.
    pub let_in: u8,
    pub let_in_run: u8,
    /// First group of its roll.
    pub roll: u32,
    /// For each class, the sender queue whose turn it is.
    pub rings: [u32; CLASSES],
    /// Report of the last failure to reach it.
    pub last_failure: u32,
    /// Time until which back-off and rate close it, in monotonic nanoseconds; 0 if they do not.
    pub blocked_until: u64,
    pub rate_next: u64,
    /// Time of its timer; 0 if there is none.
    pub timer: u64,
    /// Ready groups in an order other than `fair`.
    pub sorted: Option<Box<Sorted>>,
}

/// Waits for its turn: for light senders, for all senders.
pub(crate) const IN_TURN: [u8; 2] = [1, 2];
/// Is in the list of idle destinations.
pub(crate) const IDLE: u8 = 4;
/// Answered the last attempt, or is on this machine.
pub(crate) const ANSWERS: u8 = 8;
/// Was skipped because too many attempts to unproven destinations were in flight.
pub(crate) const PARKED: [u8; 2] = [16, 32];
/// Takes mail for other domains than the one it is named after.
pub(crate) const ROUTED: u8 = 64;
/// Has another attempt before others have their turn, to use its connection again.
pub(crate) const GOES_ON: u8 = 128;

#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub ready: BTreeSet<(Key, u32)>,
    /// Key under which the destination stands among the others.
    pub stands: Option<Key>,
}

/// What an attempt shows of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationHealth {
    /// It answers.
    Reached,
    /// It answers, but asks for less mail.
    Strained,
    /// It does not answer.
    Unreachable,
    /// Nothing.
    Unknown,
}

impl Destination {
    pub fn new(hop: NextHop, opened_by: u32, limits: u16, start: u32) -> Self {
        let here = matches!(hop, NextHop::Local | NextHop::Discard);
        let flags = if here { ANSWERS } else { 0 };
        let window = start.max(1) as f32;
        Destination { hop, opened_by, limits, window, flags, ..Self::default() }
    }

    /// Forgets all lines of ready groups.
    pub fn break_up_lines(&mut self) {
        self.sorted = None;
        self.rings = [NONE; CLASSES];
        (self.let_in, self.let_in_run) = (0, 0);
    }

    /// Attempts in flight that it may have now.
    pub fn allowed(&self, limits: &DestinationLimits) -> u32 {
        if self.failures >= FAILURES_MAX {
            return 1;
        }
        (self.window as u32).clamp(1, limits.connections.max(1))
    }

    /// Time at which rate and back-off allow the next attempt; 0 if they allow it now.
    pub fn opens_at(&self, nanos: u64) -> u64 {
        let opens = self.blocked_until.max(self.rate_next);
        if opens <= nanos { 0 } else { opens }
    }

    /// Counts a new attempt.
    pub fn begin(&mut self, limits: &DestinationLimits, nanos: u64) {
        self.in_flight += 1;
        if let Some(rate) = limits.rate_per_second.filter(|rate| *rate > 0.0) {
            let from = self.rate_next.max(nanos.saturating_sub(RATE_SLACK.as_nanos() as u64));
            self.rate_next = from.saturating_add((1e9 / rate) as u64);
        }
    }

    /// Learns from an attempt that began in `epoch`. Returns true if the caller must replace `last_failure`.
    pub fn learn(&mut self, health: DestinationHealth, epoch: u8, at: &Moment) -> bool {
        match health {
            DestinationHealth::Reached => {
                self.flags |= ANSWERS;
                self.failures = 0;
                self.blocked_until = 0;
                self.window = (self.window + 1.0).min(at.limits.connections as f32);
                true
            }
            DestinationHealth::Strained => {
                self.window = (self.window - 1.0).max(1.0);
                false
            }
            DestinationHealth::Unreachable if epoch == self.epoch => {
                if self.hop != NextHop::Local {
                    self.flags &= !ANSWERS;
                }
                self.fail(at);
                true
            }
            DestinationHealth::Unreachable | DestinationHealth::Unknown => false,
        }
    }

    fn fail(&mut self, at: &Moment) {
        self.failures = self.failures.saturating_add(1);
        self.window = (self.window / 2.0).max(1.0);
        if self.failures >= FAILURES_MAX {
            let probe = Retry { first: at.retry.first / PROBE_SHARE, ..*at.retry };
            let wait = probe.wait(self.failures - FAILURES_MAX + 1, at.chance);
            self.blocked_until = at.nanos.saturating_add(wait.as_nanos() as u64);
            self.epoch = self.epoch.wrapping_add(1);
        }
    }
}

/// Limits, schedule and time for `learn`.
pub(crate) struct Moment<'a> {
    pub limits: &'a DestinationLimits,
    pub retry: &'a Retry,
    pub chance: f64,
    pub nanos: u64,
}

impl DestinationHealth {
    /// Health shown by all outcomes of one attempt. Reaching one recipient is reaching the destination.
    pub fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> DestinationHealth {
        outcomes
            .map(DestinationHealth::of_one)
            .min_by_key(|health| *health as u8)
            .unwrap_or(DestinationHealth::Unknown)
    }

    fn of_one(outcome: &Outcome) -> DestinationHealth {
        let report = outcome.report();
        match (outcome, report.stage) {
            (Outcome::Delivered { .. }, _) => DestinationHealth::Reached,
            (Outcome::Failed(_), _) if report.from_peer => DestinationHealth::Reached,
            (Outcome::Failed(_), _) => DestinationHealth::Unknown,
            // 421 at any stage: the service closes (RFC 5321 3.8).
            (Outcome::Deferred(_), _) if report.reply.code == 421 => DestinationHealth::Unreachable,
            (Outcome::Deferred(_), Stage::Resolve | Stage::Connect) => {
                DestinationHealth::Unreachable
            }
            (Outcome::Deferred(_), Stage::Greeting | Stage::Hello) => {
                DestinationHealth::Unreachable
            }
            (Outcome::Deferred(_), Stage::Rcpt) if report.from_peer => DestinationHealth::Reached,
            (Outcome::Deferred(_), Stage::Mailbox | Stage::Here) => DestinationHealth::Unknown,
            (Outcome::Deferred(_), _) => DestinationHealth::Strained,
        }
    }
}

impl Default for Destination {
    fn default() -> Self {
        Destination {
            hop: NextHop::Discard,
            limits: 0,
            opened_by: NONE,
            window: 1.0,
            groups: 0,
            ready: 0,
            in_flight: 0,
            failures: 0,
            epoch: 0,
            flags: 0,
            runs: [0; CLASSES - 1],
            went_on: 0,
            let_in: 0,
            let_in_run: 0,
            roll: NONE,
            rings: [NONE; CLASSES],
            last_failure: NONE,
            blocked_until: 0,
            rate_next: 0,
            timer: 0,
            sorted: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Reply, Report};

    fn report(stage: Stage, code: u16, from_peer: bool) -> Report {
        Report { stage, reply: Reply::plain(code, "x"), peer: "".into(), from_peer }
    }

    #[test]
    fn only_what_keeps_us_from_talking_counts_against_a_destination() {
        let deferred = |stage, code, peer| Outcome::Deferred(report(stage, code, peer));
        let failed = |stage, peer| Outcome::Failed(report(stage, 550, peer));
        let cases = [
            (deferred(Stage::Resolve, 450, false), DestinationHealth::Unreachable),
            (deferred(Stage::Connect, 450, false), DestinationHealth::Unreachable),
            (deferred(Stage::Greeting, 450, true), DestinationHealth::Unreachable),
            (deferred(Stage::Hello, 451, true), DestinationHealth::Unreachable),
            (deferred(Stage::Rcpt, 421, true), DestinationHealth::Unreachable),
            (deferred(Stage::Rcpt, 450, true), DestinationHealth::Reached),
            (deferred(Stage::Mail, 451, true), DestinationHealth::Strained),
            (deferred(Stage::End, 451, false), DestinationHealth::Strained),
            (deferred(Stage::Mailbox, 452, true), DestinationHealth::Unknown),
            (failed(Stage::Rcpt, true), DestinationHealth::Reached),
            (failed(Stage::Resolve, false), DestinationHealth::Unknown),
        ];
        for (outcome, expected) in &cases {
            assert_eq!(DestinationHealth::of([outcome].into_iter()), *expected, "{outcome:?}");
        }
        let both = [&cases[0].0, &cases[5].0];
        assert_eq!(DestinationHealth::of(both.into_iter()), DestinationHealth::Reached);
    }

    #[test]
    fn the_window_grows_by_one_and_halves_and_ends_in_probes() {
        let (limits, retry) =
            (DestinationLimits::for_tests(), Retry { jitter: 0.0, ..Retry::for_tests() });
        let at = |nanos| Moment { limits: &limits, retry: &retry, chance: 0.0, nanos };
        let mut destination = Destination::new(NextHop::Local, NONE, 0, 20);
        destination.learn(DestinationHealth::Reached, 0, &at(0));
        assert_eq!(destination.allowed(&limits), 21);
        for allowed in [10, 5, 1] {
            destination.learn(DestinationHealth::Unreachable, 0, &at(0));
            assert_eq!(destination.allowed(&limits), allowed);
        }
        assert_eq!(destination.blocked_until, 60_000_000_000);
        destination.learn(DestinationHealth::Unreachable, 0, &at(0));
        assert_eq!(destination.failures, 3, "what began before the back-off does not count again");
        destination.learn(DestinationHealth::Unreachable, 1, &at(0));
        assert_eq!(destination.blocked_until, 120_000_000_000);
        destination.learn(DestinationHealth::Reached, 2, &at(0));
        assert_eq!((destination.blocked_until, destination.allowed(&limits)), (0, 2));
    }
}
