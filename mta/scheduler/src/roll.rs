//! The roll of each destination: all its transactions, whatever they wait for, so that what is queued for one can be
//! listed without a look at all the others.
//!
//! Must never decide who is tried: that is for sender queues and wheels.

use crate::destination::ROUTED;
use crate::list::ROWS_LOOKED_AT_MAX;
use crate::message::Job;
use crate::scheduler::Scheduler;
use crate::store::NONE;
use mail::{Domain, MessageId, NextHop};

/// Destinations looked at to find a route by its name; with more of them messages are looked through instead.
const ROUTED_MAX: usize = 1_000;

impl Scheduler {
    /// Puts a new transaction on its destination's roll.
    pub(crate) fn enroll(&mut self, job: u32) {
        let first = &mut self.destinations[self.jobs[job].destination].roll;
        let next = std::mem::replace(first, job);
        self.jobs[job].roll.next = next;
        if next != NONE {
            self.jobs[next].roll.prev = job;
        }
    }

    /// The inverse of `enroll`.
    pub(crate) fn strike(&mut self, job: u32) {
        let Job { destination, roll, .. } = self.jobs[job];
        match roll.prev {
            NONE => self.destinations[destination].roll = roll.next,
            prev => self.jobs[prev].roll.next = roll.next,
        }
        if roll.next != NONE {
            self.jobs[roll.next].roll.prev = roll.prev;
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
        let jobs: usize = all.iter().map(|at| self.destinations[*at].jobs as usize).sum();
        if jobs > ROWS_LOOKED_AT_MAX {
            return None;
        }
        let messages = all.into_iter().flat_map(|at| self.roll(at));
        let named = messages.map(|at| (self.messages[at].id, at));
        let mut named: Vec<_> = named.filter(|(id, _)| after.is_none_or(|a| *id > a)).collect();
        named.sort_unstable();
        named.dedup();
        Some(named)
    }

    /// The messages on a destination's roll; one that has several transactions there comes as often.
    fn roll(&self, destination: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.destinations[destination].roll).filter(|job| *job != NONE);
        let jobs = std::iter::successors(first, |job| {
            Some(self.jobs[*job].roll.next).filter(|next| *next != NONE)
        });
        jobs.map(|job| self.jobs[job].message)
    }
}
