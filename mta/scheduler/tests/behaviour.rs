//! The behaviour that a postmaster relies on, claim by claim.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::{Change, Enhanced, MessageId, NextHop, Notify, Outcome, Reply, Report, Stage};
use scheduler::{
    DestinationId, DestinationLimits, HeldBy, MessageChanges, NoticeKind, Order, Output, Retry,
    Settings, SilentBecause, State,
};
use std::collections::BTreeSet;
use std::time::Duration;

const NO_JITTER: Retry = Retry {
    first: Duration::from_secs(300),
    factor: 2.0,
    longest: Duration::from_secs(4 * 3600),
    expire: Duration::from_secs(5 * 86_400),
    jitter: 0.0,
};

fn plain() -> Settings {
    Settings { retry: NO_JITTER, ..Settings::for_tests() }
}

fn limited(limits: DestinationLimits) -> Settings {
    Settings { default: limits, ..plain() }
}

fn kinds(record: &MessageChanges) -> Vec<&'static str> {
    let kind = |change: &Change| match change {
        Change::Delivered { .. } => "delivered",
        Change::Failed { .. } => "failed",
        Change::Due { .. } => "due",
        Change::DelayNoticed { .. } => "delay",
        Change::Hold { .. } => "hold",
        Change::Release { .. } => "release",
        Change::Priority { .. } => "priority",
        Change::Retire { .. } => "retire",
    };
    record.changes.iter().map(kind).collect()
}

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
fn d160_a_delay_notice_comes_once_and_only_where_notify_allows() {
    let cases = [
        ("a@a.test", Notify::DEFAULT, 1),
        ("a@a.test", Notify::of(false, true, true), 1),
        ("a@a.test", Notify::of(true, true, false), 0),
        ("a@a.test", Notify::NEVER, 0),
        ("", Notify::DEFAULT, 0),
    ];
    for (sender, notify, expected) in cases {
        let mut bench = Bench::new(plain());
        bench.send(mail(1, sender, &["b@b.test"]).notify(notify));
        let mut notices = 0;
        while bench.now.wall.since(start().wall) < seconds(86_400) {
            for output in bench.drain() {
                match output {
                    Output::Attempt(attempt) => bench.answer(&attempt, greylisted()),
                    Output::Record(record) => {
                        let delayed =
                            |notice: &&scheduler::PlannedNotice| notice.kind == NoticeKind::Delayed;
                        notices += record.notices.iter().filter(delayed).count();
                        assert_eq!(kinds(&record).contains(&"delay"), !record.notices.is_empty());
                    }
                }
            }
            bench.sleep();
        }
        assert_eq!(notices, expected, "{sender} {notify:?}");
    }
}

#[test]
fn d160_failures_are_told_as_notify_says_and_never_to_the_null_sender() {
    let cases = [
        ("a@a.test", Notify::DEFAULT, None),
        ("a@a.test", Notify::of(false, true, false), None),
        ("a@a.test", Notify::NEVER, Some(SilentBecause::NotifyHasNoFailure)),
        ("a@a.test", Notify::of(true, false, true), Some(SilentBecause::NotifyHasNoFailure)),
        ("", Notify::DEFAULT, Some(SilentBecause::NullSender)),
        ("", Notify::of(true, true, true), Some(SilentBecause::NullSender)),
    ];
    for (sender, notify, silent) in cases {
        let mut bench = Bench::new(plain());
        bench.send(mail(1, sender, &["b@b.test"]).notify(notify));
        let attempt = bench.attempts().remove(0);
        bench.answer(&attempt, refused());
        let record = bench.records().remove(0);
        assert_eq!(kinds(&record), ["failed", "retire"]);
        assert_eq!(record.silent.first().map(|silent| silent.why), silent);
        assert_eq!(record.notices.is_empty(), silent.is_some());
    }
}

