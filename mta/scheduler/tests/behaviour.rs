//! The behaviour that a postmaster relies on, claim by claim: attempts, outcomes and waits.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::{Change, NextHop, Outcome, Stage};
use scheduler::{DestinationLimits, HeldBy, NoticeKind, Output, Settings};

#[test]
fn a_message_is_tried_at_once_delivered_and_retired() {
    let mut bench = Bench::new(plain());
    let id = bench.send(mail(1, "a@a.test", &["b@b.test"]));
    let attempts = bench.attempts();
    assert_eq!((attempts.len(), attempts[0].message), (1, id));
    assert_eq!(bench.scheduler.hop(attempts[0].destination), Some(&mx("b.test")));
    bench.answer(&attempts[0], delivered());
    let records = bench.records();
    assert_eq!(kinds(&records[0]), ["delivered", "retire"]);
    assert!(bench.scheduler.is_empty() && bench.scheduler.next_wakeup().is_none());
}

#[test]
fn recipients_of_one_destination_share_attempts_up_to_the_limit() {
    let limits = DestinationLimits { recipients_per_message: 2, ..DestinationLimits::for_tests() };
    let mut bench = Bench::new(limited(limits));
    bench.send(mail(1, "a@a.test", &["a@b.test", "x@c.test", "b@b.test", "c@b.test"]));
    let mut groups: Vec<Vec<u32>> = bench.attempts().into_iter().map(|a| a.recipients).collect();
    groups.sort();
    assert_eq!(groups, [vec![0, 2], vec![1], vec![3]]);
}

#[test]
fn each_recipient_has_its_own_outcome_and_those_that_wait_stay_together() {
    let mut bench = Bench::new(plain());
    let to = ["a@b.test", "b@b.test", "c@b.test", "d@b.test", "e@b.test"];
    bench.send(mail(1, "a@a.test", &to));
    let attempt = bench.attempts().remove(0);
    let other = Outcome::Deferred(report(Stage::Rcpt, 452, "mailbox full"));
    let outcomes = [(0, delivered()), (1, refused()), (2, greylisted()), (3, other)];
    bench.scheduler.outcome(attempt.attempt, &outcomes, bench.now);
    let records = bench.records();
    assert_eq!(kinds(&records[0]), ["delivered", "failed", "due", "due", "due"]);
    assert_eq!(records[0].notices[0].recipients[0].0, 1);
    bench.pass(seconds(301));
    let again = bench.attempts().remove(0);
    assert_eq!((again.recipients, again.attempts_before), (vec![2, 3, 4], 1));
}

#[test]
fn waits_grow_by_the_factor_and_the_message_expires_once_with_its_last_reply() {
    let mut bench = Bench::new(Settings { delay_notice: None, ..plain() });
    bench.send(mail(1, "a@a.test", &["b@b.test"]));
    let (mut waits, mut last, mut end) = (Vec::new(), bench.now, None);
    while end.is_none() {
        for output in bench.drain() {
            match output {
                Output::Attempt(attempt) => {
                    waits.push(bench.now.monotonic.since(last.monotonic).as_secs() / 60);
                    last = bench.now;
                    bench.answer(&attempt, greylisted());
                }
                Output::Record(record) if !record.notices.is_empty() => end = Some(record),
                Output::Record(record) => assert_eq!(kinds(&record), ["due"]),
            }
        }
        assert!(end.is_some() || bench.sleep());
    }
    assert_eq!(waits[..9], [0, 5, 10, 20, 40, 80, 160, 240, 240]);
    let record = end.unwrap();
    assert_eq!(kinds(&record), ["failed", "retire"]);
    let notice = &record.notices[0];
    let reply = &notice.recipients[0].1.reply;
    // The report is the peer's last reply; `mail::bounce` adds that the time is over.
    assert_eq!(notice.kind, NoticeKind::Expired);
    assert_eq!(reply.to_string(), "450 4.0.0 try again later");
    assert_eq!(bench.now.wall.since(start().wall).as_secs(), 5 * 86_400);
}

#[test]
fn x193_a_message_that_kills_its_sender_is_held_and_others_flow() {
    let mut bench = Bench::new(plain());
    let poison = bench.send(mail(1, "a@a.test", &["b@b.test"]));
    for id in 2..200 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    let (mut deaths, mut delivered_count) = (0, 0);
    loop {
        let flying = bench.attempts();
        let dies = flying.iter().any(|attempt| attempt.message == poison);
        deaths += u32::from(dies);
        for attempt in flying {
            if dies {
                bench.scheduler.attempt_lost(attempt.attempt, bench.now);
            } else {
                delivered_count += 1;
                bench.answer(&attempt, delivered());
            }
        }
        if bench.scheduler.len() == 1 || !bench.sleep() {
            break;
        }
    }
    assert_eq!((deaths, delivered_count), (5, 198));
    let explanation = bench.scheduler.explain(poison, bench.now).unwrap();
    assert_eq!(explanation.held, Some(HeldBy::Losses));
}

