//! The choice of the thread for the next commit: the main thread of this process, or a thread for commits.
//!
//! Waking another thread twice costs more than a sync of a fast disk, and messages that arrive meanwhile form the
//! next batch in both cases. A slow disk must not delay questions and deliveries. Must never read a clock: it is told
//! how long commits took.

use std::time::Duration;

/// Commits move to the main thread when they take less than this on average.
const QUICK: Duration = Duration::from_micros(600);
/// Commits move back to the other thread when they take more than this on average.
const SLOW: Duration = Duration::from_millis(1);
/// The number of fast commits before commits move to the main thread.
const QUICK_COMMITS: u32 = 64;
/// The weight of one commit in the average is one part in this many.
const WEIGHT: u32 = 16;
/// With more commits in flight than this, the default, commits always have threads.
const AT_ONCE_MAX: usize = 2;
/// A commit that takes this long moves commits to the other thread at once.
const STALL: Duration = Duration::from_millis(20);

/// The recent durations of commits, and the thread that makes the next one.
#[derive(Debug)]
pub struct CommitPace {
    thread: CommitThread,
    average: Duration,
}

/// The thread that makes commits.
#[derive(Debug)]
enum CommitThread {
    /// Threads for commits, because the settings allow more commits at once than one thread makes.
    AlwaysOther,
    /// A thread for commits, until enough commits in a row were fast.
    Other { quick_commits: u32 },
    /// The main thread, until commits become slow.
    Main,
}

impl CommitPace {
    /// Begins with an unknown disk. `commits_in_flight` is the setting.
    pub fn new(commits_in_flight: usize) -> CommitPace {
        let thread = match commits_in_flight <= AT_ONCE_MAX {
            true => CommitThread::Other { quick_commits: 0 },
            false => CommitThread::AlwaysOther,
        };
        CommitPace { thread, average: SLOW }
    }

    /// Returns true if the main thread should make the next commit.
    pub fn is_here(&self) -> bool {
        matches!(self.thread, CommitThread::Main)
    }

    /// Learns how long a commit took on either thread.
    pub fn took(&mut self, took: Duration) {
        let stalled = took >= STALL;
        self.average = match stalled {
            true => SLOW,
            false => (self.average * (WEIGHT - 1) + took) / WEIGHT,
        };
        let is_quick = self.average < QUICK;
        match &mut self.thread {
            CommitThread::AlwaysOther => {}
            CommitThread::Other { quick_commits } if is_quick => {
                *quick_commits += 1;
                if *quick_commits == QUICK_COMMITS {
                    self.thread = CommitThread::Main;
                }
            }
            CommitThread::Other { quick_commits } => *quick_commits = 0,
            CommitThread::Main if stalled || self.average > SLOW => {
                self.thread = CommitThread::Other { quick_commits: 0 };
            }
            CommitThread::Main => {}
        }
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
