//! One message as bytes and back, and the log's changes applied again after a restart.
//!
//! Must never tell anyone anything: what is read again has been recorded already.
//!
//! The bytes are a version and `Saved` in postcard.

use crate::clock::wall_of_seconds;
use crate::group::To;
use crate::memory::{NONE, Numbers};
use crate::message::{
    DELAY_SEEN, GroupState, MANY, Message, NULL_SENDER, OVERDUE, Recipient, TELLS_DELAY,
};
use crate::scheduler::{Scheduler, SchedulerError};
use mail::{Change, MessageId, NextHop, Notify, Now, Report, Wall};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use view::HeldBy;

/// Changes with the layout of `Saved`.
const VERSION: u8 = 1;
/// As many as any setting lets a message have: a snapshot that says more is damaged, and each
/// takes memory at once.
pub const RECIPIENTS_MAX: u32 = 1_000_000;
/// Nearly every message with one recipient fits.
const BYTES_USUAL: usize = 192;
/// These flags outlive a restart.
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
    /// Also those that are done, so that indexes stay what they are.
    recipients: u32,
    #[serde(borrow)]
    groups: Cow<'a, [SavedGroup<'a>]>,
    reports: Cow<'a, [Report]>,
}

#[derive(Clone, Serialize, Deserialize)]
struct SavedGroup<'a> {
    hop: Cow<'a, NextHop>,
    attempts: u16,
    /// Wall time in microseconds; `None`: it was not waiting for the schedule.
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
    /// Index in `reports` and one; 0: none.
    report: u32,
}

impl Scheduler {
    /// Everything that is needed to restore a message.
    pub fn export(&self, id: MessageId, now: Now) -> Option<Vec<u8>> {
        let message = self.ids.get(id)?;
        Some(self.save(message, now))
    }

    /// The same of many, whose ids are in order; messages that are not there are left out. Ends before the message with
    /// which there would be more than `recipients_max` recipients, but not before the first: also says how many ids it
    /// has taken. Looks at the messages in between, too.
    pub fn export_all(
        &self,
        ids: &[MessageId],
        recipients_max: usize,
        now: Now,
    ) -> (Vec<(MessageId, Vec<u8>)>, usize) {
        let Some(first) = ids.first() else { return (Vec::new(), 0) };
        let mut there = self.ids.after(first.0.checked_sub(1).map(MessageId)).peekable();
        let (mut saved, mut recipients) = (Vec::new(), 0);
        for (taken, id) in ids.iter().enumerate() {
            while there.next_if(|(other, _)| other < id).is_some() {}
            let Some((_, message)) = there.next_if(|(other, _)| other == id) else { continue };
            recipients += self.recipients_left(message);
            if recipients > recipients_max && !saved.is_empty() {
                return (saved, taken);
            }
            saved.push((*id, self.save(message, now)));
        }
        (saved, ids.len())
    }

    /// The next messages above `after` in the order of their ids, at most `max`.
    pub fn export_from(
        &self,
        after: Option<MessageId>,
        max: usize,
        now: Now,
    ) -> Vec<(MessageId, Vec<u8>)> {
        let next = self.ids.after(after).take(max);
        next.map(|(id, message)| (id, self.save(message, now))).collect()
    }

    /// Takes a message that `export` made into the queue again.
    pub fn restore(&mut self, bytes: &[u8], now: Now) -> Result<MessageId, SchedulerError> {
        self.clock.set(now);
        let (version, bytes) = bytes.split_first().ok_or(SchedulerError::BadSnapshot)?;
        if *version != VERSION {
            return Err(SchedulerError::BadSnapshot);
        }
        let saved: Saved = postcard::from_bytes(bytes).map_err(|_| SchedulerError::BadSnapshot)?;
        let id = MessageId(saved.id);
        if self.ids.get(id).is_some() {
            return Err(SchedulerError::Duplicate(id));
        }
        if !saved.is_sound() {
            return Err(SchedulerError::BadSnapshot);
        }
        self.load(&saved);
        Ok(id)
    }

