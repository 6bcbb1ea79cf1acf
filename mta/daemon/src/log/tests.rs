//! Tests of the format of a line, and of readers that stop or go away.

use super::line::VALUE_BYTES_MAX;
use super::*;
use mail::Enhanced;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::Read;
use std::time::Instant;

const TEXT: Style = Style { format: LogFormat::Text, level: LogLevel::Debug, journal: false };
const JSON: Style = Style { format: LogFormat::Json, ..TEXT };

/// Returns the lines that `tell` logs.
fn lines(style: Style, tell: impl FnOnce(&Log)) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let log = Log::start_on("send", style, file.reopen().unwrap()).unwrap();
    tell(&log);
    log.flush(Duration::from_secs(10));
    std::fs::read_to_string(file.path()).unwrap().lines().map(str::to_owned).collect()
}

fn attempt(log: &Log, reply: &str) {
    let sender = ReversePath::Address(Address::parse("ann@sender.example", false).unwrap());
    log.event(EventKind::Attempt)
        .id(MessageId(33))
        .from(&sender)
        .to(&Address::parse("joe@dest.example", false).unwrap())
        .relay("mx.dest.example[192.0.2.1]:25")
        .delay(Duration::from_micros(1_204_900))
        .delays(&[
            (EventKind::Commit, Duration::from_millis(1)),
            (EventKind::Attempt, Duration::from_millis(203)),
        ])
        .dsn(Enhanced(2, 0, 0))
        .status("delivered")
        .reply(&Reply::plain(250, reply))
        .emit();
}

#[test]
fn an_event_is_one_line_that_people_can_read() {
    let lines = lines(TEXT, |log| attempt(log, "ok"));
    let (time, rest) = lines[0].split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 27, "{time}");
    let expected = format!(
        "send[{}] attempt id=00000000011 from=<ann@sender.example> to=<joe@dest.example> \
         relay=mx.dest.example[192.0.2.1]:25 delay=1.204 delays=commit:0.001,attempt:0.203 \
         dsn=2.0.0 status=delivered reply=\"250 ok\"",
        std::process::id()
    );
    assert_eq!(rest, expected);
    assert_eq!(lines.len(), 1);
}

/// Logs the same attempt for each of these recipients with one call.
fn attempt_to(log: &Log, recipients: &[Address], relay: &str, reply: &str) {
    log.event(EventKind::Attempt)
        .id(MessageId(33))
        .to_each()
        .relay(relay)
        .status("delivered")
        .reply(&Reply::plain(250, reply))
        .emit_to(recipients.iter());
}

#[test]
fn lines_to_many_recipients_are_those_that_each_would_have_had() {
    let recipients: Vec<Address> = ["joe@dest.example", "\"a b\"@dest.example", "é@dest.example"]
        .iter()
        .map(|text| Address::parse(text, true).unwrap())
        .collect();
    for style in [TEXT, JSON] {
        for reply in ["ok", &"x".repeat(990), &"\u{1}".repeat(990)] {
            let relay = "r".repeat(900);
            let without_time = |line: &String| line.split_once("attempt").unwrap().1.to_owned();
            let at_once = lines(style, |log| attempt_to(log, &recipients, &relay, reply));
            let each = lines(style, |log| {
                for recipient in &recipients {
                    log.event(EventKind::Attempt)
                        .id(MessageId(33))
                        .to(recipient)
                        .relay(&relay)
                        .status("delivered")
                        .reply(&Reply::plain(250, reply))
                        .emit();
                }
            });
            let texts = |lines: &[String]| lines.iter().map(without_time).collect::<Vec<_>>();
            assert_eq!(texts(&at_once), texts(&each));
            assert_eq!(at_once.len(), 3);
        }
    }
}

#[test]
fn a_recipient_that_makes_a_line_too_long_costs_it_its_last_field() {
    let recipient = Address::parse(&format!("{}@dest.example", "é".repeat(30)), true).unwrap();
    let mut cut = BTreeSet::new();
    // Each character takes six bytes in JSON. With increasing length, the line loses the reply, then the recipient.
    for length in 400..=520 {
        let (relay, reply) = ("r".repeat(999), "\u{1}".repeat(length));
        let lines = lines(JSON, |log| {
            attempt_to(log, &[recipient.clone(), recipient.clone()], &relay, &reply);
        });
        for line in &lines {
            assert!(line.len() < line::LINE_BYTES_MAX, "{}", line.len());
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(value["to"].is_string() && value["status"] == "delivered", "{value}");
            assert_eq!(value["cut"].is_null(), value["reply"].is_string(), "{value}");
            cut.insert(value["cut"].is_null());
        }
    }
    assert_eq!(cut.len(), 2, "some lines were whole and some were not");
}

