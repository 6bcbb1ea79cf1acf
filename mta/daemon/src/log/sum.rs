//! Summing up of equal events in a flood: the first events of a period are logged one by one, the rest as one line with
//! `repeated=N`.
//!
//! Must never sum up events about a message, and never miscount: if each `repeated=N` counts as N, there are as many
//! lines as events.

use super::line::LogLine;
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, RandomState};
use std::time::{Duration, Instant};

/// The groups of equal events that were logged recently.
#[derive(Default)]
pub(super) struct Sums {
    groups: HashMap<u64, EqualEvents>,
    hashes: RandomState,
    /// When to look for groups whose period is over; `None` if there are no groups.
    close_at: Option<Instant>,
}

/// Events that differ only in their time, and in text that a stranger chose.
struct EqualEvents {
    ends: Instant,
    logged: u32,
    repeated: u64,
    /// The latest event that was not logged.
    last: Option<LogLine>,
}

impl Sums {
    /// Begins the hash of an event. Each process hashes differently, so that a stranger cannot cause collisions.
    pub(super) fn hasher(&self) -> DefaultHasher {
        self.hashes.build_hasher()
    }

    /// Adds an event to its group. Returns the lines to write now, or `None` if the event is summed up.
    pub(super) fn add(&mut self, kind: u64, line: LogLine, now: Instant) -> Option<String> {
        let fresh = EqualEvents { ends: now + PERIOD, logged: 1, repeated: 0, last: None };
        let Some(known) = self.groups.get_mut(&kind) else {
            if self.groups.len() < GROUPS_MAX {
                self.groups.insert(kind, fresh);
                self.close_at.get_or_insert(now + PERIOD);
            }
            return Some(line.end());
        };
        if known.ends <= now {
            let sum = std::mem::replace(known, fresh).sum();
            return Some(sum.unwrap_or_default() + &line.end());
        }
        if known.logged < EQUAL_LINES_MAX {
            known.logged += 1;
            return Some(line.end());
        }
        known.repeated += 1;
        known.last = Some(line);
        None
    }

    /// Returns the sums of the groups whose period is over, or of all groups with `all`.
    pub(super) fn close(&mut self, now: Instant, all: bool) -> String {
        let mut text = String::new();
        if !all && self.close_at.is_none_or(|at| at > now) {
            return text;
        }
        let over = self.groups.extract_if(|_, kind| all || kind.ends <= now);
        over.for_each(|(_, kind)| text.push_str(&kind.sum().unwrap_or_default()));
        self.close_at = (!self.groups.is_empty()).then_some(now + CLOSE_PERIOD);
        text
    }

    /// Returns how long the writer may sleep.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.close_at.map(|at| at.saturating_duration_since(now))
    }
}

impl EqualEvents {
    fn sum(self) -> Option<String> {
        let line = self.last?;
        Some(line.end_repeated(self.repeated))
    }
}

/// Equal lines that are written in a period before the rest is summed up.
pub(super) const EQUAL_LINES_MAX: u32 = 20;
/// How long equal events are counted together.
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// The time between two searches for groups whose period is over.
const CLOSE_PERIOD: Duration = Duration::from_secs(1);
/// Upper bound on groups. Each holds at most one line in memory. Events of further groups are logged one by one.
pub(super) const GROUPS_MAX: usize = 1024;
