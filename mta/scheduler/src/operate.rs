//! What an operator does to single messages: hold, release, retry, delete, prefer, route anew.
//!
//! Must never touch a message that is not named. Selections are made with `list`.

use crate::group::To;
use crate::message::{DELETED, GroupState};
use crate::output::{AttemptId, Record};
use crate::scheduler::Scheduler;
use mail::{Change, MessageId, NextHop, Now};
use view::HeldBy;

impl Scheduler {
    /// Keeps a message from being tried; an attempt that has begun is finished. False: no such message.
    ///
    /// Recorded also where it is held already: who asks is answered when the record is durable, and
    /// the one before may not be.
    pub fn hold(&mut self, id: MessageId, now: Now) -> bool {
        self.clock.set(now);
        let Some(message) = self.ids.get(id) else { return false };
        if self.messages[message].held == 0 {
            self.hold_as(message, HeldBy::Operator);
        } else {
            self.record_one(Change::Hold { message: id });
        }
        true
    }

    /// Has a held message tried at once. What a route holds stays held: it needs `reroute`.
    /// Recorded in any case, like a hold.
    pub fn release(&mut self, id: MessageId, now: Now) -> bool {
        self.clock.set(now);
        let Some(message) = self.ids.get(id) else { return false };
        self.record_one(Change::Release { message: id });
        self.let_go(message);
        true
    }

    /// Has what waits for the schedule tried now, and its destinations probed. Releases no hold.
    pub fn retry_now(&mut self, id: MessageId, now: Now) -> bool {
        self.clock.set(now);
        let Some(message) = self.ids.get(id) else { return false };
        for group in self.groups_of(message) {
            let at = self.groups[group].destination;
            self.destinations[at].blocked_until = 0;
            if self.groups[group].state == GroupState::Waiting {
                self.shift(group, To::Ready);
            }
            self.refresh(at);
        }
        true
    }

    /// Removes a message without telling its sender. An attempt in flight is not waited for, so
    /// that one record holds the whole deletion; what becomes of it is ignored.
    pub fn delete(&mut self, id: MessageId, now: Now) -> bool {
        self.clock.set(now);
        let Some(message) = self.ids.get(id) else { return false };
        self.messages[message].flags |= DELETED;
        let mut record = Record::new(id);
        self.ask_back(message);
        self.count_out(message);
        for group in self.groups_of(message) {
            if self.groups[group].state == GroupState::InFlight {
                let attempt = self.flights[self.groups[group].place].attempt;
                self.land(AttemptId(attempt));
            }
            self.leave(group);
            self.give_up(group, &mut record);
        }
        self.close_or_count(message, &mut record);
        self.record(record);
        true
    }

    /// Sets a message's priority, -100 (last) to 100 (first).
    pub fn set_priority(&mut self, id: MessageId, priority: i8, now: Now) -> bool {
        self.clock.set(now);
        let Some(message) = self.ids.get(id) else { return false };
        let priority = priority.clamp(-100, 100);
        self.prefer(message, priority);
        self.record_one(Change::Priority { message: id, priority });
        true
    }

    /// Sends some recipients another way: after routes were changed, before a release.
    pub fn reroute(&mut self, id: MessageId, routes: &[(u32, &NextHop)], now: Now) -> bool {
        self.clock.set(now);
        let Some(message) = self.ids.get(id) else { return false };
        for (index, hop) in routes {
            let Some(recipient) = self.recipient(message, *index) else { continue };
            let Some(group) = self.groups.get(recipient.group).map(|_| recipient.group) else {
                continue;
            };
            let found = &self.groups[group];
            let same = self.destinations[found.destination].hop == **hop;
            if !same && found.state != GroupState::InFlight {
                self.reroute_one(group, *index, hop);
            }
        }
        true
    }

    pub(crate) fn hold_as(&mut self, message: u32, by: HeldBy) {
        let id = self.messages[message].id;
        self.put_aside(message, by);
        self.ask_back(message);
        self.record_one(Change::Hold { message: id });
    }

    fn record_one(&mut self, change: Change) {
        let mut record = Record::new(change.message());
        record.changes.push(change);
        self.record(record);
    }

    pub(crate) fn put_aside(&mut self, message: u32, by: HeldBy) {
        self.count_out(message);
        self.messages[message].held = by as u8;
        for group in self.groups_of(message) {
            if !matches!(self.groups[group].state, GroupState::InFlight | GroupState::Held) {
                self.leave(group);
                self.enter(group, To::Held);
            }
        }
        self.count_in(message);
    }

    pub(crate) fn let_go(&mut self, message: u32) {
        self.count_out(message);
        self.messages[message].held = 0;
        self.messages[message].losses = 0;
        for group in self.groups_of(message) {
            if self.groups[group].state == GroupState::Held {
                self.leave(group);
                let to = self.first_state(group);
                self.enter(group, to);
            }
        }
        self.count_in(message);
    }

    pub(crate) fn prefer(&mut self, message: u32, priority: i8) {
        let groups = self.groups_of(message);
        let ready = |group: &u32| self.groups[*group].state == GroupState::Ready;
        let ready: Vec<u32> = groups.into_iter().filter(ready).collect();
        self.count_out(message);
        ready.iter().for_each(|group| self.leave(*group));
        self.messages[message].priority = priority;
        ready.iter().for_each(|group| self.enter(*group, To::Ready));
        self.count_in(message);
    }

    fn reroute_one(&mut self, group: u32, index: u32, hop: &NextHop) {
        let message = self.groups[group].message;
        let symbol = self.recipient_mut(message, index).domain;
        let domain = self.symbols.get(symbol).to_owned();
        let destination = self.destination(hop, &domain, symbol);
        self.count_out(message);
        let (state, attempts) = (self.groups[group].state, self.groups[group].attempts);
        let tick = self.groups[group].place;
        let moved = self.new_group(message, destination, vec![index]);
        self.member_left(group);
        self.groups[moved].attempts = attempts;
        let to = match (state, self.first_state(moved)) {
            (GroupState::Waiting, To::Ready) => To::Wait(tick),
            (_, to) => to,
        };
        self.enter(moved, to);
        self.count_in(message);
    }
}