#[test]
fn an_event_is_one_object_that_machines_can_read() {
    let lines = lines(JSON, |log| attempt(log, "o\"k\n"));
    let value: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(value["event"], "attempt");
    assert_eq!(value["id"], "00000000011");
    assert_eq!(value["delay"], 1.204);
    assert_eq!(value["delays"]["attempt"], 0.203);
    assert_eq!(value["reply"], "250 o\"k ");
}

#[test]
fn for_journald_the_priority_stands_first_and_the_time_is_left_to_it() {
    let style = Style { journal: true, ..TEXT };
    let lines = lines(style, |log| {
        log.info("up");
        log.error("down");
    });
    assert!(lines[0].starts_with("<6>send[") && lines[0].ends_with(" info msg=up"), "{lines:?}");
    assert!(lines[1].starts_with("<3>send["));
}

#[test]
fn d154_d155_a_strangers_text_cannot_end_its_value() {
    let evil = "5.7.2\r\nattempt id=0 status=delivered \u{202e}\u{1b}[2J\"";
    let lines = lines(TEXT, |log| attempt(log, evil));
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].ends_with(
            "reply=\"250 5.7.2\\u{d} attempt id=0 status=delivered \\u{202e}\\u{1b}[2J\\\"\""
        ),
        "{}",
        lines[0]
    );
}

proptest! {
    #[test]
    fn every_line_is_whole_bounded_and_harmless(
        values in proptest::collection::vec(any::<String>(), 1..6),
        long in "[\\x00-\\x{ffff}]{0,2000}",
    ) {
        for style in [TEXT, JSON] {
            let mut line = LogLine::start(style, "send[1]", EventKind::Judge, Timestamp::from_micros(0));
            for value in values.iter().chain([&long, &long, &long, &long, &long]) {
                line.text("value", value);
            }
            let text = line.end();
            prop_assert!(text.len() <= line::LINE_BYTES_MAX);
            prop_assert!(text.ends_with('\n') && text.matches(char::is_control).count() == 1);
            if style == JSON {
                let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(&value["event"], "judge");
            }
        }
    }
}

