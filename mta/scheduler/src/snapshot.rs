//! Messages as bytes and back, for the snapshots in the log.
//!
//! Must never make a record or a notice: all that is read here has been recorded already.
//!
//! The bytes are a version, then `Saved` in postcard.

use crate::clock::wall_of_seconds;
use crate::group::To;
use crate::memory::{NONE, Numbers};
use crate::scheduler::{Scheduler, SchedulerError};
use crate::store::message::{
    DELAY_SEEN, GroupState, NULL_SENDER, OVERDUE, QueuedMessage, QueuedRecipient, TELLS_DELAY,
};
use mail::{MessageId, NextHop, Notify, Now, Report, Timestamp};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Version of the layout of `Saved`.
const VERSION: u8 = 1;
/// Upper bound on the recipients of a message under any settings. A snapshot with more is damaged, and is refused before
/// memory is allocated for them.
pub const RECIPIENTS_MAX: u32 = 1_000_000;
/// Room on the stack; nearly every message with one recipient fits.
const BYTES_USUAL: usize = 192;
/// Flags that outlive a restart.
const FLAGS_KEPT: u8 = NULL_SENDER | OVERDUE | DELAY_SEEN;

#[derive(Serialize, Deserialize)]
struct Saved<'a> {
    id: u64,
    arrived_seconds: u32,
    bytes: u32,
    #[serde(borrow)]
    sender: &'a str,
    priority: i8,
    held: u8,
    flags: u8,
    /// Number of recipients, including finished ones, so that indexes do not change.
    recipients: u32,
    #[serde(borrow)]
    groups: Cow<'a, [SavedGroup<'a>]>,
    reports: Cow<'a, [Report]>,
}

#[derive(Clone, Serialize, Deserialize)]
struct SavedGroup<'a> {
    hop: Cow<'a, NextHop>,
    attempts: u16,
    /// Due time in microseconds of wall time; `None` if the group was not in the retry schedule.
    due: Option<i64>,
    #[serde(borrow)]
    members: Cow<'a, [SavedRecipient<'a>]>,
}

#[derive(Clone, Serialize, Deserialize)]
struct SavedRecipient<'a> {
    index: u32,
    local: &'a str,
    domain: &'a str,
    notify: Notify,
    delay_noticed: bool,
    /// Index in `reports` plus one; 0 if there is no report.
    report: u32,
}

impl Scheduler {
    /// Returns the bytes from which a message can be restored.
    pub fn export(&self, id: MessageId, now: Now) -> Option<Vec<u8>> {
        let message = self.store.find(id)?;
        Some(self.save(message, now))
    }

    /// Returns the bytes of many messages, whose ids must be in order. Messages that are not in the queue are left out.
    ///
    /// Stops before the message with which there would be more than `recipients_max` recipients, but takes at least one
    /// message. Also returns the number of ids it has taken. Looks at all messages between the first id and the last.
    pub fn export_all(
        &self,
        ids: &[MessageId],
        recipients_max: usize,
        now: Now,
    ) -> (Vec<(MessageId, Vec<u8>)>, usize) {
        let Some(first) = ids.first() else { return (Vec::new(), 0) };
        let mut there = self.store.after(first.0.checked_sub(1).map(MessageId)).peekable();
        let (mut saved, mut recipients) = (Vec::new(), 0);
        for (taken, id) in ids.iter().enumerate() {
            while there.next_if(|(other, _)| other < id).is_some() {}
            let Some((_, message)) = there.next_if(|(other, _)| other == id) else { continue };
            recipients += self.store.recipients_left(message);
            if recipients > recipients_max && !saved.is_empty() {
                return (saved, taken);
            }
            saved.push((*id, self.save(message, now)));
        }
        (saved, ids.len())
    }

