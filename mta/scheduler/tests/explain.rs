//! The explanation of a message: its gate, since when, and the next attempt.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::{MessageId, NextHop};
use scheduler::{DestinationLimits, Gate, HeldBy, PAGE_BYTES_MAX, Settings, State};

fn plain() -> Settings {
    let mut settings = Settings::for_tests();
    settings.retry.jitter = 0.0;
    settings
}

fn gate(bench: &Bench, id: u64) -> Gate {
    let explanation = bench.scheduler.explain(MessageId(id), bench.now).unwrap();
    explanation.recipients[0].gate.clone()
}

fn one_at_a_time() -> Settings {
    let default = DestinationLimits {
        connections: 1,
        start_connections: 1,
        ..DestinationLimits::for_tests()
    };
    Settings { default, ..plain() }
}

#[test]
fn a_message_that_is_not_queued_has_no_explanation() {
    assert_eq!(Bench::new(plain()).scheduler.explain(MessageId(1), start()), None);
}

#[test]
fn a_deferred_recipient_shows_the_reply_in_full_and_its_next_try() {
    let mut bench = Bench::new(plain());
    bench.send(mail(1, "a@a.test", &["B.b@B.test"]));
    bench.pass(seconds(10));
    let attempt = bench.attempts().remove(0);
    assert_eq!(gate(&bench, 1), Gate::InFlight);
    bench.pass(seconds(3));
    bench.answer(&attempt, greylisted());
    let since = bench.now.wall;
    bench.pass(seconds(60));
    let explanation = bench.scheduler.explain(MessageId(1), bench.now).unwrap();
    let one = &explanation.recipients[0];
    assert_eq!(one.gate, Gate::RetryAt(since + seconds(300)));
    assert_eq!(one.next_try, Some(since + seconds(300)));
    assert_eq!((one.since, one.attempts), (since, 1));
    assert_eq!(one.last.as_ref().unwrap().reply.text.as_ref(), "try again later");
    assert_eq!((one.address.as_str(), &one.hop), ("B.b@B.test", &mx("b.test")));
    assert_eq!(explanation.expires, Some(start().wall + seconds(5 * 86_400)));
}

#[test]
fn held_mail_says_who_holds_it() {
    let mut bench = Bench::new(plain());
    bench.send(Mail { held: Some(HeldBy::Policy), ..mail(1, "a@a.test", &["b@b.test"]) });
    bench.send(mail(2, "a@a.test", &["b@b.test"]).hop(NextHop::Hold));
    let third = bench.send(mail(3, "a@a.test", &["b@b.test"]));
    bench.scheduler.hold(third, bench.now);
    for (id, by) in [(1, HeldBy::Policy), (2, HeldBy::Route), (3, HeldBy::Operator)] {
        assert_eq!(gate(&bench, id), Gate::Held(by));
    }
}

#[test]
fn behind_a_full_destination_it_is_the_concurrency() {
    let mut bench = Bench::new(one_at_a_time());
    for id in 1..4 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    assert_eq!(bench.attempts().len(), 1);
    let expected = Gate::DestinationConcurrency { in_flight: 1, allowed: 1, connections: 1 };
    assert_eq!((gate(&bench, 1), gate(&bench, 2)), (Gate::InFlight, expected));
}

#[test]
fn behind_a_dead_destination_it_is_the_next_probe_and_why() {
    let mut bench = Bench::new(plain());
    for id in 1..30 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    for attempt in bench.attempts() {
        bench.answer(&attempt, unreachable());
    }
    let Gate::DestinationBackoff { until, failures, last } = gate(&bench, 29) else {
        panic!("{:?}", gate(&bench, 29))
    };
    assert_eq!((until, failures), (bench.now.wall + seconds(60), 3));
    assert_eq!(last.unwrap().reply.text.as_ref(), "connection refused");
    bench.drain();
    assert!(bench.sleep());
    assert_eq!(bench.now.wall, until);
    assert_eq!(bench.attempts().len(), 1);
}

