//! Groups: how they are made, divided, moved from one state to the next, and ended.
//!
//! Must never leave one in two lists, or in none that wakes it.

use crate::memory::NONE;
use crate::message::{GroupState, MANY, Recipient, RecipientGroup};
use crate::order::{Facts, Key};
use crate::scheduler::Scheduler;
use crate::sender_queues::SenderQueueKey;
use mail::{Change, Report};
use view::Order;

/// A sender with at most so many groups ready or in flight goes ahead of those with more.
pub(crate) const LIGHT_SENDER_MAX: u32 = 100;

/// Where a group goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Wait(u32),
    Ready,
    Flight(u32),
    Held,
    Routed,
}

impl Scheduler {
    /// Makes a group; `enter` is to follow.
    pub(crate) fn new_group(&mut self, message: u32, destination: u32, members: Vec<u32>) -> u32 {
        let group = self.groups.insert(RecipientGroup {
            message,
            destination,
            ..RecipientGroup::default()
        });
        self.destinations[destination].groups += 1;
        self.enroll(group);
        if self.messages[message].has(MANY) {
            self.many[self.messages[message].recipients].groups += 1;
        }
        for index in &members {
            self.recipient_mut(message, *index).group = group;
        }
        self.set_members(group, members);
        group
    }

    /// Takes some members out into a group of their own, of the same destination and with
    /// as many attempts; `enter` is to follow for it. At least one member is left.
    pub(crate) fn divide(&mut self, group: u32, taken: Vec<u32>) -> u32 {
        let RecipientGroup { message, destination, attempts, .. } = self.groups[group];
        let count = taken.len();
        let new = self.new_group(message, destination, taken);
        self.groups[new].attempts = attempts;
        self.members_left(group, count);
        new
    }

    /// Moves a group to another state and keeps the sums right.
    pub(crate) fn shift(&mut self, group: u32, to: To) {
        let message = self.groups[group].message;
        self.count_out(message);
        self.leave(group);
        self.enter(group, to);
        self.count_in(message);
    }

    /// Puts a group that is in no state into one.
    pub(crate) fn enter(&mut self, group: u32, to: To) {
        self.groups[group].since = self.clock.seconds();
        let state = match to {
            To::Wait(tick) => {
                self.groups[group].place = tick;
                self.retries.insert(&mut self.groups, group);
                GroupState::Waiting
            }
            To::Ready => {
                self.line_up(group);
                GroupState::Ready
            }
            To::Flight(flight) => {
                self.groups[group].place = flight;
                GroupState::InFlight
            }
            To::Held => GroupState::Held,
            To::Routed => {
                self.routed.push_back(group);
                GroupState::Routed
            }
        };
        self.groups[group].state = state;
        self.count_state(group, state, 1);
        if to == To::Ready {
            self.refresh(self.groups[group].destination);
        }
    }

    /// Takes a group out of the state it is in.
    pub(crate) fn leave(&mut self, group: u32) {
        let state = std::mem::take(&mut self.groups[group].state);
        match state {
            GroupState::Waiting => self.retries.remove(&mut self.groups, group),
            GroupState::Ready => self.step_out(group),
            _ => {}
        }
        self.count_state(group, state, -1);
    }

    /// As `leave`, for one that the wheel has given out.
    pub(crate) fn leave_popped(&mut self, group: u32) {
        self.groups[group].state = GroupState::Vacant;
        self.count_state(group, GroupState::Waiting, -1);
    }

    fn count_state(&mut self, group: u32, state: GroupState, by: i32) {
        let message = &self.messages[self.groups[group].message];
        if state == GroupState::InFlight {
            let busy = self.symbols.busy(message.sender);
            *busy = busy.wrapping_add_signed(by);
        }
        if message.has(MANY) {
            let many = &mut self.many[message.recipients];
            if state == GroupState::Held {
                many.held = many.held.wrapping_add_signed(by);
            }
            if state.is_awake() {
                many.awake = many.awake.wrapping_add_signed(by);
            }
        }
    }

    /// Ends a group that is in no state.
    pub(crate) fn end_group(&mut self, group: u32) {
        self.free_members(group);
        self.strike(group);
        let RecipientGroup { message, destination, .. } = self.groups.remove(group);
        self.destinations[destination].groups -= 1;
        if self.messages[message].has(MANY) {
            self.many[self.messages[message].recipients].groups -= 1;
        }
        self.refresh(destination);
        self.idle(destination);
    }

    /// Notes that a recipient is done.
    pub(crate) fn finish(&mut self, message: u32, index: u32) {
        let recipient = self.recipient_mut(message, index);
        if recipient.group == NONE {
            return;
        }
        let Recipient { local, domain, report, .. } = std::mem::take(recipient);
        self.symbols.texts.remove(local);
        self.symbols.release(domain);
        self.reports.release(report);
        self.counts.recipients -= 1;
        if self.messages[message].has(MANY) {
            self.many[self.messages[message].recipients].left -= 1;
        }
    }

    /// Whether all recipients are done.
    pub(crate) fn is_done(&self, message: u32) -> bool {
        self.recipients_left(message) == 0
    }

    /// Recipients that are not done.
    pub(crate) fn recipients_left(&self, message: u32) -> usize {
        let found = &self.messages[message];
        match found.has(MANY) {
            true => self.many[found.recipients].left as usize,
            false => usize::from(self.singles[found.recipients].group != NONE),
        }
    }

    /// Lets a message of which nothing is left go. The sums do not count it any more.
    pub(crate) fn close_message(&mut self, message: u32) -> Change {
        if self.messages[message].links != Default::default() {
            self.ages.remove(&mut self.messages, message);
        }
        let found = self.messages.remove(message);
        self.ids.remove(found.id);
        self.symbols.release(found.sender);
        match found.has(MANY) {
            true => drop(self.many.remove(found.recipients)),
            false => drop(self.singles.remove(found.recipients)),
        }
        Change::Retire { message: found.id }
    }

