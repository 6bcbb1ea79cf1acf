//! Which recipients a group has. They join and leave in any order, a few at a time, so neither may cost a look at
//! the others: a list of 50,000 recipients is left by each of them.
//!
//! Must never name a recipient that belongs to another group or is done.

use crate::message::RecipientGroup;
use crate::scheduler::Scheduler;
use std::collections::BTreeMap;

/// The recipients of a group that has not exactly one. A recipient belongs to the group that its own record
/// names; the list may still hold recipients that have left, and is swept when they are more than half of it.
#[derive(Debug, Default)]
pub(crate) struct MemberList {
    list: Vec<u32>,
    /// Where the first member is; what stands before it has left.
    first: u32,
    /// How many are members.
    live: u32,
}

impl MemberList {
    /// Whether the list holds recipients that have left.
    fn has_left(&self) -> bool {
        self.list.len() > self.live as usize
    }
}

impl Scheduler {
    /// The members in the order in which they came.
    pub(crate) fn members(&self, group: u32) -> Vec<u32> {
        self.first_members(group, usize::MAX)
    }

    /// The first of them, at most `max`.
    pub(crate) fn first_members(&self, group: u32, max: usize) -> Vec<u32> {
        let RecipientGroup { message, members, is_list, .. } = self.groups[group];
        if !is_list {
            return vec![members];
        }
        let found = &self.member_lists[members];
        let list = &found.list[found.first as usize..];
        let count = max.min(found.live as usize);
        if !found.has_left() {
            return list[..count].to_vec();
        }
        let stay = list.iter().filter(|index| self.is_member(message, group, **index));
        let mut first = Vec::with_capacity(count);
        first.extend(stay.take(count));
        first
    }

    pub(crate) fn members_len(&self, group: u32) -> usize {
        let RecipientGroup { members, is_list, .. } = self.groups[group];
        if is_list { self.member_lists[members].live as usize } else { 1 }
    }

    /// Recipients that are not done by the group they belong to, each once.
    pub(crate) fn by_group(&self, message: u32, recipients: Vec<u32>) -> BTreeMap<u32, Vec<u32>> {
        let mut by_group: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for index in recipients {
            if let Some(group) = self.group_of(message, index) {
                by_group.entry(group).or_default().push(index);
            }
        }
        for members in by_group.values_mut().filter(|members| !members.is_sorted_by(|a, b| a < b)) {
            members.sort_unstable();
            members.dedup();
        }
        by_group
    }

    /// Makes these the members; their own records name the group already.
    pub(crate) fn set_members(&mut self, group: u32, mut members: Vec<u32>) {
        let is_list = members.len() != 1;
        let place = if is_list {
            members.shrink_to_fit();
            let live = members.len() as u32;
            self.member_lists.insert(MemberList { list: members, first: 0, live })
        } else {
            members[0]
        };
        self.groups[group].members = place;
        self.groups[group].is_list = is_list;
    }

    pub(crate) fn free_members(&mut self, group: u32) {
        let RecipientGroup { members, is_list, .. } = self.groups[group];
        if is_list {
            self.member_lists.remove(members);
        }
    }

    /// Takes note that one member has left; a group without members ends.
    pub(crate) fn member_left(&mut self, group: u32) {
        if self.members_len(group) > 1 {
            self.members_left(group, 1);
        } else {
            self.leave(group);
            self.end_group(group);
        }
    }

    /// Takes note that `count` members have left, for another group or for good, and at least one is left.
    pub(crate) fn members_left(&mut self, group: u32, count: usize) {
        let RecipientGroup { message, members, is_list, .. } = self.groups[group];
        debug_assert!(is_list && count < self.members_len(group), "someone is left");
        let mut found = std::mem::take(&mut self.member_lists[members]);
        found.live -= count as u32;
        while !self.is_member(message, group, found.list[found.first as usize]) {
            found.first += 1;
        }
        if found.live == 1 {
            self.member_lists.remove(members);
            return self.set_members(group, vec![found.list[found.first as usize]]);
        }
        if found.list.len() > 2 * found.live as usize {
            self.sweep(message, group, &mut found);
        }
        self.member_lists[members] = found;
    }

    /// Adds recipients that have just left another group.
    pub(crate) fn members_joined(&mut self, group: u32, joined: &[u32]) {
        let RecipientGroup { message, members, is_list, .. } = self.groups[group];
        if is_list && self.member_lists[members].has_left() {
            // A recipient that left and comes back must not be in the list twice.
            let mut found = std::mem::take(&mut self.member_lists[members]);
            self.sweep(message, group, &mut found);
            self.member_lists[members] = found;
        }
        joined.iter().for_each(|index| self.recipient_mut(message, *index).group = group);
        if is_list {
            let found = &mut self.member_lists[members];
            found.list.extend(joined);
            found.live += joined.len() as u32;
        } else {
            let all = std::iter::once(members).chain(joined.iter().copied());
            self.set_members(group, all.collect());
        }
    }

    fn sweep(&self, message: u32, group: u32, list: &mut MemberList) {
        list.list.drain(..list.first as usize);
        list.first = 0;
        list.list.retain(|index| self.is_member(message, group, *index));
        list.list.shrink_to_fit();
    }

    fn is_member(&self, message: u32, group: u32, index: u32) -> bool {
        self.recipient(message, index).is_some_and(|one| one.group == group)
    }
}
