//! Random events against a simple model: no recipient is lost or tried twice at once, every message retires exactly once, and
//! the sums are right.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::{Change, MessageId, NextHop, Notify, Outcome};
use proptest::prelude::*;
use scheduler::{
    DestinationLimits, Filter, HeldBy, MessageChanges, Order, Output, PlannedAttempt, Retry,
    Scheduler, Settings, State,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Debug)]
enum Event {
    Arrive { recipients: u8, domains: u8, sender: u8, held: bool, bulk: bool },
    Outcome { which: u8, kinds: u64 },
    Lost { which: u8 },
    Operate { which: u8, what: u8 },
    Order(u8),
    Pass { seconds: u32 },
    Jump { hours: i32 },
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1u8..7, 1u8..6, 0u8..4, 0u8..10, any::<bool>()).prop_map(|(recipients, domains, sender, held, bulk)| {
            Event::Arrive { recipients, domains, sender, held: held == 0, bulk }
        }),
        8 => (any::<u8>(), any::<u64>()).prop_map(|(which, kinds)| Event::Outcome { which, kinds }),
        2 => any::<u8>().prop_map(|which| Event::Lost { which }),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(which, what)| Event::Operate { which, what }),
        1 => any::<u8>().prop_map(Event::Order),
        5 => (0u32..40_000).prop_map(|seconds| Event::Pass { seconds }),
        1 => (-9000i32..9000).prop_map(|hours| Event::Jump { hours }),
        1 => Just(Event::Restart),
    ]
}

fn settings() -> Settings {
    Settings {
        retry: Retry {
            first: Duration::from_secs(600),
            expire: Duration::from_secs(86_400),
            ..Retry::for_tests()
        },
        attempts_in_flight_max: 7,
        default: DestinationLimits {
            connections: 4,
            start_connections: 2,
            recipients_per_message: 2,
            ..DestinationLimits::for_tests()
        },
        limits: vec![(
            "d1.test".into(),
            DestinationLimits { rate_per_second: Some(0.1), ..DestinationLimits::for_tests() },
        )],
        ..Settings::for_tests()
    }
}

/// State of a queue as seen from outside: unfinished recipients, and recipients in flight.
struct Model {
    bench: Bench,
    pending: BTreeMap<MessageId, BTreeSet<u32>>,
    held: BTreeSet<MessageId>,
    flying: Vec<PlannedAttempt>,
    recorded: Vec<Change>,
    retired: BTreeSet<MessageId>,
    next_id: u64,
}

impl Model {
    fn new() -> Self {
        Model {
            bench: Bench::new(settings()),
            pending: BTreeMap::new(),
            held: BTreeSet::new(),
            flying: Vec::new(),
            recorded: Vec::new(),
            retired: BTreeSet::new(),
            next_id: 1,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive { recipients, domains, sender, held, bulk } => {
                self.arrive(recipients, domains, sender, held, bulk);
            }
            Event::Outcome { which, kinds } => {
                if let Some(attempt) = self.take_flying(which) {
                    self.answer(attempt, kinds);
                }
            }
            Event::Lost { which } => {
                if let Some(attempt) = self.take_flying(which) {
                    self.bench.scheduler.attempt_lost(attempt.attempt, self.bench.now);
                }
            }
            Event::Operate { which, what } => self.operate(which, what),
            Event::Order(which) => {
                let all = scheduler::ORDERS;
                self.bench.scheduler.set_order(all[usize::from(which) % all.len()].1);
            }
            Event::Pass { seconds } => self.bench.pass(Duration::from_secs(seconds.into())),
            Event::Jump { hours } => {
                let wall = self.bench.now.wall.micros() + i64::from(hours) * 3_600_000_000;
                self.bench.now.wall = mail::Timestamp::from_micros(wall);
            }
            Event::Restart => self.restart(),
        }
    }

    fn arrive(&mut self, recipients: u8, domains: u8, sender: u8, held: bool, bulk: bool) {
        let senders = ["", "a@a.test", "b@a.test", "c@a.test"];
        let notifies = [Notify::DEFAULT, Notify::NEVER, Notify::of(true, true, true)];
        let to = (0..recipients).map(|n| {
            let domain = n % domains;
            let hop = match domain {
                3 => NextHop::Discard,
                4 => NextHop::Error("550 no".into()),
                _ => mx(&format!("d{domain}.test")),
            };
            (format!("u{n}@d{domain}.test"), hop, notifies[usize::from(n) % 3])
        });
        let mail = Mail {
            id: self.next_id,
            sender: senders[usize::from(sender)],
            to: to.collect(),
            bytes: if bulk { 1 << 20 } else { 1000 },
            priority: 0,
            held: held.then_some(HeldBy::Policy),
        };
        self.next_id += 1;
        let id = self.bench.send(mail);
        self.pending.insert(id, (0..u32::from(recipients)).collect());
        if held {
            self.held.insert(id);
        }
    }

