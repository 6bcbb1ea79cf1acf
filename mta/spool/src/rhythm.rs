//! How long a commit waits for more messages: on a slow disk a client that was just answered sends its
//! next message long before a sync has ended.
//!
//! Must never let a message wait if no other is expected, nor for longer than [`PATIENCE_MAX`].

use std::time::Duration;

/// A commit does not wait if commits take less than this: they are cheap.
const SLOW: Duration = Duration::from_millis(1);
/// Longest wait, however slow the disk is.
const PATIENCE_MAX: Duration = Duration::from_millis(15);
/// A batch with this number of messages is worth a sync of its own: the next batch is gathered while
/// the sync runs.
const ENOUGH: u32 = 96;
/// Upper bound on what one stall of the disk adds to the average.
const TOOK_MAX: Duration = Duration::from_millis(100);
/// One commit counts in the average as one part in this many.
const WEIGHT: u32 = 8;

/// How long recent commits took, and how many clients the last one answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rhythm {
    took: Duration,
    answered: u32,
}

impl Rhythm {
    /// Counts a commit with this number of messages.
    pub(crate) fn settled(&mut self, took: Duration, messages: u32) {
        self.took = (self.took * (WEIGHT - 1) + took.min(TOOK_MAX)) / WEIGHT;
        self.answered = messages;
    }

    /// Returns how long a batch with this number of messages waits for more, from its first message on.
    /// `under_way` is the number of messages in the largest commit under way. The clients which that
    /// commit will answer, and those just answered, are expected to send more.
    pub(crate) fn patience(&self, messages: u32, under_way: u32) -> Duration {
        let expected = self.answered.max(under_way.div_ceil(2)).min(ENOUGH);
        if self.took < SLOW || messages >= expected {
            return Duration::ZERO;
        }
        (self.took / 2).min(PATIENCE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(micros: u64, messages: u32) -> Rhythm {
        let mut rhythm = Rhythm::default();
        (0..64).for_each(|_| rhythm.settled(Duration::from_micros(micros), messages));
        rhythm
    }

    #[test]
    fn a_quick_disk_is_never_kept_waiting() {
        assert_eq!(after(900, 100).patience(1, 100), Duration::ZERO);
    }

    #[test]
    fn one_sender_never_waits() {
        assert_eq!(after(8_000, 1).patience(1, 0), Duration::ZERO);
        assert_eq!(after(8_000, 1).patience(1, 1), Duration::ZERO);
        assert_eq!(after(8_000, 0).patience(1, 0), Duration::ZERO);
    }

    #[test]
    fn those_just_answered_are_waited_for_half_a_sync_and_not_once_they_are_there() {
        let rhythm = after(8_000, 10);
        let patience = rhythm.patience(9, 0);
        assert!(patience > Duration::from_micros(3_900) && patience <= Duration::from_millis(4));
        assert_eq!(rhythm.patience(10, 0), Duration::ZERO);
    }

    #[test]
    fn a_few_wait_for_the_many_that_are_under_way() {
        let rhythm = after(8_000, 1);
        assert!(rhythm.patience(1, 9) > Duration::ZERO);
        assert_eq!(rhythm.patience(5, 9), Duration::ZERO);
    }

    #[test]
    fn nobody_waits_for_more_than_make_a_sync_worth_it() {
        assert_eq!(after(8_000, 1_000).patience(ENOUGH, 1_000), Duration::ZERO);
    }

    #[test]
    fn a_stalled_disk_does_not_make_everybody_wait_as_long() {
        let mut rhythm = after(8_000, 10);
        rhythm.settled(Duration::from_secs(30), 10);
        assert!(rhythm.patience(1, 0) <= PATIENCE_MAX);
    }
}