#[test]
fn s136_a_paused_scheduler_takes_results_and_begins_nothing_until_it_goes_on() {
    let mut bench = Bench::new(plain());
    for id in 1..100 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    let flying = bench.attempts();
    assert!((1..99).contains(&flying.len()), "{}", flying.len());
    bench.scheduler.pause(true, false);
    for attempt in &flying {
        bench.answer(attempt, delivered());
    }
    assert!(bench.attempts().is_empty());
    assert_eq!(bench.scheduler.len(), 99 - flying.len(), "results were taken");
    let wakeup = bench.scheduler.next_wakeup();
    assert!(wakeup.is_none_or(|wakeup| wakeup > bench.now.monotonic), "it would spin");
    bench.scheduler.pause(false, false);
    assert!(!bench.attempts().is_empty());
}

#[test]
fn a_lost_attempt_is_made_again_within_a_second() {
    let mut bench = Bench::new(plain());
    bench.send(mail(1, "a@a.test", &["b@b.test"]));
    let attempt = bench.attempts().remove(0);
    bench.scheduler.attempt_lost(attempt.attempt, bench.now);
    assert!(bench.records().is_empty());
    bench.pass(seconds(1));
    let again = bench.attempts().remove(0);
    assert_eq!(again.attempts_before, 0);
    bench.answer(&attempt, delivered());
    assert_eq!(bench.scheduler.len(), 1, "an outcome that comes too late is ignored");
}

#[test]
fn routes_that_need_no_attempt_are_followed_at_the_first_poll() {
    let cases = [
        (NextHop::Discard, vec!["delivered", "retire"], 0),
        (NextHop::Error("550 5.1.1 gone".into()), vec!["failed", "retire"], 1),
    ];
    for (hop, changes, notices) in cases {
        let mut bench = Bench::new(plain());
        bench.send(mail(1, "a@a.test", &["b@b.test"]).hop(hop));
        let record = bench.records().remove(0);
        assert_eq!((kinds(&record), record.notices.len()), (changes, notices));
    }
    let mut bench = Bench::new(plain());
    let id = bench.send(mail(1, "a@a.test", &["b@b.test"]).hop(NextHop::Hold));
    assert!(bench.drain().is_empty());
    assert_eq!(bench.scheduler.summary(bench.now).held, 1);
    bench.scheduler.release(id, bench.now);
    let only_recorded = |output: &Output| matches!(output, Output::Record(_));
    assert!(bench.drain().iter().all(only_recorded), "a route that says hold holds");
    bench.scheduler.reroute(id, &[(0, &mx("c.test"))], bench.now);
    assert_eq!(bench.attempts().len(), 1);
}

#[test]
fn deliveries_of_one_message_that_come_together_are_one_record() {
    let limits = DestinationLimits { recipients_per_message: 1, ..DestinationLimits::for_tests() };
    let mut bench = Bench::new(limited(limits));
    bench.send(mail(1, "list@from.test", &["a@a.test", "b@a.test", "c@a.test", "d@a.test"]));
    let attempts = bench.attempts();
    let outcomes = [delivered(), delivered(), greylisted(), delivered()];
    for (attempt, outcome) in attempts.iter().zip(outcomes) {
        bench.answer(attempt, outcome);
    }
    let records = bench.records();
    let found: Vec<_> = records.iter().map(kinds).collect();
    assert_eq!(found, [["delivered"], ["due"], ["delivered"]], "in their order");
    let Change::Delivered { recipients, .. } = &records[0].changes[0] else { panic!() };
    assert_eq!(*recipients, [0, 1]);
}

#[test]
fn the_end_of_a_message_is_the_last_change_of_the_record_that_brings_it() {
    let limits = DestinationLimits { recipients_per_message: 1, ..DestinationLimits::for_tests() };
    let mut bench = Bench::new(limited(limits));
    for id in [1, 2] {
        bench.send(mail(id, "list@from.test", &["a@a.test", "b@a.test"]));
    }
    for attempt in bench.attempts() {
        bench.answer(&attempt, delivered());
    }
    let records = bench.records();
    for id in [1, 2] {
        let of_it = records.iter().filter(|record| record.message == mail::MessageId(id));
        let found: Vec<_> = of_it.flat_map(kinds).collect();
        assert!(found.starts_with(&["delivered"]) && found.ends_with(&["delivered", "retire"]));
        assert_eq!(found.iter().filter(|kind| **kind == "retire").count(), 1);
    }
}

#[test]
fn r227_an_attempt_that_is_withdrawn_is_made_again_and_counts_as_never_begun() {
    let mut bench = Bench::new(plain());
    bench.send(mail(1, "a@a.test", &["b@b.test", "c@b.test"]));
    let first = bench.attempts().remove(0);
    assert_eq!(bench.scheduler.recipients_in_flight(), 2);
    bench.scheduler.pause(true, true);
    bench.scheduler.withdraw(first.attempt, bench.now);
    bench.answer(&first, delivered());
    assert!(bench.drain().is_empty() && bench.scheduler.recipients_in_flight() == 0);
    bench.scheduler.pause(false, false);
    let again = bench.attempts().remove(0);
    assert_eq!((again.recipients, again.attempts_before), (vec![0, 1], 0));
}
