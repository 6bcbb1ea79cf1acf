//! The members of a recipient group. Recipients join and leave in any order, a few at a time, and neither costs a look
//! at the other members: each of the 50,000 recipients of a list leaves it once.
//!
//! Must never name a recipient that belongs to another group or is finished.

use super::Store;
use super::message::RecipientGroup;
use std::collections::BTreeMap;

/// Members of a group that does not have exactly one member.
///
/// A recipient belongs to the group that its own record names. The list may hold recipients that have left; it is swept
/// when they are more than half of it.
#[derive(Debug, Default)]
pub(crate) struct MemberList {
    list: Vec<u32>,
    /// Position of the first member; all recipients before it have left.
    first: u32,
    /// Number of members.
    live: u32,
}

impl MemberList {
    /// Returns true if the list holds recipients that have left.
    fn has_left(&self) -> bool {
        self.list.len() > self.live as usize
    }
}

impl Store {
    /// Returns the members in the order in which they joined.
    pub fn members(&self, group: u32) -> Vec<u32> {
        self.first_members(group, usize::MAX)
    }

    /// Returns the first members, up to `max`.
    pub fn first_members(&self, group: u32, max: usize) -> Vec<u32> {
        let RecipientGroup { message, members, is_list, .. } = self.groups[group];
        if !is_list {
            return vec![members];
        }
        let found = &self.lists[members];
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

    /// Number of members.
    pub fn members_len(&self, group: u32) -> usize {
        let RecipientGroup { members, is_list, .. } = self.groups[group];
        if is_list { self.lists[members].live as usize } else { 1 }
    }

    /// Returns the unfinished ones of these recipients by their groups, each recipient once.
    pub fn by_group(&self, message: u32, recipients: Vec<u32>) -> BTreeMap<u32, Vec<u32>> {
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

    /// Stores the members of a group. Their own records name the group already.
    pub fn set_members(&mut self, group: u32, mut members: Vec<u32>) {
        let is_list = members.len() != 1;
        let place = if is_list {
            members.shrink_to_fit();
            let live = members.len() as u32;
            self.lists.insert(MemberList { list: members, first: 0, live })
        } else {
            members[0]
        };
        self.groups[group].members = place;
        self.groups[group].is_list = is_list;
    }

    /// Frees the list of members.
    pub fn free_members(&mut self, group: u32) {
        let RecipientGroup { members, is_list, .. } = self.groups[group];
        if is_list {
            self.lists.remove(members);
        }
    }

    /// Removes `count` members whose own records name the group no longer. At least one member remains.
    pub fn members_left(&mut self, group: u32, count: usize) {
        let RecipientGroup { message, members, is_list, .. } = self.groups[group];
        debug_assert!(is_list && count < self.members_len(group), "a member remains");
        let mut found = std::mem::take(&mut self.lists[members]);
        found.live -= count as u32;
        while !self.is_member(message, group, found.list[found.first as usize]) {
            found.first += 1;
        }
        if found.live == 1 {
            self.lists.remove(members);
            return self.set_members(group, vec![found.list[found.first as usize]]);
        }
        if found.list.len() > 2 * found.live as usize {
            self.sweep(message, group, &mut found);
        }
        self.lists[members] = found;
    }

    /// Adds recipients that have just left another group.
    pub fn members_joined(&mut self, group: u32, joined: &[u32]) {
        let RecipientGroup { message, members, is_list, .. } = self.groups[group];
        if is_list && self.lists[members].has_left() {
            // A recipient that left and returns must not be in the list twice.
            let mut found = std::mem::take(&mut self.lists[members]);
            self.sweep(message, group, &mut found);
            self.lists[members] = found;
        }
        joined.iter().for_each(|index| self.recipient_mut(message, *index).group = group);
        if is_list {
            let found = &mut self.lists[members];
            found.list.extend(joined);
            found.live += joined.len() as u32;
        } else {
            let all = std::iter::once(members).chain(joined.iter().copied());
            self.set_members(group, all.collect());
        }
    }

    /// Drops recipients that have left from the list.
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
