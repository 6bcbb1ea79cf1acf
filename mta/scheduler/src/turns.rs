//! Whose turn it is: the destinations with ready mail take turns, and in each destination its senders.
//!
//! Must never let one destination or one sender keep the others waiting without a bound.

use crate::destinations::destination::{ANSWERS, Destination, GOES_ON, IN_TURN, PARKED};
use crate::order::{Facts, Key};
use crate::scheduler::Scheduler;
use crate::sender_queues::{SenderQueueKey, SenderQueues};
use crate::settings::Settings;
use crate::store::message::{GroupState, RecipientGroup};
use mail::{Instant, NextHop};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;
use view::Order;

/// Upper bound on the destinations whose timers are handled in one call.
const DESTINATIONS_LOOKED_AT_MAX: u32 = 256;
/// Turns of light senders in a row before one of the others.
const LIGHT_RUN_MAX: u8 = 8;
/// Attempts that a destination may have in addition in one turn, if its next hop takes mail quickly: 100,000 destinations
/// with ten messages each then need one connection each, not ten.
const GO_ON_MAX: u8 = 15;
/// Longest duration of an attempt that counts as quick.
const QUICK: Duration = Duration::from_millis(250);

/// The destinations with ready mail, in the order of their turns.
#[derive(Debug)]
pub(crate) struct Turns {
    order: Order,
    bulk_bytes_min: u64,
    /// Times at which destinations are looked at again, in nanoseconds.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Ready groups of each destination, in the order `fair`.
    sender_queues: SenderQueues,
    /// Destinations that may begin an attempt: those with mail of a light sender, then all.
    waiting: [VecDeque<u32>; 2],
    /// Number of turns of light senders in a row.
    light_run: u8,
    /// Destinations whose next hop has just taken mail quickly. Their connections are used again before others have
    /// their turn.
    going_on: VecDeque<u32>,
    /// Destinations skipped because too many attempts to unproven destinations were in flight.
    parked: [VecDeque<u32>; 2],
    /// Destinations that may begin an attempt, in an order other than `fair`.
    standing: BTreeSet<(Key, u32)>,
    /// Number of the last group that became ready in an order other than `fair`.
    number: u32,
}

impl Turns {
    pub fn new(settings: &Settings, seed: u64) -> Self {
        Turns {
            order: settings.order,
            bulk_bytes_min: settings.bulk_bytes_min,
            timers: BinaryHeap::new(),
            sender_queues: SenderQueues::new(seed),
            waiting: Default::default(),
            light_run: 0,
            going_on: VecDeque::new(),
            parked: Default::default(),
            standing: BTreeSet::new(),
            number: 0,
        }
    }

    /// Takes new settings, except for the order: `Scheduler::set_order` changes it.
    pub fn reload(&mut self, settings: &Settings) {
        self.bulk_bytes_min = settings.bulk_bytes_min;
    }

    fn is_fair(&self) -> bool {
        self.order == Order::Fair
    }
}

impl Scheduler {
    /// Makes a group wait for its turn.
    pub(crate) fn line_up(&mut self, group: u32) {
        let RecipientGroup { message, destination: at, .. } = self.store.groups[group];
        self.store.count_busy(self.store.message(message).sender, 1);
        self.destinations[at].ready += 1;
        self.stand_in_line(group);
    }

    /// Takes a group out of its line; the inverse of `line_up`.
    pub(crate) fn step_out(&mut self, group: u32) {
        let RecipientGroup { message, destination: at, .. } = self.store.groups[group];
        self.store.count_busy(self.store.message(message).sender, -1);
        self.destinations[at].ready -= 1;
        if self.turns.is_fair() {
            let (groups, destination) = (&mut self.store.groups, &mut self.destinations[at]);
            self.turns.sender_queues.remove(groups, destination, group);
        } else {
            let key = self.key_of(group, self.turns.order);
            if let Some(sorted) = self.destinations[at].sorted.as_deref_mut() {
                sorted.ready.remove(&(key, group));
            }
        }
        self.refresh(at);
    }

    /// Puts a group that is counted as ready into the line of the current order.
    fn stand_in_line(&mut self, group: u32) {
        let RecipientGroup { message, destination: at, .. } = self.store.groups[group];
        if !self.turns.is_fair() {
            self.turns.number = self.turns.number.wrapping_add(1);
            let drawn = self.turns.order == Order::Random;
            let number = if drawn { self.random_key() as u32 } else { self.turns.number };
            self.store.groups[group].place = number;
            let key = self.key_of(group, self.turns.order);
            let sorted = self.destinations[at].sorted.get_or_insert_default();
            sorted.ready.insert((key, group));
            return;
        }
        let key = self.sender_queue_key(group);
        let light = self.store.is_light(self.store.message(message).sender);
        let destination = &mut self.destinations[at];
        let queues = &mut self.turns.sender_queues;
        queues.push(&mut self.store.groups, destination, key, group, light);
    }