    fn take_flying(&mut self, which: u8) -> Option<PlannedAttempt> {
        let count = self.flying.len();
        (count > 0).then(|| self.flying.remove(usize::from(which) % count))
    }

    fn answer(&mut self, attempt: PlannedAttempt, mut kinds: u64) {
        let mut outcomes = Vec::new();
        for index in &attempt.recipients {
            let outcome = match kinds % 6 {
                0 | 1 => Some(delivered()),
                2 => Some(greylisted()),
                3 => Some(refused()),
                4 => Some(unreachable()),
                _ => None,
            };
            outcomes.extend(outcome.map(|outcome| (*index, outcome)));
            kinds /= 6;
        }
        self.bench.scheduler.outcome(attempt.attempt, &outcomes, self.bench.now);
        for (index, outcome) in outcomes {
            if matches!(outcome, Outcome::Delivered { .. }) {
                assert!(self.pending[&attempt.message].contains(&index));
            }
        }
    }

    fn operate(&mut self, which: u8, what: u8) {
        let count = self.pending.len();
        let Some(id) = self.pending.keys().nth(usize::from(which) % count.max(1)).copied() else {
            return;
        };
        let (scheduler, now) = (&mut self.bench.scheduler, self.bench.now);
        assert!(match what % 6 {
            0 => scheduler.hold(id, now),
            1 => scheduler.release(id, now),
            2 => scheduler.retry_now(id, now),
            3 => scheduler.delete(id, now),
            4 => scheduler.set_priority(id, (what as i8) / 2, now),
            _ => scheduler.reroute(id, &[(0, &mx("other.test"))], now),
        });
        match what % 6 {
            0 => drop(self.held.insert(id)),
            1 => drop(self.held.remove(&id)),
            3 => self.flying.retain(|attempt| attempt.message != id),
            _ => {}
        }
    }

    /// Replaces the scheduler with one made from snapshots. Attempts in flight are lost.
    fn restart(&mut self) {
        let now = self.bench.now;
        self.flush();
        let mut new = Scheduler::new(settings(), 2, now);
        let mut after = None;
        loop {
            let batch = self.bench.scheduler.export_from(after, 3, now);
            let Some((last, _)) = batch.last() else { break };
            after = Some(*last);
            for (id, bytes) in batch {
                assert_eq!(new.restore(&bytes, now), Ok(id));
            }
        }
        self.bench.scheduler = new;
        self.flying.clear();
    }

    fn flush(&mut self) {
        for output in self.bench.drain() {
            match output {
                Output::Attempt(attempt) => self.begin(attempt),
                Output::Record(record) => self.record(record),
            }
        }
    }

    fn begin(&mut self, attempt: PlannedAttempt) {
        assert!(!attempt.recipients.is_empty());
        assert!(!self.held.contains(&attempt.message), "a held message was tried");
        for index in &attempt.recipients {
            assert!(self.pending[&attempt.message].contains(index), "tried though done");
            let twice = self
                .flying
                .iter()
                .any(|other| other.message == attempt.message && other.recipients.contains(index));
            assert!(!twice, "in flight twice");
        }
        self.flying.push(attempt);
        assert!(self.flying.len() <= 7);
    }

    fn record(&mut self, record: MessageChanges) {
        for change in &record.changes {
            match change {
                Change::Delivered { message, recipients }
                | Change::Failed { message, recipients } => {
                    let pending = self.pending.get_mut(message).unwrap();
                    recipients.iter().for_each(|index| assert!(pending.remove(index)));
                }
                Change::Due { message, recipients, .. } => {
                    assert!(recipients.iter().all(|at| self.pending[message].contains(at)));
                }
                Change::Retire { message } => {
                    assert_eq!(self.pending.remove(message), Some(BTreeSet::new()));
                    assert!(self.retired.insert(*message), "retired twice");
                }
                Change::Hold { message } => drop(self.held.insert(*message)),
                _ => {}
            }
        }
        for notice in &record.notices {
            assert!(!notice.recipients.is_empty());
        }
        self.recorded.extend(record.changes);
    }

    fn check(&mut self) {
        self.flush();
        let now = self.bench.now;
        let summary = self.bench.scheduler.summary(now);
        let recipients: usize = self.pending.values().map(BTreeSet::len).sum();
        assert_eq!(summary.messages, self.pending.len() as u64);
        assert_eq!(summary.recipients, recipients as u64);
        assert_eq!(summary.attempts_in_flight as usize, self.flying.len());
        for (state, count) in [
            (State::Active, summary.active),
            (State::Deferred, summary.deferred),
            (State::Held, summary.held),
        ] {
            let filter = Filter { state: Some(state), ..Filter::default() };
            let page = self.bench.scheduler.list(&filter, None, usize::MAX, now);
            assert_eq!(page.rows.len() as u64, count, "{state:?}");
        }
        for (id, pending) in &self.pending {
            let explanation = self.bench.scheduler.explain(*id, now).unwrap();
            let told: BTreeSet<u32> = explanation.recipients.iter().map(|r| r.recipient).collect();
            assert_eq!(&told, pending);
        }
    }

