//! Who makes the next commit: this process's one thread of work, or a thread of its own.
//!
//! To hand a commit over and be woken at its end costs more than a quick disk takes to sync, and
//! what arrives meanwhile makes up the next batch either way. A slow disk must not hold up questions
//! and deliveries. Must never read a clock: it is told how long commits took.

use std::time::Duration;

/// Commits are made here once they take less than this on average.
const QUICK: Duration = Duration::from_micros(600);
/// And no longer when they take more than this.
const SLOW: Duration = Duration::from_millis(1);
/// So many must have been quick before.
const QUICK_COMMITS: u32 = 64;
/// One of these weighs so little in the average.
const WEIGHT: u32 = 16;
/// Who asks for more than the default has at once wants threads for them.
const AT_ONCE_MAX: usize = 2;
/// One that takes this long ends it by itself.
const STALL: Duration = Duration::from_millis(20);

/// What commits took of late.
#[derive(Debug)]
pub struct CommitPace {
    /// Whether it may ever be.
    allowed: bool,
    average: Duration,
    quick_commits: u32,
    here: bool,
}

impl CommitPace {
    /// Nothing is known of the disk; so many commits may be under way at once.
    pub fn new(commits_in_flight: usize) -> CommitPace {
        let allowed = commits_in_flight <= AT_ONCE_MAX;
        CommitPace { allowed, average: SLOW, quick_commits: 0, here: false }
    }

    /// Whether the next commit is to be made here.
    pub fn is_here(&self) -> bool {
        self.here && self.allowed
    }

    /// A commit has taken so long, wherever it was made.
    pub fn took(&mut self, took: Duration) {
        if took >= STALL {
            self.average = SLOW;
            return self.hand_over();
        }
        self.average = (self.average * (WEIGHT - 1) + took) / WEIGHT;
        if self.average > SLOW {
            self.hand_over();
        } else if self.average < QUICK {
            self.quick_commits = (self.quick_commits + 1).min(QUICK_COMMITS);
            self.here |= self.quick_commits == QUICK_COMMITS;
        } else if !self.here {
            self.quick_commits = 0;
        }
    }

    fn hand_over(&mut self) {
        self.here = false;
        self.quick_commits = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pace: &mut CommitPace, commits: u32, micros: u64) -> bool {
        (0..commits).for_each(|_| pace.took(Duration::from_micros(micros)));
        pace.is_here()
    }

    #[test]
    fn a_quick_disk_is_waited_for_once_it_has_been_quick_for_a_while() {
        let mut pace = CommitPace::new(2);
        assert!(!after(&mut pace, QUICK_COMMITS, 100), "the first ones are not enough");
        assert!(after(&mut pace, 100, 100));
        assert!(after(&mut pace, 1, 8_000), "one that lasts is no slow disk");
        assert!(after(&mut pace, 1_000, 700), "neither limit is crossed: no change");
        assert!(!after(&mut pace, 100, 1_200));
        assert!(!after(&mut pace, 1_000, 700), "neither limit is crossed: no change");
        assert!(after(&mut pace, 1_000, 400));
    }

    #[test]
    fn who_asks_for_more_commits_at_once_gets_threads() {
        assert!(!after(&mut CommitPace::new(3), 1_000, 100));
    }

    #[test]
    fn a_slow_disk_is_never_waited_for_and_a_stall_ends_it_at_once() {
        let mut pace = CommitPace::new(2);
        assert!(!after(&mut pace, 10_000, 8_000));
        assert!(after(&mut pace, 1_000, 100));
        assert!(!after(&mut pace, 1, 20_000));
        assert!(!after(&mut pace, QUICK_COMMITS, 100), "it has to be quick for a while again");
    }
}
