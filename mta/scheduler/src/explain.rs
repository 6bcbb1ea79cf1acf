//! For each recipient: which gate it waits at, since when, and when it is tried.
//!
//! Must never guess: a gate is named only if it is the one that `poll` would stop at.

use crate::clock::wall_of_seconds;
use crate::memory::NONE;
use crate::message::{GroupState, RecipientGroup};
use crate::poll::SUSPECT_LOSSES;
use crate::scheduler::Scheduler;
use mail::{MessageId, Now, Wall};
use view::{Explanation, Gate, Waiting};

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
        let message = self.ids.get(id)?;
        let found = &self.messages[message];
        let all = first..self.recipients_len(message);
        let mut left = all.filter_map(|at| self.waiting(message, at, now));
        let recipients = left.by_ref().take(max).collect();
        Some(Explanation {
            message: id,
            sender: self.symbols.get(found.sender).to_owned(),
            arrived: wall_of_seconds(found.arrived),
            bytes: u64::from(found.bytes),
            priority: found.priority,
            held: found.held_by(),
            expires: self.expires(message),
            recipients,
            recipient_next: left.next().map(|waiting| waiting.recipient),
        })
    }

    /// `local@domain` as the client wrote it.
    pub(crate) fn address(&self, message: u32, index: u32) -> Option<String> {
        let one = self.recipient(message, index).filter(|one| one.group != NONE)?;
        let (local, domain) = (self.symbols.texts.get(one.local), self.symbols.get(one.domain));
        Some(format!("{local}@{domain}"))
    }

    fn waiting(&self, message: u32, index: u32, now: Now) -> Option<Waiting> {
        let recipient = self.recipient(message, index).filter(|one| one.group != NONE)?;
        let group = &self.groups[recipient.group];
        let gate = self.gate(group, now);
        Some(Waiting {
            recipient: index,
            address: self.address(message, index)?,
            hop: self.destinations[group.destination].hop.clone(),
            next_try: next_try(&gate, now),
            gate,
            since: wall_of_seconds(group.since),
            attempts: group.attempts,
            last: self.reports.get(recipient.report).cloned(),
        })
    }

    fn gate(&self, group: &RecipientGroup, now: Now) -> Gate {
        match group.state {
            GroupState::InFlight => Gate::InFlight,
            GroupState::Routed => Gate::Route,
            GroupState::Held => Gate::Held(self.held_by(group.message, group.destination)),
            GroupState::Waiting => Gate::RetryAt(self.clock.wall_of(group.place)),
            GroupState::Ready | GroupState::Vacant => self.ready_gate(group, now),
        }
    }

    /// In the order in which `poll` comes to them.
    fn ready_gate(&self, group: &RecipientGroup, now: Now) -> Gate {
        let destination = &self.destinations[group.destination];
        let limits = self.limits_at(group.destination);
        let (nanos, wall) = (now.monotonic.nanos(), |nanos| self.clock.wall_at_nanos(nanos));
        let allowed = destination.allowed(&limits);
        if destination.blocked_until > nanos {
            let last = self.reports.get(destination.last_failure).cloned();
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
        let attempts_in_flight_max = self.settings.attempts_in_flight_max;
        if self.in_flight >= attempts_in_flight_max {
            return Gate::ProcessLimit { attempts_in_flight_max };
        }
        let which = usize::from(!self.is_light_next(group.destination));
        if self.is_kept_out(group.destination, which) {
            let attempts_in_flight_max = self.doubtful_in_flight_max(which);
            return Gate::ProcessLimit { attempts_in_flight_max };
        }
        let suspect = self.messages[group.message].losses >= SUSPECT_LOSSES;
        if suspect && self.suspects_in_flight > 0 {
            return Gate::Suspect;
        }
        Gate::FairShare { ready: destination.ready }
    }
}

fn next_try(gate: &Gate, now: Now) -> Option<Wall> {
    match gate {
        Gate::RetryAt(at) | Gate::RateLimit(at) => Some(*at),
        Gate::DestinationBackoff { until, .. } => Some(*until),
        Gate::FairShare { .. } | Gate::Route => Some(now.wall),
        Gate::Held(_) | Gate::InFlight | Gate::DestinationConcurrency { .. } => None,
        Gate::ProcessLimit { .. } | Gate::Suspect => None,
    }
}