#[test]
fn behind_a_rate_it_is_the_rate() {
    let default =
        DestinationLimits { rate_per_second: Some(0.5), ..DestinationLimits::for_tests() };
    let mut bench = Bench::new(Settings { default, ..plain() });
    for id in 1..4 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    bench.attempts();
    let Gate::RateLimit(until) = gate(&bench, 3) else { panic!("{:?}", gate(&bench, 3)) };
    assert!(until > bench.now.wall && until <= bench.now.wall + seconds(2));
}

#[test]
fn behind_the_total_limit_it_is_the_process_limit() {
    let mut bench = Bench::new(Settings { attempts_in_flight_max: 1, ..plain() });
    for id in 1..4 {
        bench.send(mail(id, "a@a.test", &[&format!("b@d{id}.test")]));
    }
    bench.attempts();
    assert_eq!(gate(&bench, 3), Gate::ProcessLimit { attempts_in_flight_max: 1 });
}

#[test]
fn behind_destinations_that_have_not_answered_it_is_their_share_of_the_process_limit() {
    let mut bench = Bench::new(Settings { attempts_in_flight_max: 8, ..plain() });
    for id in 1..10 {
        bench.send(mail(id, "a@a.test", &[&format!("b@d{id}.test")]));
    }
    let flying = bench.attempts();
    assert_eq!(flying.len(), 6, "a quarter is kept for those that answer");
    assert_eq!(gate(&bench, 9), Gate::ProcessLimit { attempts_in_flight_max: 6 });
    // Each destination that answers makes room.
    bench.answer(&flying[0], common::delivered());
    assert_eq!(bench.attempts().len(), 1);
    bench.send(mail(20, "a@a.test", &["b@d1.test"]));
    bench.send(mail(21, "a@a.test", &["b@d1.test"]));
    bench.send(mail(22, "a@a.test", &["b@d1.test"]));
    assert_eq!(bench.attempts().len(), 2, "the quarter, and no more than there are in all");
}

#[test]
fn while_that_share_is_full_a_destination_waits_for_it_only_if_it_has_not_answered() {
    let mut bench = Bench::new(Settings { attempts_in_flight_max: 8, ..plain() });
    for id in 1..10 {
        bench.send(mail(id, "a@a.test", &[&format!("b@d{id}.test")]));
    }
    bench.send(mail(10, "a@a.test", &["b@d1.test"]));
    let first = bench.attempts().remove(0);
    let full = Gate::ProcessLimit { attempts_in_flight_max: 6 };
    assert_eq!(gate(&bench, 10), full, "set aside like the rest");
    // The destination answers, and others take its place.
    bench.answer(&first, common::delivered());
    for attempt in bench.attempts().iter().filter(|attempt| attempt.message == MessageId(10)) {
        bench.answer(attempt, common::delivered());
    }
    bench.attempts();
    bench.send(mail(20, "a@a.test", &["b@d1.test"]));
    bench.send(mail(21, "a@a.test", &["b@new.test"]));
    assert_eq!((gate(&bench, 20), gate(&bench, 21)), (Gate::FairShare { ready: 1 }, full));
    let begun: Vec<MessageId> = bench.attempts().iter().map(|attempt| attempt.message).collect();
    assert_eq!(begun, [MessageId(20)]);
}

#[test]
fn before_the_next_poll_it_is_its_turn_or_its_route() {
    let mut bench = Bench::new(plain());
    bench.send(mail(1, "a@a.test", &["b@b.test"]));
    bench.send(mail(2, "a@a.test", &["b@b.test"]).hop(NextHop::Discard));
    assert_eq!((gate(&bench, 1), gate(&bench, 2)), (Gate::FairShare { ready: 1 }, Gate::Route));
}

