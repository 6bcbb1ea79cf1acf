//! Attempts of a former life: in flight, not tried twice, and done when their end is told.

#![allow(clippy::unwrap_used)]

mod common;
use common::*;
use mail::MessageId;

#[test]
fn an_adopted_attempt_is_not_tried_again_and_its_outcome_counts() {
    let mut bench = Bench::new(scheduler::Settings::default());
    bench.send(mail(1, "a@b.test", &["x@c.test", "y@c.test"]));
    let adopted = bench.scheduler.adopt(MessageId(1), &[0, 1], bench.now).unwrap();
    assert!(bench.attempts().is_empty(), "all of it is in flight");
    let outcomes = [(0, delivered()), (1, delivered())];
    bench.scheduler.outcome(adopted, &outcomes, bench.now);
    assert_eq!(bench.records().len(), 1);
    assert!(bench.scheduler.is_empty());
}

#[test]
fn recipients_that_were_not_under_way_are_tried_beside_the_adopted_ones() {
    let mut bench = Bench::new(scheduler::Settings::default());
    bench.send(mail(1, "a@b.test", &["x@c.test", "y@c.test"]));
    bench.scheduler.adopt(MessageId(1), &[1], bench.now).unwrap();
    let attempts = bench.attempts();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].recipients, [0]);
    assert_eq!(bench.scheduler.adopt(MessageId(1), &[0, 1], bench.now), None, "all in flight");
    assert_eq!(bench.scheduler.adopt(MessageId(2), &[0], bench.now), None, "unknown");
}
