//! A queue run in a chosen order, in steps that can be timed: read, sort, begin.
//!
//! Must never be on the way of a message: it looks at everything, as its caller asked for.

use crate::group::To;
use crate::message::{GroupState, RecipientGroup};
use crate::order::{Candidate, Candidates};
use crate::scheduler::Scheduler;
use mail::Now;
use std::collections::BTreeSet;
use view::Order;

impl Scheduler {
    /// The first step: reads what could be tried, with its keys.
    pub fn read_candidates(&mut self, order: Order) -> Candidates {
        let waits =
            |group: &RecipientGroup| matches!(group.state, GroupState::Waiting | GroupState::Ready);
        let waiting: Vec<u32> =
            self.groups.iter().filter(|(_, group)| waits(group)).map(|(at, _)| at).collect();
        let mut all = Vec::with_capacity(waiting.len());
        for (number, group) in waiting.into_iter().enumerate() {
            let mut key = self.key_of(group, order);
            match order {
                Order::Random => key.first = self.chance.bits(),
                Order::None => key.first = number as u64,
                _ => {}
            }
            all.push(Candidate { key, group });
        }
        Candidates { order, all }
    }

    /// The last step: has them all tried now, in this order, and their destinations probed. Returns
    /// how many were ready or became so.
    pub fn run(&mut self, candidates: &Candidates, now: Now) -> usize {
        self.clock.set(now);
        self.set_order(candidates.order);
        let mut begun = 0;
        let mut destinations = BTreeSet::new();
        for Candidate { key, group } in &candidates.all {
            let message = self.groups[*group].message;
            let same = self.groups[*group].state != GroupState::Vacant
                && self.messages[message].id == key.id;
            if same && self.groups[*group].state == GroupState::Waiting {
                self.shift(*group, To::Ready);
            }
            let ready = same && self.groups[*group].state == GroupState::Ready;
            begun += usize::from(ready);
            if ready && destinations.insert(self.groups[*group].destination) {
                self.destinations[self.groups[*group].destination].blocked_until = 0;
            }
        }
        destinations.into_iter().for_each(|at| self.refresh(at));
        begun
    }
}