    fn sender_queue_key(&self, group: u32) -> SenderQueueKey {
        let RecipientGroup { message, destination, .. } = self.store.groups[group];
        let found = self.store.message(message);
        let bulk = u64::from(found.bytes) >= self.turns.bulk_bytes_min;
        let class = match found.priority {
            1.. => 0,
            0 if !bulk => 1,
            _ => 2,
        };
        (destination, found.sender, class)
    }

    /// Returns the key of a group in an order.
    pub(crate) fn key_of(&self, group: u32, order: Order) -> Key {
        let RecipientGroup { message, destination, since, place, .. } = self.store.groups[group];
        let found = self.store.message(message);
        let name = match order {
            Order::Destination => self.destinations[destination].hop.to_string(),
            _ => String::new(),
        };
        Key::of(
            order,
            &Facts {
                id: found.id,
                arrived_seconds: found.arrived,
                modified_seconds: since,
                priority: found.priority,
                destination,
                destination_name: &name,
                number: place,
            },
        )
    }

    /// Draws the key of a group in the order `random`.
    pub(crate) fn random_key(&mut self) -> u64 {
        self.chance.bits()
    }

    /// Returns the destination whose turn it is, and whether it has the turn for a light sender.
    pub(crate) fn next_destination(&mut self) -> Option<(u32, bool)> {
        if !self.turns.is_fair() {
            return self.turns.standing.first().map(|(_, at)| (*at, false));
        }
        let run = self.turns.light_run;
        let light = self.has_turn(0) && (run < LIGHT_RUN_MAX || !self.has_other_turn());
        self.turns.light_run = if light { run.saturating_add(1) } else { 0 };
        if !light && let Some(at) = self.turns.going_on.pop_front() {
            self.destinations[at].flags &= !GOES_ON;
            return Some((at, false));
        }
        let which = if light { 0 } else { 1 };
        // Parked destinations waited before the others.
        let room = self.has_room_for_doubtful(which);
        let parked = room.then(|| self.turns.parked[which].pop_front()).flatten();
        let (at, flag) = match parked {
            Some(at) => (at, PARKED[which]),
            None => (self.turns.waiting[which].pop_front()?, IN_TURN[which]),
        };
        self.destinations[at].flags &= !flag;
        self.destinations[at].went_on = 0;
        Some((at, light))
    }

    /// Returns the group whose turn it is at a destination.
    pub(crate) fn next_group(&mut self, at: u32) -> Option<u32> {
        let destination = &mut self.destinations[at];
        if self.turns.is_fair() {
            return self.turns.sender_queues.next(destination);
        }
        destination.sorted.as_deref()?.ready.first().map(|(_, group)| *group)
    }

    /// Gives a destination another turn at once if it has just taken mail from an attempt that began at `began`, so that
    /// the connection is used again while it is open. Light senders elsewhere still go first.
    pub(crate) fn go_on(&mut self, at: u32, began: u64) {
        let quick = self.nanos().saturating_sub(began) <= QUICK.as_nanos() as u64;
        if !quick || !self.turns.is_fair() || !self.may_begin(at) {
            return;
        }
        let destination = &mut self.destinations[at];
        let connects = !matches!(destination.hop, NextHop::Local | NextHop::Discard);
        if connects && destination.flags & GOES_ON == 0 && destination.went_on < GO_ON_MAX {
            destination.flags |= GOES_ON;
            destination.went_on += 1;
            self.turns.going_on.push_back(at);
        }
    }

    /// Returns true if any destination has a turn.
    pub(crate) fn has_any_turn(&self) -> bool {
        self.has_turn(0) || self.has_other_turn() || !self.turns.standing.is_empty()
    }

    fn has_other_turn(&self) -> bool {
        self.has_turn(1) || !self.turns.going_on.is_empty()
    }

    fn has_turn(&self, which: usize) -> bool {
        let parked = !self.turns.parked[which].is_empty() && self.has_room_for_doubtful(which);
        parked || !self.turns.waiting[which].is_empty()
    }

    /// Returns true if it is unknown whether a destination answers.
    pub(crate) fn is_doubtful(&self, at: u32) -> bool {
        self.destinations[at].flags & ANSWERS == 0
    }

