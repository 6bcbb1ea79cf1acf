//! Mail that waits too long: first a delay notice, then expiry.
//!
//! Must never trust a jump of the wall clock: ages are counted by the monotonic clock, and an age that was taken from the
//! wall clock at a restart is checked again before anything bounces. Must never put more recipients into one record than
//! fit into one notice.

use crate::clock::{JUMP_MAX, ticks, wall_of_seconds};
use crate::memory::NONE;
use crate::output::{MessageChanges, NoticeKind, PlannedNotice};
use crate::scheduler::Scheduler;
use crate::settings::Settings;
use crate::store::message::{
    DELAY_SEEN, DELETED, GroupState, NULL_SENDER, OVERDUE, RESTORED, TELLS_DELAY,
};
use mail::bounce::NOTICE_RECIPIENTS_MAX;
use mail::{Change, Enhanced, MessageId, Reply, Report, Stage, Timestamp};
use std::collections::VecDeque;
use std::time::Duration;

/// Upper bound on the age of a new message. An older one comes from before a restart.
const FRESH_MAX: Duration = Duration::from_secs(60);
/// Time that a message which seems too old at a restart has for an attempt, and the operator for setting the clock.
const RESTORE_GRACE: Duration = Duration::from_secs(3600);
/// Upper bound on the text of replies in one record about age, in bytes. A message with many recipients has several such
/// records, each made when `poll` asks for it.
const AGED_TEXT_BYTES_MAX: usize = 1 << 20;
/// Upper bound on the messages that come of age in one call.
const TURN_MAX: u32 = 256;
/// Upper bound on the messages of age looked at in one call.
const AGED_LOOKED_AT_MAX: u32 = 64;

/// Message that has reached a mark of age, and how much of it its sender has been told.
#[derive(Debug)]
struct Aged {
    message: MessageId,
    mark: Mark,
    /// Index of the first recipient that has not been looked at.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Delay,
    Expiry,
}

/// Room left in one record about age.
struct Room {
    recipients: usize,
    text_bytes: usize,
}

/// Messages that have reached a mark of age.
#[derive(Debug)]
pub(crate) struct Ages {
    expire: Duration,
    delay_notice: Option<Duration>,
    aged: VecDeque<Aged>,
    paused: bool,
}

impl Ages {
    pub fn new(settings: &Settings) -> Self {
        let (expire, delay_notice) = (settings.retry.expire, settings.delay_notice);
        Ages { expire, delay_notice, aged: VecDeque::new(), paused: false }
    }

    /// Takes the marks of new settings. A message that waits for a mark still waits for the old one.
    pub fn reload(&mut self, settings: &Settings) {
        self.expire = settings.retry.expire;
        self.delay_notice = settings.delay_notice;
    }

    /// Makes no notice while `paused`.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    pub fn are_paused(&self) -> bool {
        self.paused
    }

    /// Returns true if a sender has yet to be told of a mark.
    pub fn has_aged(&self) -> bool {
        !self.aged.is_empty()
    }
}

impl Scheduler {
    /// Handles messages that have reached a mark of age.
    pub(crate) fn pass_ages(&mut self) {
        let (tick, mut work) = (self.tick(), TURN_MAX);
        while let Some(message) = self.store.pop_aged(tick, &mut work) {
            self.come_of_age(message);
        }
    }

    /// Begins to count the age of a new message.
    pub(crate) fn start_age(&mut self, message: u32, arrived: Timestamp) {
        if self.now().wall.since(arrived) > FRESH_MAX {
            self.store.message_mut(message).flags |= RESTORED;
        }
        if self.ages.delay_notice.is_none() {
            self.store.message_mut(message).flags |= DELAY_SEEN;
        }
        self.arm_age(message);
    }

    /// Time at which a message will be given up, for people; `None` while it is held.
    pub(crate) fn expires(&self, message: u32) -> Option<Timestamp> {
        let found = self.store.message(message);
        let overdue = found.has(OVERDUE);
        let expires = wall_of_seconds(found.arrived) + self.ages.expire;
        (found.held == 0).then(|| if overdue { self.now().wall } else { expires })
    }

    /// Age of the next mark: the delay notice, then expiry.
    fn age_mark(&self, message: u32) -> Duration {
        let expire = self.ages.expire;
        let delay = self.ages.delay_notice.unwrap_or(expire).min(expire);
        if self.store.message(message).has(DELAY_SEEN) { expire } else { delay }
    }

