//! Attempts that a sending process has under way from a former life of the queue process.
//!
//! Must never have a recipient tried twice at once: what is adopted is in flight.

use crate::group::To;
use crate::message::{GroupState, RecipientGroup};
use crate::output::AttemptId;
use crate::scheduler::{Flight, Scheduler};
use mail::{MessageId, Now};

impl Scheduler {
    /// The attempts in flight that these recipients are in.
    pub fn flights_of(&self, id: MessageId, recipients: &[u32]) -> Vec<AttemptId> {
        let Some(message) = self.ids.get(id) else { return Vec::new() };
        let groups = self
            .by_group(message, recipients.to_vec())
            .into_keys()
            .map(|group| &self.groups[group]);
        let groups = groups.filter(|group| group.state == GroupState::InFlight);
        groups.map(|group| AttemptId(self.flights[group.place].attempt)).collect()
    }

    /// Takes an attempt over whose process has begun it. `None`: nothing of it is left to do, since its
    /// end had been recorded, or since its recipients are in flight again.
    pub fn adopt(&mut self, id: MessageId, recipients: &[u32], now: Now) -> Option<AttemptId> {
        self.clock.set(now);
        let message = self.ids.get(id)?;
        let parts = self.parts_of(message, recipients);
        let at = self.groups[parts.first()?.0].destination;
        self.count_out(message);
        let group = self.one_of(parts);
        let epoch = self.destinations[at].epoch;
        let began = self.clock.nanos();
        let flight = Flight { attempt: 0, group, epoch, suspect: false, doubtful: false, began };
        let (attempt, flight) = self.take_flight(flight);
        self.enter(group, To::Flight(flight));
        self.count_in(message);
        let limits = self.limits_at(at);
        self.destinations[at].begin(&limits, began);
        self.refresh(at);
        Some(attempt)
    }

    /// The groups that these recipients are in, with the recipients of each: what was one
    /// attempt may be several after a restart, if the recipients have different due times. All
    /// have one destination.
    fn parts_of(&self, message: u32, recipients: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let idle = |group: &u32| self.groups[*group].state != GroupState::InFlight;
        let all = self.by_group(message, recipients.to_vec()).into_iter();
        let mut parts: Vec<_> = all.filter(|(group, _)| idle(group)).collect();
        if let Some(at) = parts.first().map(|(group, _)| self.groups[*group].destination) {
            parts.retain(|(group, _)| self.groups[*group].destination == at);
        }
        parts
    }

    /// Makes one group of them, in no state yet.
    fn one_of(&mut self, parts: Vec<(u32, Vec<u32>)>) -> u32 {
        let mut pieces = Vec::new();
        for (group, taken) in parts {
            if taken.len() == self.members_len(group) {
                self.leave(group);
                pieces.push(group);
            } else {
                pieces.push(self.divide(group, taken));
            }
        }
        let group = pieces[0];
        let mut members = self.members(group);
        for other in pieces.drain(1..) {
            let RecipientGroup { message, attempts, .. } = self.groups[other];
            self.groups[group].attempts = self.groups[group].attempts.max(attempts);
            let moved = self.members(other);
            moved.iter().for_each(|index| self.recipient_mut(message, *index).group = group);
            members.extend(moved);
            self.end_group(other);
        }
        members.sort_unstable();
        self.free_members(group);
        self.set_members(group, members);
        group
    }
}
