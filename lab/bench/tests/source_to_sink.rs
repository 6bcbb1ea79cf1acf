//! The source against the sink, as two programs over a socket.
//!
//! Must never share code with them: it reads what they print.

#![allow(clippy::unwrap_used)]

mod pair;

use pair::{Sink, source};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn all_messages_arrive_whole_and_once_by_each_way_of_sending() {
    let ways: &[&[&str]] = &[
        &[],
        &["-d", "0"],
        &["-d", "7", "--pipelining"],
        &["-d", "0", "--bdat"],
        &["-d", "3", "--bdat", "--pipelining", "--threads", "2"],
        &["-l", "400000", "-d", "0"],
    ];
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    for way in ways {
        let sink = Sink::start(&["--chunking", "--expect", accepted.to_str().unwrap()]);
        let all = [&["-s", "4", "-m", "60", "-r", "3"], *way].concat();
        let (output, summary) = source(&sink.place, &accepted, &all);
        assert!(output.status.success(), "{way:?} {summary}");
        let stats = sink.stop();
        assert_eq!(summary["accepted"], 60, "{way:?}");
        for (name, count) in [("messages", 60), ("whole", 60), ("recipients", 180), ("lost", 0)] {
            assert_eq!(stats[name], count, "{way:?} {name} {stats}");
        }
        assert_eq!(stats["duplicates"].as_u64().unwrap() + stats["damaged"].as_u64().unwrap(), 0);
    }
}

#[test]
fn dropped_and_refused_messages_are_tried_again_until_each_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let faults = ["--drop", "body:5%", "--drop", "after:10%", "--refuse", "end:451:10%"];
    let sink = Sink::start(&[&faults[..], &["--expect", accepted.to_str().unwrap()]].concat());
    let all = ["-s", "3", "-m", "100", "-d", "4", "--retry", "30"];
    let (output, summary) = source(&sink.place, &accepted, &all);
    assert!(output.status.success(), "{summary}");
    let stats = sink.stop();
    assert_eq!((&stats["distinct"], &stats["lost"]), (&100.into(), &0.into()), "{stats}");
    assert!(stats["dropped"].as_u64().unwrap() > 0 && stats["refused"].as_u64().unwrap() > 0);
    assert!(summary["refusals"]["451"].as_u64().unwrap() > 0, "{summary}");
}

#[test]
fn a_message_that_never_gets_its_250_is_an_error_and_not_in_the_accepted_file() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let sink = Sink::start(&["--refuse", "rcpt:550:user1@"]);
    let (output, summary) = source(&sink.place, &accepted, &["-m", "2", "-t", "user{m}@sink.test"]);
    assert!(!output.status.success());
    assert_eq!((&summary["accepted"], &summary["not_accepted"]), (&1.into(), &1.into()));
    let file = std::fs::read_to_string(&accepted).unwrap();
    assert!(file.lines().count() == 1 && file.contains("-0 1 "), "{file}");
    assert_eq!(sink.stop()["messages"], 1);
}

#[test]
fn lmtp_answers_for_each_recipient() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::start(&["--lmtp", "--refuse", "end:550:user1@"]);
    let accepted = directory.path().join("accepted");
    let (output, summary) = source(&sink.place, &accepted, &["--lmtp", "-r", "3"]);
    assert!(output.status.success());
    assert_eq!(summary["recipients"], 2);
    assert!(std::fs::read_to_string(&accepted).unwrap().contains("-0 2 "));
    assert_eq!(sink.stop()["recipients"], 2);
}

#[test]
fn a_doubled_and_a_damaged_message_are_counted_as_such_and_dumped() {
    let directory = tempfile::tempdir().unwrap();
    let dump = directory.path().join("dump");
    let sink = Sink::start(&["--dump", dump.to_str().unwrap()]);
    let accepted = directory.path().join("accepted");
    assert!(source(&sink.place, &accepted, &[]).0.status.success());
    let first = std::fs::read_to_string(dump.join("00000000.eml")).unwrap();
    assert!(
        first.starts_with("X-Sink-From: <source@lab.test>\r\nX-Sink-To: <user0@sink.test>\r\n")
    );
    // The same bytes again, dots stuffed: a duplicate. And with one letter changed: damaged.
    let stuffed = first.replace("\r\n.", "\r\n..");
    let changed = stuffed.replace("Subject: p", "Subject: q");
    for message in [&stuffed, &changed] {
        let mut stream = TcpStream::connect(&sink.place).unwrap();
        let envelope = "MAIL FROM:<a@b>\r\nRCPT TO:<user0@sink.test>\r\nDATA\r\n";
        write!(stream, "HELO x\r\n{envelope}{message}.\r\nQUIT\r\n").unwrap();
        let mut replies = String::new();
        stream.read_to_string(&mut replies).unwrap();
        assert!(replies.ends_with("221 2.0.0 Bye\r\n"), "{replies}");
    }
    let stats = sink.stop();
    assert_eq!((&stats["whole"], &stats["damaged"]), (&2.into(), &1.into()), "{stats}");
    assert_eq!((&stats["distinct"], &stats["duplicates"]), (&1.into(), &2.into()), "{stats}");
}
