//! Addresses of next hops that failed, so that attempts at a next hop with many addresses do not
//! always try the same dead ones.
//!
//! Must never exclude the only address of a next hop, and never grow beyond `FAILURES_MAX`.

use crate::route::{Target, Where};
use mail::Instant;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Upper bound on the failures that are remembered over all next hops; the oldest are forgotten first.
pub const FAILURES_MAX: usize = 4_096;
/// How long an address counts as dead after its last failure. By default this is longer than the
/// longest wait between two attempts.
pub const DEAD_FOR: Duration = Duration::from_secs(24 * 3600);

/// The dead addresses that all sessions of a process share. A clone shares the same memory.
#[derive(Clone, Debug, Default)]
pub struct DeadAddresses(Rc<RefCell<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    failed: HashMap<Where, Instant>,
    /// All failures in order of time, including those of addresses that have answered since.
    order: VecDeque<(Where, Instant)>,
}

impl DeadAddresses {
    /// Chooses at most `count` targets and keeps their order, which is the order of preference.
    ///
    /// If there are more targets, dead ones are chosen only if living ones are too few. The first
    /// target is always chosen, so that mail returns to the preferred host when it recovers.
    pub fn choose(&self, targets: &[Target], count: usize, now: Instant) -> VecDeque<Target> {
        if targets.len() <= count {
            return targets.iter().cloned().collect();
        }
        let memory = self.0.borrow();
        let dead = |at: &usize| *at > 0 && memory.is_dead(&targets[*at].place, now);
        let (dead, alive): (Vec<_>, Vec<_>) = (0..targets.len()).partition(dead);
        let mut chosen: Vec<usize> = alive.into_iter().chain(dead).take(count).collect();
        chosen.sort_unstable();
        chosen.into_iter().map(|at| targets[at].clone()).collect()
    }

    /// Records that the address failed.
    pub fn failed(&self, place: &Where, now: Instant) {
        let memory = &mut *self.0.borrow_mut();
        memory.failed.insert(place.clone(), now);
        memory.order.push_back((place.clone(), now));
        while memory.order.len() > FAILURES_MAX {
            let Some((place, at)) = memory.order.pop_front() else { break };
            if memory.failed.get(&place) == Some(&at) {
                memory.failed.remove(&place);
            }
        }
    }

    /// Records that the address answered.
    pub fn answered(&self, place: &Where) {
        self.0.borrow_mut().failed.remove(place);
    }
}

impl Memory {
    fn is_dead(&self, place: &Where, now: Instant) -> bool {
        self.failed.get(place).is_some_and(|at| now.since(*at) < DEAD_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smtp::client::Dialect;

    fn place(number: u32) -> Where {
        Where::Tcp(std::net::SocketAddr::new(std::net::Ipv4Addr::from(number).into(), 25))
    }

    fn targets(count: u32) -> Vec<Target> {
        let target = |n| Target { name: n_name(n), place: place(n), dialect: Dialect::Smtp };
        (0..count).map(target).collect()
    }

    fn n_name(number: u32) -> Box<str> {
        number.to_string().into()
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn chosen(dead: &DeadAddresses, count: u32, now: Instant) -> String {
        let chosen = dead.choose(&targets(count), 5, now);
        chosen.iter().map(|target| &*target.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn r237_dead_addresses_make_room_for_others_and_the_order_of_preference_stays() {
        for (failed, count, expected) in [
            (&[][..], 8, "0 1 2 3 4"),
            (&[0, 1, 2, 3, 4], 8, "0 1 5 6 7"),
            (&[1, 3], 8, "0 2 4 5 6"),
            (&[0, 1, 2, 3, 4, 5, 6], 8, "0 1 2 3 7"),
            (&[0, 1, 2, 3, 4, 5, 6, 7], 8, "0 1 2 3 4"),
            // Each attempt reaches all of them: nothing is passed over.
            (&[0, 1], 5, "0 1 2 3 4"),
            (&[0], 1, "0"),
        ] {
            let dead = DeadAddresses::default();
            failed.iter().for_each(|number| dead.failed(&place(*number), at(1)));
            assert_eq!(chosen(&dead, count, at(2)), expected, "{failed:?} of {count}");
        }
    }

    #[test]
    fn r237_a_dead_address_is_forgotten_by_its_answer_by_age_and_by_number() {
        let dead = DeadAddresses::default();
        let shared = dead.clone();
        (1..4).for_each(|number| dead.failed(&place(number), at(0)));
        assert_eq!(chosen(&shared, 9, at(0)), "0 4 5 6 7");
        dead.answered(&place(2));
        assert_eq!(chosen(&shared, 9, at(0)), "0 2 4 5 6");
        dead.failed(&place(3), at(9));
        assert_eq!(chosen(&shared, 9, at(DEAD_FOR.as_secs())), "0 1 2 4 5");
        for number in 0..3 * FAILURES_MAX as u32 {
            dead.failed(&place(1_000 + number), at(10));
        }
        let memory = dead.0.borrow();
        assert_eq!((memory.failed.len(), memory.order.len()), (FAILURES_MAX, FAILURES_MAX));
        drop(memory);
        assert_eq!(chosen(&shared, 9, at(10)), "0 1 2 3 4");
    }

    #[test]
    fn an_address_that_fails_again_and_again_takes_no_more_room() {
        let dead = DeadAddresses::default();
        for time in 0..3 * FAILURES_MAX as u64 {
            dead.failed(&place(1), at(time));
        }
        let memory = dead.0.borrow();
        assert_eq!((memory.failed.len(), memory.order.len()), (1, FAILURES_MAX));
    }
}
