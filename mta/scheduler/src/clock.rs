//! The time as the scheduler sees it: ticks of the wheels, and whether the wall clock is trusted.
//!
//! Must never read a clock; must never let a jump of the wall clock make mail older.

use mail::{Instant, Now, Wall};
use std::time::Duration;

/// Due times are kept to this; 32 bits of it are 6.8 years of uptime.
pub(crate) const TICK: Duration = Duration::from_millis(50);
const TICK_NANOS: u64 = TICK.as_nanos() as u64;
/// A wall clock that jumps further is not trusted for expiry until it has kept pace so long.
pub(crate) const JUMP_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    now: Now,
    suspended_until: Instant,
    /// By how many microseconds the wall clock was set, in all the jumps of this life.
    jumped: i64,
}

impl Clock {
    pub fn new(now: Now) -> Self {
        Clock { origin: now.monotonic, now, suspended_until: Instant::ZERO, jumped: 0 }
    }

    /// Takes the time; notices when the wall clock did not move as the monotonic one did.
    pub fn set(&mut self, now: Now) {
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

    pub fn now(&self) -> Now {
        self.now
    }

    pub fn nanos(&self) -> u64 {
        self.now.monotonic.nanos()
    }

    /// Seconds since 1970 in 32 bits: until 2106, and 1970 for what is before.
    pub fn seconds(&self) -> u32 {
        wall_seconds(self.now.wall)
    }

    pub fn tick(&self) -> u32 {
        u32::try_from(self.now.monotonic.since(self.origin).as_nanos() as u64 / TICK_NANOS)
            .unwrap_or(u32::MAX)
    }

    /// The first tick that is not before `wait` from now.
    pub fn tick_after(&self, wait: Duration) -> u32 {
        let then = (self.now.monotonic + wait).since(self.origin).as_nanos() as u64;
        u32::try_from(then.div_ceil(TICK_NANOS)).unwrap_or(u32::MAX)
    }

    pub fn instant_of(&self, tick: u32) -> Instant {
        self.origin + TICK * tick
    }

    /// What the wall clock will show at a tick.
    pub fn wall_of(&self, tick: u32) -> Wall {
        self.now.wall + self.instant_of(tick).since(self.now.monotonic)
    }

    pub fn wall_at_nanos(&self, nanos: u64) -> Wall {
        self.now.wall + Instant::from_nanos(nanos).since(self.now.monotonic)
    }

    /// How old something of this wall time is, by the clock as it is or as it would be without its
    /// jumps, whichever makes it younger: where they disagree, one of them is wrong.
    pub fn age_of(&self, then: Wall) -> Duration {
        let steady = Wall::from_micros(self.now.wall.micros().saturating_sub(self.jumped));
        self.now.wall.since(then).min(steady.since(then))
    }

    /// How long expiry stays suspended after a jump of the wall clock.
    pub fn suspended(&self) -> Option<Duration> {
        let left = self.suspended_until.since(self.now.monotonic);
        (!left.is_zero()).then_some(left)
    }
}

pub(crate) fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u32::MAX)
}

pub(crate) fn wall_seconds(wall: Wall) -> u32 {
    u32::try_from(wall.seconds().max(0)).unwrap_or(u32::MAX)
}

pub(crate) fn wall_of_seconds(seconds: u32) -> Wall {
    Wall::from_micros(i64::from(seconds) * 1_000_000)
}
