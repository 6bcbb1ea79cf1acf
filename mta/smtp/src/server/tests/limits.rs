//! Bounds on lines, headers, hops and memory.
//!
//! Must never raise a bound to pass.

use super::*;

#[test]
fn p017_command_lines_are_bounded() {
    let noop = |length: usize| [b"NOOP ", &vec![b'x'; length - 7][..], b"\r\n"].concat();
    for length in [512, 513, 2_048] {
        assert_eq!(check(&[EHLO, &noop(length)]).codes(), [250], "{length}");
    }
    for length in [2_049, 5_000, 100_000] {
        let outcome = check(&[EHLO, &noop(length)]);
        assert_eq!(outcome.last(), "500 5.5.2 Error: line too long", "{length}");
        assert!(outcome.closed);
    }
    let mut driver = Driver::new(&settings());
    driver.feed(b"");
    for _ in 0..1_000 {
        driver.feed(&[b'x'; 1_000]);
        assert!(driver.session.memory_bytes() < 8 << 10 && driver.waiting.is_empty());
    }
    assert!(driver.outcome.closed);
}

#[test]
fn p018_an_endless_ehlo_argument_is_cut_off() {
    let outcome = talk(&settings(), &[b"EHLO ", &vec![b'a'; 2 << 20]], |_| 1_460);
    assert_eq!(outcome.last(), "500 5.5.2 Error: line too long");
}

#[test]
fn p020_header_sections_are_bounded_and_looked_at_once() {
    let long_line = [b"X: ", &vec![b'a'; 64 << 10][..], b"\r\n\r\nb\r\n.\r\n"].concat();
    let many_lines = [&b"X: yyyyyy\r\n".repeat(100_000)[..], b"\r\n.\r\n"].concat();
    let huge = [b"X: ", &vec![b'a'; 10 << 20][..], b"\r\n\r\n.\r\n"].concat();
    let no_header = [&b"just text without any colon\r\n".repeat(50_000)[..], b".\r\n"].concat();
    for (wire, expected) in [(long_line, 250), (many_lines, 552), (huge, 552), (no_header, 250)] {
        let outcome = talk(&settings(), &[EHLO, ENVELOPE, &wire, b"NOOP\r\n"], |_| 16 << 10);
        assert_eq!(outcome.codes()[3..], [expected, 250]);
    }
}

#[test]
fn m063_a_message_that_has_been_around_too_long_is_refused() {
    let hop = b"Received: from a by b; Mon, 1 Jan 2026 00:00:00 +0000\r\n";
    for (hops, expected) in [(49, 250), (50, 554), (60, 554)] {
        let wire = [&hop.repeat(hops)[..], b"From: a\r\n\r\n", &hop.repeat(60), b".\r\n"].concat();
        let outcome = check(&[EHLO, ENVELOPE, &wire, b"NOOP\r\n"]);
        assert_eq!(outcome.codes()[3..], [expected, 250], "{hops}");
        let told = outcome.replies.contains("554 5.4.6 Error: too many hops");
        assert_eq!((told, outcome.kept.len()), (hops > 49, usize::from(hops < 50)));
    }
}

#[test]
fn n103_a_client_that_reads_no_replies_is_not_read_either() {
    let mut driver = Driver::new(&settings());
    driver.feed(EHLO);
    driver.drain();
    driver.drains = false;
    let flood = b"NOOP\r\nMAIL FROM:<>\r\nRSET\r\n".repeat(100_000);
    let limits = Settings { idle_commands_max: u32::MAX, ..settings() };
    driver.session = Session::new(Server::new(limits), driver.now);
    driver.session.output().clear();
    driver.feed(EHLO);
    driver.session.output().clear();
    driver.feed(&flood);
    let bound = settings().output_bytes_max;
    assert!(driver.session.output().len() < bound + 100 && !driver.waiting.is_empty());
    let left = driver.waiting.len();
    driver.session.output().drain(..1_000);
    driver.feed(b"");
    assert!(driver.waiting.len() < left && driver.session.output().len() < bound + 100);
    driver.pass(Duration::from_secs(301));
    assert!(driver.outcome.closed);
}

