//! Transactions: how they are made, divided, moved from one state to the next, and ended.
//!
//! Must never leave one in two lists, or in none that wakes it.

use crate::sender_queues::SenderQueueKey;
use crate::message::{Job, JobState, MANY, Recipient};
use crate::order::{Facts, Key};
use crate::scheduler::Scheduler;
use crate::store::NONE;
use mail::{Change, Report};
use view::Order;

/// A sender with at most so many transactions ready or in flight goes ahead of those with more.
pub(crate) const LIGHT_SENDER_MAX: u32 = 100;

/// Where a transaction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Wait(u32),
    Ready,
    Flight(u32),
    Held,
    Routed,
}

impl Scheduler {
    /// Makes a transaction; `enter` is to follow.
    pub(crate) fn new_job(&mut self, message: u32, destination: u32, members: Vec<u32>) -> u32 {
        let job = self.jobs.insert(Job { message, destination, ..Job::default() });
        self.destinations[destination].jobs += 1;
        self.enroll(job);
        if self.messages[message].has(MANY) {
            self.many[self.messages[message].recipients].jobs += 1;
        }
        for index in &members {
            self.recipient_mut(message, *index).job = job;
        }
        self.set_members(job, members);
        job
    }

    /// Takes some members out into a transaction of their own, of the same destination and with
    /// as many attempts; `enter` is to follow for it. At least one member is left.
    pub(crate) fn divide(&mut self, job: u32, taken: Vec<u32>) -> u32 {
        let Job { message, destination, attempts, .. } = self.jobs[job];
        let count = taken.len();
        let new = self.new_job(message, destination, taken);
        self.jobs[new].attempts = attempts;
        self.members_left(job, count);
        new
    }

    /// Moves a transaction to another state and keeps the sums right.
    pub(crate) fn shift(&mut self, job: u32, to: To) {
        let message = self.jobs[job].message;
        self.count_out(message);
        self.leave(job);
        self.enter(job, to);
        self.count_in(message);
    }

    /// Puts a transaction that is in no state into one.
    pub(crate) fn enter(&mut self, job: u32, to: To) {
        self.jobs[job].since = self.clock.seconds();
        let state = match to {
            To::Wait(tick) => {
                self.jobs[job].place = tick;
                self.retries.insert(&mut self.jobs, job);
                JobState::Waiting
            }
            To::Ready => {
                self.line_up(job);
                JobState::Ready
            }
            To::Flight(flight) => {
                self.jobs[job].place = flight;
                JobState::InFlight
            }
            To::Held => JobState::Held,
            To::Routed => {
                self.routed.push_back(job);
                JobState::Routed
            }
        };
        self.jobs[job].state = state;
        self.count_state(job, state, 1);
        if to == To::Ready {
            self.refresh(self.jobs[job].destination);
        }
    }

    /// Takes a transaction out of the state it is in.
    pub(crate) fn leave(&mut self, job: u32) {
        let state = std::mem::take(&mut self.jobs[job].state);
        match state {
            JobState::Waiting => self.retries.remove(&mut self.jobs, job),
            JobState::Ready => self.step_out(job),
            _ => {}
        }
        self.count_state(job, state, -1);
    }

    /// As `leave`, for one that the wheel has given out.
    pub(crate) fn leave_popped(&mut self, job: u32) {
        self.jobs[job].state = JobState::Vacant;
        self.count_state(job, JobState::Waiting, -1);
    }

    fn count_state(&mut self, job: u32, state: JobState, by: i32) {
        let message = &self.messages[self.jobs[job].message];
        if state == JobState::InFlight {
            let busy = self.symbols.busy(message.sender);
            *busy = busy.wrapping_add_signed(by);
        }
        if message.has(MANY) {
            let many = &mut self.many[message.recipients];
            if state == JobState::Held {
                many.held = many.held.wrapping_add_signed(by);
            }
            if state.is_awake() {
                many.awake = many.awake.wrapping_add_signed(by);
            }
        }
    }

    /// Ends a transaction that is in no state.
    pub(crate) fn end_job(&mut self, job: u32) {
        self.free_members(job);
        self.strike(job);
        let Job { message, destination, .. } = self.jobs.remove(job);
        self.destinations[destination].jobs -= 1;
        if self.messages[message].has(MANY) {
            self.many[self.messages[message].recipients].jobs -= 1;
        }
        self.refresh(destination);
        self.idle(destination);
    }

    /// Notes that a recipient is done.
    pub(crate) fn finish(&mut self, message: u32, index: u32) {
        let recipient = self.recipient_mut(message, index);
        if recipient.job == NONE {
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
            false => usize::from(self.singles[found.recipients].job != NONE),
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
            self.recipient(message, *index).is_some_and(|recipient| recipient.job != NONE)
        };
        (0..self.recipients_len(message)).filter(is_pending).collect()
    }

    /// The transactions of a message.
    pub(crate) fn jobs_of(&self, message: u32) -> Vec<u32> {
        let all = (0..self.recipients_len(message)).filter_map(|at| self.recipient(message, at));
        let mut jobs: Vec<u32> = all.map(|one| one.job).filter(|job| *job != NONE).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    /// Makes a transaction wait for its destination.
    fn line_up(&mut self, job: u32) {
        let Job { message, destination: at, .. } = self.jobs[job];
        *self.symbols.busy(self.messages[message].sender) += 1;
        self.destinations[at].ready += 1;
        self.stand_in_line(job);
    }

    /// Puts a transaction that is counted as ready into the line of the order.
    pub(crate) fn stand_in_line(&mut self, job: u32) {
        let Job { message, destination: at, .. } = self.jobs[job];
        if !self.is_fair() {
            self.number = self.number.wrapping_add(1);
            let drawn = self.settings.order == Order::Random;
            let number = if drawn { self.chance.bits() as u32 } else { self.number };
            self.jobs[job].place = number;
            let key = self.key_of(job, self.settings.order);
            let sorted = self.destinations[at].sorted.get_or_insert_default();
            sorted.ready.insert((key, job));
            return;
        }
        let key = self.sender_queue_key(job);
        let light = self.symbols.is_busy_at_most(self.messages[message].sender, LIGHT_SENDER_MAX);
        let destination = &mut self.destinations[at];
        self.sender_queues.push(&mut self.jobs, destination, key, job, light);
    }

    /// The inverse of `line_up`.
    fn step_out(&mut self, job: u32) {
        let Job { message, destination: at, .. } = self.jobs[job];
        let sender = self.messages[message].sender;
        *self.symbols.busy(sender) -= 1;
        self.destinations[at].ready -= 1;
        if self.is_fair() {
            self.sender_queues.remove(&mut self.jobs, &mut self.destinations[at], job);
        } else {
            let key = self.key_of(job, self.settings.order);
            if let Some(sorted) = self.destinations[at].sorted.as_deref_mut() {
                sorted.ready.remove(&(key, job));
            }
        }
        self.refresh(at);
    }

    fn sender_queue_key(&self, job: u32) -> SenderQueueKey {
        let Job { message, destination, .. } = self.jobs[job];
        let found = &self.messages[message];
        let bulk = u64::from(found.bytes) >= self.settings.bulk_bytes_min;
        let class = match found.priority {
            1.. => 0,
            0 if !bulk => 1,
            _ => 2,
        };
        (destination, found.sender, class)
    }

    pub(crate) fn key_of(&self, job: u32, order: Order) -> Key {
        let Job { message, destination, since, place, .. } = self.jobs[job];
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
    fn a_sender_is_as_busy_as_transactions_of_it_are_ready() {
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
