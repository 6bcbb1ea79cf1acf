//! The retry schedule: when a group of recipients is tried again.
//!
//! Must never let a wait grow past the longest one, whatever a clock says.

use crate::clock::TICK;
use crate::due::Wheel;
use crate::group::To;
use crate::memory::Slab;
use crate::scheduler::Scheduler;
use crate::settings::{Retry, Settings};
use crate::store::message::RecipientGroup;
use mail::Timestamp;
use std::time::Duration;

/// Upper bound on the groups that come due in one call.
const TURN_MAX: u32 = 256;
/// Wait after a lost attempt, doubled with each loss in a row.
const LOST_WAIT: Duration = Duration::from_millis(200);
/// Upper bound on how often that wait is doubled.
const LOST_WAIT_DOUBLINGS_MAX: u32 = 8;
/// Wait of a message that was lost before, while another such message is in flight.
const SUSPECT_WAIT_TICKS: u32 = 4;
const _: () = assert!(TICK.as_millis() as u32 * SUSPECT_WAIT_TICKS <= 1000);

/// The groups that wait for their due times.
#[derive(Debug)]
pub(crate) struct Retries {
    wheel: Wheel,
    schedule: Retry,
    losses_max: u8,
}

impl Retries {
    pub fn new(settings: &Settings) -> Self {
        let losses_max = settings.losses_max.max(1);
        Retries { wheel: Wheel::new(), schedule: settings.retry, losses_max }
    }

    /// Takes the schedule of new settings. Due times stay as they are.
    pub fn reload(&mut self, settings: &Settings) {
        (self.schedule, self.losses_max) = (settings.retry, settings.losses_max.max(1));
    }

    /// Lets a group wait for the tick in its place.
    pub fn insert(&mut self, groups: &mut Slab<RecipientGroup>, group: u32) {
        self.wheel.insert(groups, group);
    }

    /// The inverse of `insert`.
    pub fn remove(&mut self, groups: &mut Slab<RecipientGroup>, group: u32) {
        self.wheel.remove(groups, group);
    }
}

impl Scheduler {
    /// Makes groups ready whose due time has come.
    pub(crate) fn pass_due_times(&mut self) {
        let (tick, mut work) = (self.tick(), TURN_MAX);
        while let Some(group) = self.retries.wheel.pop(&mut self.store.groups, tick, &mut work) {
            let message = self.store.groups[group].message;
            self.store.count_out(message);
            self.leave_popped(group);
            self.enter(group, To::Ready);
            self.store.count_in(message);
        }
    }

    /// Returns the tick from which groups come due.
    pub(crate) fn next_retry(&self) -> Option<u32> {
        self.retries.wheel.next()
    }

    /// Returns true if a message was lost too often in a row to be tried again.
    pub(crate) fn is_lost_too_often(&self, losses: u8) -> bool {
        losses >= self.retries.losses_max
    }

    /// Due time of a group after this number of attempts.
    pub(crate) fn retry_tick(&mut self, attempts: u16) -> u32 {
        let wait = self.retries.schedule.wait(attempts, self.chance.signed_unit());
        self.tick_after(wait)
    }

    /// Due time of a message after this number of lost attempts in a row.
    pub(crate) fn lost_tick(&self, losses: u8) -> u32 {
        let doublings = u32::from(losses.saturating_sub(1)).min(LOST_WAIT_DOUBLINGS_MAX);
        self.tick_after(LOST_WAIT * (1 << doublings))
    }

    /// Due time of a message that was lost before, while another such message is in flight.
    pub(crate) fn suspect_tick(&self) -> u32 {
        self.tick() + SUSPECT_WAIT_TICKS
    }

    /// Due time of a message that is given up as soon as notices are made again. Until then it must not begin.
    pub(crate) fn overdue_tick(&self) -> u32 {
        self.tick_after(self.retries.schedule.first)
    }

    /// Returns where a group with a due time from before a restart goes. A wall clock that went wrong never makes the wait
    /// longer than the longest one.
    pub(crate) fn wait_until(&self, due: Timestamp) -> To {
        let retry = &self.retries.schedule;
        let longest = retry.longest.max(retry.first).mul_f64(1.0 + retry.jitter.clamp(0.0, 1.0));
        match due.since(self.now().wall).min(longest) {
            Duration::ZERO => To::Ready,
            wait => To::Wait(self.tick_after(wait)),
        }
    }
}
