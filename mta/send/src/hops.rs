//! The next hops that have work or connections.
//!
//! Must never forget a next hop while an attempt waits for it or a connection to it is open.

use crate::attempt::WaitingAttempt;
use crate::pool::ConnectionId;
use mail::NextHop;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Id of a next hop in the pool. No id is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HopId(u64);

/// One next hop.
#[derive(Debug)]
pub(crate) struct Hop {
    pub name: NextHop,
    pub waiting: VecDeque<WaitingAttempt>,
    /// Number of connections that are open or being opened.
    pub connections: u32,
    /// Number of connections on which a message was begun. If it is not 0, the next hop answers.
    pub greeted: u32,
    /// Connections without work. The last one is used first, so that the others may end.
    pub idle: Vec<ConnectionId>,
    /// The next hop is in the pool's list of those that wait for a place.
    pub is_starved: bool,
}

impl Hop {
    /// Returns true if an attempt waits and the limit of the next hop allows one more connection.
    pub fn wants_connection(&self) -> bool {
        self.waiting.front().is_some_and(|first| self.connections < first.attempt.connections_max)
    }
}

/// All next hops, by name and by id.
#[derive(Debug, Default)]
pub(crate) struct Hops {
    ids: HashMap<NextHop, HopId>,
    hops: BTreeMap<HopId, Hop>,
    next: u64,
    /// The next hop that was looked up last. Attempts for one next hop often come in a row, so this name is compared first.
    last: Option<HopId>,
}

impl Hops {
    /// Returns the next hop of this name, and adds it if it is not there.
    pub fn named(&mut self, name: NextHop) -> (HopId, &mut Hop) {
        let last = self.last.filter(|id| self.hops.get(id).is_some_and(|hop| hop.name == name));
        let id = last.or_else(|| self.ids.get(&name).copied()).unwrap_or_else(|| {
            let next = HopId(self.next);
            self.next += 1;
            self.ids.insert(name.clone(), next);
            next
        });
        self.last = Some(id);
        let hop = self.hops.entry(id).or_insert_with(|| Hop {
            name,
            waiting: VecDeque::new(),
            connections: 0,
            greeted: 0,
            idle: Vec::new(),
            is_starved: false,
        });
        (id, hop)
    }

    pub fn get_mut(&mut self, id: HopId) -> Option<&mut Hop> {
        self.hops.get_mut(&id)
    }

    /// Removes a next hop that has neither work nor connections.
    pub fn forget_if_unused(&mut self, id: HopId) {
        let is_unused = |hop: &Hop| hop.connections == 0 && hop.waiting.is_empty();
        if self.hops.get(&id).is_some_and(is_unused)
            && let Some(hop) = self.hops.remove(&id)
        {
            self.ids.remove(&hop.name);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.ids.len(), self.hops.len());
        self.hops.len()
    }
}
