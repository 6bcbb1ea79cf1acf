//! What happens next: due times pass, messages come of age, attempts begin.
//!
//! Must never do more in one call than its bounds allow.

use crate::flights::Flight;
use crate::group::To;
use crate::output::{DestinationId, Output, PlannedAttempt};
use crate::scheduler::Scheduler;
use crate::store::message::RecipientGroup;
use mail::{Instant, Now};

/// Upper bound on the destinations looked at for one attempt.
const DESTINATIONS_LOOKED_AT_MAX: u32 = 256;
/// Number of losses in a row from which on a message is a suspect: no other suspect is tried at the same time.
pub(crate) const SUSPECT_LOSSES: u8 = 2;

impl Scheduler {
    /// Returns the next thing to do. Must be called until it returns `None`.
    pub fn poll(&mut self, now: Now) -> Option<Output> {
        self.set_clock(now);
        if let Some(record) = self.next_record() {
            return Some(Output::Record(record));
        }
        self.retire_done();
        self.pass_due_times();
        if !self.ages.are_paused() {
            self.follow_routes();
            self.pass_ages();
            self.tell_aged();
        }
        self.pass_timers();
        let record = self.next_record().map(Output::Record);
        record.or_else(|| self.next_attempt().map(Output::Attempt))
    }

    /// Pauses attempts, notices or both. While `attempts` are paused none begins. While `notices` are paused no message
    /// comes of age and no route is carried out. Outcomes are still taken, due times pass, and records come.
    pub fn pause(&mut self, attempts: bool, notices: bool) {
        self.flights.pause(attempts);
        self.ages.pause(notices);
    }

    /// Returns the time at which `poll` has something to do, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let tells = !self.ages.are_paused();
        if self.records_len() > 0
            || (tells && (self.routes.has_routed() || self.ages.has_aged()))
            || self.routes.has_done()
            || (self.has_room() && self.has_any_turn())
        {
            return Some(self.now().monotonic);
        }
        let retry = self.next_retry().map(|tick| self.instant_of(tick));
        let age = self.store.next_age().filter(|_| tells).map(|tick| self.instant_of(tick));
        [retry, age, self.next_timer()].into_iter().flatten().min()
    }

    fn next_attempt(&mut self) -> Option<PlannedAttempt> {
        for _ in 0..DESTINATIONS_LOOKED_AT_MAX {
            if !self.has_room() {
                return None;
            }
            let (at, light) = self.next_destination()?;
            // The light sender's mail may have gone since the destination was lined up for it.
            if !self.may_begin(at) || (light && !self.is_light_next(at)) {
                self.refresh(at);
                continue;
            }
            let which = usize::from(!light);
            if self.is_kept_out(at, which) {
                self.park(at, which);
                continue;
            }
            if let Some(attempt) = self.next_group(at).and_then(|group| self.begin(group)) {
                return Some(attempt);
            }
        }
        None
    }

    /// Begins an attempt, unless the message is a suspect and another suspect is in flight.
    fn begin(&mut self, group: u32) -> Option<PlannedAttempt> {
        let RecipientGroup { message, destination: at, .. } = self.store.groups[group];
        let suspect = self.store.message(message).losses >= SUSPECT_LOSSES;
        if suspect && self.has_suspect() {
            self.shift(group, To::Wait(self.suspect_tick()));
            self.refresh(at);
            return None;
        }
        let limits = self.destinations.limits_of(at);
        let recipients_max = limits.recipients_per_message.max(1) as usize;
        let (epoch, doubtful) = (self.destinations[at].epoch, self.is_doubtful(at));
        let began = self.nanos();
        let (attempt, flight) =
            self.take_flight(Flight { attempt: 0, group, epoch, suspect, doubtful, began });
        let group = self.take_off(group, flight, recipients_max);
        self.board(flight, group);
        self.destinations[at].begin(&limits, began);
        self.refresh(at);
        Some(PlannedAttempt {
            attempt,
            message: self.store.message(message).id,
            destination: DestinationId(at),
            recipients: self.store.members(group),
            attempts_before: self.store.groups[group].attempts,
        })
    }

    /// Puts a group in flight, or as much of it as one attempt takes.
    fn take_off(&mut self, group: u32, flight: u32, recipients_max: usize) -> u32 {
        if self.store.members_len(group) <= recipients_max {
            self.shift(group, To::Flight(flight));
            return group;
        }
        let message = self.store.groups[group].message;
        let taken = self.store.first_members(group, recipients_max);
        self.store.count_out(message);
        let part = self.divide(group, taken);
        self.enter(part, To::Flight(flight));
        self.store.count_in(message);
        part
    }
}
