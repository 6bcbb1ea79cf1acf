//! The machine that the daemon runs on: its disk, its clocks, its random numbers.
//!
//! Must never be reached from below `daemon` except through the traits.

pub mod disk;
pub mod faults;

pub use disk::Disk;

use mail::{Instant, Now, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC and CLOCK_REALTIME.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl crate::Clock for Clock {
    fn now(&self) -> Now {
        let monotonic = clock_gettime(ClockId::Monotonic);
        let wall = clock_gettime(ClockId::Realtime);
        Now {
            monotonic: Instant::from_nanos(
                monotonic.tv_sec as u64 * 1_000_000_000 + monotonic.tv_nsec as u64,
            ),
            wall: Timestamp::from_micros(
                wall.tv_sec * 1_000_000 + wall.tv_nsec / 1_000 + faults::wall_offset_micros(),
            ),
        }
    }
}

/// A generator that is seeded with random numbers of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rng;

impl crate::Rng for Rng {
    fn u64(&mut self) -> u64 {
        rand::random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock as _, Rng as _};

    #[test]
    fn the_monotonic_clock_never_goes_back_and_the_wall_is_past_2025() {
        let (first, second) = (Clock.now(), Clock.now());
        assert!(first.monotonic <= second.monotonic);
        assert!(second.wall.seconds() > 1_735_689_600);
    }

    #[test]
    fn chance_below_a_bound_stays_below_it_and_varies() {
        let drawn: Vec<u64> = (0..64).map(|_| Rng.below(10)).collect();
        assert!(drawn.iter().all(|n| *n < 10) && drawn.iter().any(|n| *n != drawn[0]));
    }
}
