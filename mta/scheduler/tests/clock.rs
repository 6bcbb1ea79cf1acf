//! Clocks that jump, and restarts: nothing bounces in a burst, and nothing gets stuck.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mail::{Change, Now, Timestamp};
use scheduler::{NoticeKind, Output, RECIPIENTS_MAX, Scheduler, Settings};

const DAY: u64 = 86_400;
const YEAR_MICROS: i64 = 365 * 86_400 * 1_000_000;

fn jump(now: &mut Now, micros: i64) {
    now.wall = Timestamp::from_micros(now.wall.micros() + micros);
}

/// Greylists all mail for a time, and counts attempts and bounces.
fn run(bench: &mut Bench, time: u64) -> (u32, u32) {
    let end = bench.now.monotonic + seconds(time);
    let (mut attempts, mut bounces) = (0, 0);
    loop {
        for output in bench.drain() {
            match output {
                Output::Attempt(attempt) => {
                    attempts += 1;
                    bench.answer(&attempt, greylisted());
                }
                Output::Record(record) => {
                    let expired =
                        |notice: &&scheduler::PlannedNotice| notice.kind == NoticeKind::Expired;
                    bounces += record.notices.iter().filter(expired).count() as u32;
                }
            }
        }
        match bench.scheduler.next_wakeup() {
            Some(next) if next <= end => bench.pass(next.since(bench.now.monotonic)),
            _ => break,
        }
    }
    let left = end.since(bench.now.monotonic);
    bench.pass(left);
    (attempts, bounces)
}

fn full() -> Bench {
    let mut bench = Bench::new(Settings::for_tests());
    for id in 1..101 {
        bench.send(mail(id, "a@a.test", &["b@b.test"]));
    }
    bench
}

fn restarted(bench: Bench) -> Bench {
    let all = bench.scheduler.export_from(None, usize::MAX, bench.now);
    let mut scheduler = Scheduler::new(Settings::for_tests(), 9, bench.now);
    for (_, bytes) in &all {
        scheduler.restore(bytes, bench.now).unwrap();
    }
    Bench { scheduler, now: bench.now }
}

#[test]
fn n111_a_clock_that_jumps_a_year_ahead_bounces_nothing_before_its_time() {
    let mut bench = full();
    run(&mut bench, DAY);
    jump(&mut bench.now, YEAR_MICROS);
    let (attempts, bounces) = run(&mut bench, DAY);
    assert!(attempts >= 300, "{attempts}");
    assert_eq!((bounces, bench.scheduler.len()), (0, 100));
    assert_eq!(run(&mut bench, 4 * DAY).1, 100, "they expire by monotonic time");
}

#[test]
fn n112_a_clock_that_jumps_a_year_back_leaves_nothing_stuck() {
    let mut bench = full();
    run(&mut bench, DAY);
    jump(&mut bench.now, -YEAR_MICROS);
    assert!(run(&mut bench, DAY).0 >= 300);
    assert_eq!(run(&mut bench, 4 * DAY).1, 100);
    let mut bench = full();
    run(&mut bench, DAY);
    jump(&mut bench.now, -YEAR_MICROS);
    let mut bench = restarted(bench);
    assert!(run(&mut bench, DAY).0 >= 300, "due times of the future are not waited for");
    assert_eq!(run(&mut bench, 5 * DAY).1, 100);
}

#[test]
fn n111_a_restart_with_a_clock_a_year_ahead_that_is_then_set_right_bounces_nothing() {
    let mut bench = full();
    run(&mut bench, DAY);
    jump(&mut bench.now, YEAR_MICROS);
    let mut bench = restarted(bench);
    let (attempts, bounces) = run(&mut bench, 1800);
    assert!(attempts >= 100);
    assert_eq!(bounces, 0);
    jump(&mut bench.now, -YEAR_MICROS);
    assert_eq!(run(&mut bench, 3 * DAY).1, 0);
    assert_eq!(run(&mut bench, 2 * DAY).1, 100);
}

