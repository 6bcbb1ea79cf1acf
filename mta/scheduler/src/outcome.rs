//! What became of an attempt, recipient by recipient.
//!
//! Must never forget a recipient: one that the outcome does not name is deferred.

use crate::destination::{Health, Moment};
use crate::group::To;
use crate::message::{DELETED, GroupState, NULL_SENDER, OVERDUE, RecipientGroup};
use crate::output::{AttemptId, NoticeKind, Record, SilentBecause};
use crate::scheduler::{Flight, Scheduler};
use mail::{Change, Enhanced, NextHop, Now, Outcome, Reply, Report, Stage};
use std::collections::BTreeMap;
use std::time::Duration;
use view::HeldBy;

/// A lost attempt is made again after this, doubled with each loss in a row.
const LOST_WAIT: Duration = Duration::from_millis(200);
const LOST_WAIT_DOUBLINGS_MAX: u32 = 8;

impl Scheduler {
    /// Takes the outcomes of an attempt; an attempt that is not in flight is ignored.
    pub fn outcome(&mut self, attempt: AttemptId, outcomes: &[(u32, Outcome)], now: Now) {
        self.clock.set(now);
        let Some(flight) = self.land(attempt) else { return };
        let health = self.learn(&flight, outcomes);
        let group = flight.group;
        let destination = self.groups[group].destination;
        let message = self.groups[group].message;
        self.messages[message].losses = 0;
        let mut record = Record::new(self.messages[message].id);
        self.count_out(message);
        self.leave(group);
        self.settle(group, outcomes, &mut record);
        self.close_or_count(message, &mut record);
        self.record(record);
        if health == Health::Reached {
            self.go_on(destination, flight.began);
        }
    }

    /// The process that made an attempt died: it is made again soon, and does not count, unless
    /// it is always this message with which the process dies.
    pub fn attempt_lost(&mut self, attempt: AttemptId, now: Now) {
        self.clock.set(now);
        let Some(flight) = self.land(attempt) else { return };
        let group = flight.group;
        let message = self.groups[group].message;
        let losses = self.messages[message].losses.saturating_add(1);
        self.messages[message].losses = losses;
        let doublings = u32::from(losses - 1).min(LOST_WAIT_DOUBLINGS_MAX);
        let tick = self.clock.tick_after(LOST_WAIT * (1 << doublings));
        let held = self.messages[message].held != 0;
        self.shift(group, if held { To::Held } else { To::Wait(tick) });
        if losses >= self.settings.losses_max.max(1) && !held {
            self.hold_as(message, HeldBy::Losses);
        }
        self.refresh(self.groups[group].destination);
    }

    /// The process that made an attempt was told to end before the attempt had ended: it is made again
    /// soon, and counts neither as made nor as lost.
    pub fn attempt_cut_short(&mut self, attempt: AttemptId, now: Now) {
        self.clock.set(now);
        let Some(Flight { group, .. }) = self.land(attempt) else { return };
        let RecipientGroup { message, destination, .. } = self.groups[group];
        let tick = self.clock.tick_after(LOST_WAIT);
        let held = self.messages[message].held != 0;
        self.shift(group, if held { To::Held } else { To::Wait(tick) });
        self.refresh(destination);
    }

    /// The next attempt to withdraw if no process has it yet, because its message was held, deleted or given up. To be
    /// asked until it says `None`, before `poll` and after `poll` has said `None`.
    pub fn unwanted(&mut self) -> Option<AttemptId> {
        self.unwanted.pop_front()
    }

    /// Takes back an attempt that no process has got: it counts as never begun. If the time of its
    /// message is over, its recipients are given up in the next records.
    pub fn withdraw(&mut self, attempt: AttemptId, now: Now) {
        self.clock.set(now);
        let Some(Flight { group, .. }) = self.land(attempt) else { return };
        let RecipientGroup { message, destination, .. } = self.groups[group];
        let held = self.messages[message].held != 0;
        if self.messages[message].has(OVERDUE) && !held {
            // While no notices are made it waits, so that it does not begin once more.
            let tick = self.clock.tick_after(self.settings.retry.first);
            self.shift(group, To::Wait(tick));
            self.expire_again(message);
        } else {
            self.shift(group, if held { To::Held } else { To::Ready });
        }
        self.refresh(destination);
    }