#[test]
fn r216_a_loop_that_only_the_mailbox_sees_is_told_to_nobody() {
    let loop_at = |stage, from_peer| {
        let reply = Reply::new(550, Enhanced(5, 4, 6), "mail loop");
        Outcome::Failed(Report { stage, reply, peer: "".into(), from_peer })
    };
    for (outcome, told) in [
        (loop_at(Stage::Mailbox, false), false),
        (loop_at(Stage::End, true), true),
        (loop_at(Stage::Here, false), true),
    ] {
        let mut bench = Bench::new(plain());
        bench.send(mail(1, "a@a.test", &["b@b.test"]).hop(NextHop::Local));
        let attempt = bench.attempts().remove(0);
        bench.answer(&attempt, outcome.clone());
        let record = bench.records().remove(0);
        assert_eq!(kinds(&record), ["failed", "retire"]);
        assert_eq!(record.notices.len(), usize::from(told), "{outcome:?}");
        let silent = record.silent.first().map(|silent| silent.why);
        assert_eq!(silent, (!told).then_some(SilentBecause::Loop), "{outcome:?}");
    }
}

#[test]
fn success_is_told_where_nobody_else_will_tell_it() {
    let wanted = Notify::of(true, true, false);
    let cases = [
        (NextHop::Local, wanted, delivered(), Some(NoticeKind::Delivered)),
        (NextHop::Local, Notify::DEFAULT, delivered(), None),
        (mx("b.test"), wanted, relayed(), Some(NoticeKind::Relayed)),
        (mx("b.test"), wanted, delivered(), None),
        (mx("b.test"), Notify::of(false, true, false), relayed(), None),
    ];
    for (hop, notify, outcome, expected) in cases {
        let mut bench = Bench::new(plain());
        bench.send(mail(1, "a@a.test", &["b@b.test"]).notify(notify).hop(hop));
        let attempt = bench.attempts().remove(0);
        bench.answer(&attempt, outcome);
        let record = bench.records().remove(0);
        assert_eq!(record.notices.first().map(|notice| notice.kind), expected);
    }
}

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

