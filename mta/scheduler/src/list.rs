//! Lists and sums of the queue.
//!
//! Must never look at more than `ROWS_LOOKED_AT_MAX` messages in one call.

use crate::clock::wall_of_seconds;
use crate::destinations::destination::FAILURES_MAX;
use crate::memory::NONE;
use crate::scheduler::Scheduler;
use crate::settings::matches;
use crate::store::message::{GroupState, RecipientGroup};
use mail::{MessageId, Now};
use std::time::Duration;
use view::{
    DESTINATIONS_SHOWN_MAX, DestinationSummary, Filter, ListPage, RECIPIENTS_SHOWN_MAX, Row,
    RowRecipient, Summary,
};

/// Upper bound on the messages that one call of `list` looks at.
pub(crate) const ROWS_LOOKED_AT_MAX: usize = 10_000;
/// Size of a page in bytes from which on it takes no further row. Next hops choose the replies in it.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

impl Scheduler {
    /// Returns the messages above `after` that pass the filter, in the order of their ids. Named messages are looked up,
    /// and those of one destination are found on its roll.
    pub fn list(
        &self,
        filter: &Filter,
        after: Option<MessageId>,
        max: usize,
        now: Now,
    ) -> ListPage {
        if !filter.ids.is_empty() {
            return self.page_of_named(filter, after, max, now);
        }
        match filter.destination.as_deref().and_then(|name| self.rolled(name, after)) {
            Some(found) => self.page(found.into_iter(), filter, after, max, now),
            None => self.page(self.store.after(after), filter, after, max, now),
        }
    }

    fn page_of_named(
        &self,
        filter: &Filter,
        after: Option<MessageId>,
        max: usize,
        now: Now,
    ) -> ListPage {
        let mut named = filter.ids.clone();
        named.sort_unstable();
        named.dedup();
        let found = named.into_iter().filter(|id| after.is_none_or(|after| *id > after));
        let found = found.filter_map(|id| Some((id, self.store.find(id)?)));
        self.page(found, filter, after, max, now)
    }

    fn page(
        &self,
        all: impl Iterator<Item = (MessageId, u32)>,
        filter: &Filter,
        after: Option<MessageId>,
        max: usize,
        now: Now,
    ) -> ListPage {
        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, after);
        for (looked_at, (id, message)) in all.enumerate() {
            let full = rows.len() >= max || bytes >= PAGE_BYTES_MAX;
            if full || looked_at >= ROWS_LOOKED_AT_MAX {
                return ListPage { rows, next: last };
            }
            last = Some(id);
            if self.passes(filter, message, now) {
                let row = self.row(message);
                bytes += row.bytes_shown();
                rows.push(row);
            }
        }
        ListPage { rows, next: None }
    }

    /// Returns the queue in a few numbers. Looks at every destination, but at no message.
    pub fn summary(&self, now: Now) -> Summary {
        let oldest = self.store.oldest().map(|message| self.store.message(message).arrived);
        let age = oldest.map(|arrived| now.wall.since(wall_of_seconds(arrived)).as_secs());
        let backing_off = |at: &u32| self.destinations[*at].failures >= FAILURES_MAX;
        let busy = |at: &u32| self.destinations[*at].groups > 0;
        let counts = self.store.counts();
        let live = self.destinations.live();
        Summary {
            messages: self.store.len() as u64,
            recipients: counts.recipients,
            active: counts.active,
            deferred: counts.deferred,
            held: counts.held,
            oldest_seconds: age.unwrap_or(0),
            attempts_in_flight: self.attempts_in_flight(),
            destinations_backing_off: live.iter().filter(|at| backing_off(at)).count() as u32,
            destinations: self.fullest(live.into_iter().filter(busy).collect()),
        }
    }

    fn fullest(&self, mut all: Vec<u32>) -> Vec<DestinationSummary> {
        let size = |at: &u32| std::cmp::Reverse((self.destinations[*at].groups, !*at));
        if all.len() > DESTINATIONS_SHOWN_MAX {
            all.select_nth_unstable_by_key(DESTINATIONS_SHOWN_MAX, size);
            all.truncate(DESTINATIONS_SHOWN_MAX);
        }
        all.sort_unstable_by_key(size);
        all.into_iter().map(|at| self.destination_summary(at)).collect()
    }

    fn destination_summary(&self, at: u32) -> DestinationSummary {
        let destination = &self.destinations[at];
        DestinationSummary {
            hop: destination.hop.clone(),
            waiting: destination.groups,
            ready: destination.ready,
            in_flight: destination.in_flight,
            allowed: destination.allowed(&self.destinations.limits_of(at)),
            failures: destination.failures,
        }
    }

    fn passes(&self, filter: &Filter, message: u32, now: Now) -> bool {
        let found = self.store.message(message);
        let age = now.wall.since(wall_of_seconds(found.arrived));
        let sender = self.store.sender(message);
        filter.older_seconds.is_none_or(|older| age >= Duration::from_secs(older))
            && filter.state.is_none_or(|state| state == self.store.state_of(message))
            && filter.sender.as_deref().is_none_or(|pattern| matches(pattern, sender))
            && self.passes_by_recipient(filter, message)
    }

    fn passes_by_recipient(&self, filter: &Filter, message: u32) -> bool {
        if filter.destination.is_none() && filter.recipient.is_none() {
            return true;
        }
        self.store.pending(message).into_iter().any(|index| {
            let Some(recipient) = self.store.recipient(message, index) else { return false };
            let hop = &self.destinations[self.store.groups[recipient.group].destination].hop;
            let (_, domain) = self.store.texts_of(recipient);
            let to = |pattern: &str| matches(pattern, domain) || matches(pattern, &hop.to_string());
            let named = |pattern: &str| {
                self.store.address(message, index).is_some_and(|address| matches(pattern, &address))
            };
            filter.destination.as_deref().is_none_or(to)
                && filter.recipient.as_deref().is_none_or(named)
        })
    }

    fn row(&self, message: u32) -> Row {
        let found = self.store.message(message);
        let all = 0..self.store.recipients_len(message);
        let waiting = all.filter_map(|index| self.row_recipient(message, index));
        Row {
            message: found.id,
            sender: self.store.sender(message).to_owned(),
            arrived: wall_of_seconds(found.arrived),
            bytes: u64::from(found.bytes),
            priority: found.priority,
            state: self.store.state_of(message),
            recipients: self.store.recipients_left(message) as u32,
            waiting: waiting.take(RECIPIENTS_SHOWN_MAX).collect(),
        }
    }

    fn row_recipient(&self, message: u32, index: u32) -> Option<RowRecipient> {
        let recipient = self.store.recipient(message, index).filter(|one| one.group != NONE)?;
        let RecipientGroup { destination, state, place, .. } = self.store.groups[recipient.group];
        Some(RowRecipient {
            recipient: index,
            address: self.store.address(message, index)?,
            hop: self.destinations[destination].hop.clone(),
            last: self.store.report(recipient.report).cloned(),
            due: (state == GroupState::Waiting).then(|| self.wall_of(place)),
        })
    }
}
