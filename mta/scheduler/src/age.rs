//! Mail that waits too long: a delay notice once, then expiry.
//!
//! Must never trust a jump of the wall clock: ages are kept on the monotonic one, and what was
//! taken from the wall at a restart is looked at again before anything bounces. Must never tell of
//! more recipients in one record than fit one notice.

use crate::clock::{JUMP_MAX, ticks, wall_of_seconds};
use crate::memory::NONE;
use crate::message::{
    DELAY_SEEN, DELETED, GroupState, NULL_SENDER, OVERDUE, RESTORED, TELLS_DELAY,
};
use crate::output::{Notice, NoticeKind, Record};
use crate::scheduler::Scheduler;
use mail::bounce::NOTICE_RECIPIENTS_MAX;
use mail::{Change, Enhanced, MessageId, Reply, Report, Stage, Wall};
use std::time::Duration;

/// A message that is older than this when it comes into the queue comes from before a restart.
const FRESH_MAX: Duration = Duration::from_secs(60);
/// What seems too old at a restart gets this long for an attempt, and for the clock to be set.
const RESTORE_GRACE: Duration = Duration::from_secs(3600);
/// Text of replies in one record about age, in bytes: a list of many recipients is told of in
/// several records, each made when it is asked for.
const AGED_TEXT_BYTES_MAX: usize = 1 << 20;
/// Messages of age looked at in one call.
const AGED_LOOKED_AT_MAX: u32 = 64;

/// A message that has reached a mark of age, and how far its sender has been told of that.
#[derive(Debug)]
pub(crate) struct Aged {
    message: MessageId,
    mark: Mark,
    /// The first recipient that has not been looked at.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Delay,
    Expiry,
}

/// What one record about age may still take.
struct Room {
    recipients: usize,
    text_bytes: usize,
}

impl Scheduler {
    /// Begins to count the age of a message that has come in.
    pub(crate) fn start_age(&mut self, message: u32, arrived: Wall) {
        if self.clock.now().wall.since(arrived) > FRESH_MAX {
            self.messages[message].flags |= RESTORED;
        }
        if self.settings.delay_notice_after.is_none() {
            self.messages[message].flags |= DELAY_SEEN;
        }
        self.arm_age(message);
    }

    /// When a message will be given up, for people.
    pub(crate) fn expires(&self, message: u32) -> Option<Wall> {
        let found = &self.messages[message];
        let overdue = found.has(OVERDUE);
        let expires = wall_of_seconds(found.arrived) + self.settings.retry.expire;
        (found.held == 0).then(|| if overdue { self.clock.now().wall } else { expires })
    }

    /// The next mark of age: the delay notice, then expiry.
    fn age_mark(&self, message: u32) -> Duration {
        let expire = self.settings.retry.expire;
        let delay = self.settings.delay_notice_after.unwrap_or(expire).min(expire);
        if self.messages[message].has(DELAY_SEEN) { expire } else { delay }
    }

    fn age_by_wall(&self, message: u32) -> Duration {
        self.clock.age_of(wall_of_seconds(self.messages[message].arrived))
    }

    fn arm_age(&mut self, message: u32) {
        let mark = self.age_mark(message);
        let grace =
            if self.messages[message].has(RESTORED) { RESTORE_GRACE } else { Duration::ZERO };
        let left = mark.saturating_sub(self.age_by_wall(message)).max(grace.min(mark));
        self.wait_for_age(message, left);
    }

    fn wait_for_age(&mut self, message: u32, wait: Duration) {
        self.messages[message].age_tick = self.clock.tick_after(wait);
        self.ages.insert(&mut self.messages, message);
    }

    /// A message has reached a mark, which the wheel of ages has told.
    pub(crate) fn come_of_age(&mut self, message: u32) {
        if let Some(wait) = self.clock.suspended() {
            return self.wait_for_age(message, wait);
        }
        let mark = self.age_mark(message);
        let found = &mut self.messages[message];
        if found.has(RESTORED) {
            // At the restart the clock may have been ahead; from here on it is monotonic.
            let age = self.clock.age_of(wall_of_seconds(found.arrived));
            if age + JUMP_MAX < mark {
                found.flags &= !RESTORED;
                return self.wait_for_age(message, mark - age);
            }
        }
        if self.messages[message].has(DELAY_SEEN) {
            self.messages[message].flags |= OVERDUE;
            self.ask_back(message);
            return self.begin_to_tell(message, Mark::Expiry);
        }
        self.messages[message].flags |= DELAY_SEEN | TELLS_DELAY;
        if self.messages[message].has(RESTORED) {
            self.arm_age(message);
        } else {
            // From the mark on, not from now, which may be late.
            let left = self.settings.retry.expire.saturating_sub(mark);
            let tick = self.messages[message].age_tick.saturating_add(ticks(left));
            self.messages[message].age_tick = tick;
            self.ages.insert(&mut self.messages, message);
        }
        self.begin_to_tell(message, Mark::Delay);
    }

