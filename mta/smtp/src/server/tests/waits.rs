//! Timeouts, and sessions that are ended by the driver or by the client.
//!
//! Must never read a clock: the test sets the time.

use super::*;

fn driver() -> Driver {
    let mut driver = Driver::new(&settings());
    driver.feed(b"");
    driver
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Feeds `piece` every `pause` until the session closes. Returns the time that this took.
fn dribble(driver: &mut Driver, piece: &[u8], pause: Duration) -> Duration {
    let start = driver.now.monotonic;
    for _ in 0..200_000 {
        driver.pass(pause);
        if driver.outcome.closed {
            break;
        }
        driver.feed(piece);
    }
    driver.drain();
    assert!(driver.outcome.closed);
    assert!(driver.outcome.last().starts_with("421 4.4.2 mx.test Error: timeout exceeded"));
    driver.now.monotonic.since(start)
}

#[test]
fn n098_a_command_must_be_whole_in_its_time() {
    let taken = dribble(&mut driver(), b"x", secs(9));
    assert!((secs(300)..secs(310)).contains(&taken), "{taken:?}");
}

#[test]
fn n098_silence_before_a_command_ends_at_the_command_timeout() {
    for commands in [&[][..], &[EHLO], &[EHLO, PATHS]] {
        let mut driver = driver();
        commands.iter().for_each(|command| driver.feed(command));
        driver.pass(secs(299));
        assert!(!driver.outcome.closed, "{commands:?}");
        driver.pass(secs(1));
        driver.drain();
        assert!(driver.outcome.closed, "{commands:?}");
        assert!(driver.outcome.last().starts_with("421 4.4.2 "), "{commands:?}");
    }
}

#[test]
fn n098_a_body_must_keep_a_rate() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.feed(ENVELOPE);
    let taken = dribble(&mut driver, b"a", secs(9));
    assert!((secs(300)..secs(320)).contains(&taken), "{taken:?}");
    assert_eq!(driver.outcome.events[4..], ["reset", "close"]);
}

#[test]
fn n098_a_transaction_ends_though_each_command_is_in_time() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.feed(PATHS);
    let taken = dribble(&mut driver, b"BDAT 1\r\na", secs(240));
    assert!((secs(4 * 3_600)..secs(4 * 3_600 + 300)).contains(&taken), "{taken:?}");
}

#[test]
fn r225_a_connection_without_a_message_ends_though_each_command_is_in_time() {
    let hours = secs(4 * 3_600)..secs(4 * 3_600 + 300);
    let mut chunk = driver();
    chunk.feed(EHLO);
    chunk.feed(b"BDAT 18446744073709551615\r\n");
    let taken = dribble(&mut chunk, &[b'a'; 60_000], secs(100));
    assert!(hours.contains(&taken), "{taken:?}");
    for line in [&b"MAIL FROM:<refused@b.test>\r\n"[..], b"NOOP\r\n", b"MAIL FROM:<>\r\nRSET\r\n"] {
        let mut driver = driver();
        driver.feed(EHLO);
        let taken = dribble(&mut driver, line, secs(240));
        assert!(hours.contains(&taken), "{line:?} {taken:?}");
    }
}

#[test]
fn r225_each_message_gives_a_connection_its_time_again() {
    let mut driver = driver();
    driver.feed(EHLO);
    for _ in 0..100 {
        for _ in 0..10 {
            driver.pass(secs(290));
            driver.feed(b"NOOP\r\n");
        }
        driver.feed(ENVELOPE);
        driver.feed(b"a\r\n.\r\n");
    }
    assert!(!driver.outcome.closed);
    assert_eq!(driver.outcome.kept.len(), 100);
}

#[test]
fn n105_silence_after_354_ends_in_five_minutes() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.feed(ENVELOPE);
    driver.pass(secs(299));
    assert!(!driver.outcome.closed);
    assert_eq!(driver.session.next_wakeup(), Some(driver.now.monotonic + secs(1)));
    driver.pass(secs(1));
    assert!(driver.outcome.closed);
}

#[test]
fn our_own_time_does_not_count_against_the_client() {
    let mut now = Now::default();
    let mut session = Session::new(server(), now);
    session.output().clear();
    assert_eq!(session.receive(EHLO, now), EHLO.len());
    assert!(matches!(session.poll(now), Some(Event::Hello { .. })));
    assert_eq!(session.next_wakeup(), None);
    now.monotonic = now.monotonic + secs(1_000);
    session.handle_timeout(now);
    assert!(!session.is_closed());
    session.answer(Verdict::Accept, now);
    session.output().clear();
    assert_eq!(session.next_wakeup(), Some(now.monotonic + secs(300)));
}

#[test]
fn the_time_that_a_chunk_takes_to_be_staged_does_not_count_either() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.feed(ENVELOPE);
    let mut now = driver.now;
    let session = &mut driver.session;
    let chunk = vec![b'a'; settings().body_chunk_bytes];
    for _ in 0..200 {
        assert_eq!(session.receive(&chunk, now), chunk.len());
        assert!(matches!(session.poll(now), Some(Event::Body(_))));
        now.monotonic = now.monotonic + secs(3_000);
        session.handle_timeout(now);
        assert_eq!(session.poll(now), None);
        assert_eq!(session.next_wakeup(), Some(now.monotonic + secs(300)));
    }
}

