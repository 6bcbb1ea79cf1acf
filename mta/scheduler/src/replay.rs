//! The changes of the log, applied again after a restart.
//!
//! Must never make a record or a notice: all that is read here has been recorded already.

use crate::group::To;
use crate::scheduler::Scheduler;
use mail::{Change, Now, Report, Timestamp};
use view::HeldBy;

/// State that is kept from one change to the next.
#[derive(Debug, Default)]
pub(crate) struct ReplayState {
    /// Message, group and due time of the last `Due`.
    last_due: Option<(u32, u32, i64)>,
}

impl Scheduler {
    /// Applies a change from the log. Ignores a change of an unknown message.
    pub fn apply(&mut self, change: &Change, now: Now) {
        self.set_clock(now);
        let Some(message) = self.store.find(change.message()) else { return };
        match change {
            Change::Delivered { recipients, .. } | Change::Failed { recipients, .. } => {
                self.apply_done(message, recipients);
            }
            Change::Due { recipients, due, attempts, report, .. } => {
                self.apply_due(message, recipients, *due, *attempts, report);
            }
            Change::DelayNoticed { recipients, .. } => {
                let known =
                    recipients.iter().filter(|at| **at < self.store.recipients_len(message));
                let known: Vec<u32> = known.copied().collect();
                known
                    .into_iter()
                    .for_each(|at| self.store.recipient_mut(message, at).delay_noticed = true);
            }
            Change::Hold { .. } => self.put_aside(message, HeldBy::Operator),
            Change::Release { .. } => self.let_go(message),
            Change::Priority { priority, .. } => self.prefer(message, *priority),
            Change::Retire { .. } => self.apply_retire(message),
        }
    }

    fn apply_done(&mut self, message: u32, recipients: &[u32]) {
        self.store.count_out(message);
        for index in recipients {
            let Some(group) = self.store.group_of(message, *index) else { continue };
            self.store.finish(message, *index);
            self.member_left(group);
        }
        self.store.count_in(message);
        if self.store.is_done(message) {
            self.retire_later(self.store.message(message).id);
        }
    }

    /// Applies a due time. The recipients of one attempt come in several changes if their replies differ; they stay in one
    /// group.
    fn apply_due(
        &mut self,
        message: u32,
        all: &[u32],
        due: Timestamp,
        attempts: u16,
        why: &Report,
    ) {
        let known: Vec<u32> =
            all.iter().copied().filter(|at| self.store.group_of(message, *at).is_some()).collect();
        known.iter().for_each(|index| self.store.note_report(message, *index, why));
        self.store.count_out(message);
        for (group, members) in self.store.by_group(message, known) {
            self.apply_due_to(group, members, due, attempts);
        }
        self.store.count_in(message);
    }

    fn apply_due_to(&mut self, group: u32, members: Vec<u32>, due: Timestamp, attempts: u16) {
        let message = self.store.groups[group].message;
        let group = if self.store.members_len(group) == members.len() {
            self.leave(group);
            group
        } else if let Some((before, target, when)) = self.replay.last_due
            && (before, when) == (message, due.micros())
            && target != group
            && self.store.groups[target].message == message
            && self.store.groups[target].destination == self.store.groups[group].destination
        {
            return self.join(group, target, members);
        } else {
            self.divide(group, members)
        };
        self.store.groups[group].attempts = attempts;
        let to = match self.first_state(group) {
            To::Ready => self.wait_until(due),
            to => to,
        };
        self.enter(group, to);
        self.replay.last_due = Some((message, group, due.micros()));
    }

    /// Moves members from one group to another group for the same destination. At least one member remains.
    fn join(&mut self, from: u32, to: u32, members: Vec<u32>) {
        self.store.members_joined(to, &members);
        self.store.members_left(from, members.len());
    }

    fn apply_retire(&mut self, message: u32) {
        self.apply_done(message, &self.store.pending(message));
        self.store.count_out(message);
        self.close_message(message);
    }
}
