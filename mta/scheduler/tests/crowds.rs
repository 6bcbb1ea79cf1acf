//! How long other mail waits beside very many messages for a slow destination, and beside very many dead destinations (D174,
//! D175).
//!
//! Must never read a clock of the machine: all time here is virtual.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, delivered, mail, unreachable};
use mail::{MessageId, Outcome};
use scheduler::{PlannedAttempt, Settings};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);

/// Attempts in flight, each with the time that it still takes.
struct World {
    bench: Bench,
    under_way: Vec<(Duration, PlannedAttempt)>,
    /// Time at which each measured message was sent.
    sent: HashMap<MessageId, Duration>,
    /// Time that each of them waited for its first attempt.
    waited: HashMap<MessageId, Duration>,
    tried: HashSet<MessageId>,
    time: Duration,
    most: usize,
}

impl World {
    fn new() -> World {
        let bench = Bench::new(Settings::for_tests());
        let (sent, waited) = (HashMap::new(), HashMap::new());
        World {
            bench,
            under_way: Vec::new(),
            sent,
            waited,
            tried: HashSet::new(),
            time: Duration::ZERO,
            most: 0,
        }
    }

    /// Sends a message whose wait is measured.
    fn send(&mut self, id: u64, sender: &str, to: &str) {
        let id = self.bench.send(mail(id, sender, &[to]));
        self.sent.insert(id, self.time);
    }

    /// Lets one step of time pass. `takes` says how long an attempt of a message takes and how it ends.
    fn step(&mut self, takes: impl Fn(MessageId) -> (Duration, Outcome)) {
        for (left, _) in &mut self.under_way {
            *left = left.saturating_sub(STEP);
        }
        let ended: Vec<PlannedAttempt> = self
            .under_way
            .extract_if(.., |(left, _)| left.is_zero())
            .map(|(_, attempt)| attempt)
            .collect();
        for attempt in ended {
            self.bench.answer(&attempt, takes(attempt.message).1);
        }
        // As a driver does, until nothing is due.
        while self.bench.scheduler.next_wakeup().is_some_and(|at| at <= self.bench.now.monotonic) {
            for attempt in self.bench.attempts() {
                self.tried.insert(attempt.message);
                if let Some(sent) = self.sent.get(&attempt.message) {
                    self.waited.entry(attempt.message).or_insert(self.time - *sent);
                }
                self.under_way.push((takes(attempt.message).0, attempt));
            }
        }
        self.most = self.most.max(self.under_way.len());
        self.bench.pass(STEP);
        self.time += STEP;
    }

    /// Longest wait of these messages; all of them must have been tried.
    fn longest(&self, ids: impl Iterator<Item = u64>) -> Duration {
        ids.map(|id| self.waited[&MessageId(id)]).max().unwrap()
    }
}

#[test]
fn d174_a_slow_domain_with_a_hundred_thousand_messages_lets_the_others_pass() {
    let mut world = World::new();
    for id in 0..100_000 {
        world.bench.send(mail(1_000_000 + id, "list@l.test", &[&format!("r{id}@slow.test")]));
    }
    let takes = |message: MessageId| {
        let time = if message.0 < 1_000_000 { 1 } else { 60 };
        (Duration::from_secs(time), delivered())
    };
    for second in 0..300 {
        // Mail from the same sender to other destinations, and from other senders to the slow destination.
        world.send(second * 2 + 1, "list@l.test", &format!("b@other{}.test", second % 50));
        if second % 30 == 0 {
            world.send(second * 2 + 2, "ann@a.test", "b@slow.test");
        }
        (0..10).for_each(|_| world.step(takes));
    }
    let others = world.longest((0..299).map(|second| second * 2 + 1));
    assert!(others <= STEP, "others waited {others:?}");
    // Attempts of a minute take all slots of the slow destination: one of them must end.
    let ann = world.longest((0..240).step_by(30).map(|second| second * 2 + 2));
    assert!(ann <= Duration::from_secs(60) + STEP, "another sender's letter there waited {ann:?}");
    assert!(
        world.most < 150,
        "{} attempts at once: the slow one has no more than its own",
        world.most
    );
}

#[test]
fn d175_ten_thousand_dead_domains_hold_up_neither_known_destinations_nor_new_ones() {
    const DEAD: u64 = 10_000_000;
    let mut world = World::new();
    let takes = |message: MessageId| match message.0 {
        DEAD.. => (Duration::from_secs(30), unreachable()),
        _ => (STEP, delivered()),
    };
    world.send(1, "ann@a.test", "b@known.test");
    (0..3).for_each(|_| world.step(takes));
    for id in 0..10_000 {
        world.bench.send(mail(DEAD + id, "list@l.test", &[&format!("x@dead{id}.test")]));
        if id % 50 == 0 {
            world.step(takes); // they come faster than they go, and are tried as they come
        }
    }
    for second in 0..600 {
        world.send(100 + second, "list@l.test", "b@known.test");
        if second % 10 == 0 {
            world.send(1_000 + second, "ann@a.test", &format!("b@new{second}.test"));
        }
        (0..10).for_each(|_| world.step(takes));
    }
    let known = world.longest((0..599).map(|second| 100 + second));
    assert!(known <= STEP * 2, "mail for a destination that answers waited {known:?}");
    // A new destination may be dead as well, but its sender has little mail, so the mail is tried at once.
    let new = world.longest((0..560).step_by(10).map(|second| 1_000 + second));
    assert!(new <= STEP * 2, "mail for a new destination waited {new:?}");
    assert!(world.most <= 1_000, "{} attempts at once", world.most);
    let dead = world.tried.iter().filter(|id| id.0 >= DEAD).count();
    assert_eq!(dead, 10_000, "each of the dead ones was tried in ten minutes");
}
