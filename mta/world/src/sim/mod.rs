//! A machine in memory: its power can be cut, its clock set, its random numbers repeated.
//!
//! Must never reach the real machine.

pub mod disk;

pub use disk::{Call, Disk, PowerCutFate, Sectors, UnsyncedOperation, What};

use mail::{Instant, Now, Timestamp};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A clock that moves only when told to. Clones share the time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Mutex<Now>>);

impl Clock {
    /// Starts at monotonic time zero and this wall time.
    pub fn starting(wall: Timestamp) -> Clock {
        Clock(Arc::new(Mutex::new(Now { monotonic: Instant::ZERO, wall })))
    }

    /// Advances both readings.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Now { monotonic: now.monotonic + by, wall: now.wall + by };
    }

    /// Sets the wall clock. Monotonic time does not change.
    pub fn set_wall(&self, wall: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wall = wall;
    }
}

impl crate::Clock for Clock {
    fn now(&self) -> Now {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SplitMix64: equal seeds give equal numbers, on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the generator of this seed.
    pub fn seeded(seed: u64) -> Rng {
        Rng(seed)
    }
}

impl crate::Rng for Rng {
    fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock as _, Rng as _};

    #[test]
    fn equal_seeds_repeat_and_the_first_number_is_the_published_one() {
        // First output of SplitMix64 for seed 0.
        assert_eq!(Rng::seeded(0).u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(Rng::seeded(7).below(1000), Rng::seeded(7).below(1000));
    }

    #[test]
    fn setting_the_wall_clock_leaves_monotonic_time_alone() {
        let clock = Clock::starting(Timestamp::from_micros(5));
        clock.advance(Duration::from_micros(2));
        clock.set_wall(Timestamp::from_micros(-9));
        assert_eq!(clock.now().wall, Timestamp::from_micros(-9));
        assert_eq!(clock.now().monotonic, Instant::from_nanos(2_000));
    }
}
