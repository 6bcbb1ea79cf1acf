//! Notices: which senders are told of what, and in how many records.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::{Enhanced, NextHop, Notify, Outcome, Reply, Report, Stage};
use scheduler::{
    DestinationLimits, MessageChanges, NoticeKind, Output, Retry, Settings, SilentBecause,
};

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