    /// Returns the bytes of the next messages above `after` in the order of their ids, up to `max`.
    pub fn export_from(
        &self,
        after: Option<MessageId>,
        max: usize,
        now: Now,
    ) -> Vec<(MessageId, Vec<u8>)> {
        let next = self.store.after(after).take(max);
        next.map(|(id, message)| (id, self.save(message, now))).collect()
    }

    /// Takes a message into the queue from the bytes that `export` returned.
    pub fn restore(&mut self, bytes: &[u8], now: Now) -> Result<MessageId, SchedulerError> {
        self.set_clock(now);
        let (version, bytes) = bytes.split_first().ok_or(SchedulerError::BadSnapshot)?;
        if *version != VERSION {
            return Err(SchedulerError::BadSnapshot);
        }
        let saved: Saved = postcard::from_bytes(bytes).map_err(|_| SchedulerError::BadSnapshot)?;
        let id = MessageId(saved.id);
        if self.store.find(id).is_some() {
            return Err(SchedulerError::Duplicate(id));
        }
        if !saved.is_sound() {
            return Err(SchedulerError::BadSnapshot);
        }
        self.load(&saved);
        Ok(id)
    }

    fn save(&self, message: u32, now: Now) -> Vec<u8> {
        if let Some(one) = self.store.single(message) {
            return self.save_single(message, one, now);
        }
        let mut reports = Numbers::new();
        let groups = self.store.groups_of(message);
        let groups =
            groups.into_iter().map(|group| self.save_group(group, &mut reports, now)).collect();
        let all: Vec<Report> =
            reports.all().iter().filter_map(|report| self.store.report(*report).cloned()).collect();
        self.save_message(message, Cow::Owned(groups), all.into())
    }

    /// Saves a message with one recipient. Nearly all messages are like this, and a long queue saves them again and again:
    /// nothing is allocated but the bytes.
    fn save_single(&self, message: u32, one: &QueuedRecipient, now: Now) -> Vec<u8> {
        let reports = self.store.report(one.report).map_or(&[][..], std::slice::from_ref);
        let recipient = self.save_as(0, one, reports.len() as u32);
        let members = Cow::Borrowed(std::slice::from_ref(&recipient));
        let group = self.save_group_of(one.group, members, now);
        self.save_message(message, Cow::Borrowed(std::slice::from_ref(&group)), reports.into())
    }