    pub(crate) fn recipient(&self, message: u32, index: u32) -> Option<&Recipient> {
        let found = &self.messages[message];
        match found.has(MANY) {
            true => self.many[found.recipients].recipients.get(index as usize),
            false => (index == 0).then(|| &self.singles[found.recipients]),
        }
    }

    pub(crate) fn recipient_mut(&mut self, message: u32, index: u32) -> &mut Recipient {
        let found = &self.messages[message];
        match found.has(MANY) {
            true => &mut self.many[found.recipients].recipients[index as usize],
            false => &mut self.singles[found.recipients],
        }
    }

    pub(crate) fn recipients_len(&self, message: u32) -> u32 {
        let found = &self.messages[message];
        if found.has(MANY) { self.many[found.recipients].recipients.len() as u32 } else { 1 }
    }

    /// Replaces the last reply of a recipient.
    pub(crate) fn note_report(&mut self, message: u32, index: u32, report: &Report) {
        let new = self.reports.intern(report);
        let old = std::mem::replace(&mut self.recipient_mut(message, index).report, new);
        self.reports.release(old);
    }

    /// Recipients that are not done, by index.
    pub(crate) fn pending(&self, message: u32) -> Vec<u32> {
        let is_pending = |index: &u32| {
            self.recipient(message, *index).is_some_and(|recipient| recipient.group != NONE)
        };
        (0..self.recipients_len(message)).filter(is_pending).collect()
    }

    /// The groups of a message.
    pub(crate) fn groups_of(&self, message: u32) -> Vec<u32> {
        let all = (0..self.recipients_len(message)).filter_map(|at| self.recipient(message, at));
        let mut groups: Vec<u32> =
            all.map(|one| one.group).filter(|group| *group != NONE).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Makes a group wait for its destination.
    fn line_up(&mut self, group: u32) {
        let RecipientGroup { message, destination: at, .. } = self.groups[group];
        *self.symbols.busy(self.messages[message].sender) += 1;
        self.destinations[at].ready += 1;
        self.stand_in_line(group);
    }

    /// Puts a group that is counted as ready into the line of the order.
    pub(crate) fn stand_in_line(&mut self, group: u32) {
        let RecipientGroup { message, destination: at, .. } = self.groups[group];
        if !self.is_fair() {
            self.number = self.number.wrapping_add(1);
            let drawn = self.settings.order == Order::Random;
            let number = if drawn { self.chance.bits() as u32 } else { self.number };
            self.groups[group].place = number;
            let key = self.key_of(group, self.settings.order);
            let sorted = self.destinations[at].sorted.get_or_insert_default();
            sorted.ready.insert((key, group));
            return;
        }
        let key = self.sender_queue_key(group);
        let light = self.symbols.is_busy_at_most(self.messages[message].sender, LIGHT_SENDER_MAX);
        let destination = &mut self.destinations[at];
        self.sender_queues.push(&mut self.groups, destination, key, group, light);
    }

    /// The inverse of `line_up`.
    fn step_out(&mut self, group: u32) {
        let RecipientGroup { message, destination: at, .. } = self.groups[group];
        let sender = self.messages[message].sender;
        *self.symbols.busy(sender) -= 1;
        self.destinations[at].ready -= 1;
        if self.is_fair() {
            self.sender_queues.remove(&mut self.groups, &mut self.destinations[at], group);
        } else {
            let key = self.key_of(group, self.settings.order);
            if let Some(sorted) = self.destinations[at].sorted.as_deref_mut() {
                sorted.ready.remove(&(key, group));
            }
        }
        self.refresh(at);
    }

    fn sender_queue_key(&self, group: u32) -> SenderQueueKey {
        let RecipientGroup { message, destination, .. } = self.groups[group];
        let found = &self.messages[message];
        let bulk = u64::from(found.bytes) >= self.settings.bulk_bytes_min;
        let class = match found.priority {
            1.. => 0,
            0 if !bulk => 1,
            _ => 2,
        };
        (destination, found.sender, class)
    }

    pub(crate) fn key_of(&self, group: u32, order: Order) -> Key {
        let RecipientGroup { message, destination, since, place, .. } = self.groups[group];
        let found = &self.messages[message];
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, ArrivingRecipient, Settings};
    use mail::{Address, Domain, MessageId, NextHop, Notify, Now, ReversePath};

    #[test]
    fn a_sender_is_as_busy_as_groups_of_it_are_ready() {
        let settings = Settings { attempts_in_flight_max: 0, ..Settings::for_tests() };
        let (now, mut all) = (Now::default(), Scheduler::new(settings, 1, Now::default()));
        let sender = ReversePath::Address(Address::parse("a@from.test", true).unwrap());
        let address = Address::parse("b@to.test", true).unwrap();
        let hop = NextHop::Mx(Domain::parse("to.test").unwrap());
        for number in 1..=10 {
            let recipient =
                ArrivingRecipient { address: &address, hop: &hop, notify: Notify::DEFAULT };
            let arrival = Arrival {
                message: MessageId(number),
                arrived: now.wall,
                bytes: 1_000,
                sender: &sender,
                recipients: &[recipient],
                held: None,
                priority: 0,
            };
            all.arrive(&arrival, now).unwrap();
        }
        let symbol = |all: &Scheduler| all.messages[all.ids.get(MessageId(10)).unwrap()].sender;
        for left in (1..=10).rev() {
            let symbol = symbol(&all);
            assert_eq!(*all.symbols.busy(symbol), left);
            all.delete(MessageId(11 - u64::from(left)), now);
        }
    }
}