    /// Applies a change that the log holds; one about an unknown message is ignored.
    pub fn apply(&mut self, change: &Change, now: Now) {
        self.clock.set(now);
        let Some(message) = self.ids.get(change.message()) else { return };
        match change {
            Change::Delivered { recipients, .. } | Change::Failed { recipients, .. } => {
                self.apply_done(message, recipients);
            }
            Change::Due { recipients, due, attempts, report, .. } => {
                self.apply_due(message, recipients, *due, *attempts, report);
            }
            Change::DelayNoticed { recipients, .. } => {
                let known = recipients.iter().filter(|at| **at < self.recipients_len(message));
                let known: Vec<u32> = known.copied().collect();
                known
                    .into_iter()
                    .for_each(|at| self.recipient_mut(message, at).delay_noticed = true);
            }
            Change::Hold { .. } => self.put_aside(message, HeldBy::Operator),
            Change::Release { .. } => self.let_go(message),
            Change::Priority { priority, .. } => self.prefer(message, *priority),
            Change::Retire { .. } => self.apply_retire(message),
        }
    }

    fn save(&self, message: u32, now: Now) -> Vec<u8> {
        let found = &self.messages[message];
        if !found.has(MANY) && self.singles[found.recipients].group != NONE {
            return self.save_single(message, now);
        }
        let mut reports = Numbers::new();
        let groups = self.groups_of(message);
        let groups =
            groups.into_iter().map(|group| self.save_group(group, &mut reports, now)).collect();
        let all: Vec<Report> =
            reports.all().iter().filter_map(|report| self.reports.get(*report).cloned()).collect();
        self.save_message(found, Cow::Owned(groups), all.into())
    }

    /// Nearly all messages are like this, and of them a long queue is saved again and again: nothing is allocated but the
    /// bytes.
    fn save_single(&self, message: u32, now: Now) -> Vec<u8> {
        let found = &self.messages[message];
        let one = &self.singles[found.recipients];
        let reports = self.reports.get(one.report).map_or(&[][..], std::slice::from_ref);
        let recipient = self.save_as(0, one, reports.len() as u32);
        let members = Cow::Borrowed(std::slice::from_ref(&recipient));
        let group = self.save_group_of(one.group, members, now);
        self.save_message(found, Cow::Borrowed(std::slice::from_ref(&group)), reports.into())
    }