#[test]
fn a_suspect_waits_for_the_other_suspect() {
    let mut bench = Bench::new(plain());
    for id in 1..3 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    for _ in 0..2 {
        for attempt in bench.attempts() {
            bench.scheduler.attempt_lost(attempt.attempt, bench.now);
        }
        bench.pass(seconds(2));
    }
    let flying = bench.attempts();
    assert_eq!(flying.len(), 1, "suspects fly alone");
    let other = 3 - flying[0].message.0;
    assert!(matches!(gate(&bench, other), Gate::RetryAt(_) | Gate::Suspect));
}

#[test]
fn the_state_of_a_message_to_many_follows_its_recipients() {
    let mut bench = Bench::new(plain());
    let id = bench.send(mail(1, "a@a.test", &["b@b.test", "c@c.test"]));
    let state = |bench: &Bench| {
        let summary = bench.scheduler.summary(bench.now);
        let row = bench.scheduler.list(&Default::default(), None, 9, bench.now).rows.remove(0);
        (row.state, [summary.active, summary.deferred, summary.held])
    };
    for _ in 0..2 {
        assert_eq!(state(&bench), (State::Active, [1, 0, 0]));
        bench.scheduler.hold(id, bench.now);
        assert_eq!(state(&bench), (State::Held, [0, 0, 1]));
        bench.scheduler.release(id, bench.now);
        assert_eq!(state(&bench), (State::Active, [1, 0, 0]));
        for attempt in bench.attempts() {
            assert_eq!(state(&bench), (State::Active, [1, 0, 0]));
            bench.answer(&attempt, greylisted());
        }
        assert_eq!(state(&bench), (State::Deferred, [0, 1, 0]));
        bench.scheduler.retry_now(id, bench.now);
    }
}

#[test]
fn a_list_is_paged_and_filtered() {
    let mut bench = Bench::new(plain());
    for id in 1..100 {
        let sender = if id % 10 == 0 { "" } else { "a@a.test" };
        bench.send(mail(id, sender, &[&format!("u{id}@d{}.test", id % 3)]));
    }
    let count = |filter: scheduler::Filter| {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = bench.scheduler.list(&filter, after, 7, bench.now);
            assert!(page.rows.len() <= 7);
            seen.extend(page.rows.iter().map(|row| row.message.0));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert!(seen.is_sorted());
        seen.len()
    };
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (scheduler::Filter::default(), 99),
        (scheduler::Filter { sender: text(""), ..Default::default() }, 9),
        (scheduler::Filter { destination: text("d0.test"), ..Default::default() }, 33),
        (scheduler::Filter { destination: text("*.test"), ..Default::default() }, 99),
        (scheduler::Filter { recipient: text("u7@d1.test"), ..Default::default() }, 1),
        (scheduler::Filter { older_seconds: Some(1), ..Default::default() }, 0),
    ];
    for (filter, expected) in cases {
        assert_eq!(count(filter.clone()), expected, "{filter:?}");
    }
}

#[test]
fn a_page_ends_before_long_replies_make_it_too_long_for_its_answer() {
    const MESSAGES: u64 = 300;
    let mut bench = Bench::new(plain());
    let to: Vec<String> = (0..20).map(|n| format!("u{n}@b.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    for id in 1..=MESSAGES {
        bench.send(mail(id, "a@a.test", &to));
    }
    let long = "x".repeat(8 << 10);
    loop {
        bench.pass(seconds(0));
        let attempts = bench.attempts();
        if attempts.is_empty() {
            break;
        }
        for attempt in attempts {
            bench.answer(&attempt, mail::Outcome::Deferred(report(mail::Stage::Rcpt, 450, &long)));
        }
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = bench.scheduler.list(&Default::default(), after, 1_000, bench.now);
        let bytes: Vec<usize> = page.rows.iter().map(|row| row.bytes_shown()).collect();
        let last = *bytes.last().unwrap();
        assert!(last > 20 * long.len() && bytes.iter().sum::<usize>() < PAGE_BYTES_MAX + last);
        seen.extend(page.rows.iter().map(|row| row.message.0));
        pages += 1;
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, (1..=MESSAGES).collect::<Vec<_>>());
    assert!(pages > 10, "{pages}");
}
