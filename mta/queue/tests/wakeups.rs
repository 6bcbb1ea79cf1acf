//! The queue says when it has something to do, and does all of it by then.

#![allow(clippy::unwrap_used)]

mod bench;

use bench::{Bench, SENDER, report, settings, spool_settings};
use mail::{Enhanced, Outcome};
use std::time::Duration;
use world::Clock as _;

const HOUR: Duration = Duration::from_secs(3_600);

impl Bench {
    /// Runs a driver that does only what it is asked for. Returns how often it woke.
    fn sleep(&mut self, time: Duration) -> usize {
        let end = self.clock.now().monotonic + time;
        let mut woken = 0;
        loop {
            (0..10).for_each(|_| self.turn());
            let now = self.clock.now().monotonic;
            let due = self.queue.next_wakeup().filter(|due| *due <= end);
            assert!(due.is_none_or(|due| due > now), "woken although nothing was due");
            self.clock.advance(due.unwrap_or(end).since(now));
            if due.is_none() {
                return woken;
            }
            woken += 1;
        }
    }
}

fn failed() -> Outcome {
    Outcome::Failed(report(550, Enhanced(5, 1, 1)))
}

#[test]
fn a_queue_without_mail_sleeps_and_one_with_deferred_mail_wakes_up_for_its_attempts() {
    let mut settings = settings();
    settings.scheduler.delay_notice = None;
    let mut bench = Bench::with(settings, spool_settings());
    bench.reads_at_once = true;
    assert!(!bench.queue.is_ready(), "there is no segment yet");
    bench.sleep(HOUR);
    assert!(bench.queue.is_ready());
    assert!(bench.sleep(24 * HOUR) < 10);
    bench.send(1, &["a@a.test"]);
    let mut woken = 0;
    for _ in 0..3 {
        bench.say("a@a.test", Outcome::Deferred(report(450, Enhanced(4, 2, 0))));
        woken += bench.sleep(6 * HOUR);
        assert_eq!(bench.attempts.len(), 1);
    }
    assert!(woken < 100, "{woken}");
}

#[test]
fn attempts_of_a_process_that_does_not_come_back_are_lost_in_time() {
    let mut bench = Bench::new();
    bench.send(1, &["a@a.test"]);
    let in_flight = |bench: &Bench| bench.queue.summary(bench.clock.now()).attempts_in_flight;
    bench.queue.sender_gone(SENDER, bench.clock.now());
    assert!(bench.sleep(Duration::from_millis(2_100)) < 10);
    assert_eq!(in_flight(&bench), 0);
}

#[test]
fn a_message_that_expires_before_a_process_takes_its_attempt_is_given_up_at_that_time() {
    let mut settings = settings();
    settings.scheduler.retry.expire = HOUR;
    settings.scheduler.delay_notice = None;
    let mut bench = Bench::with(settings, spool_settings());
    bench.reads_at_once = true;
    bench.run();
    bench.queue.sender_gone(SENDER, bench.clock.now());
    bench.send(1, &["a@a.test"]);
    bench.sleep(HOUR);
    assert_eq!(bench.queue.counters().notices, 1);
}

#[test]
fn while_the_disk_hangs_a_notice_without_room_is_handed_in_again_at_times_and_attempts_wait() {
    let spool = spool::Settings { own_bytes_max: 8 << 10, ..spool_settings() };
    let mut settings = settings();
    settings.scheduler.attempts_in_flight_max = 10;
    let mut bench = Bench::with(settings, spool);
    bench.reads_at_once = true;
    for number in 0..300 {
        let to = format!("a@d{number}.test");
        bench.receiver.accept(number, bench::envelope(&[&to]), b"Subject: x\r\n\r\nbody\r\n");
    }
    bench.run();
    bench.stuck = Some(Vec::new());
    let mut taken = 0;
    while let Some(attempt) = bench.attempts.first() {
        let to = attempt.recipients[0].1.address.to_string();
        bench.say(&to, failed());
        bench.run_for(2);
        taken += 1;
    }
    assert!((64..100).contains(&taken), "{taken} attempts although no notice has room");
    assert!(bench.sleep(Duration::from_secs(60)) < 200);
    for io in bench.stuck.take().unwrap() {
        bench.queue.io_done(spool::execute(&bench.disk, io), bench.clock.now());
    }
    bench.run_for(20_000);
    while let Some(attempt) = bench.attempts.first() {
        let to = attempt.recipients[0].1.address.to_string();
        bench.say(&to, failed());
        bench.run_for(20);
    }
    assert_eq!(bench.queue.counters().notices, 300);
}
