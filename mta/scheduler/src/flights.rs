//! The attempts in flight: their names, their number, and how many more may begin.
//!
//! Must never give a name twice.

use crate::memory::{NONE, Slab};
use crate::output::AttemptId;
use crate::rng::Rng;
use crate::scheduler::Scheduler;
use crate::settings::Settings;
use crate::store::message::GroupState;
use std::collections::VecDeque;

/// Low bits of an attempt's name: its place among the flights.
const FLIGHT_BITS: u32 = 24;
const _: () = assert!(NONE as u64 > 1 << FLIGHT_BITS);
/// One of this many attempts is kept for destinations that are known to answer, so that 10,000 dead destinations do not
/// take the place of those that work.
const ANSWERING_SHARE: u32 = 4;
/// One of this many of the other attempts is kept for light senders, so that new destinations of their few messages do not
/// wait until the dead destinations of a heavy sender are given up.
const LIGHT_SHARE: u32 = 4;

/// An attempt in flight.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// Name of the attempt; 0 if there is none.
    pub attempt: u64,
    pub group: u32,
    /// The destination's epoch when the attempt began.
    pub epoch: u8,
    /// The message was lost before.
    pub suspect: bool,
    /// It was unknown whether the destination answers.
    pub doubtful: bool,
    /// Start in monotonic nanoseconds.
    pub began: u64,
}

/// All attempts in flight.
#[derive(Debug)]
pub(crate) struct Flights {
    all: Slab<Flight>,
    /// Number of the last attempt.
    number: u64,
    in_flight: u32,
    suspects: u32,
    /// Attempts to destinations that had not answered when the attempts began.
    doubtful: u32,
    in_flight_max: u32,
    paused: bool,
    /// Attempts to withdraw if no process has begun them: their messages were held, deleted or given up.
    unwanted: VecDeque<AttemptId>,
}

impl Flights {
    pub fn new(settings: &Settings, chance: &mut Rng) -> Self {
        Flights {
            all: Slab::new(),
            // Names of a former incarnation, whose attempts may still be under way, are not given again.
            number: chance.bits() >> (FLIGHT_BITS + 1),
            in_flight: 0,
            suspects: 0,
            doubtful: 0,
            in_flight_max: settings.attempts_in_flight_max,
            paused: false,
            unwanted: VecDeque::new(),
        }
    }

    /// Takes the limit of new settings.
    pub fn reload(&mut self, settings: &Settings) {
        self.in_flight_max = settings.attempts_in_flight_max;
    }

    /// Lets no attempt begin while `paused`.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }
}

impl Scheduler {
    /// Number of attempts in flight.
    pub(crate) fn attempts_in_flight(&self) -> u32 {
        self.flights.in_flight
    }

    /// Upper bound on the attempts in flight, from the settings.
    pub(crate) fn attempts_in_flight_max(&self) -> u32 {
        self.flights.in_flight_max
    }

    /// Returns true if another attempt may begin.
    pub(crate) fn has_room(&self) -> bool {
        !self.flights.paused && !self.is_full()
    }

    /// Returns true if as many attempts are in flight as the settings allow.
    pub(crate) fn is_full(&self) -> bool {
        self.flights.in_flight >= self.flights.in_flight_max
    }

    /// Returns true if a message that was lost before is in flight. Such messages are tried one at a time.
    pub(crate) fn has_suspect(&self) -> bool {
        self.flights.suspects > 0
    }

    /// Upper bound on the attempts to destinations that are not known to answer: for light senders (0), for all others
    /// (1).
    pub(crate) fn doubtful_in_flight_max(&self, which: usize) -> u32 {
        let all = self.flights.in_flight_max;
        let doubtful = all - all / ANSWERING_SHARE;
        if which == 0 { doubtful } else { doubtful - doubtful / LIGHT_SHARE }
    }

    /// Returns true if another attempt to a destination that is not known to answer may begin.
    pub(crate) fn has_room_for_doubtful(&self, which: usize) -> bool {
        self.flights.doubtful < self.doubtful_in_flight_max(which)
    }

    /// Names a new attempt and counts it.
    pub(crate) fn take_flight(&mut self, flight: Flight) -> (AttemptId, u32) {
        let flights = &mut self.flights;
        flights.number += 1;
        flights.in_flight += 1;
        flights.suspects += u32::from(flight.suspect);
        flights.doubtful += u32::from(flight.doubtful);
        let place = flights.all.insert(flight);
        let attempt = flights.number << FLIGHT_BITS | u64::from(place);
        flights.all[place].attempt = attempt;
        (AttemptId(attempt), place)
    }

    /// Sets the group of an attempt.
    pub(crate) fn board(&mut self, flight: u32, group: u32) {
        self.flights.all[flight].group = group;
    }

    /// Ends an attempt; `None` if it is not in flight.
    pub(crate) fn land(&mut self, attempt: AttemptId) -> Option<Flight> {
        let flights = &mut self.flights;
        let place = (attempt.0 & ((1 << FLIGHT_BITS) - 1)) as u32;
        if attempt.0 == 0 || flights.all.get(place)?.attempt != attempt.0 {
            return None;
        }
        let flight = flights.all.remove(place);
        flights.in_flight -= 1;
        flights.suspects -= u32::from(flight.suspect);
        flights.doubtful -= u32::from(flight.doubtful);
        let at = self.store.groups[flight.group].destination;
        self.destinations[at].in_flight -= 1;
        Some(flight)
    }

    /// Returns the attempt that a group is in.
    pub(crate) fn attempt_of(&self, group: u32) -> Option<AttemptId> {
        let group = &self.store.groups[group];
        let in_flight = group.state == GroupState::InFlight;
        in_flight.then(|| AttemptId(self.flights.all[group.place].attempt))
    }

    /// Asks for the attempts of a message back, unless they have begun.
    pub(crate) fn ask_back(&mut self, message: u32) {
        for group in self.store.groups_of(message) {
            if let Some(attempt) = self.attempt_of(group) {
                self.flights.unwanted.push_back(attempt);
            }
        }
    }

    /// Returns the next attempt to withdraw unless a process has begun it, because its message was held, deleted or given
    /// up. Must be called until it returns `None`: before `poll`, and again after `poll` has returned `None`.
    pub fn unwanted(&mut self) -> Option<AttemptId> {
        self.flights.unwanted.pop_front()
    }

    /// Number of recipients of all attempts in flight.
    pub fn recipients_in_flight(&self) -> usize {
        let flights = self.flights.all.iter().filter(|(_, flight)| flight.attempt != 0);
        flights.map(|(_, flight)| self.store.members_len(flight.group)).sum()
    }
}