    /// Delivers all mail: releases holds and lets every attempt succeed.
    fn finish(&mut self) {
        for id in self.pending.keys().copied().collect::<Vec<_>>() {
            self.bench.scheduler.release(id, self.bench.now);
        }
        self.held.clear();
        for _ in 0..100_000 {
            self.flush();
            if self.flying.is_empty() && !self.bench.sleep() {
                break;
            }
            for attempt in std::mem::take(&mut self.flying) {
                self.answer(attempt, 0);
            }
            // Holds after losses come late and are released as well.
            for id in std::mem::take(&mut self.held) {
                self.bench.scheduler.release(id, self.bench.now);
            }
        }
        assert!(self.pending.is_empty(), "left: {:?}", self.pending);
        assert!(self.bench.scheduler.is_empty());
        assert_eq!(self.retired.len() as u64, self.next_id - 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_lost_and_nobody_is_tried_twice_at_once(
        events in proptest::collection::vec(event(), 1..120)
    ) {
        let mut model = Model::new();
        for event in events {
            model.handle(event);
            model.check();
        }
        model.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// The changes of the log, applied to snapshots of the arrivals, give the same queue.
    #[test]
    fn the_log_read_again_gives_the_same_queue(
        events in proptest::collection::vec(event(), 1..80)
    ) {
        let mut model = Model::new();
        let mut arrivals = Vec::new();
        for event in events {
            if matches!(event, Event::Restart | Event::Jump { .. }) {
                continue;
            }
            if matches!(event, Event::Operate { what, .. } if what % 6 == 5) {
                continue;
            }
            let next = model.next_id;
            model.handle(event);
            if model.next_id != next {
                let bytes = model.bench.scheduler.export(MessageId(next), model.bench.now);
                arrivals.push(bytes.unwrap());
            }
            model.check();
        }
        let now = model.bench.now;
        let mut again = Scheduler::new(settings(), 3, now);
        for bytes in arrivals {
            again.restore(&bytes, now).unwrap();
        }
        for change in &model.recorded {
            again.apply(change, now);
        }
        prop_assert_eq!(again.len(), model.pending.len());
        for id in model.pending.keys() {
            let (before, after) =
                (model.bench.scheduler.explain(*id, now), again.explain(*id, now));
            let (before, after) = (before.unwrap(), after.unwrap());
            prop_assert_eq!(before.held.is_some(), after.held.is_some());
            for (before, after) in before.recipients.iter().zip(&after.recipients) {
                prop_assert_eq!(before.recipient, after.recipient);
                prop_assert_eq!(&before.address, &after.address);
                prop_assert_eq!(before.attempts, after.attempts);
                prop_assert_eq!(&before.last, &after.last);
            }
            prop_assert_eq!(before.recipients.len(), after.recipients.len());
        }
    }
}

#[test]
fn an_order_decides_who_goes_first_in_the_whole_queue() {
    let cases = [
        (Order::Id, [1, 2, 3, 4]),
        (Order::Priority, [3, 1, 2, 4]),
        (Order::Destination, [2, 4, 1, 3]),
        (Order::Arrival, [1, 2, 3, 4]),
        (Order::None, [1, 2, 3, 4]),
        (Order::Modified, [2, 3, 4, 1]),
    ];
    for (order, expected) in cases {
        let settings = Settings { attempts_in_flight_max: 0, ..Settings::for_tests() };
        let mut bench = Bench::new(settings.clone());
        for (id, domain, priority) in [(1, "b", 0), (2, "a", 0), (3, "b", 50), (4, "a", -1)] {
            let to = format!("x@{domain}.test");
            bench.send(Mail { priority, ..mail(id, "a@a.test", &[&to]) });
            bench.pass(Duration::from_secs(2));
        }
        for change in [Scheduler::hold, Scheduler::release] {
            assert!(
                order != Order::Modified || change(&mut bench.scheduler, MessageId(1), bench.now)
            );
        }
        let mut candidates = bench.scheduler.read_candidates(order);
        candidates.sort();
        let sorted: Vec<u64> = candidates.messages().map(|id| id.0).collect();
        assert_eq!(sorted, expected, "{order:?} sorted");
        assert_eq!(bench.scheduler.run(&candidates, bench.now), 4);
        bench
            .scheduler
            .reload(Settings { attempts_in_flight_max: 9, order, ..settings }, bench.now);
        let tried: Vec<u64> = bench.attempts().iter().map(|attempt| attempt.message.0).collect();
        assert_eq!(tried, expected, "{order:?} tried");
    }
}

#[test]
fn an_order_is_shown_by_the_name_by_which_it_is_read() {
    let names = ["fair", "priority", "arrival", "destination", "modified", "id", "random", "none"];
    for name in names {
        assert_eq!(name.parse::<Order>().map(Order::name), Ok(name));
    }
    assert_eq!("id".parse(), Ok(Order::Id));
    assert!("urgent".parse::<Order>().is_err());
}
