//! Destinations: concurrency, rates, probes, and what is remembered without mail.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::MessageId;
use scheduler::{DestinationLimits, Settings};

#[test]
fn a_dead_destination_costs_one_probe_at_a_time_and_its_mail_flows_when_it_is_back() {
    let mut bench = Bench::new(plain());
    for id in 0..10_000 {
        bench.send(mail(id + 1, "a@a.test", &["b@b.test"]));
    }
    let (mut tried, begin) = (0, bench.now);
    while bench.now.wall.since(begin.wall) < seconds(3600) {
        for attempt in bench.attempts() {
            tried += 1;
            bench.answer(&attempt, unreachable());
        }
        bench.sleep();
    }
    assert!((20..60).contains(&tried), "{tried} attempts in an hour");
    assert_eq!(bench.scheduler.summary(bench.now).destinations_backing_off, 1);
    let deadline = bench.now.wall + seconds(6 * 3600);
    while !bench.scheduler.is_empty() && bench.now.wall < deadline {
        for attempt in bench.attempts() {
            bench.answer(&attempt, delivered());
        }
        bench.sleep();
    }
    assert!(bench.scheduler.is_empty());
}

#[test]
fn d147_a_refused_recipient_does_not_slow_its_destination() {
    let mut bench = Bench::new(plain());
    for id in 0..50 {
        bench.send(mail(id + 1, "a@a.test", &["b@b.test"]));
    }
    for _ in 0..10 {
        for attempt in bench.attempts() {
            bench.answer(&attempt, greylisted());
        }
    }
    let summary = bench.scheduler.summary(bench.now);
    assert_eq!((summary.deferred, summary.destinations[0].failures), (50, 0));
    assert!(summary.destinations[0].allowed >= 50);
}

#[test]
fn concurrency_starts_low_grows_with_success_and_stops_at_the_limit() {
    let limits = DestinationLimits {
        connections: 10,
        start_connections: 2,
        ..DestinationLimits::for_tests()
    };
    let mut bench = Bench::new(limited(limits));
    for id in 0..200 {
        bench.send(mail(id + 1, "a@a.test", &["b@b.test"]));
    }
    let (mut seen, mut flying) = (Vec::new(), bench.attempts());
    while !flying.is_empty() {
        seen.push(flying.len());
        for attempt in flying {
            bench.answer(&attempt, delivered());
        }
        flying = bench.attempts();
    }
    assert_eq!(seen[..5], [2, 4, 8, 10, 10]);
    assert!(seen.iter().all(|count| *count <= 10));
}

#[test]
fn a_rate_is_kept() {
    let limits = DestinationLimits { rate_per_second: Some(2.0), ..DestinationLimits::for_tests() };
    let mut bench = Bench::new(limited(limits));
    for id in 0..100 {
        bench.send(mail(id + 1, "a@a.test", &["b@b.test"]));
    }
    let mut tried = 0;
    while bench.now.wall.since(start().wall) < seconds(10) {
        for attempt in bench.attempts() {
            tried += 1;
            bench.answer(&attempt, delivered());
        }
        bench.sleep();
    }
    assert!((20..=21).contains(&tried), "{tried} in ten seconds");
}

#[test]
fn a_domain_whose_destination_was_forgotten_is_never_taken_for_another_one() {
    let mut bench = Bench::new(plain());
    let deliver = |bench: &mut Bench| {
        let attempt = bench.attempts().remove(0);
        let hop = bench.scheduler.hop(attempt.destination).cloned();
        bench.answer(&attempt, delivered());
        hop
    };
    bench.send(mail(1, "a@a.test", &["x@d.test"]));
    assert_eq!(deliver(&mut bench), Some(mx("d.test")));
    // Mail for the same domain by another route: the name is still known when its destination is not.
    bench.send(mail(2, "a@a.test", &["x@d.test"]).hop(mx("gateway.test")));
    let attempt = bench.attempts().remove(0);
    assert_eq!(bench.scheduler.hop(attempt.destination), Some(&mx("gateway.test")));
    // More destinations than are remembered without mail. The last of them takes the place of the first.
    for id in 3..2_500 {
        bench.send(mail(id, "a@a.test", &[&format!("x@n{id}.test")]));
        deliver(&mut bench);
    }
    bench.send(mail(2_500, "a@a.test", &["x@d.test"]));
    assert_eq!(deliver(&mut bench), Some(mx("d.test")));
}