    fn begin_to_tell(&mut self, message: u32, mark: Mark) {
        let message = self.messages[message].id;
        self.aged.push_back(Aged { message, mark, next: 0 });
    }

    /// Looks once more for recipients to give up, of a message whose time is over. One look serves all attempts
    /// of a message that are taken back together.
    pub(crate) fn expire_again(&mut self, message: u32) {
        let id = self.messages[message].id;
        let looks = |aged: &Aged| (aged.message, aged.mark, aged.next) == (id, Mark::Expiry, 0);
        if !self.aged.back().is_some_and(looks) {
            self.begin_to_tell(message, Mark::Expiry);
        }
    }

    /// Makes the next record about age, if there is anything to tell.
    pub(crate) fn tell_aged(&mut self) {
        for _ in 0..AGED_LOOKED_AT_MAX {
            let Some(mut aged) = self.aged.pop_front() else { return };
            let Some(message) = self.ids.get(aged.message) else { continue };
            let len = self.recipients_len(message);
            let records = self.records.len();
            match aged.mark {
                Mark::Delay => self.notice_delay(message, &mut aged.next),
                Mark::Expiry => self.expire(message, &mut aged.next),
            }
            if aged.next < len {
                self.aged.push_front(aged);
            } else if aged.mark == Mark::Delay {
                self.messages[message].flags &= !TELLS_DELAY;
            }
            if self.records.len() > records {
                return;
            }
        }
    }

    fn notice_delay(&mut self, message: u32, next: &mut u32) {
        let found = &self.messages[message];
        if found.has(NULL_SENDER | DELETED) || found.held != 0 {
            *next = u32::MAX;
            return;
        }
        let mut record = Record::new(found.id);
        let mut told = Vec::new();
        let mut room = Room::new();
        let len = self.recipients_len(message);
        while *next < len && room.has() {
            let index = *next;
            *next += 1;
            let recipient = self.recipient_mut(message, index);
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
        record.notices.push(Notice { kind: NoticeKind::Delayed, recipients: told });
        self.record(record);
    }

    /// Bounces what waits, as much of it as one record takes; what is in flight or held is not tried
    /// again after that.
    fn expire(&mut self, message: u32, next: &mut u32) {
        let mut record = Record::new(self.messages[message].id);
        let mut room = Room::new();
        let len = self.recipients_len(message);
        self.count_out(message);
        while *next < len && room.has() {
            let group = self.recipient(message, *next).map_or(NONE, |recipient| recipient.group);
            let state = self.groups.get(group).map(|group| group.state).unwrap_or_default();
            if !matches!(state, GroupState::Waiting | GroupState::Ready) {
                *next += 1;
                continue;
            }
            let taken = self.members_that_fit(group, message, &mut room);
            if taken.len() == self.members_len(group) {
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

    /// The first members of a group, at least one, as many as there is room for.
    fn members_that_fit(&self, group: u32, message: u32, room: &mut Room) -> Vec<u32> {
        let mut members = self.first_members(group, room.recipients);
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

    /// Ends a group that is in no state: its time is over, or it was deleted.
    pub(crate) fn give_up(&mut self, group: u32, record: &mut Record) {
        let message = self.groups[group].message;
        let members = self.members(group);
        let failed = members.into_iter().map(|at| (at, self.last_word(message, at))).collect();
        self.fail(message, failed, NoticeKind::Expired, record);
        self.end_group(group);
    }

    /// The last reply, or why the destination cannot be reached, or nothing.
    fn last_reply(&self, message: u32, index: u32) -> Option<&Report> {
        let recipient = self.recipient(message, index)?;
        let destination = &self.destinations[self.groups[recipient.group].destination];
        self.reports.get(recipient.report).or_else(|| self.reports.get(destination.last_failure))
    }

    fn why_waiting(&self, message: u32, index: u32) -> Report {
        let last = self.last_reply(message, index).cloned();
        last.unwrap_or_else(|| here(Reply::new(451, Enhanced(4, 4, 7), "not tried yet"), ""))
    }

    /// The evidence about a recipient that is given up: the last report.
    fn last_word(&self, message: u32, index: u32) -> Report {
        if self.messages[message].has(DELETED) {
            return here(Reply::new(554, Enhanced(5, 7, 1), "deleted by an operator"), "");
        }
        let last = self.last_reply(message, index).cloned();
        last.unwrap_or_else(|| here(Reply::new(554, Enhanced(5, 4, 7), "it was never tried"), ""))
    }

    /// What an operator reads about a recipient that is given up and that nobody is told of
    /// (RFC 3463 3.5: X.4.7, delivery time expired).
    pub(crate) fn expired(&self, last: &Report) -> Report {
        let time = in_words(self.settings.retry.expire);
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
