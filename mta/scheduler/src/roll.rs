//! The roll of each destination: all its groups, whatever they wait for, so that the mail for one destination is listed
//! without a look at the mail for the others.
//!
//! Must never decide who is tried: that is for turns and retries.

use crate::list::ROWS_LOOKED_AT_MAX;
use crate::memory::NONE;
use crate::scheduler::Scheduler;
use crate::store::message::RecipientGroup;
use mail::{Domain, MessageId, NextHop};

/// Upper bound on the destinations looked at to find a route by its name. With more of them the messages are looked
/// through instead.
const ROUTED_MAX: usize = 1_000;

impl Scheduler {
    /// Puts a new group on the roll of its destination.
    pub(crate) fn enroll(&mut self, group: u32) {
        let first = &mut self.destinations[self.store.groups[group].destination].roll;
        let next = std::mem::replace(first, group);
        self.store.groups[group].roll.next = next;
        if next != NONE {
            self.store.groups[next].roll.prev = group;
        }
    }

    /// Takes a group off the roll; the inverse of `enroll`.
    pub(crate) fn strike(&mut self, group: u32) {
        let RecipientGroup { destination, roll, .. } = self.store.groups[group];
        match roll.prev {
            NONE => self.destinations[destination].roll = roll.next,
            prev => self.store.groups[prev].roll.next = roll.next,
        }
        if roll.next != NONE {
            self.store.groups[roll.next].roll.prev = roll.prev;
        }
    }

    /// Returns messages above `after` in the order of their ids. All messages with a recipient in the domain `name`, or
    /// for the next hop `name`, are among them.
    ///
    /// Returns `None` if the name is a pattern, or if these rolls are so long that a look through the queue finds
    /// the messages soon.
    pub(crate) fn rolled(
        &self,
        name: &str,
        after: Option<MessageId>,
    ) -> Option<Vec<(MessageId, u32)>> {
        let routed = self.destinations.routed();
        if name.starts_with('*') || routed.len() > ROUTED_MAX {
            return None;
        }
        let known = |domain| self.destinations.find(&self.store, &NextHop::Mx(domain));
        let own = Domain::parse(name).ok().and_then(known);
        let others = routed.iter().copied().filter(|at| Some(*at) != own);
        let all: Vec<u32> = own.into_iter().chain(others).collect();
        let groups: usize = all.iter().map(|at| self.destinations[*at].groups as usize).sum();
        if groups > ROWS_LOOKED_AT_MAX {
            return None;
        }
        let messages = all.into_iter().flat_map(|at| self.roll(at));
        let named = messages.map(|at| (self.store.message(at).id, at));
        let mut named: Vec<_> = named.filter(|(id, _)| after.is_none_or(|a| *id > a)).collect();
        named.sort_unstable();
        named.dedup();
        Some(named)
    }

    /// Returns the messages on a destination's roll. A message with several groups there comes several times.
    fn roll(&self, destination: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.destinations[destination].roll).filter(|group| *group != NONE);
        let groups = std::iter::successors(first, |group| {
            Some(self.store.groups[*group].roll.next).filter(|next| *next != NONE)
        });
        groups.map(|group| self.store.groups[group].message)
    }
}