#[test]
fn a_forgotten_destination_has_no_next_hop_and_the_default_limits() {
    let few = DestinationLimits { connections: 7, ..DestinationLimits::for_tests() };
    let mut bench = Bench::new(Settings { limits: vec![("*".into(), few)], ..plain() });
    let mut first = None;
    // One more than are remembered without mail.
    for id in 1..=1_025 {
        bench.send(mail(id, "a@a.test", &[&format!("x@n{id}.test")]));
        let attempt = bench.attempts().remove(0);
        let destination = *first.get_or_insert(attempt.destination);
        assert_eq!(bench.scheduler.hop(destination), Some(&mx("n1.test")));
        assert_eq!(bench.scheduler.limits(destination).connections, 7);
        bench.answer(&attempt, delivered());
    }
    let destination = first.unwrap();
    assert_eq!(bench.scheduler.hop(destination), None);
    assert_eq!(bench.scheduler.limits(destination).connections, 100);
}

fn send_to(bench: &mut Bench, id: u64, domain: &str) -> MessageId {
    bench.send(mail(id, "a@a.test", &[&format!("x@{domain}.test")]))
}

/// Makes a destination without mail that is known not to answer.
fn find_dead(bench: &mut Bench, id: u64, domain: &str) {
    let message = send_to(bench, id, domain);
    for _ in 0..3 {
        bench.scheduler.retry_now(message, bench.now);
        bench.attempts().iter().for_each(|attempt| bench.answer(attempt, unreachable()));
    }
    bench.scheduler.delete(message, bench.now);
    bench.drain();
}

fn deliver_to(bench: &mut Bench, id: u64, domain: &str) {
    send_to(bench, id, domain);
    bench.attempts().iter().for_each(|attempt| bench.answer(attempt, delivered()));
}

#[test]
fn a_thousand_destinations_without_mail_are_remembered_the_last_ones() {
    let mut bench = Bench::new(plain());
    // With mail it is not among the forgotten ones.
    let waiting = send_to(&mut bench, 2, "dead");
    bench.scheduler.hold(waiting, bench.now);
    find_dead(&mut bench, 3, "dead");
    (1_000..2_000).for_each(|id| deliver_to(&mut bench, id, &format!("n{id}")));
    bench.scheduler.delete(waiting, bench.now);
    (2_000..3_000).for_each(|id| deliver_to(&mut bench, id, &format!("n{id}")));
    send_to(&mut bench, 4, "dead");
    assert_eq!(bench.attempts(), [], "it is still left alone");
    bench.scheduler.delete(MessageId(4), bench.now);
    (3_000..4_100).for_each(|id| deliver_to(&mut bench, id, &format!("n{id}")));
    send_to(&mut bench, 5, "dead");
    assert_eq!(bench.attempts().len(), 1);
}

#[test]
fn also_if_the_mail_of_a_thousand_was_deleted_before_its_turn() {
    let mut bench = Bench::new(plain());
    for id in 1..1_101 {
        send_to(&mut bench, id, &format!("n{id}"));
    }
    for id in 1..1_101 {
        bench.scheduler.delete(MessageId(id), bench.now);
    }
    bench.drain();
    (1..77).for_each(|id| deliver_to(&mut bench, id, &format!("n{id}")));
    for id in 2_000..4_000 {
        find_dead(&mut bench, id, &format!("n{id}"));
        if id >= 2_500 {
            let earlier = send_to(&mut bench, id + 10_000, &format!("n{}", id - 500));
            assert_eq!(bench.attempts(), [], "{id}");
            bench.scheduler.delete(earlier, bench.now);
        }
    }
}
