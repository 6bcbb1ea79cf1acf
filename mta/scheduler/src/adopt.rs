//! Attempts that a sending process began for a former incarnation of the queue process.
//!
//! Must never let a recipient be tried twice at once: an adopted attempt is in flight.

use crate::flights::Flight;
use crate::group::To;
use crate::output::AttemptId;
use crate::scheduler::Scheduler;
use crate::store::message::{GroupState, RecipientGroup};
use mail::{MessageId, Now};

impl Scheduler {
    /// Returns the attempts in flight that include any of these recipients.
    pub fn flights_of(&self, id: MessageId, recipients: &[u32]) -> Vec<AttemptId> {
        let Some(message) = self.store.find(id) else { return Vec::new() };
        let groups = self.store.by_group(message, recipients.to_vec()).into_keys();
        groups.filter_map(|group| self.attempt_of(group)).collect()
    }

    /// Takes over an attempt that a process has begun. Returns `None` if nothing of it is left to do: its outcome was
    /// recorded, or its recipients are in flight again.
    pub fn adopt(&mut self, id: MessageId, recipients: &[u32], now: Now) -> Option<AttemptId> {
        self.set_clock(now);
        let message = self.store.find(id)?;
        let parts = self.parts_of(message, recipients);
        let at = self.store.groups[parts.first()?.0].destination;
        self.store.count_out(message);
        let group = self.one_of(parts);
        let epoch = self.destinations[at].epoch;
        let began = self.nanos();
        let flight = Flight { attempt: 0, group, epoch, suspect: false, doubtful: false, began };
        let (attempt, flight) = self.take_flight(flight);
        self.enter(group, To::Flight(flight));
        self.store.count_in(message);
        let limits = self.destinations.limits_of(at);
        self.destinations[at].begin(&limits, began);
        self.refresh(at);
        Some(attempt)
    }

    /// Returns the groups of these recipients, with the recipients of each; all groups have the same destination. The
    /// recipients of one attempt may be in several groups after a restart, if they have different due times.
    fn parts_of(&self, message: u32, recipients: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let idle = |group: &u32| self.store.groups[*group].state != GroupState::InFlight;
        let all = self.store.by_group(message, recipients.to_vec()).into_iter();
        let mut parts: Vec<_> = all.filter(|(group, _)| idle(group)).collect();
        if let Some(at) = parts.first().map(|(group, _)| self.store.groups[*group].destination) {
            parts.retain(|(group, _)| self.store.groups[*group].destination == at);
        }
        parts
    }

    /// Makes one group of several parts, in no state.
    fn one_of(&mut self, parts: Vec<(u32, Vec<u32>)>) -> u32 {
        let mut pieces = Vec::new();
        for (group, taken) in parts {
            if taken.len() == self.store.members_len(group) {
                self.leave(group);
                pieces.push(group);
            } else {
                pieces.push(self.divide(group, taken));
            }
        }
        let group = pieces[0];
        let mut members = self.store.members(group);
        for other in pieces.drain(1..) {
            let RecipientGroup { message, attempts, .. } = self.store.groups[other];
            self.store.groups[group].attempts = self.store.groups[group].attempts.max(attempts);
            let moved = self.store.members(other);
            moved.iter().for_each(|index| self.store.recipient_mut(message, *index).group = group);
            members.extend(moved);
            self.end_group(other);
        }
        members.sort_unstable();
        self.store.free_members(group);
        self.store.set_members(group, members);
        group
    }
}
