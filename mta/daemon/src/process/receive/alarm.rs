//! One connection's timer. Most waits end before their time and the next ends later, so that the
//! timer stays where it is and, should it ring too early, is set again then.
//!
//! Must never ring later than was asked for.

use mail::Instant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Sleep;
use world::Clock;

/// The timer; rings once for each call of [`Alarm::ring_by`].
pub struct Alarm {
    at: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl Alarm {
    /// Does not ring yet.
    pub fn new() -> Alarm {
        Alarm { at: None, sleep: Box::pin(tokio::time::sleep(std::time::Duration::MAX)) }
    }

    /// Rings at `by` or before; whoever is woken looks whether it is time.
    pub fn ring_by(&mut self, by: Instant, clock: &impl Clock) {
        if self.at.is_none_or(|at| by < at) {
            self.at = Some(by);
            let wait = by.since(clock.now().monotonic);
            self.sleep.as_mut().reset(tokio::time::Instant::now() + wait);
        }
    }

    /// Whether it rings; has the task woken when it does.
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

    fn rings(alarm: &mut Alarm) -> bool {
        alarm.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn it_rings_once_at_the_earliest_time_it_was_asked_for() {
        let clock = world::real::Clock;
        let (now, hour) = (clock.now().monotonic, Duration::from_secs(3600));
        let mut alarm = Alarm::new();
        assert!(!rings(&mut alarm));
        alarm.ring_by(now + hour, &clock);
        assert!(!rings(&mut alarm));
        alarm.ring_by(now, &clock);
        alarm.ring_by(now + hour, &clock);
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(rings(&mut alarm));
        assert!(!rings(&mut alarm));
        alarm.ring_by(now + hour, &clock);
        assert!(!rings(&mut alarm));
    }
}
