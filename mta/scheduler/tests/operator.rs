//! Holds, deletions and queue runs by an operator.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use scheduler::{HeldBy, Order, Output, State};

#[test]
fn a_held_message_waits_for_its_release_and_does_not_expire() {
    let mut bench = Bench::new(plain());
    let id = bench.send(Mail { held: Some(HeldBy::Policy), ..mail(1, "a@a.test", &["b@b.test"]) });
    assert!(bench.drain().is_empty());
    bench.pass(seconds(30 * 86_400));
    assert!(bench.drain().is_empty());
    assert_eq!(bench.scheduler.summary(bench.now).held, 1);
    assert!(bench.scheduler.release(id, bench.now));
    let outputs = bench.drain();
    assert!(matches!(&outputs[0], Output::Record(record) if kinds(record) == ["release"]));
    let Output::Attempt(attempt) = &outputs[1] else { panic!("{outputs:?}") };
    bench.answer(attempt, greylisted());
    assert_eq!(kinds(&bench.records()[0]), ["failed", "retire"], "its time was over");
}

#[test]
fn a_message_held_in_flight_is_held_after_its_attempt() {
    let mut bench = Bench::new(plain());
    let id = bench.send(mail(1, "a@a.test", &["b@b.test"]));
    let attempt = bench.attempts().remove(0);
    bench.scheduler.hold(id, bench.now);
    bench.answer(&attempt, greylisted());
    bench.pass(seconds(86_400 / 2));
    assert!(bench.attempts().is_empty());
    assert_eq!(
        bench.scheduler.list(&Default::default(), None, 9, bench.now).rows[0].state,
        State::Held
    );
}

#[test]
fn deleted_mail_is_gone_and_nobody_is_told() {
    let mut bench = Bench::new(plain());
    let id = bench.send(mail(1, "a@a.test", &["b@b.test", "c@c.test"]));
    let attempts = bench.attempts();
    bench.answer(&attempts[0], greylisted());
    bench.drain();
    assert!(bench.scheduler.delete(id, bench.now));
    let record = bench.records().remove(0);
    let expected = vec!["failed", "retire"];
    assert_eq!((kinds(&record), record.notices.len()), (expected, 0), "one record has it all");
    let summary = bench.scheduler.summary(bench.now);
    assert_eq!((summary.messages, summary.attempts_in_flight), (0, 0));
    bench.answer(&attempts[1], greylisted());
    assert!(bench.drain().is_empty(), "what was in flight is ignored");
    assert!(!bench.scheduler.delete(id, bench.now));
}

#[test]
fn an_operator_has_deferred_mail_tried_now() {
    let mut bench = Bench::new(plain());
    let ids: Vec<_> = (1..6).map(|id| bench.send(mail(id, "a@a.test", &["b@b.test"]))).collect();
    for attempt in bench.attempts() {
        bench.answer(&attempt, unreachable());
    }
    bench.drain();
    ids.iter().for_each(|id| assert!(bench.scheduler.retry_now(*id, bench.now)));
    assert_eq!(bench.attempts().len(), 1, "a dead destination is probed, not flooded");
}

#[test]
fn a_hold_and_a_release_are_recorded_also_where_they_change_nothing() {
    let mut bench = Bench::new(plain());
    let id = bench.send(mail(1, "a@a.test", &["b@b.test"]));
    for (expected, held) in [("hold", true), ("release", false)] {
        for _ in 0..2 {
            match held {
                true => assert!(bench.scheduler.hold(id, bench.now)),
                false => assert!(bench.scheduler.release(id, bench.now)),
            }
            // The operator is answered when this record is durable; the first record may not be durable.
            assert_eq!(kinds(&bench.records().remove(0)), [expected]);
        }
    }
}

#[test]
fn a_queue_run_probes_a_destination_that_is_left_alone_for_a_while() {
    let mut bench = Bench::new(plain());
    for id in 0..40 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    for _ in 0..8 {
        bench.attempts().iter().for_each(|attempt| bench.answer(attempt, unreachable()));
    }
    assert!(bench.attempts().is_empty(), "it is not left alone");
    for order in [Order::Id, Order::Fair] {
        let mut candidates = bench.scheduler.read_candidates(order);
        candidates.sort();
        assert_eq!(bench.scheduler.run(&candidates, bench.now), 40);
        let probes = bench.attempts();
        assert!(!probes.is_empty(), "{order:?}");
        probes.iter().for_each(|attempt| bench.answer(attempt, unreachable()));
    }
}
