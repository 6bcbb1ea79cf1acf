//! Why a message is where it is: for each recipient the gate at which it waits, since when, and its next attempt.
//!
//! Must never guess: the gate shown is the one at which `poll` would stop.

use crate::clock::wall_of_seconds;
use crate::memory::NONE;
use crate::poll::SUSPECT_LOSSES;
use crate::scheduler::Scheduler;
use crate::store::message::{GroupState, RecipientGroup};
use mail::{MessageId, Now, Timestamp};
use view::{Explanation, Gate, WaitingRecipient};

impl Scheduler {
    /// Explains one message; `None` if it is not in the queue.
    pub fn explain(&self, id: MessageId, now: Now) -> Option<Explanation> {
        self.explain_from(id, 0, usize::MAX, now)
    }

    /// Explains one message with a page of its recipients: up to `max`, beginning with index `first`.
    pub fn explain_from(
        &self,
        id: MessageId,
        first: u32,
        max: usize,
        now: Now,
    ) -> Option<Explanation> {
        let message = self.store.find(id)?;
        let found = self.store.message(message);
        let all = first..self.store.recipients_len(message);
        let mut left = all.filter_map(|at| self.waiting(message, at, now));
        let recipients = left.by_ref().take(max).collect();
        Some(Explanation {
            message: id,
            sender: self.store.sender(message).to_owned(),
            arrived: wall_of_seconds(found.arrived),
            bytes: u64::from(found.bytes),
            priority: found.priority,
            held: found.held_by(),
            expires: self.expires(message),
            recipients,
            recipient_next: left.next().map(|waiting| waiting.recipient),
        })
    }

    fn waiting(&self, message: u32, index: u32, now: Now) -> Option<WaitingRecipient> {
        let recipient = self.store.recipient(message, index).filter(|one| one.group != NONE)?;
        let group = &self.store.groups[recipient.group];
        let gate = self.gate(group, now);
        Some(WaitingRecipient {
            recipient: index,
            address: self.store.address(message, index)?,
            hop: self.destinations[group.destination].hop.clone(),
            next_try: next_try(&gate, now),
            gate,
            since: wall_of_seconds(group.since),
            attempts: group.attempts,
            last: self.store.report(recipient.report).cloned(),
        })
    }

    fn gate(&self, group: &RecipientGroup, now: Now) -> Gate {
        match group.state {
            GroupState::InFlight => Gate::InFlight,
            GroupState::Routed => Gate::Route,
            GroupState::Held => Gate::Held(self.held_by(group.message, group.destination)),
            GroupState::Waiting => Gate::RetryAt(self.wall_of(group.place)),
            GroupState::Ready | GroupState::Vacant => self.ready_gate(group, now),
        }
    }

    /// Returns the first closed gate, in the order in which `poll` passes them.
    fn ready_gate(&self, group: &RecipientGroup, now: Now) -> Gate {
        let destination = &self.destinations[group.destination];
        let limits = self.destinations.limits_of(group.destination);
        let (nanos, wall) = (now.monotonic.nanos(), |nanos| self.wall_at_nanos(nanos));
        let allowed = destination.allowed(&limits);
        if destination.blocked_until > nanos {
            let last = self.store.report(destination.last_failure).cloned();
            let until = wall(destination.blocked_until);
            return Gate::DestinationBackoff { until, failures: destination.failures, last };
        }
        if destination.in_flight >= allowed {
            let (in_flight, connections) = (destination.in_flight, limits.connections);
            return Gate::DestinationConcurrency { in_flight, allowed, connections };
        }
        if destination.rate_next > nanos {
            return Gate::RateLimit(wall(destination.rate_next));
        }
        if self.is_full() {
            let attempts_in_flight_max = self.attempts_in_flight_max();
            return Gate::ProcessLimit { attempts_in_flight_max };
        }
        let which = usize::from(!self.is_light_next(group.destination));
        if self.is_kept_out(group.destination, which) {
            let attempts_in_flight_max = self.doubtful_in_flight_max(which);
            return Gate::ProcessLimit { attempts_in_flight_max };
        }
        let suspect = self.store.message(group.message).losses >= SUSPECT_LOSSES;
        if suspect && self.has_suspect() {
            return Gate::Suspect;
        }
        Gate::FairShare { ready: destination.ready }
    }
}

fn next_try(gate: &Gate, now: Now) -> Option<Timestamp> {
    match gate {
        Gate::RetryAt(at) | Gate::RateLimit(at) => Some(*at),
        Gate::DestinationBackoff { until, .. } => Some(*until),
        Gate::FairShare { .. } | Gate::Route => Some(now.wall),
        Gate::Held(_) | Gate::InFlight | Gate::DestinationConcurrency { .. } => None,
        Gate::ProcessLimit { .. } | Gate::Suspect => None,
    }
}
