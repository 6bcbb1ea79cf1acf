//! A queue run in an order that an operator chooses, in steps that can be timed: read, sort, begin.
//!
//! Must never run unless an operator asks for it: it looks at the whole queue.

use crate::group::To;
use crate::order::{Candidates, RunCandidate};
use crate::scheduler::Scheduler;
use crate::store::message::{GroupState, RecipientGroup};
use mail::Now;
use std::collections::BTreeSet;
use view::Order;

impl Scheduler {
    /// Reads all groups that could be tried, with their keys: the first step.
    pub fn read_candidates(&mut self, order: Order) -> Candidates {
        let waits =
            |group: &RecipientGroup| matches!(group.state, GroupState::Waiting | GroupState::Ready);
        let waiting: Vec<u32> =
            self.store.groups.iter().filter(|(_, group)| waits(group)).map(|(at, _)| at).collect();
        let mut all = Vec::with_capacity(waiting.len());
        for (number, group) in waiting.into_iter().enumerate() {
            let mut key = self.key_of(group, order);
            match order {
                Order::Random => key.first = self.random_key(),
                Order::None => key.first = number as u64,
                _ => {}
            }
            all.push(RunCandidate { key, group });
        }
        Candidates { order, all }
    }

    /// Makes all candidates ready in this order, and lets their destinations be probed: the last step. Returns the number of
    /// ready groups.
    pub fn run(&mut self, candidates: &Candidates, now: Now) -> usize {
        self.set_clock(now);
        self.set_order(candidates.order);
        let mut begun = 0;
        let mut destinations = BTreeSet::new();
        for RunCandidate { key, group } in &candidates.all {
            let message = self.store.groups[*group].message;
            let same = self.store.groups[*group].state != GroupState::Vacant
                && self.store.message(message).id == key.id;
            if same && self.store.groups[*group].state == GroupState::Waiting {
                self.shift(*group, To::Ready);
            }
            let ready = same && self.store.groups[*group].state == GroupState::Ready;
            begun += usize::from(ready);
            if ready && destinations.insert(self.store.groups[*group].destination) {
                self.destinations[self.store.groups[*group].destination].blocked_until = 0;
            }
        }
        destinations.into_iter().for_each(|at| self.refresh(at));
        begun
    }
}