#[test]
fn n115_a_reader_that_stops_makes_nobody_wait_and_is_told_what_it_missed() {
    let (reader, writer) = std::io::pipe().unwrap();
    let log = Log::start_on("send", TEXT, std::os::fd::OwnedFd::from(writer).into()).unwrap();
    let filler = "x".repeat(900);
    let started = Instant::now();
    const TOLD: u64 = 20_000;
    for _ in 0..TOLD {
        log.event(EventKind::Record).text("msg", &filler).emit(); // of a message: never summed up
    }
    assert!(started.elapsed() < Duration::from_secs(10), "told {:?}", started.elapsed());
    let dropped = log.dropped();
    assert!(dropped > 0 && dropped < TOLD);
    // The reader goes on: it gets the lines that were kept, and the number of those that were dropped.
    let reading = std::thread::spawn(move || {
        let mut reader =
            std::io::BufReader::new(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
        let (mut all, mut chunk) = (String::new(), [0u8; 65_536]);
        while !all.contains("last one") {
            let read = reader.read(&mut chunk).unwrap();
            all.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
        }
        all
    });
    log.flush(Duration::from_secs(20));
    log.info("last one");
    let all = reading.join().unwrap();
    let kept = all.lines().filter(|line| line.ends_with('x')).count() as u64;
    assert_eq!(kept + dropped, TOLD);
    let told: u64 = all
        .lines()
        .filter_map(|line| line.split_once("events_dropped=")?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(told, dropped);
}

#[test]
fn n115_a_reader_that_is_gone_is_survived_and_counted() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let log = Log::start_on("send", TEXT, std::os::fd::OwnedFd::from(writer).into()).unwrap();
    for _ in 0..100 {
        log.info("x");
    }
    log.flush(Duration::from_secs(5));
    assert!(log.dropped() > 0);
    log.info("still here");
}

#[test]
fn a_level_tells_what_it_holds_and_no_more() {
    for (level, expected) in [
        (LogLevel::None, ""),
        (LogLevel::Error, "error"),
        (LogLevel::Warn, "warn error"),
        (LogLevel::Info, "commit warn error"),
        (LogLevel::Debug, "converse commit warn error"),
    ] {
        let lines = lines(Style { level, ..TEXT }, |log| {
            for verb in [EventKind::Converse, EventKind::Commit, EventKind::Warn, EventKind::Error]
            {
                log.event(verb).emit();
            }
        });
        let verbs: Vec<_> = lines.iter().filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(verbs.join(" "), expected);
    }
}

#[test]
fn a_log_that_is_off_tells_nothing_and_costs_nothing() {
    attempt(&Log::off(), "ok");
    assert_eq!(Log::off().dropped(), 0);
}

/// Returns the number of events that these lines stand for.
fn events_of(lines: &[String]) -> u64 {
    let values = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    values.map(|value| value["repeated"].as_u64().unwrap_or(1)).sum()
}

fn refuse(log: &Log, client: &str, at: u32) {
    log.event(EventKind::Judge)
        .client(client)
        .text("helo", &format!("bot{at}.example"))
        .to(&Address::parse(&format!("nobody{at}@local.test"), false).unwrap())
        .reply(&Reply::new(550, Enhanced(5, 1, 1), format!("no user nobody{at} here")))
        .status("refused")
        .emit();
}

#[test]
fn r244_a_flood_of_equal_events_is_summed_up_and_the_count_stays_right() {
    let lines = lines(JSON, |log| {
        for at in 0..100_000 {
            refuse(log, "192.0.2.1", at);
            if at % 1_000 == 0 {
                refuse(log, "192.0.2.2", at);
            }
        }
    });
    let of = |client: &str| -> Vec<String> {
        lines.iter().filter(|line| line.contains(client)).cloned().collect()
    };
    assert_eq!(events_of(&of("192.0.2.1")), 100_000);
    assert_eq!(events_of(&of("192.0.2.2")), 100);
    // Twenty lines and a sum in each period of five seconds, however slow this machine is.
    assert!(of("192.0.2.1").len() < 10_000, "{}", of("192.0.2.1").len());
    let sum: serde_json::Value = serde_json::from_str(of("192.0.2.1").last().unwrap()).unwrap();
    assert_eq!(
        (&sum["to"], &sum["status"]),
        (&"<nobody99999@local.test>".into(), &"refused".into())
    );
}

#[test]
fn r244_what_is_told_of_a_message_or_has_a_number_is_never_summed_up() {
    let verbs = [
        EventKind::Promise,
        EventKind::Attempt,
        EventKind::Record,
        EventKind::Bounce,
        EventKind::Retire,
        EventKind::Warn,
    ];
    let lines = lines(TEXT, |log| {
        for at in 0..200 {
            for verb in verbs {
                log.event(verb).id(MessageId(at % 2)).status("x").emit();
            }
            log.event(EventKind::Commit).status("x").emit();
            log.event(EventKind::Judge).number("recipients", 7).status("refused").emit();
        }
    });
    assert_eq!(lines.len(), 200 * 8);
    assert!(!lines.iter().any(|line| line.contains("repeated")));
}

#[test]
fn r244_a_sum_comes_by_itself_when_the_flood_is_over_and_groups_are_bounded() {
    let mut sums = sum::Sums::default();
    let now = Instant::now();
    let line = || LogLine::start(JSON, "queue[1]", EventKind::Warn, super::now());
    let mut told = 0;
    for kind in 0..2 * sum::GROUPS_MAX as u64 {
        for _ in 0..sum::EQUAL_LINES_MAX + 2 {
            told += u64::from(sums.add(kind, line(), now).is_some());
        }
    }
    let summed = sum::GROUPS_MAX as u64;
    let all = 2 * summed * u64::from(sum::EQUAL_LINES_MAX + 2);
    assert_eq!(told, all - 2 * summed, "events of groups beyond the bound are logged one by one");
    assert_eq!(sums.wait(now), Some(sum::PERIOD));
    assert_eq!(sums.close(now, false), "");
    let later = now + sum::PERIOD;
    let text = sums.close(later, false);
    assert_eq!((text.lines().count() as u64, line::events(text.as_bytes())), (summed, 2 * summed));
    assert_eq!(sums.wait(later), None, "nothing is kept");
}

#[test]
fn r244_a_dropped_sum_counts_as_all_its_events_and_a_strangers_text_counts_as_one() {
    for style in [TEXT, JSON] {
        let make = |text: &str| {
            let mut line = LogLine::start(style, "receive[1]", EventKind::Judge, super::now());
            line.text("msg", text);
            line
        };
        for text in ["x repeated=9", "x,\"repeated\":9", "repeated=9"] {
            assert_eq!(line::events(make(text).end().as_bytes()), 1, "{text}");
        }
        let mut long = make("x");
        for key in ["a", "b", "c", "d", "e"] {
            long.text(key, &"y".repeat(995));
        }
        let text = long.end_repeated(u64::MAX) + &make("x").end();
        assert!(text.lines().all(|line| line.len() < line::LINE_BYTES_MAX));
        assert_eq!(line::events(&text.as_bytes()[..text.find('\n').unwrap() + 1]), u64::MAX);
        assert_eq!(line::events(make("x").end_repeated(7).as_bytes()), 7);
    }
}

#[test]
fn a_value_longer_than_its_bound_is_cut() {
    for (bytes, kept) in [
        (VALUE_BYTES_MAX, VALUE_BYTES_MAX),
        (VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX),
        (1 << 20, VALUE_BYTES_MAX),
    ] {
        let lines = lines(TEXT, |log| attempt(log, &"x".repeat(bytes - 4)));
        assert_eq!(lines.len(), 1);
        let (_, reply) = lines[0].split_once("reply=\"").unwrap();
        assert_eq!(reply.split('"').next().unwrap().len(), kept, "{bytes}");
    }
}