#[test]
fn a_small_message_is_one_event_and_a_large_one_comes_in_full_chunks() {
    let settings = settings();
    let size = settings.body_chunk_bytes;
    for (length, chunks) in [(4_000, 0), (size - 1, 0), (size, 1), (3 * size + 5, 3)] {
        let body = [&vec![b'a'; length - 2][..], b"\r\n"].concat();
        let mut session = Session::new(Server::new(settings.clone()), Now::default());
        session.output().clear();
        let (mut full, mut tail) = (0, None);
        for part in [EHLO, ENVELOPE, &[&body[..], b".\r\n"].concat()] {
            let mut rest = part;
            while !rest.is_empty() || session.awaits_answer() {
                rest = &rest[session.receive(rest, Now::default())..];
                match session.poll(Now::default()) {
                    Some(Event::Body(chunk)) => full += usize::from(chunk.len() == size),
                    Some(Event::BodyEnd(end)) => {
                        tail = Some(end.tail.len());
                        let no = Reply::new(451, Enhanced(4, 3, 0), "no");
                        session.refuse(&no, Now::default());
                    }
                    Some(_) => session.answer(Verdict::Accept, Now::default()),
                    None => {}
                }
                assert!(session.memory_bytes() < 2 * size + 20_000);
            }
            assert!(session.output().ends_with(b"\r\n"));
            session.output().clear();
        }
        assert_eq!((full, tail), (chunks, Some(length - chunks * size)), "{length}");
        assert!(!session.is_in_transaction());
    }
}

#[test]
fn r211_a_body_that_there_is_no_room_for_holds_nothing_and_is_answered_at_its_end() {
    let full = Reply::new(452, Enhanced(4, 3, 1), "no room");
    let piece = vec![b'a'; 30_000];
    let chunk = [b"BDAT 60002 LAST\r\n", &piece[..]].concat();
    let data: [&[u8]; 2] = [b"DATA\r\n", &piece];
    for begin in [&data[..], &[&chunk[..]]] {
        let mut driver = Driver::new(&settings());
        driver.feed(b"");
        driver.feed(EHLO);
        driver.feed(PATHS);
        begin.iter().for_each(|part| driver.feed(part));
        assert!(driver.session.memory_bytes() > 30_000);
        assert!(driver.session.drop_body(&full) && !driver.session.drop_body(&full));
        assert!(driver.session.memory_bytes() < 8_000);
        driver.feed(&piece);
        assert!(driver.session.memory_bytes() < 8_000 && !driver.session.is_closed());
        driver.feed(b"\r\n");
        if begin.len() == 2 {
            driver.feed(b".\r\n");
        }
        driver.feed(b"NOOP\r\n");
        driver.drain();
        let codes = driver.outcome.codes();
        assert_eq!(codes[codes.len() - 2..], [452, 250], "{}", driver.outcome.replies);
        assert_eq!(driver.outcome.events.last().map(String::as_str), Some("reset"));
        assert!(driver.outcome.kept.is_empty() && !driver.session.is_in_transaction());
        // Outside of a body nothing can be dropped.
        assert!(!driver.session.drop_body(&full));
        driver.feed(PATHS);
        driver.drain();
        assert!(driver.outcome.replies.ends_with("250 2.1.5 Ok\r\n"));
    }
}

/// Sends `line` as many times as `lines` says. Returns the number of replies before the session closes with 421.
fn answered(settings: &Settings, begin: &[&[u8]], line: &[u8], lines: usize) -> usize {
    let flood = line.repeat(lines);
    let mut groups = begin.to_vec();
    groups.push(&flood);
    let outcome = talk(settings, &groups, |left| left);
    let last = "421 4.7.0 mx.test Error: too many errors";
    assert_eq!(outcome.last() == last, outcome.codes().contains(&421), "{}", outcome.last());
    assert!(outcome.closed && outcome.kept.is_empty());
    outcome.codes().len() - usize::from(outcome.last() == last)
}

