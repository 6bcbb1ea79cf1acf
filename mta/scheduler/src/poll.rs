//! What is done next: due times pass, destinations take turns, attempts begin.
//!
//! Must never do more in one call than `TURN_MAX` steps.

use crate::clock::TICK;
use crate::destination::{ANSWERS, Destination, GOES_ON, IN_TURN, PARKED};
use crate::group::{LIGHT_SENDER_MAX, To};
use crate::memory::NONE;
use crate::message::{GroupState, RecipientGroup};
use crate::output::{Attempt, AttemptId, DestinationId, Output};
use crate::scheduler::{Flight, Scheduler};
use mail::{Instant, NextHop, Now};
use std::cmp::Reverse;
use std::time::Duration;
use view::Order;

/// Records of the wheels looked at in one call.
const TURN_MAX: u32 = 256;
/// Destinations looked at in one call.
const DESTINATIONS_LOOKED_AT_MAX: u32 = 256;
/// So many turns of light senders before one of the others.
const LIGHT_RUN_MAX: u8 = 8;
/// This share of all attempts is kept for destinations that are known to answer: 10,000 dead ones
/// do not take the place of those that live.
const ANSWERING_SHARE: u32 = 4;
/// Of the rest this share is kept for light senders: the new destinations of their few messages do
/// not wait until dead ones of a sender of many are given up.
const LIGHT_SHARE: u32 = 4;
/// A destination whose next hop takes mail quickly is given so many attempts more in its turn: 100,000 destinations with ten
/// messages each take a connection each, not ten.
const GO_ON_MAX: u8 = 15;
/// An attempt that took longer was not quick.
const QUICK: Duration = Duration::from_millis(250);
/// A message that was lost so often in a row is a suspect: it flies alone among suspects.
pub(crate) const SUSPECT_LOSSES: u8 = 2;
/// A suspect that has to wait for another one looks again after so many ticks.
const SUSPECT_WAIT_TICKS: u32 = 4;
/// An attempt's name has its place in the low bits.
pub(crate) const FLIGHT_BITS: u32 = 24;

impl Scheduler {
    /// The next thing to do; to be called until it says `None`.
    pub fn poll(&mut self, now: Now) -> Option<Output> {
        self.clock.set(now);
        if let Some(record) = self.next_record() {
            return Some(record);
        }
        self.retire_done();
        self.pass_due_times();
        if !self.notices_paused {
            self.follow_routes();
            self.pass_ages();
            self.tell_aged();
        }
        self.pass_timers();
        self.next_record().or_else(|| self.next_attempt().map(Output::Attempt))
    }

    /// While `attempts` are paused none begins; while `notices` are, no message comes of age and no
    /// route is followed. Results are taken, due times pass, and records come as ever.
    pub fn pause(&mut self, attempts: bool, notices: bool) {
        (self.paused, self.notices_paused) = (attempts, notices);
    }

