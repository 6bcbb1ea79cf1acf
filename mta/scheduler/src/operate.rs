//! An operator's actions on single messages: hold, release, retry, delete, priority, reroute.
//!
//! Must never touch a message that is not named. `list` makes selections.

use crate::group::To;
use crate::output::MessageChanges;
use crate::scheduler::Scheduler;
use crate::store::message::{DELETED, GroupState};
use mail::{Change, MessageId, NextHop, Now};
use view::HeldBy;

impl Scheduler {
    /// Holds a message; an attempt that has begun is not interrupted. Returns false if there is no such message.
    ///
    /// A message that is held already is recorded once more: the operator is answered when the record is durable, and the
    /// earlier record may not be durable yet.
    pub fn hold(&mut self, id: MessageId, now: Now) -> bool {
        self.set_clock(now);
        let Some(message) = self.store.find(id) else { return false };
        if self.store.message(message).held == 0 {
            self.hold_as(message, HeldBy::Operator);
        } else {
            self.record_one(Change::Hold { message: id });
        }
        true
    }

    /// Releases a message. Recipients that a route holds stay held: they need `reroute`. The release is always recorded, as a
    /// hold is.
    pub fn release(&mut self, id: MessageId, now: Now) -> bool {
        self.set_clock(now);
        let Some(message) = self.store.find(id) else { return false };
        self.record_one(Change::Release { message: id });
        self.let_go(message);
        true
    }

    /// Makes all groups of a message ready that wait for the retry schedule, and lets their destinations be probed. Releases no
    /// hold.
    pub fn retry_now(&mut self, id: MessageId, now: Now) -> bool {
        self.set_clock(now);
        let Some(message) = self.store.find(id) else { return false };
        for group in self.store.groups_of(message) {
            let at = self.store.groups[group].destination;
            self.destinations[at].blocked_until = 0;
            if self.store.groups[group].state == GroupState::Waiting {
                self.shift(group, To::Ready);
            }
            self.refresh(at);
        }
        true
    }

    /// Deletes a message without a notice to its sender. One record holds the whole deletion; the outcomes of attempts in
    /// flight are ignored.
    pub fn delete(&mut self, id: MessageId, now: Now) -> bool {
        self.set_clock(now);
        let Some(message) = self.store.find(id) else { return false };
        self.store.message_mut(message).flags |= DELETED;
        let mut record = MessageChanges::new(id);
        self.ask_back(message);
        self.store.count_out(message);
        for group in self.store.groups_of(message) {
            if let Some(attempt) = self.attempt_of(group) {
                self.land(attempt);
            }
            self.leave(group);
            self.give_up(group, &mut record);
        }
        self.close_or_count(message, &mut record);
        self.record(record);
        true
    }

    /// Sets the priority of a message, from -100 (last) to 100 (first).
    pub fn set_priority(&mut self, id: MessageId, priority: i8, now: Now) -> bool {
        self.set_clock(now);
        let Some(message) = self.store.find(id) else { return false };
        let priority = priority.clamp(-100, 100);
        self.prefer(message, priority);
        self.record_one(Change::Priority { message: id, priority });
        true
    }

    /// Gives recipients another next hop. Recipients in flight keep theirs.
    pub fn reroute(&mut self, id: MessageId, routes: &[(u32, &NextHop)], now: Now) -> bool {
        self.set_clock(now);
        let Some(message) = self.store.find(id) else { return false };
        for (index, hop) in routes {
            let Some(recipient) = self.store.recipient(message, *index) else { continue };
            let Some(group) = self.store.groups.get(recipient.group).map(|_| recipient.group)
            else {
                continue;
            };
            let found = &self.store.groups[group];
            let same = self.destinations[found.destination].hop == **hop;
            if !same && found.state != GroupState::InFlight {
                self.reroute_one(group, *index, hop);
            }
        }
        true
    }

    pub(crate) fn hold_as(&mut self, message: u32, by: HeldBy) {
        let id = self.store.message(message).id;
        self.put_aside(message, by);
        self.ask_back(message);
        self.record_one(Change::Hold { message: id });
    }

    pub(crate) fn put_aside(&mut self, message: u32, by: HeldBy) {
        self.store.count_out(message);
        self.store.message_mut(message).held = by as u8;
        for group in self.store.groups_of(message) {
            if !matches!(self.store.groups[group].state, GroupState::InFlight | GroupState::Held) {
                self.leave(group);
                self.enter(group, To::Held);
            }
        }
        self.store.count_in(message);
    }

    pub(crate) fn let_go(&mut self, message: u32) {
        self.store.count_out(message);
        self.store.message_mut(message).held = 0;
        self.store.message_mut(message).losses = 0;
        for group in self.store.groups_of(message) {
            if self.store.groups[group].state == GroupState::Held {
                self.leave(group);
                let to = self.first_state(group);
                self.enter(group, to);
            }
        }
        self.store.count_in(message);
    }

    pub(crate) fn prefer(&mut self, message: u32, priority: i8) {
        let groups = self.store.groups_of(message);
        let ready = |group: &u32| self.store.groups[*group].state == GroupState::Ready;
        let ready: Vec<u32> = groups.into_iter().filter(ready).collect();
        self.store.count_out(message);
        ready.iter().for_each(|group| self.leave(*group));
        self.store.message_mut(message).priority = priority;
        ready.iter().for_each(|group| self.enter(*group, To::Ready));
        self.store.count_in(message);
    }

    fn reroute_one(&mut self, group: u32, index: u32, hop: &NextHop) {
        let message = self.store.groups[group].message;
        let Some(recipient) = self.store.recipient(message, index) else { return };
        let (symbol, domain) = (recipient.domain, self.store.texts_of(recipient).1.to_owned());
        let destination = self.destination(hop, &domain, symbol);
        self.store.count_out(message);
        let (state, attempts) = (self.store.groups[group].state, self.store.groups[group].attempts);
        let tick = self.store.groups[group].place;
        let moved = self.new_group(message, destination, vec![index]);
        self.member_left(group);
        self.store.groups[moved].attempts = attempts;
        let to = match (state, self.first_state(moved)) {
            (GroupState::Waiting, To::Ready) => To::Wait(tick),
            (_, to) => to,
        };
        self.enter(moved, to);
        self.store.count_in(message);
    }
}