#[test]
fn r218_refused_commands_without_end_close_the_session() {
    let mail: &[u8] = b"MAIL FROM:<a@b.test>\r\n";
    let refused = |line| answered(&settings(), &[EHLO], line, 60_000);
    assert_eq!(refused(b"MAIL FROM:<refused@b.test>\r\n"), 120);
    assert_eq!(refused(b"MAIL FROM:<later@b.test>\r\n"), 120);
    assert_eq!(answered(&settings(), &[EHLO, mail], b"RCPT TO:<refused@y.test>\r\n", 60_000), 121);
    let again = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<refused@y.test>\r\nRSET\r\n";
    // The first idle commands and refusals are not errors. Beyond their limits each one is.
    assert_eq!(refused(again), 3 * 110);
    // A client in `relay.from` may have a list of a million dead addresses.
    let trusted = Settings { refusals_max: 1_000_000, ..settings() };
    let line = b"RCPT TO:<refused@y.test>\r\n";
    assert_eq!(answered(&trusted, &[EHLO, mail], line, 60_000), 60_001);
    let message = [PATHS, b"BDAT 4 LAST\r\na\rb\n"].concat();
    assert_eq!(refused(&message), 3 * 120, "bodies that are refused count too");
}

#[test]
fn r218_a_list_with_dead_addresses_gets_through_and_each_message_starts_anew() {
    let mut message = b"MAIL FROM:<a@b.test>\r\n".to_vec();
    for number in 0..1_000 {
        let name = if number % 9 == 0 { "refused" } else { "u" };
        message.extend(format!("RCPT TO:<{name}{number}x-{name}@y.test>\r\n").bytes());
    }
    message.extend(b"BDAT 3 LAST\r\na\r\n");
    let outcome = check(&[EHLO, &message, &message, &message]);
    let codes = outcome.codes();
    assert_eq!(outcome.kept.len(), 3);
    assert_eq!(codes.iter().filter(|code| **code == 550).count(), 3 * 112);
    assert!(!codes.contains(&421));
}

#[test]
fn r211_recipients_beyond_the_limit_are_put_off_and_count_only_beyond_as_many_again() {
    let limited = Settings { recipients_max: 100, ..settings() };
    let lines = |count: usize| {
        let line = |number| format!("RCPT TO:<u{number}@y.test>\r\n");
        let paths: String = (0..count).map(line).collect();
        format!("MAIL FROM:<a@b.test>\r\n{paths}BDAT 3 LAST\r\na\r\nQUIT\r\n")
    };
    let outcome = check_with(&limited, &[EHLO, lines(300).as_bytes()]);
    let codes = outcome.codes();
    assert_eq!((codes[100], codes[101], codes[300]), (250, 452, 452));
    assert_eq!((codes[301], codes[302], outcome.kept.len()), (250, 221, 1));
    assert!(outcome.replies.contains("452 4.5.3 Error: too many recipients\r\n"));
    let outcome = check_with(&limited, &[EHLO, lines(10_000).as_bytes()]);
    assert_eq!((outcome.codes().len(), outcome.codes().last()), (1 + 320 + 1, Some(&421)));
}

#[test]
fn r225_commands_that_move_nothing_are_bounded_in_number() {
    let open = |begin: &[&[u8]], line: &[u8]| answered(&settings(), begin, line, 10_000);
    assert_eq!(open(&[EHLO, PATHS], b"BDAT 0\r\n"), 2 + 120);
    assert_eq!(open(&[EHLO], b"BDAT 0\r\n"), 20);
    assert_eq!(open(&[EHLO], b"BDAT 0 LAST\r\n"), 20);
    assert_eq!(open(&[EHLO], b"BDAT 5\r\nhello"), 20);
    assert_eq!(open(&[EHLO], b"MAIL FROM:<>\r\nRSET\r\n"), 240);
    let hellos = vec![EHLO; 200];
    let codes = talk(&settings(), &hellos, |left| left).codes();
    assert_eq!((codes.len(), codes.last()), (120, Some(&421)));
}

#[test]
fn an_lmtp_session_holds_replies_for_fewer_recipients_than_smtp_takes() {
    let lmtp = Settings { lmtp: true, recipients_max: 200, lmtp_recipients_max: 100, ..settings() };
    let line = |number| format!("RCPT TO:<u{number}@y.test>\r\n");
    let paths: String = (0..101).map(line).collect();
    let mail = format!("MAIL FROM:<a@b.test>\r\n{paths}");
    let outcome = check_with(&lmtp, &[b"LHLO c\r\n", mail.as_bytes()]);
    let codes = outcome.codes();
    assert_eq!((codes[100], codes[101]), (250, 452), "{codes:?}");
    let smtp = Settings { lmtp: false, ..lmtp };
    assert_eq!(check_with(&smtp, &[EHLO, mail.as_bytes()]).codes().last(), Some(&250));
}