    /// When `poll` has something to do, if nothing else happens.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let room = !self.paused && self.in_flight < self.settings.attempts_in_flight_max;
        let turn = self.has_turn(0) || self.has_other_turn() || !self.standing.is_empty();
        let tells = !self.notices_paused;
        if !self.records.is_empty()
            || (tells && !(self.routed.is_empty() && self.aged.is_empty()))
            || !self.done.is_empty()
            || (room && turn)
        {
            return Some(self.clock.now().monotonic);
        }
        let retry = self.retries.next().map(|tick| self.clock.instant_of(tick));
        let age = self.ages.next().filter(|_| tells).map(|tick| self.clock.instant_of(tick));
        let timer = self.timers.peek().map(|Reverse((nanos, _))| Instant::from_nanos(*nanos));
        [retry, age, timer].into_iter().flatten().min()
    }

    fn pass_due_times(&mut self) {
        let (tick, mut work) = (self.clock.tick(), TURN_MAX);
        while let Some(group) = self.retries.pop(&mut self.groups, tick, &mut work) {
            let message = self.groups[group].message;
            self.count_out(message);
            self.leave_popped(group);
            self.enter(group, To::Ready);
            self.count_in(message);
        }
    }

    fn pass_ages(&mut self) {
        let (tick, mut work) = (self.clock.tick(), TURN_MAX);
        while let Some(message) = self.ages.pop(&mut self.messages, tick, &mut work) {
            self.come_of_age(message);
        }
    }

    fn pass_timers(&mut self) {
        let nanos = self.clock.nanos();
        for _ in 0..DESTINATIONS_LOOKED_AT_MAX {
            match self.timers.peek() {
                Some(Reverse((when, _))) if *when <= nanos => {}
                _ => return,
            }
            let Some(Reverse((when, at))) = self.timers.pop() else { return };
            if self.destinations[at].timer == when {
                self.destinations[at].timer = 0;
                self.refresh(at);
            }
        }
    }

    fn next_attempt(&mut self) -> Option<Attempt> {
        for _ in 0..DESTINATIONS_LOOKED_AT_MAX {
            if self.paused || self.in_flight >= self.settings.attempts_in_flight_max {
                return None;
            }
            let (at, light) = self.next_destination()?;
            // A light sender's mail may have gone since the destination was lined up for it.
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

    /// The destination whose turn it is, and whether it is so for a light sender.
    fn next_destination(&mut self) -> Option<(u32, bool)> {
        if !self.is_fair() {
            return self.standing.first().map(|(_, at)| (*at, false));
        }
        let light = self.has_turn(0) && (self.light_run < LIGHT_RUN_MAX || !self.has_other_turn());
        self.light_run = if light { self.light_run.saturating_add(1) } else { 0 };
        if !light && let Some(at) = self.going_on.pop_front() {
            self.destinations[at].flags &= !GOES_ON;
            return Some((at, false));
        }
        let which = if light { 0 } else { 1 };
        // Who was parked was there before the others.
        let room = self.has_room_for_doubtful(which);
        let parked = room.then(|| self.parked[which].pop_front()).flatten();
        let (at, flag) = match parked {
            Some(at) => (at, PARKED[which]),
            None => (self.turns[which].pop_front()?, IN_TURN[which]),
        };
        self.destinations[at].flags &= !flag;
        self.destinations[at].went_on = 0;
        Some((at, light))
    }

    /// Lets a destination go on that has just taken mail from an attempt begun at `began`, so that the connection is
    /// used again while it is there. Light senders elsewhere still go first.
    pub(crate) fn go_on(&mut self, at: u32, began: u64) {
        let quick = self.clock.nanos().saturating_sub(began) <= QUICK.as_nanos() as u64;
        if !quick || !self.is_fair() || !self.may_begin(at) {
            return;
        }
        let destination = &mut self.destinations[at];
        let connects = !matches!(destination.hop, NextHop::Local | NextHop::Discard);
        if connects && destination.flags & GOES_ON == 0 && destination.went_on < GO_ON_MAX {
            destination.flags |= GOES_ON;
            destination.went_on += 1;
            self.going_on.push_back(at);
        }
    }

    fn has_other_turn(&self) -> bool {
        self.has_turn(1) || !self.going_on.is_empty()
    }

    fn has_turn(&self, which: usize) -> bool {
        let parked = !self.parked[which].is_empty() && self.has_room_for_doubtful(which);
        parked || !self.turns[which].is_empty()
    }

    /// Nobody knows whether it answers.
    fn is_doubtful(&self, at: u32) -> bool {
        self.destinations[at].flags & ANSWERS == 0
    }

    /// Attempts to those at once: for light senders (0), for all others (1).
    pub(crate) fn doubtful_in_flight_max(&self, which: usize) -> u32 {
        let all = self.settings.attempts_in_flight_max;
        let doubtful = all - all / ANSWERING_SHARE;
        if which == 0 { doubtful } else { doubtful - doubtful / LIGHT_SHARE }
    }

    /// It is not known to answer, and those that are not have as many attempts as they may have.
    pub(crate) fn is_kept_out(&self, at: u32, which: usize) -> bool {
        self.is_fair() && self.is_doubtful(at) && !self.has_room_for_doubtful(which)
    }

    fn has_room_for_doubtful(&self, which: usize) -> bool {
        self.doubtful_in_flight < self.doubtful_in_flight_max(which)
    }

    /// Sets a destination aside until there is room for those that are not known to answer. When
    /// it is known before that, `refresh` gives it a turn again.
    fn park(&mut self, at: u32, which: usize) {
        let destination = &mut self.destinations[at];
        if destination.flags & PARKED[which] == 0 {
            destination.flags |= PARKED[which];
            self.parked[which].push_back(at);
        }
    }

    pub(crate) fn is_light_next(&self, at: u32) -> bool {
        let sender = self.sender_queues.next_sender(&self.destinations[at]);
        sender.is_some_and(|at| self.symbols.is_busy_at_most(at, LIGHT_SENDER_MAX))
    }

    fn next_group(&mut self, at: u32) -> Option<u32> {
        let destination = &mut self.destinations[at];
        if self.settings.order == Order::Fair {
            return self.sender_queues.next(destination);
        }
        destination.sorted.as_deref()?.ready.first().map(|(_, group)| *group)
    }

    /// Begins an attempt, unless the message is a suspect and another one is in flight.
    fn begin(&mut self, group: u32) -> Option<Attempt> {
        let RecipientGroup { message, destination: at, .. } = self.groups[group];
        let suspect = self.messages[message].losses >= SUSPECT_LOSSES;
        if suspect && self.suspects_in_flight > 0 {
            self.shift(group, To::Wait(self.clock.tick() + SUSPECT_WAIT_TICKS));
            self.refresh(at);
            return None;
        }
        let limits = self.limits_at(at);
        let recipients_max = limits.recipients_per_message.max(1) as usize;
        let (epoch, doubtful) = (self.destinations[at].epoch, self.is_doubtful(at));
        let began = self.clock.nanos();
        let (attempt, flight) =
            self.take_flight(Flight { attempt: 0, group, epoch, suspect, doubtful, began });
        let group = self.take_off(group, flight, recipients_max);
        self.flights[flight].group = group;
        self.destinations[at].begin(&limits, began);
        self.refresh(at);
        Some(Attempt {
            attempt,
            message: self.messages[message].id,
            destination: DestinationId(at),
            recipients: self.members(group),
            attempts_before: self.groups[group].attempts,
        })
    }

    /// Names a new attempt and counts it.
    pub(crate) fn take_flight(&mut self, flight: Flight) -> (AttemptId, u32) {
        self.flight_number += 1;
        self.in_flight += 1;
        self.suspects_in_flight += u32::from(flight.suspect);
        self.doubtful_in_flight += u32::from(flight.doubtful);
        let place = self.flights.insert(flight);
        let attempt = self.flight_number << FLIGHT_BITS | u64::from(place);
        self.flights[place].attempt = attempt;
        (AttemptId(attempt), place)
    }

    /// Puts a group, or as much of it as one attempt takes, in flight.
    fn take_off(&mut self, group: u32, flight: u32, recipients_max: usize) -> u32 {
        if self.members_len(group) <= recipients_max {
            self.shift(group, To::Flight(flight));
            return group;
        }
        let message = self.groups[group].message;
        let taken = self.first_members(group, recipients_max);
        self.count_out(message);
        let part = self.divide(group, taken);
        self.enter(part, To::Flight(flight));
        self.count_in(message);
        part
    }

    /// Whether a destination has something ready and all its gates are open.
    pub(crate) fn may_begin(&self, at: u32) -> bool {
        let destination = &self.destinations[at];
        destination.ready > 0
            && destination.in_flight < destination.allowed(&self.limits_at(at))
            && destination.opens_at(self.clock.nanos()) == 0
    }

    /// Brings a destination's place among the others up to date after any change.
    pub(crate) fn refresh(&mut self, at: u32) {
        let may = self.may_begin(at);
        let nanos = self.clock.nanos();
        if !self.is_fair() {
            self.stand(at, may);
        } else if may {
            self.line_up_destination(at);
        }
        let destination = &mut self.destinations[at];
        let opens = destination.opens_at(nanos);
        if destination.ready > 0 && opens > 0 && needs_timer(destination, opens) {
            destination.timer = opens;
            self.timers.push(Reverse((opens, at)));
        }
    }

    /// Gives a destination its turn among all, and among those where a light sender is next.
    fn line_up_destination(&mut self, at: u32) {
        let both = IN_TURN[0] | IN_TURN[1];
        if self.destinations[at].flags & both == both {
            return;
        }
        let light = self.is_light_next(at);
        let destination = &mut self.destinations[at];
        for (which, wanted) in [light, true].into_iter().enumerate() {
            if wanted && destination.flags & IN_TURN[which] == 0 {
                destination.flags |= IN_TURN[which];
                self.turns[which].push_back(at);
            }
        }
    }

    fn stand(&mut self, at: u32, may: bool) {
        let Some(sorted) = self.destinations[at].sorted.as_deref_mut() else { return };
        let stands = sorted.ready.first().filter(|_| may).map(|(key, _)| *key);
        let stood = std::mem::replace(&mut sorted.stands, stands);
        if stood == stands {
            return;
        }
        if let Some(key) = stood {
            self.standing.remove(&(key, at));
        }
        if let Some(key) = stands {
            self.standing.insert((key, at));
        }
    }

    /// Changes which ready ones go first. Touches every ready one: an operator's command.
    pub fn set_order(&mut self, order: Order) {
        if order == self.settings.order {
            return;
        }
        let ready: Vec<u32> = self.ready_groups();
        self.break_up_lines();
        self.settings.order = order;
        ready.into_iter().for_each(|group| self.stand_in_line(group));
        let live: Vec<u32> = self.live_destinations().collect();
        live.into_iter().for_each(|at| self.refresh(at));
    }

    /// Empties all lines at once: to take out a million one by one would bring their destinations up to date as often.
    fn break_up_lines(&mut self) {
        self.standing.clear();
        self.sender_queues.clear();
        let turns = self.turns.iter_mut().zip(IN_TURN);
        for (turn, flag) in turns.chain(self.parked.iter_mut().zip(PARKED)) {
            for at in turn.drain(..) {
                self.destinations[at].flags &= !flag;
            }
        }
        for at in self.going_on.drain(..) {
            self.destinations[at].flags &= !GOES_ON;
        }
        let live: Vec<u32> = self.live_destinations().collect();
        live.iter().for_each(|at| self.destinations[*at].break_up_lines());
    }

    fn ready_groups(&self) -> Vec<u32> {
        let is_ready = |group: &&(u32, &RecipientGroup)| group.1.state == GroupState::Ready;
        self.groups.iter().filter(|group| is_ready(&group)).map(|(at, _)| at).collect()
    }

    /// The flight of an attempt, ended.
    pub(crate) fn land(&mut self, attempt: AttemptId) -> Option<Flight> {
        let place = (attempt.0 & ((1 << FLIGHT_BITS) - 1)) as u32;
        if attempt.0 == 0 || self.flights.get(place)?.attempt != attempt.0 {
            return None;
        }
        let flight = self.flights.remove(place);
        self.in_flight -= 1;
        self.suspects_in_flight -= u32::from(flight.suspect);
        self.doubtful_in_flight -= u32::from(flight.doubtful);
        let at = self.groups[flight.group].destination;
        self.destinations[at].in_flight -= 1;
        Some(flight)
    }
}

/// One timer is enough, unless it comes too late.
fn needs_timer(destination: &Destination, opens: u64) -> bool {
    destination.timer == 0 || opens < destination.timer
}

const _: () = assert!(NONE as u64 > 1 << FLIGHT_BITS);
const _: () = assert!(TICK.as_millis() as u32 * SUSPECT_WAIT_TICKS <= 1000);
