//! A record that the spool refuses is never forgotten, no message ends before its outcomes are recorded, and no
//! attempt begins while outcomes cannot be recorded.

#![allow(clippy::unwrap_used)]

mod bench;

use bench::{Bench, envelope, report, settings, spool_settings};
use mail::{Enhanced, Outcome};
use queue::LogEvent;
use scheduler::NoticeKind;
use std::time::Duration;
use world::sim::Call;
use world::{Clock as _, Errno};

const EXPIRE: Duration = Duration::from_secs(40);

fn expiring() -> queue::Settings {
    let mut settings = settings();
    settings.scheduler.retry.expire = EXPIRE;
    settings.scheduler.delay_notice = None;
    settings.original_bytes_max = 50_000;
    settings.message_cache_bytes_max = 1 << 20;
    settings
}

fn delivered() -> Outcome {
    Outcome::Delivered { report: report(250, Enhanced(2, 0, 0)), relayed: false }
}

impl Bench {
    /// Sends a list message to this number of recipients, with a body of 40 kB, and defers each with a reply.
    fn defer_list(&mut self, number: u64, recipients: usize, reply_bytes: usize) {
        let to: Vec<String> = (0..recipients).map(|n| format!("r{n}@list{number}.test")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let body = [
            &b"Subject: list\r\n\r\n"[..],
            &b"forty characters in each line of a list\r\n".repeat(1_000),
        ];
        self.receiver.accept(number, envelope(&to), &body.concat());
        self.run_for(40);
        while !self.attempts.is_empty() {
            for attempt in std::mem::take(&mut self.attempts) {
                let outcome = |index: u32| {
                    let mut report = report(450, Enhanced(4, 2, 0));
                    report.reply.text = format!("{index} {}", "x".repeat(reply_bytes)).into();
                    (index, Outcome::Deferred(report))
                };
                let outcomes =
                    attempt.recipients.iter().map(|(index, _)| outcome(*index)).collect();
                let (attempt, message) = (attempt.id, attempt.message);
                self.sender.result(link::send::Result { attempt, message, outcomes });
            }
            self.run_for(5);
        }
    }

    fn expire(&mut self) {
        self.clock.advance(EXPIRE);
        self.run();
    }

    /// Returns the number of recipients that notices about expired lists reported, and of messages that ended.
    fn told_and_retired(&self) -> (usize, usize) {
        let (mut told, mut retired) = (0, 0);
        for logged in &self.logged {
            match logged {
                LogEvent::Bounce { recipients, kind: NoticeKind::Expired, .. } => {
                    told += recipients
                }
                LogEvent::Retire { .. } => retired += 1,
                _ => {}
            }
        }
        (told, retired)
    }

    fn without_notice(&self) -> usize {
        let says = |logged: &&LogEvent| matches!(logged, LogEvent::Damaged { text, .. } if text.contains("no notice could be made"));
        self.logged.iter().filter(says).count()
    }

    /// Returns what a start would find of the messages with this sender: the recipients that are left, and the
    /// notices.
    fn left(&self) -> (usize, usize) {
        let found = self.after_a_cut();
        let (notices, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(sender, _)| sender.is_empty());
        (others.iter().map(|(_, recipients)| recipients.len()).sum(), notices.len())
    }
}

#[test]
fn r207_three_lists_that_expire_with_long_replies_are_told_of_whole_and_mail_goes_on() {
    let smallest = spool::Settings {
        segment_bytes: 1 << 20,
        batch_bytes_max: 256 << 10,
        chunk_bytes_max: 128 << 10,
        reserve_bytes: 1 << 20,
        keep_free_bytes: 0,
        ..spool::Settings::for_tests()
    };
    for at_once in [false, true] {
        let mut bench = Bench::with(expiring(), smallest.clone());
        bench.reads_at_once = at_once;
        for number in 1..=3 {
            bench.defer_list(number, 1_000, 450);
        }
        bench.expire();
        while !bench.reads.is_empty() {
            bench.read();
        }
        bench.run_for(2_000);
        assert_eq!(bench.told_and_retired(), (3_000, 3));
        let (left, notices) = bench.left();
        assert!(left == 0 && (9..30).contains(&notices), "{notices} notices");
        assert!(bench.queue.usage().staged_bytes < 1 << 10, "nothing leaks");
        let before = bench.queue.counters().accepted;
        bench.receiver.accept(9, envelope(&["x@x.test"]), b"Subject: x\r\n\r\nbody\r\n");
        bench.run();
        assert_eq!(bench.queue.counters().accepted, before + 1);
    }
}

#[test]
fn r207_a_list_of_fifty_thousand_is_told_of_in_notices_of_bounded_number() {
    let mut bench = Bench::with(expiring(), spool::Settings::for_tests());
    bench.reads_at_once = true;
    bench.defer_list(1, 50_000, 450);
    bench.expire();
    bench.run_for(3_000);
    assert_eq!(bench.told_and_retired(), (50_000, 1));
    let notices = bench.queue.counters().notices;
    assert!((50..=250).contains(&notices), "{notices} notices");
    assert!(bench.queue.usage().staged_bytes < 1 << 10);
}

/// Room for two or three notices of a list at once.
fn narrow() -> spool::Settings {
    spool::Settings { own_bytes_max: 150 << 10, ..spool_settings() }
}

#[test]
fn r208_what_the_spool_has_no_room_for_waits_in_order_until_the_disk_works_again() {
    for call in [Call::Sync, Call::Write] {
        let mut bench = Bench::with(expiring(), narrow());
        bench.reads_at_once = true;
        bench.defer_list(1, 700, 450);
        bench.defer_list(2, 300, 450);
        bench.disk.fail_always(call, Some(Errno::IO));
        bench.expire();
        bench.run_for(20_000);
        assert_eq!(bench.told_and_retired(), (0, 0), "nothing is recorded");
        assert_eq!(bench.left(), (1_000, 0));
        assert!(bench.queue.usage().staged_bytes < 200 << 10, "bounded memory");
        bench.disk.fail_always(call, None);
        // Less time than until the notices expire. The process takes ten of them.
        bench.run_for(35_000);
        assert_eq!(bench.told_and_retired(), (1_000, 2));
        assert_eq!((bench.left().0, bench.without_notice()), (0, 0));
        assert!(bench.queue.usage().staged_bytes < 1 << 10);
    }
}

#[test]
fn r208_a_notice_that_is_too_large_is_made_smaller_and_at_last_left_out_with_an_alarm() {
    // There is room for: recipients with the texts of replies; headers only; some recipients without the texts;
    // nothing.
    for (own_bytes_max, notices_min, untold) in
        [(150 << 10, 1, false), (20 << 10, 2, false), (2_000, 10, false), (300, 0, true)]
    {
        let spool = spool::Settings { own_bytes_max, ..spool_settings() };
        let mut bench = Bench::with(expiring(), spool);
        bench.reads_at_once = true;
        bench.defer_list(1, 20, 450);
        bench.expire();
        bench.run_for(2_000);
        let (told, retired) = bench.told_and_retired();
        assert_eq!((told, retired), (if untold { 0 } else { 20 }, 1), "{own_bytes_max}");
        assert_eq!(bench.without_notice(), usize::from(untold), "{own_bytes_max}");
        let (left, notices) = bench.left();
        assert!(left == 0 && notices >= notices_min, "{notices} with {own_bytes_max}");
    }
}

#[test]
fn r208_no_message_is_said_to_have_ended_before_that_is_recorded() {
    let mut bench = Bench::new();
    bench.send(1, &["a@a.test"]);
    bench.stuck = Some(Vec::new());
    let attempt = bench.say("a@a.test", delivered());
    bench.run();
    assert_eq!(bench.told_and_retired(), (0, 0));
    assert!(bench.sender.is_open(attempt), "the process is not told of the result");
    for io in bench.stuck.take().unwrap() {
        bench.queue.io_done(spool::execute(&bench.disk, io), bench.clock.now());
    }
    bench.run();
    assert_eq!(bench.told_and_retired(), (0, 1));
    assert!(!bench.sender.is_open(attempt));
}

fn writes_fail(bench: &Bench) -> Vec<(u64, u64)> {
    let said = |logged: &LogEvent| match logged {
        LogEvent::WritesFail { in_flight, unsynced } => Some((*in_flight, *unsynced)),
        _ => None,
    };
    bench.logged.iter().filter_map(said).collect()
}

#[test]
fn r227_from_the_first_failed_write_on_no_attempt_reaches_a_process() {
    for call in [Call::Sync, Call::Write] {
        let mut bench = Bench::new();
        let domains: Vec<String> = (0..40).map(|n| format!("a@d{n}.test")).collect();
        for (number, to) in domains.iter().enumerate() {
            bench.receiver.accept(number as u64, envelope(&[to]), b"Subject: x\r\n\r\nbody\r\n");
        }
        bench.reads_at_once = true;
        bench.run();
        // The process takes ten attempts, and the others wait for it.
        assert_eq!(bench.attempts.len(), 10);
        bench.disk.fail_always(call, Some(Errno::IO));
        let first = bench.attempts[0].recipients[0].1.address.to_string();
        bench.say(&first, delivered());
        bench.run_for(3_000);
        let (with_senders, unsynced) = writes_fail(&bench)[0];
        let mut taken = 1;
        while let Some(attempt) = bench.attempts.first() {
            let to = attempt.recipients[0].1.address.to_string();
            bench.say(&to, delivered());
            bench.run_for(10);
            taken += 1;
        }
        assert!(taken <= with_senders + unsynced, "{taken} of {with_senders} and {unsynced}");
        assert!(with_senders + unsynced <= 12, "{with_senders} and {unsynced}");
        // None of these attempts is forgotten, and all of them go on when the disk works.
        bench.disk.fail_always(call, None);
        bench.run_for(40_000);
        while let Some(attempt) = bench.attempts.first() {
            let to = attempt.recipients[0].1.address.to_string();
            bench.say(&to, delivered());
            bench.run_for(10);
        }
        bench.run();
        assert_eq!(bench.told_and_retired(), (0, 40));
        assert!(bench.logged.contains(&LogEvent::WritesWork));
    }
}

#[test]
fn s141_what_a_deleted_spool_had_is_delivered_as_nothing_of_it_can_come_again() {
    let mut bench = Bench::new();
    bench.reads_at_once = true;
    for number in 0..20 {
        let to = format!("a@d{number}.test");
        bench.receiver.accept(number, envelope(&[&to]), b"Subject: x\r\n\r\nbody\r\n");
    }
    bench.run();
    bench.disk.fail_always(Call::Sync, Some(Errno::MISSING));
    let mut taken = 0;
    while let Some(attempt) = bench.attempts.first() {
        let to = attempt.recipients[0].1.address.to_string();
        bench.say(&to, delivered());
        bench.run_for(10);
        taken += 1;
    }
    assert_eq!((taken, writes_fail(&bench)), (20, Vec::new()));
}

#[test]
fn r227_a_commit_that_hangs_stops_attempts_until_it_ends() {
    let mut bench = Bench::new();
    bench.reads_at_once = true;
    for number in 0..30 {
        let to = format!("a@d{number}.test");
        bench.receiver.accept(number, envelope(&[&to]), b"Subject: x\r\n\r\nbody\r\n");
    }
    bench.run();
    bench.stuck = Some(Vec::new());
    let mut taken = 0;
    while let Some(attempt) = bench.attempts.first() {
        let to = attempt.recipients[0].1.address.to_string();
        bench.say(&to, delivered());
        bench.run_for(500);
        taken += 1;
    }
    assert!((10..20).contains(&taken), "{taken} attempts in the time that a commit may take");
    for io in bench.stuck.take().unwrap() {
        bench.queue.io_done(spool::execute(&bench.disk, io), bench.clock.now());
    }
    bench.run();
    assert!(!bench.attempts.is_empty());
}

/// A record of 100 kB fits into no segment of 64 KiB, and records behind a record that waits must wait as well.
#[test]
fn r219_a_reply_of_any_length_stops_no_notice_of_others() {
    let mut bench = Bench::with(expiring(), spool_settings());
    bench.reads_at_once = true;
    bench.send(1, &["a@a.test"]);
    bench.send(2, &["b@b.test"]);
    let mut long = report(450, Enhanced(4, 2, 0));
    long.reply.text = "x".repeat(100 << 10).into();
    bench.answer("a@a.test", Outcome::Deferred(long));
    bench.answer("b@b.test", Outcome::Deferred(report(450, Enhanced(4, 2, 0))));
    bench.expire();
    bench.run_for(20_000);
    assert_eq!(bench.told_and_retired(), (2, 2));
}

impl Bench {
    /// Sends a message that is too long for the cache, with a destination for each recipient.
    fn send_long(&mut self, recipients: usize) {
        let to: Vec<String> = (0..recipients).map(|n| format!("r@d{n}.test")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let text = b"forty characters in each line of a list\r\n".repeat(2_000);
        let body = [&b"Subject: long\r\n\r\n"[..], &text].concat();
        self.reads_at_once = true;
        self.receiver.accept(1, envelope(&to), &body);
        self.run_for(40);
        self.reads_at_once = false;
    }

    /// Ends each attempt with this outcome, one at a time, including attempts that begin meanwhile.
    fn all_end(&mut self, outcome: impl Fn(usize) -> Outcome) -> usize {
        let mut ended = 0;
        while let Some(attempt) = self.attempts.first() {
            let to = attempt.recipients[0].1.address.to_string();
            self.say(&to, outcome(ended));
            (0..5).for_each(|_| self.turn());
            ended += 1;
        }
        ended
    }
}

#[test]
fn what_fails_while_its_message_is_read_for_a_notice_is_told_of_by_the_same_read() {
    const RECIPIENTS: usize = 200;
    let mut bench = Bench::new();
    bench.send_long(RECIPIENTS);
    let failed = |_| Outcome::Failed(report(550, Enhanced(5, 1, 1)));
    assert_eq!(bench.all_end(failed), RECIPIENTS);
    let mut reads = 0;
    while bench.queue.counters().notices < RECIPIENTS as u64 {
        reads += bench.reads.len();
        assert!(reads < 10, "{reads} reads, {} notices", bench.queue.counters().notices);
        bench.read();
        // The notices are delivered as well.
        bench.attempts.clear();
    }
}

#[test]
fn outcomes_that_wait_for_a_notice_of_their_message_are_bounded_like_those_that_wait_for_the_disk()
{
    const RECIPIENTS: usize = 3_000;
    let large = spool::Settings { segment_bytes: 1 << 20, ..spool_settings() };
    let mut settings = settings();
    settings.scheduler.attempts_in_flight_max = 20;
    let mut bench = Bench::with(settings, large);
    bench.send_long(RECIPIENTS);
    let failed = Outcome::Failed(report(550, Enhanced(5, 1, 1)));
    // The message cannot be read for a long time, so the notice about the first recipient waits.
    let ended = bench.all_end(|nth| if nth == 0 { failed.clone() } else { delivered() });
    assert!((2_000..2_100).contains(&ended), "{ended} outcomes are known and not recorded");
    bench.reads_at_once = true;
    bench.read();
    let mut rest = 0;
    for _ in 0..20 {
        bench.run();
        rest += bench.all_end(|_| delivered());
    }
    // The notice is delivered as well.
    assert_eq!(ended + rest, RECIPIENTS + 1);
    assert_eq!(bench.left(), (0, 0));
}