    /// Returns true if a destination must wait because it is not known to answer, and such destinations have as many
    /// attempts in flight as they may have.
    pub(crate) fn is_kept_out(&self, at: u32, which: usize) -> bool {
        self.turns.is_fair() && self.is_doubtful(at) && !self.has_room_for_doubtful(which)
    }

    /// Sets a destination aside until there is room for destinations that are not known to answer. If it answers before
    /// that, `refresh` gives it a turn again.
    pub(crate) fn park(&mut self, at: u32, which: usize) {
        let destination = &mut self.destinations[at];
        if destination.flags & PARKED[which] == 0 {
            destination.flags |= PARKED[which];
            self.turns.parked[which].push_back(at);
        }
    }

    /// Returns true if the next sender of a destination is a light one.
    pub(crate) fn is_light_next(&self, at: u32) -> bool {
        let sender = self.turns.sender_queues.next_sender(&self.destinations[at]);
        sender.is_some_and(|sender| self.store.is_light(sender))
    }

    /// Returns true if a destination has ready mail and all its gates are open.
    pub(crate) fn may_begin(&self, at: u32) -> bool {
        self.destinations.may_begin(at, self.nanos())
    }

    /// Brings the turn of a destination up to date. Called after each change of it.
    pub(crate) fn refresh(&mut self, at: u32) {
        let may = self.may_begin(at);
        let nanos = self.nanos();
        if !self.turns.is_fair() {
            self.stand(at, may);
        } else if may {
            self.line_up_destination(at);
        }
        let destination = &mut self.destinations[at];
        let opens = destination.opens_at(nanos);
        if destination.ready > 0 && opens > 0 && needs_timer(destination, opens) {
            destination.timer = opens;
            self.turns.timers.push(Reverse((opens, at)));
        }
    }

    /// Gives a destination its turn among all destinations, and among those with mail of a light sender.
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
                self.turns.waiting[which].push_back(at);
            }
        }
    }

    /// Brings the place of a destination up to date in an order other than `fair`.
    fn stand(&mut self, at: u32, may: bool) {
        let Some(sorted) = self.destinations[at].sorted.as_deref_mut() else { return };
        let stands = sorted.ready.first().filter(|_| may).map(|(key, _)| *key);
        let stood = std::mem::replace(&mut sorted.stands, stands);
        if stood == stands {
            return;
        }
        if let Some(key) = stood {
            self.turns.standing.remove(&(key, at));
        }
        if let Some(key) = stands {
            self.turns.standing.insert((key, at));
        }
    }

    /// Looks again at destinations whose back-off or rate has let them wait until now.
    pub(crate) fn pass_timers(&mut self) {
        let nanos = self.nanos();
        for _ in 0..DESTINATIONS_LOOKED_AT_MAX {
            match self.turns.timers.peek() {
                Some(Reverse((when, _))) if *when <= nanos => {}
                _ => return,
            }
            let Some(Reverse((when, at))) = self.turns.timers.pop() else { return };
            if self.destinations[at].timer == when {
                self.destinations[at].timer = 0;
                self.refresh(at);
            }
        }
    }

    /// Time of the next timer of a destination.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.turns.timers.peek().map(|Reverse((nanos, _))| Instant::from_nanos(*nanos))
    }

    /// Changes the order in which ready messages are tried. Touches every ready group, as the operator asked.
    pub fn set_order(&mut self, order: Order) {
        if order == self.turns.order {
            return;
        }
        let is_ready = |group: &RecipientGroup| group.state == GroupState::Ready;
        let ready = self.store.groups.iter().filter(|(_, group)| is_ready(group));
        let ready: Vec<u32> = ready.map(|(at, _)| at).collect();
        self.break_up_lines();
        self.turns.order = order;
        ready.into_iter().for_each(|group| self.stand_in_line(group));
        self.destinations.live().into_iter().for_each(|at| self.refresh(at));
    }

    /// Empties all lines at once. To take out a million groups one by one would refresh their destinations as often.
    fn break_up_lines(&mut self) {
        self.turns.standing.clear();
        self.turns.sender_queues.clear();
        let waiting = self.turns.waiting.iter_mut().zip(IN_TURN);
        for (line, flag) in waiting.chain(self.turns.parked.iter_mut().zip(PARKED)) {
            for at in line.drain(..) {
                self.destinations[at].flags &= !flag;
            }
        }
        for at in self.turns.going_on.drain(..) {
            self.destinations[at].flags &= !GOES_ON;
        }
        for at in self.destinations.live() {
            self.destinations[at].break_up_lines();
        }
    }
}

/// One timer is sufficient, unless it comes too late.
fn needs_timer(destination: &Destination, opens: u64) -> bool {
    destination.timer == 0 || opens < destination.timer
}