    fn save_message<'a>(
        &'a self,
        found: &Message,
        groups: Cow<'a, [SavedGroup<'a>]>,
        reports: Cow<'a, [Report]>,
    ) -> Vec<u8> {
        let many = found.has(MANY);
        // Each recipient knows whether its delay was told: the rest are told when its time is over
        // once more.
        let kept = if found.has(TELLS_DELAY) { FLAGS_KEPT & !DELAY_SEEN } else { FLAGS_KEPT };
        let recipients = if many { self.many[found.recipients].recipients.len() as u32 } else { 1 };
        encode(&Saved {
            id: found.id.0,
            arrived_seconds: found.arrived,
            bytes: found.bytes,
            sender: self.symbols.get(found.sender),
            priority: found.priority,
            held: found.held,
            flags: found.flags & kept,
            recipients,
            groups,
            reports,
        })
    }

    fn save_group(&self, group: u32, reports: &mut Numbers<u32>, now: Now) -> SavedGroup<'_> {
        let message = self.groups[group].message;
        let members = self.members(group).into_iter();
        let members = members.filter_map(|index| self.save_recipient(message, index, reports));
        self.save_group_of(group, Cow::Owned(members.collect()), now)
    }

    fn save_group_of<'a>(
        &'a self,
        group: u32,
        members: Cow<'a, [SavedRecipient<'a>]>,
        now: Now,
    ) -> SavedGroup<'a> {
        let found = &self.groups[group];
        let due = match found.state {
            GroupState::Waiting => Some(self.clock.wall_of(found.place).micros()),
            // A restart in the middle of an attempt is a lost attempt.
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
        let one = self.recipient(message, index)?;
        let report = if one.report == NONE { 0 } else { reports.of(one.report) };
        Some(self.save_as(index, one, report))
    }

    fn save_as(&self, index: u32, one: &Recipient, report: u32) -> SavedRecipient<'_> {
        SavedRecipient {
            index,
            local: self.symbols.texts.get(one.local),
            domain: self.symbols.get(one.domain),
            notify: one.notify,
            delay_noticed: one.delay_noticed,
            report,
        }
    }

    fn load(&mut self, saved: &Saved) {
        let message = self.load_message(saved);
        for group in saved.groups.iter() {
            self.load_group(message, group);
        }
        self.count_in(message);
        self.start_age(message, wall_of_seconds(saved.arrived_seconds));
    }

    fn load_message(&mut self, saved: &Saved) -> u32 {
        let mut all = vec![Recipient::default(); saved.recipients as usize];
        for one in saved.groups.iter().flat_map(|group| group.members.iter()) {
            let report = (one.report as usize).checked_sub(1).and_then(|at| saved.reports.get(at));
            all[one.index as usize] = Recipient {
                local: self.symbols.texts.insert(one.local),
                domain: self.symbols.intern(one.domain),
                group: NONE,
                report: report.map_or(NONE, |report| self.reports.intern(report)),
                notify: one.notify,
                delay_noticed: one.delay_noticed,
            };
        }
        let done = all.iter().filter(|one| one.local == NONE).count() as u32;
        let many = if all.len() > 1 { MANY } else { 0 };
        let recipients = self.keep_recipients(all);
        self.counts.recipients -= u64::from(done);
        if many != 0 {
            self.many[recipients].left -= done;
        }
        let sender = self.symbols.intern(saved.sender);
        let message = self.messages.insert(Message {
            id: MessageId(saved.id),
            arrived: saved.arrived_seconds,
            bytes: saved.bytes,
            sender,
            recipients,
            priority: saved.priority,
            held: saved.held,
            flags: saved.flags & FLAGS_KEPT | many,
            ..Message::default()
        });
        self.ids.insert(MessageId(saved.id), message);
        message
    }

    fn load_group(&mut self, message: u32, saved: &SavedGroup) {
        let Some(first) = saved.members.first() else { return };
        let symbol = self.recipient_mut(message, first.index).domain;
        let destination = self.destination(&saved.hop, first.domain, symbol);
        saved.members[1..].iter().for_each(|one| self.note_routed(destination, one.domain));
        let members = saved.members.iter().map(|one| one.index).collect();
        let group = self.new_group(message, destination, members);
        self.groups[group].attempts = saved.attempts;
        let to = match (self.first_state(group), saved.due) {
            (To::Ready, Some(due)) => self.wait_until(Wall::from_micros(due)),
            (to, _) => to,
        };
        self.enter(group, to);
    }

    /// A due time of before the restart; a clock that went wrong never makes it far away.
    fn wait_until(&self, due: Wall) -> To {
        let retry = &self.settings.retry;
        let longest = retry.longest.max(retry.first).mul_f64(1.0 + retry.jitter.clamp(0.0, 1.0));
        match due.since(self.clock.now().wall).min(longest) {
            Duration::ZERO => To::Ready,
            wait => To::Wait(self.clock.tick_after(wait)),
        }
    }

    fn apply_done(&mut self, message: u32, recipients: &[u32]) {
        self.count_out(message);
        for index in recipients {
            let Some(group) = self.group_of(message, *index) else { continue };
            self.finish(message, *index);
            self.member_left(group);
        }
        self.count_in(message);
        if self.is_done(message) {
            self.done.push_back(self.messages[message].id);
        }
    }

    /// Recipients of one attempt come in several changes if they were told different things;
    /// they stay together.
    fn apply_due(&mut self, message: u32, all: &[u32], due: Wall, attempts: u16, why: &Report) {
        let known: Vec<u32> =
            all.iter().copied().filter(|at| self.group_of(message, *at).is_some()).collect();
        known.iter().for_each(|index| self.note_report(message, *index, why));
        self.count_out(message);
        for (group, members) in self.by_group(message, known) {
            self.apply_due_to(group, members, due, attempts);
        }
        self.count_in(message);
    }

    fn apply_due_to(&mut self, group: u32, members: Vec<u32>, due: Wall, attempts: u16) {
        let message = self.groups[group].message;
        let group = if self.members_len(group) == members.len() {
            self.leave(group);
            group
        } else if let Some((before, target, when)) = self.last_due
            && (before, when) == (message, due.micros())
            && target != group
            && self.groups[target].message == message
            && self.groups[target].destination == self.groups[group].destination
        {
            return self.join(group, target, members);
        } else {
            self.divide(group, members)
        };
        self.groups[group].attempts = attempts;
        let to = match self.first_state(group) {
            To::Ready => self.wait_until(due),
            to => to,
        };
        self.enter(group, to);
        self.last_due = Some((message, group, due.micros()));
    }

    /// Moves members from one group to another of the same destination. At least one is left.
    fn join(&mut self, from: u32, to: u32, members: Vec<u32>) {
        self.members_joined(to, &members);
        self.members_left(from, members.len());
    }

    fn apply_retire(&mut self, message: u32) {
        self.apply_done(message, &self.pending(message));
        self.count_out(message);
        self.close_message(message);
    }

    pub(crate) fn group_of(&self, message: u32, index: u32) -> Option<u32> {
        self.recipient(message, index).map(|one| one.group).filter(|group| *group != NONE)
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
    /// Each recipient at most once, each within bounds, each group with one.
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
