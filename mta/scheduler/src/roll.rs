//! The roll of each destination: all its groups, whatever they wait for, so that what is queued for one can be
//! listed without a look at all the others.
//!
//! Must never decide who is tried: that is for sender queues and wheels.

use crate::destination::ROUTED;
use crate::list::ROWS_LOOKED_AT_MAX;
use crate::memory::NONE;
use crate::message::RecipientGroup;
use crate::scheduler::Scheduler;
use mail::{Domain, MessageId, NextHop};

/// Destinations looked at to find a route by its name; with more of them messages are looked through instead.
const ROUTED_MAX: usize = 1_000;

impl Scheduler {
    /// Puts a new group on its destination's roll.
    pub(crate) fn enroll(&mut self, group: u32) {
        let first = &mut self.destinations[self.groups[group].destination].roll;
        let next = std::mem::replace(first, group);
        self.groups[group].roll.next = next;
        if next != NONE {
            self.groups[next].roll.prev = group;
        }
    }

    /// The inverse of `enroll`.
    pub(crate) fn strike(&mut self, group: u32) {
        let RecipientGroup { destination, roll, .. } = self.groups[group];
        match roll.prev {
            NONE => self.destinations[destination].roll = roll.next,
            prev => self.groups[prev].roll.next = roll.next,
        }
        if roll.next != NONE {
            self.groups[roll.next].roll.prev = roll.prev;
        }
    }

    /// Notes a destination that takes other domains than the one it is named after.
    pub(crate) fn note_routed(&mut self, destination: u32, recipient_domain: &str) {
        let found = &mut self.destinations[destination];
        let own = |domain: &Domain| domain.as_str().eq_ignore_ascii_case(recipient_domain);
        if found.flags & ROUTED != 0 || matches!(&found.hop, NextHop::Mx(domain) if own(domain)) {
            return;
        }
        found.flags |= ROUTED;
        self.routed_destinations.insert(destination);
    }

    /// Messages above `after`, by id, among which are all that have a recipient in this domain or for this next hop.
    /// `None`: the name is a pattern, or these are so many that looking through the queue finds them soon.
    pub(crate) fn rolled(
        &self,
        name: &str,
        after: Option<MessageId>,
    ) -> Option<Vec<(MessageId, u32)>> {
        if name.starts_with('*') || self.routed_destinations.len() > ROUTED_MAX {
            return None;
        }
        let own = Domain::parse(name).ok().and_then(|domain| self.known(&NextHop::Mx(domain)));
        let others = self.routed_destinations.iter().copied().filter(|at| Some(*at) != own);
        let all: Vec<u32> = own.into_iter().chain(others).collect();
        let groups: usize = all.iter().map(|at| self.destinations[*at].groups as usize).sum();
        if groups > ROWS_LOOKED_AT_MAX {
            return None;
        }
        let messages = all.into_iter().flat_map(|at| self.roll(at));
        let named = messages.map(|at| (self.messages[at].id, at));
        let mut named: Vec<_> = named.filter(|(id, _)| after.is_none_or(|a| *id > a)).collect();
        named.sort_unstable();
        named.dedup();
        Some(named)
    }

    /// The messages on a destination's roll; one that has several groups there comes as often.
    fn roll(&self, destination: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.destinations[destination].roll).filter(|group| *group != NONE);
        let groups = std::iter::successors(first, |group| {
            Some(self.groups[*group].roll.next).filter(|next| *next != NONE)
        });
        groups.map(|group| self.groups[group].message)
    }
}
