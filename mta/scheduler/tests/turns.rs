//! Turns: how senders and destinations share the attempts.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::NextHop;
use scheduler::{DestinationId, DestinationLimits, Settings};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn ten_messages_beside_a_million_of_another_sender_go_at_once() {
    for spread in [1, 500] {
        let settings = Settings { attempts_in_flight_max: 20, ..plain() };
        let mut bench = Bench::new(settings);
        for id in 0..20_000u64 {
            bench.send(mail(id + 1, "flood@a.test", &[&format!("x@d{}.test", id % spread)]));
        }
        let mut flying = bench.attempts();
        // Destinations in line for a sender with much mail, not for one with little mail.
        for id in 0..10u64 {
            let to = format!("x@d{}.test", (id + 300) % spread);
            bench.send(mail(100_000 + id, "few@a.test", &[&to]));
        }
        let (mut left, mut tried) = ((100_000..100_010).collect::<BTreeSet<u64>>(), 0);
        while !left.is_empty() {
            for attempt in std::mem::take(&mut flying) {
                bench.answer(&attempt, delivered());
            }
            flying = bench.attempts();
            tried += flying.len();
            flying.iter().for_each(|attempt| {
                left.remove(&attempt.message.0);
            });
            assert!(tried <= 40, "spread {spread}: {} of the ten are still waiting", left.len());
        }
    }
}

#[test]
fn small_mail_goes_ahead_of_bulk_but_bulk_is_not_starved() {
    let limits = DestinationLimits {
        connections: 1,
        start_connections: 1,
        ..DestinationLimits::for_tests()
    };
    let mut bench = Bench::new(limited(limits));
    for id in 0..40u64 {
        let bytes = if id % 2 == 0 { 10_000_000 } else { 4000 };
        bench.send(scheduler_mail(id, bytes));
    }
    let mut order = Vec::new();
    for _ in 0..40 {
        let attempt = bench.attempts().remove(0);
        order.push(if attempt.message.0.is_multiple_of(2) { 'B' } else { 's' });
        bench.answer(&attempt, delivered());
    }
    let order: String = order[1..].iter().collect();
    assert!(order.starts_with("sssssss"), "{order}");
    assert!(order[..12].contains('B') && order[..20].contains('B'), "{order}");
}

fn scheduler_mail(id: u64, bytes: u64) -> Mail<'static> {
    Mail { bytes, ..mail(id, "a@a.test", &["b@b.test"]) }
}

#[test]
fn destinations_take_turns_under_the_total_limit() {
    let settings = Settings { attempts_in_flight_max: 10, ..plain() };
    let mut bench = Bench::new(settings);
    for id in 0..1000u64 {
        let domain = if id < 900 { 0 } else { id % 10 };
        bench.send(mail(id + 1, "a@a.test", &[&format!("x@d{domain}.test")]));
    }
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..10 {
        let flying = bench.attempts();
        assert!(flying.len() <= 10);
        for attempt in flying {
            *counts.entry(attempt.destination).or_insert(0) += 1;
            bench.answer(&attempt, delivered());
        }
    }
    assert_eq!(counts.len(), 10);
    assert!(counts.values().all(|count| *count >= 5), "{counts:?}");
}

/// Returns the destinations of attempts, made one at a time, while two destinations have much mail of one sender. Each
/// attempt takes this long.
fn in_turn(attempts: usize, each: Duration, hop: &dyn Fn(u64) -> NextHop) -> Vec<DestinationId> {
    let mut bench = Bench::new(Settings { attempts_in_flight_max: 1, ..plain() });
    for id in 0..400u64 {
        bench.send(mail(id + 1, "a@a.test", &["x@d.test"]).hop(hop(id % 2)));
    }
    (0..attempts)
        .map(|_| {
            let attempt = bench.attempts().remove(0);
            bench.pass(each);
            bench.answer(&attempt, delivered());
            attempt.destination
        })
        .collect()
}

fn lengths(of: &[DestinationId]) -> Vec<usize> {
    of.chunk_by(|one, next| one == next).map(<[_]>::len).collect()
}

#[test]
fn a_destination_that_takes_mail_quickly_goes_on_until_others_have_their_turn() {
    let remote = |id| mx(if id == 0 { "d0.test" } else { "d1.test" });
    let quick = in_turn(64, Duration::from_millis(10), &remote);
    assert_eq!(lengths(&quick), [16, 16, 16, 16], "a connection takes sixteen messages");
    let slow = in_turn(64, Duration::from_millis(300), &remote);
    assert_eq!(lengths(&slow), [1; 64], "one that is slow does not hold others up");
    let mixed = |id| if id == 0 { NextHop::Local } else { mx("d1.test") };
    let mixed = in_turn(34, Duration::from_millis(10), &mixed);
    assert_eq!(lengths(&mixed), [1, 16, 1, 16], "to a mailbox there is no connection");
}

#[test]
fn light_senders_go_before_a_destination_that_goes_on() {
    let mut bench = Bench::new(Settings { attempts_in_flight_max: 1, ..plain() });
    for id in 0..400u64 {
        bench.send(mail(id + 1, "a@a.test", &["x@d0.test"]));
    }
    for _ in 0..3 {
        let attempt = bench.attempts().remove(0);
        bench.answer(&attempt, delivered());
    }
    let flying = bench.attempts().remove(0);
    let letter = bench.send(mail(1_000, "friend@b.test", &["x@d1.test"]));
    bench.answer(&flying, delivered());
    assert_eq!(bench.attempts()[0].message, letter);
}