    fn age_by_wall(&self, message: u32) -> Duration {
        self.clock.age_of(wall_of_seconds(self.store.message(message).arrived))
    }

    fn arm_age(&mut self, message: u32) {
        let mark = self.age_mark(message);
        let grace =
            if self.store.message(message).has(RESTORED) { RESTORE_GRACE } else { Duration::ZERO };
        let left = mark.saturating_sub(self.age_by_wall(message)).max(grace.min(mark));
        self.wait_for_age(message, left);
    }

    fn wait_for_age(&mut self, message: u32, wait: Duration) {
        let tick = self.tick_after(wait);
        self.store.wait_for_age(message, tick);
    }

    /// Handles a message for which the wheel of ages has come to its tick.
    fn come_of_age(&mut self, message: u32) {
        if let Some(wait) = self.clock.suspended() {
            return self.wait_for_age(message, wait);
        }
        let mark = self.age_mark(message);
        let found = self.store.message_mut(message);
        if found.has(RESTORED) {
            // The wall clock may have been ahead at the restart; from now on the monotonic clock counts.
            let age = self.clock.age_of(wall_of_seconds(found.arrived));
            if age + JUMP_MAX < mark {
                found.flags &= !RESTORED;
                return self.wait_for_age(message, mark - age);
            }
        }
        if self.store.message(message).has(DELAY_SEEN) {
            self.store.message_mut(message).flags |= OVERDUE;
            self.ask_back(message);
            return self.begin_to_tell(message, Mark::Expiry);
        }
        self.store.message_mut(message).flags |= DELAY_SEEN | TELLS_DELAY;
        if self.store.message(message).has(RESTORED) {
            self.arm_age(message);
        } else {
            // Counted from the mark, because this call may be late.
            let left = self.ages.expire.saturating_sub(mark);
            let tick = self.store.message(message).age_tick.saturating_add(ticks(left));
            self.store.wait_for_age(message, tick);
        }
        self.begin_to_tell(message, Mark::Delay);
    }

    fn begin_to_tell(&mut self, message: u32, mark: Mark) {
        let message = self.store.message(message).id;
        self.ages.aged.push_back(Aged { message, mark, next: 0 });
    }

    /// Looks once more for recipients to give up, of a message whose time is over. One look serves all attempts of a message
    /// that are withdrawn together.
    pub(crate) fn expire_again(&mut self, message: u32) {
        let id = self.store.message(message).id;
        let looks = |aged: &Aged| (aged.message, aged.mark, aged.next) == (id, Mark::Expiry, 0);
        if !self.ages.aged.back().is_some_and(looks) {
            self.begin_to_tell(message, Mark::Expiry);
        }
    }

    /// Makes the next record about age, if there is one.
    pub(crate) fn tell_aged(&mut self) {
        for _ in 0..AGED_LOOKED_AT_MAX {
            let Some(mut aged) = self.ages.aged.pop_front() else { return };
            let Some(message) = self.store.find(aged.message) else { continue };
            let len = self.store.recipients_len(message);
            let records = self.records_len();
            match aged.mark {
                Mark::Delay => self.notice_delay(message, &mut aged.next),
                Mark::Expiry => self.expire(message, &mut aged.next),
            }
            if aged.next < len {
                self.ages.aged.push_front(aged);
            } else if aged.mark == Mark::Delay {
                self.store.message_mut(message).flags &= !TELLS_DELAY;
            }
            if self.records_len() > records {
                return;
            }
        }
    }

    fn notice_delay(&mut self, message: u32, next: &mut u32) {
        let found = self.store.message(message);
        if found.has(NULL_SENDER | DELETED) || found.held != 0 {
            *next = u32::MAX;
            return;
        }
        let mut record = MessageChanges::new(found.id);
        let mut told = Vec::new();
        let mut room = Room::new();
        let len = self.store.recipients_len(message);
        while *next < len && room.has() {
            let index = *next;
            *next += 1;
            let recipient = self.store.recipient_mut(message, index);
            if recipient.group != NONE && recipient.notify.delay() && !recipient.delay_noticed {
                recipient.delay_noticed = true;
                let why = self.why_waiting(message, index);
                room.take(&why);
                told.push((index, why));
            }
        }
        if told.is_empty() {
            return;
        }
        let recipients = told.iter().map(|(index, _)| *index).collect();
        record.changes.push(Change::DelayNoticed { message: record.message, recipients });
        record.notices.push(PlannedNotice { kind: NoticeKind::Delayed, recipients: told });
        self.record(record);
    }

