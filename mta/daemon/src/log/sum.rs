//! Equal events of a flood, summed up: the first of a period as they are, the rest as one line with `repeated=N`.
//!
//! Must never sum an event of a message, and never lose a count: the lines, each `repeated=N` taken as N, are as many as
//! the events.

use super::line::Line;
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, RandomState};
use std::time::{Duration, Instant};

/// Kinds of events that were told lately.
#[derive(Default)]
pub(super) struct Sums {
    kinds: HashMap<u64, Kind>,
    hashes: RandomState,
    /// When the next kinds are closed; none if there are none.
    close_at: Option<Instant>,
}

/// Events that are equal but for the time, and for what a stranger made up.
struct Kind {
    ends: Instant,
    told: u32,
    repeated: u64,
    /// The latest event that was not told.
    last: Option<Line>,
}

impl Sums {
    /// Begins the key of an event; each process chooses other hashes, so that a stranger cannot make two kinds meet.
    pub(super) fn hasher(&self) -> DefaultHasher {
        self.hashes.build_hasher()
    }

    /// The lines to write for one more event of this kind: none if it is summed up.
    pub(super) fn add(&mut self, kind: u64, line: Line, now: Instant) -> Option<String> {
        let fresh = Kind { ends: now + PERIOD, told: 1, repeated: 0, last: None };
        let Some(known) = self.kinds.get_mut(&kind) else {
            if self.kinds.len() < KINDS_MAX {
                self.kinds.insert(kind, fresh);
                self.close_at.get_or_insert(now + PERIOD);
            }
            return Some(line.end());
        };
        if known.ends <= now {
            let sum = std::mem::replace(known, fresh).sum();
            return Some(sum.unwrap_or_default() + &line.end());
        }
        if known.told < EQUAL_LINES_MAX {
            known.told += 1;
            return Some(line.end());
        }
        known.repeated += 1;
        known.last = Some(line);
        None
    }

    /// The sums of the kinds whose period is over, and of all with `all`.
    pub(super) fn close(&mut self, now: Instant, all: bool) -> String {
        let mut text = String::new();
        if !all && self.close_at.is_none_or(|at| at > now) {
            return text;
        }
        let over = self.kinds.extract_if(|_, kind| all || kind.ends <= now);
        over.for_each(|(_, kind)| text.push_str(&kind.sum().unwrap_or_default()));
        self.close_at = (!self.kinds.is_empty()).then_some(now + CLOSE_PERIOD);
        text
    }

    /// How long the writer may sleep.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.close_at.map(|at| at.saturating_duration_since(now))
    }
}

impl Kind {
    fn sum(self) -> Option<String> {
        let line = self.last?;
        Some(line.end_repeated(self.repeated))
    }
}

/// Equal lines that are written in one period before the rest is summed up.
pub(super) const EQUAL_LINES_MAX: u32 = 20;
/// How long equal events are counted together.
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// How long a period that is over may wait until it is noticed.
const CLOSE_PERIOD: Duration = Duration::from_secs(1);
/// Kinds that are counted at a time, each with at most one line of memory; events of further kinds are told as they are.
pub(super) const KINDS_MAX: usize = 1024;
