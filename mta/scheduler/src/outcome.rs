//! The end of an attempt, recipient by recipient.
//!
//! Must never forget a recipient: one without an outcome is deferred.

use crate::destinations::destination::DestinationHealth;
use crate::flights::Flight;
use crate::group::To;
use crate::memory::NONE;
use crate::output::{AttemptId, MessageChanges, NoticeKind, SilentBecause};
use crate::scheduler::Scheduler;
use crate::store::message::{DELETED, NULL_SENDER, OVERDUE, RecipientGroup};
use mail::{Change, Enhanced, NextHop, Now, Outcome, Reply, Report, Stage};
use std::collections::BTreeMap;
use view::HeldBy;

impl Scheduler {
    /// Takes the outcomes of an attempt. Ignores an attempt that is not in flight.
    pub fn outcome(&mut self, attempt: AttemptId, outcomes: &[(u32, Outcome)], now: Now) {
        self.set_clock(now);
        let Some(flight) = self.land(attempt) else { return };
        let health = self.learn(&flight, outcomes);
        let group = flight.group;
        let destination = self.store.groups[group].destination;
        let message = self.store.groups[group].message;
        self.store.message_mut(message).losses = 0;
        let mut record = MessageChanges::new(self.store.message(message).id);
        self.store.count_out(message);
        self.leave(group);
        self.settle(group, outcomes, &mut record);
        self.close_or_count(message, &mut record);
        self.record(record);
        if health == DestinationHealth::Reached {
            self.go_on(destination, flight.began);
        }
    }

    /// Takes note that the process with an attempt died. The attempt is made again soon and does not count, but a message that
    /// is lost too often in a row is held.
    pub fn attempt_lost(&mut self, attempt: AttemptId, now: Now) {
        self.set_clock(now);
        let Some(flight) = self.land(attempt) else { return };
        let group = flight.group;
        let message = self.store.groups[group].message;
        let losses = self.store.message(message).losses.saturating_add(1);
        self.store.message_mut(message).losses = losses;
        let tick = self.lost_tick(losses);
        let held = self.store.message(message).held != 0;
        self.shift(group, if held { To::Held } else { To::Wait(tick) });
        if self.is_lost_too_often(losses) && !held {
            self.hold_as(message, HeldBy::Losses);
        }
        self.refresh(self.store.groups[group].destination);
    }

    /// Takes note that the process with an attempt was told to end before the attempt had ended. The attempt is made again soon,
    /// and counts neither as made nor as lost.
    pub fn attempt_cut_short(&mut self, attempt: AttemptId, now: Now) {
        self.set_clock(now);
        let Some(Flight { group, .. }) = self.land(attempt) else { return };
        let RecipientGroup { message, destination, .. } = self.store.groups[group];
        let tick = self.lost_tick(0);
        let held = self.store.message(message).held != 0;
        self.shift(group, if held { To::Held } else { To::Wait(tick) });
        self.refresh(destination);
    }

    /// Takes back an attempt that no process has begun. If the time of its message is over, the next records give its
    /// recipients up.
    pub fn withdraw(&mut self, attempt: AttemptId, now: Now) {
        self.set_clock(now);
        let Some(Flight { group, .. }) = self.land(attempt) else { return };
        let RecipientGroup { message, destination, .. } = self.store.groups[group];
        let held = self.store.message(message).held != 0;
        if self.store.message(message).has(OVERDUE) && !held {
            let tick = self.overdue_tick();
            self.shift(group, To::Wait(tick));
            self.expire_again(message);
        } else {
            self.shift(group, if held { To::Held } else { To::Ready });
        }
        self.refresh(destination);
    }

    /// Takes back an attempt that no process has begun, because another attempt at these recipients will be adopted. Nothing is
    /// given up before that one has ended.
    pub fn put_back(&mut self, attempt: AttemptId, now: Now) {
        self.set_clock(now);
        let Some(Flight { group, .. }) = self.land(attempt) else { return };
        let RecipientGroup { message, destination, .. } = self.store.groups[group];
        let held = self.store.message(message).held != 0;
        self.shift(group, if held { To::Held } else { To::Ready });
        self.refresh(destination);
    }

    fn learn(&mut self, flight: &Flight, outcomes: &[(u32, Outcome)]) -> DestinationHealth {
        let at = self.store.groups[flight.group].destination;
        let health = DestinationHealth::of(outcomes.iter().map(|(_, outcome)| outcome));
        let (chance, nanos) = (self.chance.signed_unit(), self.nanos());
        if self.destinations.learn(at, health, flight.epoch, chance, nanos) {
            let why = outcomes.iter().map(|(_, outcome)| outcome);
            let why = why
                .filter(|_| health == DestinationHealth::Unreachable)
                .map(Outcome::report)
                .next();
            let last = self.destinations[at].last_failure;
            self.destinations[at].last_failure = self.store.replace_report(last, why);
        }
        health
    }

