//! A timer of a task. Most waits of a connection end early, and the next wait ends later. The timer therefore stays set, and
//! is set again if it fires too early.
//!
//! Must never fire later than was asked for.

use mail::Instant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Sleep;
use world::Clock;

/// A timer. Fires once after calls of [`Timer::fire_by`].
#[derive(Debug)]
pub struct Timer {
    at: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl Default for Timer {
    fn default() -> Timer {
        Timer::new()
    }
}

impl Timer {
    /// Creates a timer that is not set.
    pub fn new() -> Timer {
        Timer { at: None, sleep: Box::pin(tokio::time::sleep(std::time::Duration::MAX)) }
    }

    /// Makes the timer fire at `by` or before. The task must compare the time when it is woken.
    pub fn fire_by(&mut self, by: Instant, clock: &impl Clock) {
        if self.at.is_none_or(|at| by < at) {
            self.at = Some(by);
            let wait = by.since(clock.now().monotonic);
            self.sleep.as_mut().reset(tokio::time::Instant::now() + wait);
        }
    }

    /// Returns `Ready` if the timer fires. Wakes the task when it does.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.at.is_none() {
            return Poll::Pending;
        }
        std::task::ready!(self.sleep.as_mut().poll(context));
        self.at = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use std::time::Duration;

    fn fires(timer: &mut Timer) -> bool {
        timer.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn a_timer_fires_once_at_the_earliest_time_it_was_asked_for() {
        let clock = world::real::Clock;
        let (now, hour) = (clock.now().monotonic, Duration::from_secs(3600));
        let mut timer = Timer::new();
        assert!(!fires(&mut timer));
        timer.fire_by(now + hour, &clock);
        assert!(!fires(&mut timer));
        timer.fire_by(now, &clock);
        timer.fire_by(now + hour, &clock);
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(fires(&mut timer));
        assert!(!fires(&mut timer));
        timer.fire_by(now + hour, &clock);
        assert!(!fires(&mut timer));
    }
}
