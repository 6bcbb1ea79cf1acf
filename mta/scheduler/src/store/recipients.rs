//! The recipients of messages, and the sums that change with them.
//!
//! Must never move a group from one state to another.

use super::Store;
use super::message::{GroupState, MANY, Many, QueuedRecipient};
use crate::memory::NONE;
use mail::Report;
use view::State;

/// Sums over all messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Unfinished recipients.
    pub recipients: u64,
    /// Messages by state.
    pub active: u64,
    pub deferred: u64,
    pub held: u64,
}

impl Store {
    /// Returns a recipient, finished or not; `None` if the message has no such index.
    pub fn recipient(&self, message: u32, index: u32) -> Option<&QueuedRecipient> {
        let found = &self.messages[message];
        match found.has(MANY) {
            true => self.many[found.recipients].recipients.get(index as usize),
            false => (index == 0).then(|| &self.singles[found.recipients]),
        }
    }

    pub fn recipient_mut(&mut self, message: u32, index: u32) -> &mut QueuedRecipient {
        let found = &self.messages[message];
        match found.has(MANY) {
            true => &mut self.many[found.recipients].recipients[index as usize],
            false => &mut self.singles[found.recipients],
        }
    }

    /// Number of recipients, including finished ones.
    pub fn recipients_len(&self, message: u32) -> u32 {
        let found = &self.messages[message];
        if found.has(MANY) { self.many[found.recipients].recipients.len() as u32 } else { 1 }
    }

    /// Number of unfinished recipients.
    pub fn recipients_left(&self, message: u32) -> usize {
        let found = &self.messages[message];
        match found.has(MANY) {
            true => self.many[found.recipients].left as usize,
            false => usize::from(self.singles[found.recipients].group != NONE),
        }
    }

    /// Returns true if all recipients are finished.
    pub fn is_done(&self, message: u32) -> bool {
        self.recipients_left(message) == 0
    }

    /// Returns the only recipient of a message, unless it is finished.
    pub fn single(&self, message: u32) -> Option<&QueuedRecipient> {
        let found = &self.messages[message];
        let single = (!found.has(MANY)).then(|| &self.singles[found.recipients]);
        single.filter(|one| one.group != NONE)
    }

    /// Returns the group of an unfinished recipient.
    pub fn group_of(&self, message: u32, index: u32) -> Option<u32> {
        self.recipient(message, index).map(|one| one.group).filter(|group| *group != NONE)
    }

    /// Returns the indexes of the unfinished recipients.
    pub fn pending(&self, message: u32) -> Vec<u32> {
        let is_pending = |index: &u32| self.group_of(message, *index).is_some();
        (0..self.recipients_len(message)).filter(is_pending).collect()
    }

    /// Returns the groups of a message.
    pub fn groups_of(&self, message: u32) -> Vec<u32> {
        let all = (0..self.recipients_len(message)).filter_map(|at| self.recipient(message, at));
        let mut groups: Vec<u32> =
            all.map(|one| one.group).filter(|group| *group != NONE).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Returns `local@domain` of an unfinished recipient, as the client wrote it.
    pub fn address(&self, message: u32, index: u32) -> Option<String> {
        let one = self.recipient(message, index).filter(|one| one.group != NONE)?;
        let (local, domain) = self.texts_of(one);
        Some(format!("{local}@{domain}"))
    }

    /// Returns local part and domain of an unfinished recipient.
    pub fn texts_of(&self, one: &QueuedRecipient) -> (&str, &str) {
        (self.symbols.texts.get(one.local), self.symbols.get(one.domain))
    }

    /// Replaces the last report of a recipient.
    pub fn note_report(&mut self, message: u32, index: u32, report: &Report) {
        let new = self.reports.intern(report);
        let old = std::mem::replace(&mut self.recipient_mut(message, index).report, new);
        self.reports.release(old);
    }

    /// Finishes a recipient.
    pub fn finish(&mut self, message: u32, index: u32) {
        let recipient = self.recipient_mut(message, index);
        if recipient.group == NONE {
            return;
        }
        let QueuedRecipient { local, domain, report, .. } = std::mem::take(recipient);
        self.symbols.texts.remove(local);
        self.symbols.release(domain);
        self.reports.release(report);
        self.counts.recipients -= 1;
        if self.messages[message].has(MANY) {
            self.many[self.messages[message].recipients].left -= 1;
        }
    }

    /// Stores the recipients of a new message. A single one must be unfinished.
    pub(super) fn keep_recipients(&mut self, mut all: Vec<QueuedRecipient>) -> u32 {
        if all.len() == 1 {
            self.counts.recipients += 1;
            return self.singles.insert(all.remove(0));
        }
        let left = all.iter().filter(|one| one.local != NONE).count() as u32;
        self.counts.recipients += u64::from(left);
        self.many.insert(Many { recipients: all.into(), left, ..Many::default() })
    }

    /// Counts a group in a state, or with -1 no longer.
    pub fn count_state(&mut self, group: u32, state: GroupState, by: i32) {
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

    /// Returns the state of a message as a whole.
    pub fn state_of(&self, message: u32) -> State {
        let found = &self.messages[message];
        let (held, awake) = if found.has(MANY) {
            let many = &self.many[found.recipients];
            (many.held == many.groups, many.awake > 0)
        } else {
            let group = self.singles[found.recipients].group;
            let state = self.groups.get(group).map(|group| group.state).unwrap_or_default();
            (state == GroupState::Held, state.is_awake())
        };
        match (found.held != 0 || held, awake) {
            (true, _) => State::Held,
            (false, true) => State::Active,
            (false, false) => State::Deferred,
        }
    }

    /// Adds a message to the count of its state. Each change of a message stands between `count_out` and `count_in`.
    pub fn count_in(&mut self, message: u32) {
        let state = self.state_of(message);
        *self.count_of(state) += 1;
    }

    /// Removes a message from the count of its state.
    pub fn count_out(&mut self, message: u32) {
        let state = self.state_of(message);
        *self.count_of(state) -= 1;
    }

    fn count_of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Active => &mut self.counts.active,
            State::Deferred => &mut self.counts.deferred,
            State::Held => &mut self.counts.held,
        }
    }
}