    fn save_message<'a>(
        &'a self,
        message: u32,
        groups: Cow<'a, [SavedGroup<'a>]>,
        reports: Cow<'a, [Report]>,
    ) -> Vec<u8> {
        let found = self.store.message(message);
        // Each recipient knows whether its delay was told: the others are told when the mark comes once more.
        let kept = if found.has(TELLS_DELAY) { FLAGS_KEPT & !DELAY_SEEN } else { FLAGS_KEPT };
        encode(&Saved {
            id: found.id.0,
            arrived_seconds: found.arrived,
            bytes: found.bytes,
            sender: self.store.sender(message),
            priority: found.priority,
            held: found.held,
            flags: found.flags & kept,
            recipients: self.store.recipients_len(message),
            groups,
            reports,
        })
    }

    fn save_group(&self, group: u32, reports: &mut Numbers<u32>, now: Now) -> SavedGroup<'_> {
        let message = self.store.groups[group].message;
        let members = self.store.members(group).into_iter();
        let members = members.filter_map(|index| self.save_recipient(message, index, reports));
        self.save_group_of(group, Cow::Owned(members.collect()), now)
    }

    fn save_group_of<'a>(
        &'a self,
        group: u32,
        members: Cow<'a, [SavedRecipient<'a>]>,
        now: Now,
    ) -> SavedGroup<'a> {
        let found = &self.store.groups[group];
        let due = match found.state {
            GroupState::Waiting => Some(self.wall_of(found.place).micros()),
            // An attempt in flight at a restart is lost.
            GroupState::InFlight => Some(now.wall.micros()),
            _ => None,
        };
        let hop = Cow::Borrowed(&self.destinations[found.destination].hop);
        SavedGroup { hop, attempts: found.attempts, due, members }
    }

    fn save_recipient(
        &self,
        message: u32,
        index: u32,
        reports: &mut Numbers<u32>,
    ) -> Option<SavedRecipient<'_>> {
        let one = self.store.recipient(message, index)?;
        let report = if one.report == NONE { 0 } else { reports.of(one.report) };
        Some(self.save_as(index, one, report))
    }

    fn save_as(&self, index: u32, one: &QueuedRecipient, report: u32) -> SavedRecipient<'_> {
        let (local, domain) = self.store.texts_of(one);
        let (notify, delay_noticed) = (one.notify, one.delay_noticed);
        SavedRecipient { index, local, domain, notify, delay_noticed, report }
    }

    fn load(&mut self, saved: &Saved) {
        let message = self.load_message(saved);
        for group in saved.groups.iter() {
            self.load_group(message, group);
        }
        self.store.count_in(message);
        self.start_age(message, wall_of_seconds(saved.arrived_seconds));
    }

    fn load_message(&mut self, saved: &Saved) -> u32 {
        let mut all = vec![QueuedRecipient::default(); saved.recipients as usize];
        for one in saved.groups.iter().flat_map(|group| group.members.iter()) {
            let report = (one.report as usize).checked_sub(1).and_then(|at| saved.reports.get(at));
            let report = self.store.replace_report(NONE, report);
            let delay_noticed = one.delay_noticed;
            let recipient = self.store.new_recipient(one.local, one.domain, one.notify);
            all[one.index as usize] = QueuedRecipient { report, delay_noticed, ..recipient };
        }
        let message = QueuedMessage {
            id: MessageId(saved.id),
            arrived: saved.arrived_seconds,
            bytes: saved.bytes,
            sender: self.store.new_sender(saved.sender),
            priority: saved.priority,
            held: saved.held,
            flags: saved.flags & FLAGS_KEPT,
            ..QueuedMessage::default()
        };
        self.store.add(message, all)
    }

    fn load_group(&mut self, message: u32, saved: &SavedGroup) {
        let Some(first) = saved.members.first() else { return };
        let symbol = self.store.recipient_mut(message, first.index).domain;
        let destination = self.destination(&saved.hop, first.domain, symbol);
        saved.members[1..]
            .iter()
            .for_each(|one| self.destinations.note_routed(destination, one.domain));
        let members = saved.members.iter().map(|one| one.index).collect();
        let group = self.new_group(message, destination, members);
        self.store.groups[group].attempts = saved.attempts;
        let to = match (self.first_state(group), saved.due) {
            (To::Ready, Some(due)) => self.wait_until(Timestamp::from_micros(due)),
            (to, _) => to,
        };
        self.enter(group, to);
    }
}

fn encode(saved: &Saved) -> Vec<u8> {
    let mut room = [VERSION; 1 + BYTES_USUAL];
    if let Ok(used) = postcard::to_slice(saved, &mut room[1..]) {
        let length = 1 + used.len();
        return room[..length].to_vec();
    }
    postcard::to_extend(saved, vec![VERSION]).expect("memory takes any number of bytes")
}

impl Saved<'_> {
    /// Returns true if each recipient is in at most one group, all indexes are in bounds, and no group is empty.
    fn is_sound(&self) -> bool {
        if self.recipients == 1 {
            return matches!(&*self.groups, [group] if matches!(&*group.members, [one] if one.index == 0));
        }
        if self.recipients > RECIPIENTS_MAX || self.groups.is_empty() {
            return false;
        }
        let mut seen = vec![false; self.recipients as usize];
        let is_new = |seen: &mut bool| !std::mem::replace(seen, true);
        let mut fits = |one: &SavedRecipient| seen.get_mut(one.index as usize).is_some_and(is_new);
        self.groups
            .iter()
            .all(|group| !group.members.is_empty() && group.members.iter().all(&mut fits))
    }
}