#[test]
fn a_shutdown_ends_idle_sessions_at_once_and_others_after_their_message() {
    let mut idle = driver();
    idle.feed(EHLO);
    idle.session.shutdown(idle.now);
    idle.feed(b"");
    idle.drain();
    assert_eq!(idle.outcome.last(), "421 4.3.2 mx.test Service shutting down");
    assert_eq!(idle.outcome.events, ["hello c.test Esmtp", "close"]);
    let mut busy = driver();
    busy.feed(EHLO);
    busy.feed(ENVELOPE);
    busy.session.shutdown(busy.now);
    assert!(!busy.session.is_closed());
    busy.feed(b"a\r\n.\r\n");
    busy.drain();
    assert_eq!(busy.outcome.codes(), [250, 250, 354, 250, 421]);
    assert_eq!(busy.outcome.kept.len(), 1);
}

#[test]
fn n101_a_client_that_closes_its_side_after_the_dot_still_gets_its_answer() {
    let mut session = Session::new(server(), Now::default());
    session.output().clear();
    let now = Now::default();
    for part in [EHLO, ENVELOPE] {
        let mut rest = part;
        while !rest.is_empty() {
            rest = &rest[session.receive(rest, now)..];
            while session.poll(now).is_some() {
                session.answer(Verdict::Accept, now);
            }
        }
        session.output().clear();
    }
    session.receive(b"a\r\n.\r\n", now);
    session.eof(now);
    assert!(matches!(session.poll(now), Some(Event::BodyEnd(_))));
    assert_eq!(session.poll(now), None);
    session
        .promise(Durable::attested(MessageId(7), TransactionId { incarnation: 1, number: 1 }), now);
    assert_eq!(session.output(), b"250 2.0.0 Ok: queued as 00000000007\r\n");
    assert_eq!(session.poll(now), Some(Event::Close { after_quit: false }));
}

#[test]
fn n102_an_end_in_any_state_leaves_nothing_staged() {
    let script = [EHLO, ENVELOPE, b"a\r\n"].concat();
    for end in 0..script.len() {
        let outcome = talk(&settings(), &[&script[..end]], |_| 1);
        let mails = outcome.events.iter().filter(|event| event.starts_with("mail")).count();
        let resets = outcome.events.iter().filter(|event| *event == "reset").count();
        assert_eq!((mails, outcome.kept.len()), (resets, 0), "{end}");
        assert!(outcome.closed);
    }
}

#[test]
fn a_session_is_hung_up_on_in_any_state_and_the_driver_is_told() {
    let reply = Reply::new(421, Enhanced(4, 3, 0), "queue is not there");
    let script = [EHLO, ENVELOPE, b"a\r\n"].concat();
    for end in 0..script.len() {
        let mut driver = driver();
        script[..end].iter().for_each(|byte| driver.feed(&[*byte]));
        driver.session.hang_up(&reply, driver.now);
        driver.feed(b"");
        driver.drain();
        assert_eq!(driver.outcome.last(), "421 4.3.0 queue is not there");
        let ends: Vec<_> = driver.outcome.events.iter().filter(|event| *event == "reset").collect();
        assert_eq!(
            ends.len(),
            usize::from(driver.outcome.events.iter().any(|event| event.starts_with("mail")))
        );
        assert!(driver.outcome.closed && !driver.session.is_in_transaction());
    }
}

#[test]
fn r211_under_stress_a_client_with_a_transaction_has_ten_seconds_for_a_command() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.session.stress(true);
    driver.pass(secs(299));
    driver.feed(PATHS);
    driver.pass(secs(9));
    driver.feed(b"NOOP\r\n");
    driver.pass(secs(9));
    assert!(!driver.session.is_closed(), "each command has its time");
    // An incomplete command does not extend the wait.
    assert_eq!(dribble(&mut driver, b"x", secs(1)), secs(1));
    assert_eq!(driver.outcome.events.last().map(String::as_str), Some("close"));
}

#[test]
fn r211_after_stress_the_usual_waits_hold_again() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.feed(PATHS);
    driver.session.stress(true);
    driver.pass(secs(9));
    driver.session.stress(false);
    driver.pass(secs(290));
    assert!(!driver.session.is_closed());
    driver.session.stress(true);
    driver.pass(secs(0));
    assert!(driver.session.is_closed(), "it has said nothing for longer");
}

#[test]
fn r211_under_stress_a_body_keeps_its_waits() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.session.stress(true);
    driver.feed(ENVELOPE);
    driver.pass(secs(299));
    driver.feed(&[b'a'; 150_000]);
    driver.pass(secs(299));
    assert!(!driver.session.is_closed());
}

#[test]
fn r211_without_a_transaction_stress_changes_no_wait() {
    let mut driver = driver();
    driver.feed(EHLO);
    driver.feed(PATHS);
    driver.feed(b"RSET\r\n");
    driver.session.stress(true);
    let taken = dribble(&mut driver, b"x", secs(9));
    assert!((secs(300)..secs(310)).contains(&taken), "{taken:?}");
}