    /// The same where another attempt at these recipients has begun and will be adopted: nothing is
    /// given up before that one has ended.
    pub fn put_back(&mut self, attempt: AttemptId, now: Now) {
        self.clock.set(now);
        let Some(Flight { group, .. }) = self.land(attempt) else { return };
        let RecipientGroup { message, destination, .. } = self.groups[group];
        let held = self.messages[message].held != 0;
        self.shift(group, if held { To::Held } else { To::Ready });
        self.refresh(destination);
    }

    /// Asks for the attempts of a message back, as far as they have not begun.
    pub(crate) fn ask_back(&mut self, message: u32) {
        for group in self.groups_of(message) {
            if self.groups[group].state == GroupState::InFlight {
                let attempt = self.flights[self.groups[group].place].attempt;
                self.unwanted.push_back(AttemptId(attempt));
            }
        }
    }

    /// Recipients of all attempts in flight.
    pub fn recipients_in_flight(&self) -> usize {
        let flights = self.flights.iter().filter(|(_, flight)| flight.attempt != 0);
        flights.map(|(_, flight)| self.members_len(flight.group)).sum()
    }

    fn learn(&mut self, flight: &Flight, outcomes: &[(u32, Outcome)]) -> Health {
        let at = self.groups[flight.group].destination;
        let health = Health::of(outcomes.iter().map(|(_, outcome)| outcome));
        let limits = self.limits_at(at);
        let chance = self.chance.signed_unit();
        let nanos = self.clock.nanos();
        let moment = Moment { limits: &limits, retry: &self.settings.retry, chance, nanos };
        if self.destinations[at].learn(health, flight.epoch, &moment) {
            let why = outcomes.iter().map(|(_, outcome)| outcome);
            let why = why.filter(|_| health == Health::Unreachable).map(Outcome::report).next();
            let new = why.map_or(crate::memory::NONE, |report| self.reports.intern(report));
            let old = std::mem::replace(&mut self.destinations[at].last_failure, new);
            self.reports.release(old);
        }
        health
    }

