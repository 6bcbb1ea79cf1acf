//! The time that every machine is given: a monotonic reading and a wall-clock reading.
//!
//! Must never read a clock: `world` reads clocks and passes the readings down.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Monotonic time in nanoseconds since an arbitrary moment, the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start.
    pub const ZERO: Instant = Instant(0);

    /// Makes an instant from nanoseconds since the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero where `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, delay: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Wall-clock time in microseconds since 1970-01-01T00:00:00Z. It may jump in both directions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Makes a wall-clock time from microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// Microseconds since 1970.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The time from `earlier` to `self`, zero where `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, delay: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// The two readings that every `handle` and `poll` gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For timeouts and rates. It never jumps.
    pub monotonic: Instant,
    /// For expiry and for what people read. It may jump.
    pub wall: Timestamp,
}
