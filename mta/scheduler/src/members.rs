//! Which recipients a transaction has. They join and leave in any order, a few at a time, so neither may cost a look at
//! the others: a list of 50,000 recipients is left by each of them.
//!
//! Must never name a recipient that belongs to another transaction or is done.

use crate::message::Job;
use crate::scheduler::Scheduler;
use std::collections::BTreeMap;

/// The recipients of a transaction that has not exactly one. A recipient belongs to the transaction that its own record
/// names; the list may still hold recipients that have left, and is swept when they are more than half of it.
#[derive(Debug, Default)]
pub(crate) struct Group {
    list: Vec<u32>,
    /// Where the first member is; what stands before it has left.
    first: u32,
    /// How many are members.
    live: u32,
}

impl Group {
    /// Whether the list holds recipients that have left.
    fn has_left(&self) -> bool {
        self.list.len() > self.live as usize
    }
}

impl Scheduler {
    /// The members in the order in which they came.
    pub(crate) fn members(&self, job: u32) -> Vec<u32> {
        self.first_members(job, usize::MAX)
    }

    /// The first of them, at most `max`.
    pub(crate) fn first_members(&self, job: u32, max: usize) -> Vec<u32> {
        let Job { message, members, group, .. } = self.jobs[job];
        if !group {
            return vec![members];
        }
        let found = &self.groups[members];
        let list = &found.list[found.first as usize..];
        let count = max.min(found.live as usize);
        if !found.has_left() {
            return list[..count].to_vec();
        }
        let stay = list.iter().filter(|index| self.is_member(message, job, **index));
        let mut first = Vec::with_capacity(count);
        first.extend(stay.take(count));
        first
    }

    pub(crate) fn members_len(&self, job: u32) -> usize {
        let Job { members, group, .. } = self.jobs[job];
        if group { self.groups[members].live as usize } else { 1 }
    }

    /// Recipients that are not done by the transaction they belong to, each once.
    pub(crate) fn by_job(&self, message: u32, recipients: Vec<u32>) -> BTreeMap<u32, Vec<u32>> {
        let mut by_job: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for index in recipients {
            if let Some(job) = self.job_of(message, index) {
                by_job.entry(job).or_default().push(index);
            }
        }
        for members in by_job.values_mut().filter(|members| !members.is_sorted_by(|a, b| a < b)) {
            members.sort_unstable();
            members.dedup();
        }
        by_job
    }

    /// Makes these the members; their own records name the transaction already.
    pub(crate) fn set_members(&mut self, job: u32, mut members: Vec<u32>) {
        let group = members.len() != 1;
        let place = if group {
            members.shrink_to_fit();
            let live = members.len() as u32;
            self.groups.insert(Group { list: members, first: 0, live })
        } else {
            members[0]
        };
        self.jobs[job].members = place;
        self.jobs[job].group = group;
    }

    pub(crate) fn free_members(&mut self, job: u32) {
        let Job { members, group, .. } = self.jobs[job];
        if group {
            self.groups.remove(members);
        }
    }

    /// Takes note that one member has left; a transaction without members ends.
    pub(crate) fn member_left(&mut self, job: u32) {
        if self.members_len(job) > 1 {
            self.members_left(job, 1);
        } else {
            self.leave(job);
            self.end_job(job);
        }
    }

    /// Takes note that `count` members have left, for another transaction or for good, and at least one is left.
    pub(crate) fn members_left(&mut self, job: u32, count: usize) {
        let Job { message, members, group, .. } = self.jobs[job];
        debug_assert!(group && count < self.members_len(job), "someone is left");
        let mut found = std::mem::take(&mut self.groups[members]);
        found.live -= count as u32;
        while !self.is_member(message, job, found.list[found.first as usize]) {
            found.first += 1;
        }
        if found.live == 1 {
            self.groups.remove(members);
            return self.set_members(job, vec![found.list[found.first as usize]]);
        }
        if found.list.len() > 2 * found.live as usize {
            self.sweep(message, job, &mut found);
        }
        self.groups[members] = found;
    }

    /// Adds recipients that have just left another transaction.
    pub(crate) fn members_joined(&mut self, job: u32, joined: &[u32]) {
        let Job { message, members, group, .. } = self.jobs[job];
        if group && self.groups[members].has_left() {
            // A recipient that left and comes back must not be in the list twice.
            let mut found = std::mem::take(&mut self.groups[members]);
            self.sweep(message, job, &mut found);
            self.groups[members] = found;
        }
        joined.iter().for_each(|index| self.recipient_mut(message, *index).job = job);
        if group {
            let found = &mut self.groups[members];
            found.list.extend(joined);
            found.live += joined.len() as u32;
        } else {
            let all = std::iter::once(members).chain(joined.iter().copied());
            self.set_members(job, all.collect());
        }
    }

    fn sweep(&self, message: u32, job: u32, group: &mut Group) {
        group.list.drain(..group.first as usize);
        group.first = 0;
        group.list.retain(|index| self.is_member(message, job, *index));
        group.list.shrink_to_fit();
    }

    fn is_member(&self, message: u32, job: u32, index: u32) -> bool {
        self.recipient(message, index).is_some_and(|one| one.job == job)
    }
}