    /// Sorts the recipients of a group by what became of them.
    fn settle(&mut self, group: u32, outcomes: &[(u32, Outcome)], record: &mut Record) {
        let message = self.groups[group].message;
        let members = self.members(group);
        let (mut delivered, mut failed, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for (index, outcome) in in_order_of(&members, outcomes) {
            match outcome {
                Some(Outcome::Delivered { report, relayed }) => {
                    delivered.push((index, report, *relayed));
                }
                Some(Outcome::Failed(report)) => failed.push((index, report.clone())),
                Some(Outcome::Deferred(report)) => {
                    self.note_report(message, index, report);
                    left.push(index);
                }
                None => {
                    self.note_report(message, index, &no_outcome());
                    left.push(index);
                }
            }
        }
        self.deliver(group, delivered, record);
        self.fail(message, failed, NoticeKind::Failed, record);
        self.keep_trying(group, left, record);
    }

    fn deliver(&mut self, group: u32, delivered: Vec<(u32, &Report, bool)>, record: &mut Record) {
        let message = self.groups[group].message;
        if delivered.is_empty() {
            return;
        }
        let recipients = delivered.iter().map(|(index, ..)| *index).collect();
        record.changes.push(Change::Delivered { message: record.message, recipients });
        let local = self.destinations[self.groups[group].destination].hop == NextHop::Local;
        let null = self.messages[message].has(NULL_SENDER);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (index, report, relayed) in delivered {
            let wanted = !null && self.recipient_mut(message, index).notify.success();
            self.finish(message, index);
            match (wanted, local, relayed) {
                (true, true, _) => ours.push((index, report.clone())),
                (true, false, true) => theirs.push((index, report.clone())),
                _ => {}
            }
        }
        for (kind, recipients) in [(NoticeKind::Delivered, ours), (NoticeKind::Relayed, theirs)] {
            if !recipients.is_empty() {
                record.tell(kind, recipients);
            }
        }
    }

    /// Ends recipients without delivery, and tells the sender, if it may and wants to be told.
    pub(crate) fn fail(
        &mut self,
        message: u32,
        failed: Vec<(u32, Report)>,
        kind: NoticeKind,
        record: &mut Record,
    ) {
        if failed.is_empty() {
            return;
        }
        record.fail(failed.iter().map(|(index, _)| *index));
        let flags = self.messages[message].flags;
        let (mut told, mut silent, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        for (index, report) in failed {
            let wanted = self.recipient_mut(message, index).notify.failure();
            self.finish(message, index);
            if !wanted || flags & (NULL_SENDER | DELETED) != 0 {
                let deleted = flags & DELETED != 0;
                let expired = kind == NoticeKind::Expired && !deleted;
                silent.push((index, if expired { self.expired(&report) } else { report }));
            } else if report.is_loop_here() {
                loops.push((index, report));
            } else {
                told.push((index, report));
            }
        }
        if !told.is_empty() {
            record.tell(kind, told);
        }
        if !loops.is_empty() {
            record.keep_silent(SilentBecause::Loop, loops);
        }
        if !silent.is_empty() {
            let why = match flags {
                flags if flags & DELETED != 0 => SilentBecause::Deleted,
                flags if flags & NULL_SENDER != 0 => SilentBecause::NullSender,
                _ => SilentBecause::NotifyHasNoFailure,
            };
            record.keep_silent(why, silent);
        }
    }

    /// Has the rest of a group tried again, if its time is not over.
    fn keep_trying(&mut self, group: u32, left: Vec<u32>, record: &mut Record) {
        let message = self.groups[group].message;
        self.free_members(group);
        let done = left.is_empty();
        self.set_members(group, left.clone());
        if done {
            return self.end_group(group);
        }
        self.groups[group].attempts = self.groups[group].attempts.saturating_add(1);
        if self.messages[message].has(OVERDUE) {
            return self.give_up(group, record);
        }
        let chance = self.chance.signed_unit();
        let wait = self.settings.retry.wait(self.groups[group].attempts, chance);
        let tick = self.clock.tick_after(wait);
        let held = self.messages[message].held != 0;
        self.enter(group, if held { To::Held } else { To::Wait(tick) });
        self.record_due(group, &left, tick, record);
        self.refresh(self.groups[group].destination);
    }

    /// One change for each reply: recipients that were told the same share it.
    fn record_due(&self, group: u32, left: &[u32], tick: u32, record: &mut Record) {
        let message = self.groups[group].message;
        let mut by_report: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for index in left {
            let report = self.recipient(message, *index).map_or(crate::memory::NONE, |r| r.report);
            by_report.entry(report).or_default().push(*index);
        }
        for (report, recipients) in by_report {
            record.changes.push(Change::Due {
                message: record.message,
                recipients,
                due: self.clock.wall_of(tick),
                attempts: self.groups[group].attempts,
                report: self.reports.get(report).cloned().unwrap_or_else(no_outcome),
            });
        }
    }

    /// Retires a message of which nothing is left, or counts it in again.
    pub(crate) fn close_or_count(&mut self, message: u32, record: &mut Record) {
        if self.is_done(message) {
            record.changes.push(self.close_message(message));
        } else {
            self.count_in(message);
        }
    }
}

/// The outcome of each member. They come in the members' order, unless an attempt was taken over
/// from a former life; of several for one the last counts.
fn in_order_of<'a>(
    members: &[u32],
    outcomes: &'a [(u32, Outcome)],
) -> Vec<(u32, Option<&'a Outcome>)> {
    let same = members.iter().eq(outcomes.iter().map(|(index, _)| index));
    if same {
        return outcomes.iter().map(|(index, outcome)| (*index, Some(outcome))).collect();
    }
    let by_index: BTreeMap<u32, &Outcome> =
        outcomes.iter().map(|(index, outcome)| (*index, outcome)).collect();
    members.iter().map(|index| (*index, by_index.get(index).copied())).collect()
}

/// For a recipient that the outcome of its attempt does not name.
fn no_outcome() -> Report {
    let reply =
        Reply::new(451, Enhanced(4, 3, 0), "the attempt ended without a word on this recipient");
    Report { stage: Stage::Here, reply, peer: "".into(), from_peer: false }
}
