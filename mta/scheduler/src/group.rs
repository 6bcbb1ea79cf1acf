//! Groups of recipients: how they are made, divided, moved from one state to the next, and ended.
//!
//! Must never leave a group in two lists, or in no list that wakes it.

use crate::scheduler::Scheduler;
use crate::store::message::{GroupState, RecipientGroup};
use mail::{Change, NextHop};
use view::HeldBy;

/// Where a group goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Into the retry schedule, until this tick.
    Wait(u32),
    /// Into the line of its destination.
    Ready,
    /// Into the attempt at this place.
    Flight(u32),
    /// Nowhere, until it is released.
    Held,
    /// To its route, which needs no attempt.
    Routed,
}

impl Scheduler {
    /// Makes a group in no state. `enter` must follow.
    pub(crate) fn new_group(&mut self, message: u32, destination: u32, members: Vec<u32>) -> u32 {
        let group = self.store.add_group(message, destination, members);
        self.destinations[destination].groups += 1;
        self.enroll(group);
        group
    }

    /// Moves some members into a new group for the same destination, with as many attempts. `enter` must follow for the
    /// new group. At least one member remains.
    pub(crate) fn divide(&mut self, group: u32, taken: Vec<u32>) -> u32 {
        let RecipientGroup { message, destination, attempts, .. } = self.store.groups[group];
        let count = taken.len();
        let new = self.new_group(message, destination, taken);
        self.store.groups[new].attempts = attempts;
        self.store.members_left(group, count);
        new
    }

    /// Moves a group to another state, and its message to the right sum.
    pub(crate) fn shift(&mut self, group: u32, to: To) {
        let message = self.store.groups[group].message;
        self.store.count_out(message);
        self.leave(group);
        self.enter(group, to);
        self.store.count_in(message);
    }

    /// Puts a group that is in no state into one.
    pub(crate) fn enter(&mut self, group: u32, to: To) {
        self.store.groups[group].since = self.seconds();
        let state = match to {
            To::Wait(tick) => {
                self.store.groups[group].place = tick;
                self.retries.insert(&mut self.store.groups, group);
                GroupState::Waiting
            }
            To::Ready => {
                self.line_up(group);
                GroupState::Ready
            }
            To::Flight(flight) => {
                self.store.groups[group].place = flight;
                GroupState::InFlight
            }
            To::Held => GroupState::Held,
            To::Routed => {
                self.routes.follow_later(group);
                GroupState::Routed
            }
        };
        self.store.groups[group].state = state;
        self.store.count_state(group, state, 1);
        if to == To::Ready {
            self.refresh(self.store.groups[group].destination);
        }
    }

    /// Takes a group out of its state.
    pub(crate) fn leave(&mut self, group: u32) {
        let state = std::mem::take(&mut self.store.groups[group].state);
        match state {
            GroupState::Waiting => self.retries.remove(&mut self.store.groups, group),
            GroupState::Ready => self.step_out(group),
            _ => {}
        }
        self.store.count_state(group, state, -1);
    }

    /// Takes a group out of the state of waiting, which the wheel has given out already.
    pub(crate) fn leave_popped(&mut self, group: u32) {
        self.store.groups[group].state = GroupState::Vacant;
        self.store.count_state(group, GroupState::Waiting, -1);
    }

    /// Removes one member whose own record names the group no longer. A group without members ends.
    pub(crate) fn member_left(&mut self, group: u32) {
        if self.store.members_len(group) > 1 {
            self.store.members_left(group, 1);
        } else {
            self.leave(group);
            self.end_group(group);
        }
    }

    /// Ends a group that is in no state.
    pub(crate) fn end_group(&mut self, group: u32) {
        self.strike(group);
        let at = self.store.remove_group(group).destination;
        self.destinations[at].groups -= 1;
        self.refresh(at);
        self.destinations.rest(&mut self.store, at);
    }

    /// Retires a message without unfinished recipients, which the counts no longer include.
    pub(crate) fn close_message(&mut self, message: u32) -> Change {
        Change::Retire { message: self.store.close(message) }
    }

    /// State in which a new group begins.
    pub(crate) fn first_state(&self, group: u32) -> To {
        let RecipientGroup { message, destination, .. } = self.store.groups[group];
        match &self.destinations[destination].hop {
            NextHop::Hold => To::Held,
            _ if self.store.message(message).held != 0 => To::Held,
            NextHop::Discard | NextHop::Error(_) => To::Routed,
            _ => To::Ready,
        }
    }

    /// Holder of a group that is held.
    pub(crate) fn held_by(&self, message: u32, destination: u32) -> HeldBy {
        let route = matches!(self.destinations[destination].hop, NextHop::Hold);
        let held = self.store.message(message).held_by();
        held.unwrap_or(if route { HeldBy::Route } else { HeldBy::Operator })
    }
}
