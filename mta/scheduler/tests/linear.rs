//! The cost of a message grows linearly with its recipients: replay, snapshots, adoption.
//!
//! Must never read a clock: allocated bytes show a list that is copied for each recipient. `cargo xtask counts --growth`
//! shows that no list is searched for each recipient.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::{Change, MessageId};
use proptest::prelude::*;
use scheduler::Settings;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;

struct Counting;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator unchanged; counting touches no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MESSAGE: MessageId = MessageId(1);
/// Cost of four times as many recipients, above which the growth is more than linear.
const GROWTH_MAX: f64 = 4.4;

/// Makes a bench with one message to this many recipients of one destination.
fn list_of(recipients: u32) -> Bench {
    let mut bench = Bench::new(Settings::for_tests());
    let to: Vec<String> = (0..recipients).map(|index| format!("user{index}@list.test")).collect();
    bench.send(mail(1, "owner@a.test", &to.iter().map(String::as_str).collect::<Vec<_>>()));
    bench
}

/// Returns all recipients once, in an order in which neighbours are far apart.
fn scattered(recipients: u32) -> impl Iterator<Item = u32> {
    (0..recipients).map(move |at| (at * 7_919) % recipients)
}

fn due(recipients: Vec<u32>, bench: &Bench, text: &str) -> Change {
    let due = bench.now.wall + seconds(700);
    let report = report(mail::Stage::Rcpt, 450, text);
    Change::Due { message: MESSAGE, recipients, due, attempts: 1, report }
}

/// Asserts that `work` allocates at most 4.4 times as many bytes for four times as many recipients.
fn assert_linear(what: &str, work: impl Fn(&mut Bench, u32)) {
    let asked_for = |recipients: u32| {
        let mut bench = list_of(recipients);
        let before = BYTES.get();
        work(&mut bench, recipients);
        (BYTES.get() - before) as f64
    };
    let (few, many) = (asked_for(2_500), asked_for(10_000));
    assert!(many <= few * GROWTH_MAX, "{what}: {few} bytes, then {many}");
}

#[test]
fn r209_a_replay_costs_as_much_for_each_recipient_of_many_as_of_few() {
    assert_linear("delivered one by one", |bench, recipients| {
        for index in scattered(recipients) {
            let recipients = vec![index];
            bench.scheduler.apply(&Change::Delivered { message: MESSAGE, recipients }, bench.now);
        }
        assert_eq!(bench.records().len(), 1, "nothing is left but to retire it");
    });
    assert_linear("deferred with a reply each", |bench, recipients| {
        for index in scattered(recipients) {
            let change = due(vec![index], bench, &format!("try later, {index}"));
            bench.scheduler.apply(&change, bench.now);
        }
        assert!(bench.attempts().is_empty());
    });
}

#[test]
fn r209_attempts_of_a_former_life_are_adopted_without_a_look_at_the_other_recipients() {
    assert_linear("attempts of one recipient", |bench, recipients| {
        for index in scattered(recipients) {
            bench.scheduler.adopt(MESSAGE, &[index], bench.now).unwrap();
        }
        assert!(bench.attempts().is_empty(), "all of it is in flight");
    });
}

/// Change of the recipients of one list while the log is read again.
#[derive(Clone, Debug)]
enum Event {
    Delivered(Vec<u32>),
    /// Deferred, with one of a few due times.
    Due(Vec<u32>, u64),
}

const RECIPIENTS: u32 = 40;

fn event() -> impl Strategy<Value = Event> {
    let some = || prop::collection::vec(0..RECIPIENTS, 1..6);
    prop_oneof![
        1 => some().prop_map(Event::Delivered),
        4 => (some(), 0..3u64).prop_map(|(all, due)| Event::Due(all, due)),
    ]
}

proptest! {
    #[test]
    fn recipients_that_leave_and_come_back_in_any_order_are_tried_once(
        events in prop::collection::vec(event(), 0..60)
    ) {
        let mut bench = list_of(RECIPIENTS);
        let mut left: BTreeSet<u32> = (0..RECIPIENTS).collect();
        for event in events {
            let change = match event {
                Event::Delivered(recipients) => {
                    recipients.iter().for_each(|index| { left.remove(index); });
                    Change::Delivered { message: MESSAGE, recipients }
                }
                Event::Due(recipients, hours) => {
                    let due = bench.now.wall + seconds(600 + hours);
                    let report = report(mail::Stage::Rcpt, 450, "later");
                    Change::Due { message: MESSAGE, recipients, due, attempts: 1, report }
                }
            };
            bench.scheduler.apply(&change, bench.now);
            if let Some(bytes) = bench.scheduler.export(MESSAGE, bench.now).filter(|_| !left.is_empty()) {
                Bench::new(Settings::for_tests()).scheduler.restore(&bytes, bench.now).unwrap();
            }
        }
        let mut tried: Vec<u32> = Vec::new();
        for _ in 0..3 {
            for attempt in bench.attempts() {
                tried.extend(&attempt.recipients);
                bench.answer(&attempt, delivered());
            }
            bench.pass(seconds(1_000));
        }
        tried.sort_unstable();
        prop_assert_eq!(tried, left.into_iter().collect::<Vec<_>>());
    }
}
