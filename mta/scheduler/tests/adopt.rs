//! Attempts of a former incarnation: they are in flight, are not tried twice, and end with their outcome.

#![allow(clippy::unwrap_used)]

mod common;
use common::*;
use mail::MessageId;

#[test]
fn an_adopted_attempt_is_not_tried_again_and_its_outcome_counts() {
    let mut bench = Bench::new(scheduler::Settings::for_tests());
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
    let mut bench = Bench::new(scheduler::Settings::for_tests());
    bench.send(mail(1, "a@b.test", &["x@c.test", "y@c.test"]));
    bench.scheduler.adopt(MessageId(1), &[1], bench.now).unwrap();
    let attempts = bench.attempts();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].recipients, [0]);
    assert_eq!(bench.scheduler.adopt(MessageId(1), &[0, 1], bench.now), None, "all in flight");
    assert_eq!(bench.scheduler.adopt(MessageId(2), &[0], bench.now), None, "unknown");
}

#[test]
fn recipients_with_due_times_of_their_own_are_taken_over_together() {
    let mut bench = Bench::new(scheduler::Settings::for_tests());
    bench.send(mail(1, "a@b.test", &["x@c.test", "y@c.test", "z@c.test", "w@c.test"]));
    let message = MessageId(1);
    let due = bench.now.wall + seconds(700);
    let mail::Outcome::Deferred(report) = greylisted() else { panic!() };
    let recipients = vec![0, 3];
    let change = mail::Change::Due { message, recipients, due, attempts: 2, report };
    bench.scheduler.apply(&change, bench.now);
    let adopted = bench.scheduler.adopt(message, &[0, 1, 2], bench.now).unwrap();
    assert!(bench.attempts().is_empty(), "the fourth waits for its time");
    bench.scheduler.outcome(adopted, &[(0, delivered()), (1, delivered())], bench.now);
    bench.pass(seconds(3_000));
    let left: Vec<_> = bench.attempts().into_iter().flat_map(|a| a.recipients).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&2) && left.contains(&3));
}

#[test]
fn what_has_begun_goes_before_an_attempt_that_has_not_and_nothing_is_given_up_meanwhile() {
    for held in [false, true] {
        let mut bench = Bench::new(scheduler::Settings::for_tests());
        let message = MessageId(1);
        bench.send(mail(1, "a@b.test", &["x@c.test", "y@c.test"]));
        let attempt = bench.attempts().remove(0).attempt;
        assert_eq!(bench.scheduler.flights_of(message, &[1, 0]), [attempt]);
        assert!(bench.scheduler.flights_of(MessageId(2), &[0]).is_empty(), "unknown");
        // The message expires, and the attempt is no longer wanted.
        bench.pass(seconds(6 * 86_400));
        bench.records();
        if held {
            bench.scheduler.hold(message, bench.now);
        }
        bench.scheduler.put_back(attempt, bench.now);
        let adopted = bench.scheduler.adopt(message, &[0, 1], bench.now).unwrap();
        assert_eq!(bench.scheduler.flights_of(message, &[1, 0]), [adopted]);
        assert!(bench.attempts().is_empty(), "all of it is in flight");
        assert!(bench.records().iter().all(|record| record.notices.is_empty()));
        bench.scheduler.outcome(adopted, &[(0, delivered()), (1, delivered())], bench.now);
        assert!(bench.scheduler.is_empty());
    }
}
