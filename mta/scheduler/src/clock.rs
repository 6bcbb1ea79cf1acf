//! The time as the scheduler sees it: the ticks of its wheels, and whether the wall clock is trusted.
//!
//! Must never read a clock, or let a jump of the wall clock make mail older.

use crate::scheduler::Scheduler;
use mail::{Instant, Now, Timestamp};
use std::time::Duration;

/// Resolution of due times; 32 bits of ticks are 6.8 years of uptime.
pub(crate) const TICK: Duration = Duration::from_millis(50);
const TICK_NANOS: u64 = TICK.as_nanos() as u64;
/// Longest jump of the wall clock that is trusted. After a longer one, expiry is suspended until the clock has kept pace
/// for this time.
pub(crate) const JUMP_MAX: Duration = Duration::from_secs(3600);

/// The time of the current call, and the jumps of the wall clock so far.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    now: Now,
    suspended_until: Instant,
    /// Sum of all jumps of the wall clock in microseconds.
    jumped: i64,
}

impl Clock {
    pub fn new(now: Now) -> Self {
        Clock { origin: now.monotonic, now, suspended_until: Instant::ZERO, jumped: 0 }
    }

    /// Sets the time, and notices if the wall clock has not moved as the monotonic clock has.
    fn set(&mut self, now: Now) {
        let monotonic = now.monotonic.since(self.now.monotonic).as_micros() as i128;
        let wall = i128::from(now.wall.micros()) - i128::from(self.now.wall.micros());
        let monotonic_now = now.monotonic.max(self.now.monotonic);
        if (wall - monotonic).unsigned_abs() > JUMP_MAX.as_micros() {
            self.suspended_until = monotonic_now + JUMP_MAX;
            let jump = i64::try_from(wall - monotonic).unwrap_or(0);
            self.jumped = self.jumped.saturating_add(jump);
        }
        self.now = Now { monotonic: monotonic_now, wall: now.wall };
    }

    fn tick(&self) -> u32 {
        u32::try_from(self.now.monotonic.since(self.origin).as_nanos() as u64 / TICK_NANOS)
            .unwrap_or(u32::MAX)
    }

    fn tick_after(&self, wait: Duration) -> u32 {
        let then = (self.now.monotonic + wait).since(self.origin).as_nanos() as u64;
        u32::try_from(then.div_ceil(TICK_NANOS)).unwrap_or(u32::MAX)
    }

    fn instant_of(&self, tick: u32) -> Instant {
        self.origin + TICK * tick
    }

    fn wall_of(&self, tick: u32) -> Timestamp {
        self.now.wall + self.instant_of(tick).since(self.now.monotonic)
    }

    /// Age of something from this wall time: by the clock as it is or as it would be without its jumps, whichever gives the
    /// smaller age. If they disagree, one of them is wrong.
    pub fn age_of(&self, then: Timestamp) -> Duration {
        let steady = Timestamp::from_micros(self.now.wall.micros().saturating_sub(self.jumped));
        self.now.wall.since(then).min(steady.since(then))
    }

    /// Time for which expiry remains suspended after a jump of the wall clock.
    pub fn suspended(&self) -> Option<Duration> {
        let left = self.suspended_until.since(self.now.monotonic);
        (!left.is_zero()).then_some(left)
    }
}

impl Scheduler {
    /// Sets the time of this call.
    pub(crate) fn set_clock(&mut self, now: Now) {
        self.clock.set(now);
    }

    /// Time of this call.
    pub(crate) fn now(&self) -> Now {
        self.clock.now
    }

    /// Monotonic time in nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        self.clock.now.monotonic.nanos()
    }

    /// Wall time in seconds since 1970; 0 before 1970, sufficient until 2106.
    pub(crate) fn seconds(&self) -> u32 {
        wall_seconds(self.clock.now.wall)
    }

    /// The last tick that has passed.
    pub(crate) fn tick(&self) -> u32 {
        self.clock.tick()
    }

    /// The first tick that is not before `wait` from now.
    pub(crate) fn tick_after(&self, wait: Duration) -> u32 {
        self.clock.tick_after(wait)
    }

    /// Monotonic time of a tick.
    pub(crate) fn instant_of(&self, tick: u32) -> Instant {
        self.clock.instant_of(tick)
    }

    /// Time that the wall clock will show at a tick.
    pub(crate) fn wall_of(&self, tick: u32) -> Timestamp {
        self.clock.wall_of(tick)
    }

    /// Time that the wall clock will show at a monotonic time.
    pub(crate) fn wall_at_nanos(&self, nanos: u64) -> Timestamp {
        self.clock.now.wall + Instant::from_nanos(nanos).since(self.clock.now.monotonic)
    }
}

pub(crate) fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u32::MAX)
}

pub(crate) fn wall_seconds(wall: Timestamp) -> u32 {
    u32::try_from(wall.seconds().max(0)).unwrap_or(u32::MAX)
}

pub(crate) fn wall_of_seconds(seconds: u32) -> Timestamp {
    Timestamp::from_micros(i64::from(seconds) * 1_000_000)
}
