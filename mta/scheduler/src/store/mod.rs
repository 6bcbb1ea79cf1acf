//! All queued messages: their ids, their recipients, and the groups of recipients that are tried together.
//!
//! Must never know the time, or which message is tried next.

mod members;
pub(crate) mod message;
mod recipients;

pub(crate) use recipients::Counts;

use crate::due::Wheel;
use crate::memory::reports::REPORT_BYTES_MAX;
use crate::memory::{IdIndex, NONE, Reports, Slab, Symbols};
use crate::rng::Rng;
use mail::{MessageId, Notify, Report};
use members::MemberList;
use message::{MANY, Many, QueuedMessage, QueuedRecipient, RecipientGroup};

/// Upper bound on the groups of a light sender that are ready or in flight. Mail of light senders goes ahead of the
/// mail of other senders.
pub(crate) const LIGHT_SENDER_MAX: u32 = 100;

/// All queued messages.
#[derive(Debug)]
pub(crate) struct Store {
    ids: IdIndex,
    messages: Slab<QueuedMessage>,
    /// Wheel in which each message waits for its next mark of age.
    ages: Wheel,
    /// Recipients of messages with one recipient.
    singles: Slab<QueuedRecipient>,
    /// Recipients of all other messages.
    many: Slab<Many>,
    /// Groups of recipients. All parts of the scheduler that move a group from state to state reach it here.
    pub groups: Slab<RecipientGroup>,
    /// Members of groups that do not have exactly one.
    lists: Slab<MemberList>,
    /// Senders and domains. Domains also lead to their destinations.
    pub symbols: Symbols,
    reports: Reports,
    counts: Counts,
}

impl Store {
    /// An empty store. Draws the seeds of its hash tables.
    pub fn new(chance: &mut Rng) -> Self {
        Store {
            ids: IdIndex::default(),
            messages: Slab::new(),
            ages: Wheel::new(),
            singles: Slab::new(),
            many: Slab::new(),
            groups: Slab::new(),
            lists: Slab::new(),
            symbols: Symbols::new(chance.bits()),
            reports: Reports::new(chance.bits(), REPORT_BYTES_MAX),
            counts: Counts::default(),
        }
    }

    /// Returns the place of a message.
    pub fn find(&self, id: MessageId) -> Option<u32> {
        self.ids.get(id)
    }

    /// Returns the messages above `after` in the order of their ids, each with its place.
    pub fn after(&self, after: Option<MessageId>) -> impl Iterator<Item = (MessageId, u32)> + '_ {
        self.ids.after(after)
    }

    /// Returns the message with the smallest id.
    pub fn oldest(&self) -> Option<u32> {
        self.ids.next(None).map(|(_, message)| message)
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// The sums over all messages.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn message(&self, message: u32) -> &QueuedMessage {
        &self.messages[message]
    }

    pub fn message_mut(&mut self, message: u32) -> &mut QueuedMessage {
        &mut self.messages[message]
    }

    /// Makes a recipient that belongs to no group yet.
    pub fn new_recipient(&mut self, local: &str, domain: &str, notify: Notify) -> QueuedRecipient {
        QueuedRecipient {
            local: self.symbols.texts.insert(local),
            domain: self.symbols.intern(domain),
            notify,
            ..QueuedRecipient::default()
        }
    }

    /// Returns the symbol of the sender of a new message.
    pub fn new_sender(&mut self, sender: &str) -> u32 {
        self.symbols.intern(sender)
    }

    /// Adds a message, with recipients that belong to no group yet. A recipient without a local part is finished.
    pub fn add(&mut self, mut message: QueuedMessage, all: Vec<QueuedRecipient>) -> u32 {
        message.flags |= if all.len() > 1 { MANY } else { 0 };
        message.recipients = self.keep_recipients(all);
        let id = message.id;
        let at = self.messages.insert(message);
        self.ids.insert(id, at);
        at
    }

    /// Removes a message without recipients, which the counts no longer include. Returns its id.
    pub fn close(&mut self, message: u32) -> MessageId {
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
        found.id
    }

    /// Lets a message wait for a mark of age, in no list until then.
    pub fn wait_for_age(&mut self, message: u32, tick: u32) {
        self.messages[message].age_tick = tick;
        self.ages.insert(&mut self.messages, message);
    }

    /// Takes out a message whose mark of age has come, moving at most `work` others nearer.
    pub fn pop_aged(&mut self, now: u32, work: &mut u32) -> Option<u32> {
        self.ages.pop(&mut self.messages, now, work)
    }

    /// Returns the tick from which `pop_aged` has something to do.
    pub fn next_age(&self) -> Option<u32> {
        self.ages.next()
    }

    /// Adds a group of recipients in no state.
    pub fn add_group(&mut self, message: u32, destination: u32, members: Vec<u32>) -> u32 {
        let group = RecipientGroup { message, destination, ..RecipientGroup::default() };
        let group = self.groups.insert(group);
        if self.messages[message].has(MANY) {
            self.many[self.messages[message].recipients].groups += 1;
        }
        for index in &members {
            self.recipient_mut(message, *index).group = group;
        }
        self.set_members(group, members);
        group
    }

    /// Removes a group in no state.
    pub fn remove_group(&mut self, group: u32) -> RecipientGroup {
        self.free_members(group);
        let group = self.groups.remove(group);
        if self.messages[group.message].has(MANY) {
            self.many[self.messages[group.message].recipients].groups -= 1;
        }
        group
    }

    /// Returns the MAIL FROM address of a message.
    pub fn sender(&self, message: u32) -> &str {
        self.symbols.get(self.messages[message].sender)
    }

    /// Returns true if the sender with this symbol has few groups ready or in flight.
    pub fn is_light(&self, sender: u32) -> bool {
        self.symbols.is_busy_at_most(sender, LIGHT_SENDER_MAX)
    }

    /// Changes the number of groups of a sender that are ready or in flight.
    pub fn count_busy(&mut self, sender: u32, by: i32) {
        let busy = self.symbols.busy(sender);
        *busy = busy.wrapping_add_signed(by);
    }

    /// Returns a stored report.
    pub fn report(&self, at: u32) -> Option<&Report> {
        self.reports.get(at)
    }

    /// Replaces a stored report by another one, or by none.
    pub fn replace_report(&mut self, old: u32, report: Option<&Report>) -> u32 {
        let new = report.map_or(NONE, |report| self.reports.intern(report));
        self.reports.release(old);
        new
    }
}