    /// Handles the outcome of each recipient of a group.
    fn settle(&mut self, group: u32, outcomes: &[(u32, Outcome)], record: &mut MessageChanges) {
        let message = self.store.groups[group].message;
        let members = self.store.members(group);
        let (mut delivered, mut failed, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for (index, outcome) in in_order_of(&members, outcomes) {
            match outcome {
                Some(Outcome::Delivered { report, relayed }) => {
                    delivered.push((index, report, *relayed));
                }
                Some(Outcome::Failed(report)) => failed.push((index, report.clone())),
                Some(Outcome::Deferred(report)) => {
                    self.store.note_report(message, index, report);
                    left.push(index);
                }
                None => {
                    self.store.note_report(message, index, &no_outcome());
                    left.push(index);
                }
            }
        }
        self.deliver(group, delivered, record);
        self.fail(message, failed, NoticeKind::Failed, record);
        self.keep_trying(group, left, record);
    }

    fn deliver(
        &mut self,
        group: u32,
        delivered: Vec<(u32, &Report, bool)>,
        record: &mut MessageChanges,
    ) {
        let message = self.store.groups[group].message;
        if delivered.is_empty() {
            return;
        }
        let recipients = delivered.iter().map(|(index, ..)| *index).collect();
        record.changes.push(Change::Delivered { message: record.message, recipients });
        let local = self.destinations[self.store.groups[group].destination].hop == NextHop::Local;
        let null = self.store.message(message).has(NULL_SENDER);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (index, report, relayed) in delivered {
            let wanted = !null && self.store.recipient_mut(message, index).notify.success();
            self.store.finish(message, index);
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

    /// Finishes recipients without delivery, and notifies the sender if it may be notified and asked for it.
    pub(crate) fn fail(
        &mut self,
        message: u32,
        failed: Vec<(u32, Report)>,
        kind: NoticeKind,
        record: &mut MessageChanges,
    ) {
        if failed.is_empty() {
            return;
        }
        record.fail(failed.iter().map(|(index, _)| *index));
        let flags = self.store.message(message).flags;
        let (mut told, mut silent, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        for (index, report) in failed {
            let wanted = self.store.recipient_mut(message, index).notify.failure();
            self.store.finish(message, index);
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

    /// Puts the remaining recipients of a group back into the retry schedule, or gives them up if their time is over.
    fn keep_trying(&mut self, group: u32, left: Vec<u32>, record: &mut MessageChanges) {
        let message = self.store.groups[group].message;
        self.store.free_members(group);
        let done = left.is_empty();
        self.store.set_members(group, left.clone());
        if done {
            return self.end_group(group);
        }
        self.store.groups[group].attempts = self.store.groups[group].attempts.saturating_add(1);
        if self.store.message(message).has(OVERDUE) {
            return self.give_up(group, record);
        }
        let tick = self.retry_tick(self.store.groups[group].attempts);
        let held = self.store.message(message).held != 0;
        self.enter(group, if held { To::Held } else { To::Wait(tick) });
        self.record_due(group, &left, tick, record);
        self.refresh(self.store.groups[group].destination);
    }

    /// Records the new due time: one change for each reply, shared by all recipients with that reply.
    fn record_due(&self, group: u32, left: &[u32], tick: u32, record: &mut MessageChanges) {
        let message = self.store.groups[group].message;
        let mut by_report: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for index in left {
            let report = self.store.recipient(message, *index).map_or(NONE, |r| r.report);
            by_report.entry(report).or_default().push(*index);
        }
        for (report, recipients) in by_report {
            record.changes.push(Change::Due {
                message: record.message,
                recipients,
                due: self.wall_of(tick),
                attempts: self.store.groups[group].attempts,
                report: self.store.report(report).cloned().unwrap_or_else(no_outcome),
            });
        }
    }

    /// Retires a message without unfinished recipients; counts any other message in again.
    pub(crate) fn close_or_count(&mut self, message: u32, record: &mut MessageChanges) {
        if self.store.is_done(message) {
            record.changes.push(self.close_message(message));
        } else {
            self.store.count_in(message);
        }
    }
}

/// Returns the outcome of each member. Outcomes come in the order of the members, unless the attempt was adopted. Of
/// several outcomes for one member the last counts.
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

/// Report of a recipient without an outcome.
fn no_outcome() -> Report {
    let reply =
        Reply::new(451, Enhanced(4, 3, 0), "the attempt ended without a word on this recipient");
    Report { stage: Stage::Here, reply, peer: "".into(), from_peer: false }
}