    /// Bounces recipients that wait, as many as fit into one record. Recipients that are in flight or held are not tried again
    /// afterwards.
    fn expire(&mut self, message: u32, next: &mut u32) {
        let mut record = MessageChanges::new(self.store.message(message).id);
        let mut room = Room::new();
        let len = self.store.recipients_len(message);
        self.store.count_out(message);
        while *next < len && room.has() {
            let group =
                self.store.recipient(message, *next).map_or(NONE, |recipient| recipient.group);
            let state = self.store.groups.get(group).map(|group| group.state).unwrap_or_default();
            if !matches!(state, GroupState::Waiting | GroupState::Ready) {
                *next += 1;
                continue;
            }
            let taken = self.members_that_fit(group, message, &mut room);
            if taken.len() == self.store.members_len(group) {
                self.leave(group);
                self.give_up(group, &mut record);
            } else {
                let part = self.divide(group, taken);
                self.give_up(part, &mut record);
            }
        }
        self.close_or_count(message, &mut record);
        self.record(record);
    }

    /// Returns the first members of a group that there is room for, at least one.
    fn members_that_fit(&self, group: u32, message: u32, room: &mut Room) -> Vec<u32> {
        let mut members = self.store.first_members(group, room.recipients);
        let mut fit = 0;
        for index in &members {
            if !room.has() {
                break;
            }
            room.recipients -= 1;
            let text = self.last_reply(message, *index).map_or(0, |last| last.reply.text.len());
            room.text_bytes = room.text_bytes.saturating_sub(text);
            fit += 1;
        }
        members.truncate(fit);
        members
    }

    /// Ends a group in no state, because its time is over or its message was deleted.
    pub(crate) fn give_up(&mut self, group: u32, record: &mut MessageChanges) {
        let message = self.store.groups[group].message;
        let members = self.store.members(group);
        let failed = members.into_iter().map(|at| (at, self.last_word(message, at))).collect();
        self.fail(message, failed, NoticeKind::Expired, record);
        self.end_group(group);
    }

    /// Returns the last reply, or else the reason why the destination cannot be reached.
    fn last_reply(&self, message: u32, index: u32) -> Option<&Report> {
        let recipient = self.store.recipient(message, index)?;
        let destination = &self.destinations[self.store.groups[recipient.group].destination];
        let last = self.store.report(recipient.report);
        last.or_else(|| self.store.report(destination.last_failure))
    }

    fn why_waiting(&self, message: u32, index: u32) -> Report {
        let last = self.last_reply(message, index).cloned();
        last.unwrap_or_else(|| here(Reply::new(451, Enhanced(4, 4, 7), "not tried yet"), ""))
    }

    /// Returns the report of a recipient that is given up: the last one, if there is any.
    fn last_word(&self, message: u32, index: u32) -> Report {
        if self.store.message(message).has(DELETED) {
            return here(Reply::new(554, Enhanced(5, 7, 1), "deleted by an operator"), "");
        }
        let last = self.last_reply(message, index).cloned();
        last.unwrap_or_else(|| here(Reply::new(554, Enhanced(5, 4, 7), "it was never tried"), ""))
    }

    /// Returns the report in the log of a recipient that is given up without a notice (RFC 3463 3.5: X.4.7, delivery time
    /// expired).
    pub(crate) fn expired(&self, last: &Report) -> Report {
        let time = in_words(self.ages.expire);
        let text = format!("not delivered in {time}, given up; the last reply was: {}", last.reply);
        here(Reply::new(554, Enhanced(5, 4, 7), text), &last.peer)
    }
}

impl Room {
    fn new() -> Room {
        Room { recipients: NOTICE_RECIPIENTS_MAX, text_bytes: AGED_TEXT_BYTES_MAX }
    }

    fn has(&self) -> bool {
        self.recipients > 0 && self.text_bytes > 0
    }

    fn take(&mut self, report: &Report) {
        self.recipients -= 1;
        self.text_bytes = self.text_bytes.saturating_sub(report.reply.text.len());
    }
}

fn here(reply: Reply, peer: &str) -> Report {
    Report { stage: Stage::Here, reply, peer: peer.into(), from_peer: false }
}

fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    let unit =
        units.into_iter().find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "second"));
    let count = seconds / unit;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_the_largest_unit_that_divides_it() {
        let cases =
            [(86_400 * 5, "5 days"), (86_400, "1 day"), (5400, "90 minutes"), (7, "7 seconds")];
        for (seconds, words) in cases {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }
}
