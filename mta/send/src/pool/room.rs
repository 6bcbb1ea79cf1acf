//! Connections for next hops that wait because there are as many connections as allowed.
//!
//! Must never end a connection whose next message may be on its way.

use super::{ConnectionId, ConnectionPool, IDLE_GRACE, Output};
use crate::hops::HopId;
use mail::{Instant, Now};

impl ConnectionPool {
    pub(super) fn starve(&mut self, id: HopId) {
        let Some(hop) = self.hops.get_mut(id) else { return };
        if hop.wants_connection() && !std::mem::replace(&mut hop.is_starved, true) {
            self.starved.push_back(id);
        }
    }

    pub(super) fn next_starved(&mut self) -> Option<HopId> {
        let id = self.starved.pop_front()?;
        if let Some(hop) = self.hops.get_mut(id) {
            hop.is_starved = false;
        }
        Some(id)
    }

    /// Returns true if a next hop waits for a connection. Forgets next hops that need none any longer.
    pub(super) fn is_starved(&mut self) -> bool {
        while let Some(first) = self.starved.front() {
            if self.hops.get_mut(*first).is_some_and(|hop| hop.wants_connection()) {
                return !self.is_draining();
            }
            self.next_starved();
        }
        false
    }

    /// Ends the connections that have been idle for longest, one for each next hop that waits. Spares a connection within
    /// [`IDLE_GRACE`], because its next message may be on its way.
    pub(super) fn make_room(&mut self, now: Now) {
        while self.is_starved() && self.ending < self.starved.len() {
            let Some(id) = self.idle.values().next().copied() else { return };
            let Some(member) = self.members.get_mut(&id) else { return };
            let is_due = |(_, since): (u64, Instant)| now.monotonic.since(since) >= IDLE_GRACE;
            if !member.idle.is_some_and(is_due) {
                return;
            }
            member.must_end = true;
            self.ending += 1;
            self.leave_idle(id);
            self.outputs.push_back(Output::Wake(id));
        }
    }

    /// Returns true if this connection must end in favour of another next hop.
    pub(crate) fn must_end(&self, id: ConnectionId) -> bool {
        self.members.get(&id).is_some_and(|member| member.must_end)
    }

    /// Notes that a connection has no work.
    pub(crate) fn idle(&mut self, id: ConnectionId, of: HopId, since: Instant, now: Now) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.idle.is_some() || member.must_end {
            return;
        }
        member.idle = Some((self.next_idle, since));
        self.idle.insert(self.next_idle, id);
        self.next_idle += 1;
        if let Some(hop) = self.hops.get_mut(of) {
            hop.idle.push(id);
        }
        self.make_room(now);
    }

    /// Notes that a connection has work again, or has ended.
    pub(crate) fn not_idle(&mut self, id: ConnectionId, of: HopId) {
        if let Some(hop) = self.hops.get_mut(of) {
            hop.idle.retain(|other| *other != id);
        }
        self.leave_idle(id);
    }

    pub(super) fn leave_idle(&mut self, id: ConnectionId) {
        let member = self.members.get_mut(&id);
        if let Some((place, _)) = member.and_then(|member| member.idle.take()) {
            self.idle.remove(&place);
        }
    }
}