/// Answers all attempts with a reply for each recipient until the message is given up.
fn expire_list(reply_bytes: usize, recipients: u32) -> (Bench, Vec<MessageChanges>) {
    let plain = plain();
    let retry = Retry { first: seconds(3600), expire: seconds(600), ..plain.retry };
    let mut bench = Bench::new(Settings { retry, delay_notice: None, ..plain });
    let to: Vec<String> = (0..recipients).map(|n| format!("r{n}@b.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    bench.send(mail(1, "a@a.test", &to));
    loop {
        let attempts = bench.attempts();
        for attempt in &attempts {
            let reply = |n: &u32| format!("{n} {}", "x".repeat(reply_bytes));
            let deferred = |n: &u32| Outcome::Deferred(report(Stage::Rcpt, 450, &reply(n)));
            let all: Vec<_> = attempt.recipients.iter().map(|n| (*n, deferred(n))).collect();
            bench.scheduler.outcome(attempt.attempt, &all, bench.now);
        }
        if attempts.is_empty() {
            break;
        }
    }
    bench.pass(seconds(700));
    let records = bench.records();
    (bench, records)
}

#[test]
fn r207_a_list_that_expires_is_told_of_in_bounded_records_and_retired_with_the_last() {
    for (reply_bytes, recipients, records_max) in [(20, 5_000, 5), (8_000, 2_000, 20)] {
        let (bench, records) = expire_list(reply_bytes, recipients);
        assert!(records.len() <= records_max, "{} records", records.len());
        let mut told = Vec::new();
        for (at, record) in records.iter().enumerate() {
            let last = at + 1 == records.len();
            let expected: &[&str] = if last { &["failed", "retire"] } else { &["failed"] };
            assert_eq!(kinds(record), expected);
            let [notice] = &record.notices[..] else { panic!("one notice a record") };
            let text = notice.recipients.iter().map(|(_, report)| report.reply.text.len());
            assert!(text.sum::<usize>() < 3 << 19 && notice.recipients.len() <= 1_000);
            told.extend(notice.recipients.iter().map(|(index, _)| *index));
        }
        told.sort_unstable();
        assert!(told.into_iter().eq(0..recipients));
        assert!(bench.scheduler.is_empty());
    }
}

#[test]
fn r208_while_notices_are_paused_nothing_is_given_up_and_nothing_spins() {
    let (mut bench, _) = expire_list(20, 1);
    for id in 2..5 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    bench.send(mail(9, "a@a.test", &["b@b.test"]).hop(NextHop::Error("550 no".into())));
    bench.scheduler.pause(true, true);
    bench.pass(seconds(700));
    assert!(bench.drain().is_empty());
    assert_eq!(bench.scheduler.next_wakeup(), None);
    bench.scheduler.pause(true, false);
    assert_eq!(bench.records().iter().filter(|record| !record.notices.is_empty()).count(), 4);
    assert!(bench.scheduler.is_empty());
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

#[test]
fn who_is_told_of_a_delay_in_several_records_is_told_of_the_rest_after_a_restart() {
    const RECIPIENTS: u32 = 2_500;
    let mut bench = Bench::new(plain());
    let to: Vec<String> = (0..RECIPIENTS).map(|at| format!("u{at}@b.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let message = bench.send(mail(1, "a@a.test", &to));
    let mut told = Vec::new();
    while told.is_empty() {
        assert!(bench.sleep());
        // One record at a time, as the queue process takes them.
        while let Some(output) = bench.scheduler.poll(bench.now) {
            match output {
                Output::Attempt(attempt) => bench.answer(&attempt, greylisted()),
                Output::Record(record) => told.extend(delays(&record)),
            }
            if !told.is_empty() {
                break;
            }
        }
    }
    assert!(told.len() < RECIPIENTS as usize, "not all at once");
    for restarts in 1..3 {
        let bytes = bench.scheduler.export(message, bench.now).unwrap();
        bench.scheduler = scheduler::Scheduler::new(plain(), restarts, bench.now);
        bench.scheduler.restore(&bytes, bench.now).unwrap();
        let until = bench.now.wall + seconds(2 * 3600);
        while bench.now.wall < until {
            for output in bench.drain() {
                match output {
                    Output::Attempt(attempt) => bench.answer(&attempt, greylisted()),
                    Output::Record(record) => told.extend(delays(&record)),
                }
            }
            assert!(bench.sleep());
        }
    }
    told.sort_unstable();
    assert!(told.into_iter().eq(0..RECIPIENTS), "each once");
}

/// Returns the recipients in delay notices.
fn delays(record: &MessageChanges) -> Vec<u32> {
    let notices = record.notices.iter().filter(|notice| notice.kind == NoticeKind::Delayed);
    notices.flat_map(|notice| notice.recipients.iter().map(|(at, _)| *at)).collect()
}

/// Begins an attempt that still waits for a process when the time of its message is over.
#[test]
fn an_attempt_that_is_taken_back_at_the_end_of_its_time_is_told_of_in_bounded_records() {
    const RECIPIENTS: u32 = 5_000;
    let limits =
        DestinationLimits { recipients_per_message: 100_000, ..DestinationLimits::for_tests() };
    let retry = Retry { expire: seconds(86_400), ..NO_JITTER };
    let mut bench = Bench::new(Settings { retry, delay_notice: None, ..limited(limits) });
    // The failure to reach the next hop is the report for each of them.
    bench.send(mail(1, "a@a.test", &["a@b.test"]));
    let first = bench.attempts().remove(0);
    let away = Outcome::Deferred(report(Stage::Connect, 421, &"x".repeat(8_000)));
    bench.answer(&first, away.clone());
    let to: Vec<String> = (0..RECIPIENTS).map(|n| format!("r{n}@b.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let list = bench.send(mail(2, "a@a.test", &to));
    let mut waits = None;
    while waits.is_none() {
        for attempt in bench.attempts() {
            match attempt.message == list {
                true => waits = Some(attempt),
                false => bench.answer(&attempt, away.clone()),
            }
        }
        assert!(waits.is_some() || bench.sleep());
    }
    assert_eq!(waits.unwrap().recipients.len(), RECIPIENTS as usize);
    bench.pass(seconds(86_400));
    let mut told = Vec::new();
    loop {
        let output = bench.scheduler.poll(bench.now);
        while let Some(attempt) = bench.scheduler.unwanted() {
            bench.scheduler.withdraw(attempt, bench.now);
        }
        let Some(output) = output.or_else(|| bench.scheduler.poll(bench.now)) else { break };
        let Output::Record(record) = output else { panic!("{output:?}") };
        let notices = record.notices.iter().filter(|_| record.message == list);
        let of_record: Vec<_> = notices.flat_map(|notice| &notice.recipients).collect();
        let text = of_record.iter().map(|(_, report)| report.reply.text.len());
        assert!(text.sum::<usize>() < 3 << 19 && of_record.len() <= 1_000);
        told.extend(of_record.iter().map(|(index, _)| *index));
    }
    told.sort_unstable();
    assert!(told.into_iter().eq(0..RECIPIENTS), "each once");
    assert!(bench.scheduler.is_empty());
}