#[test]
fn n111_a_clock_that_jumps_ahead_after_a_restart_bounces_mail_at_its_time() {
    for sleeps in [false, true] {
        let mut bench = full();
        run(&mut bench, DAY);
        let mut bench = restarted(bench);
        run(&mut bench, 1800);
        if sleeps {
            bench.pass(seconds(DAY / 2));
        }
        jump(&mut bench.now, YEAR_MICROS);
        assert_eq!(run(&mut bench, 3 * DAY).1, 0, "mail of before the restart");
        assert_eq!(run(&mut bench, DAY).1, 100, "nor after it");
    }
}

#[test]
fn n113_a_clock_at_1970_and_one_past_2038_panic_nowhere() {
    for micros in [0, -1, 2_200_000_000_000_000, i64::MAX, i64::MIN] {
        let mut bench = full();
        run(&mut bench, 600);
        bench.now.wall = Timestamp::from_micros(micros);
        run(&mut bench, 600);
        bench.send(mail(1000, "a@a.test", &["b@b.test"]));
        let mut bench = restarted(bench);
        run(&mut bench, 600);
        assert_eq!(bench.scheduler.len(), 101);
        bench.scheduler.summary(bench.now);
    }
}

#[test]
fn restarts_do_not_make_mail_younger() {
    let mut bench = full();
    let mut bounces = 0;
    for _ in 0..5 * 4 {
        bounces += run(&mut bench, DAY / 4).1;
        bench = restarted(bench);
    }
    bounces += run(&mut bench, 2 * 3600).1;
    assert_eq!(bounces, 100);
}

#[test]
fn due_times_and_replies_survive_a_restart() {
    let mut bench = full();
    let attempts = bench.attempts();
    attempts.iter().for_each(|attempt| bench.answer(attempt, greylisted()));
    let before = bench.scheduler.explain(attempts[0].message, bench.now).unwrap();
    bench.pass(seconds(100));
    let bench = restarted(bench);
    let after = bench.scheduler.explain(attempts[0].message, bench.now).unwrap();
    assert_eq!(before.recipients[0].last, after.recipients[0].last);
    let (before, after) =
        (before.recipients[0].next_try.unwrap(), after.recipients[0].next_try.unwrap());
    let apart = before.since(after).max(after.since(before));
    assert!(apart <= std::time::Duration::from_millis(50), "{apart:?}");
}

#[test]
fn what_the_log_left_done_but_not_retired_is_retired() {
    let mut bench = full();
    let message = mail::MessageId(7);
    bench.scheduler.apply(&Change::Delivered { message, recipients: vec![0] }, bench.now);
    let record = bench.records().remove(0);
    assert_eq!(record.changes, [Change::Retire { message }]);
    assert_eq!(bench.scheduler.len(), 99);
}

#[test]
fn a_damaged_snapshot_is_refused_and_changes_nothing() {
    let bench = full();
    let (_, bytes) = bench.scheduler.export_from(None, 1, bench.now).remove(0);
    let mut scheduler = Scheduler::new(Settings::for_tests(), 9, bench.now);
    for cut in 0..bytes.len() {
        assert!(scheduler.restore(&bytes[..cut], bench.now).is_err(), "{cut}");
    }
    assert!(scheduler.is_empty());
    assert!(scheduler.restore(&bytes, bench.now).is_ok());
    assert!(scheduler.restore(&bytes, bench.now).is_err(), "it is there already");
}

#[test]
fn a_message_with_as_many_recipients_as_any_setting_allows_survives_a_restart() {
    let mut bench = Bench::new(Settings::for_tests());
    let to = ("u@b.test".to_owned(), mx("b.test"), mail::Notify::DEFAULT);
    let to = vec![to; RECIPIENTS_MAX as usize];
    let message = bench.send(Mail { to, ..mail(1, "a@a.test", &[]) });
    let recipients = (1..RECIPIENTS_MAX).collect();
    bench.scheduler.apply(&Change::Delivered { message, recipients }, bench.now);
    let mut bench = restarted(bench);
    assert_eq!(bench.attempts().remove(0).recipients, [0]);
}
