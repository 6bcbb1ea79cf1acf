//! What a source and a sink measure: the clock, rows, histograms, ends, and what is left out of them.
//!
//! Must never assert how fast something was.

#![allow(clippy::unwrap_used)]

mod pair;

use pair::{Sink, source};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The sum of one column of the rows.
fn sum(line: &Value, column: &str) -> f64 {
    line["intervals"].as_array().unwrap().iter().map(|row| number(&row[column])).sum()
}

#[test]
fn what_warms_up_is_sent_and_taken_but_in_no_count_of_either_and_not_in_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let sink = Sink::start(&["--expect", accepted.to_str().unwrap(), "--until", "40"]);
    let all = ["-s", "3", "-m", "40", "--warm-up", "25", "-d", "4", "--threads", "2"];
    let (output, summary) = source(&sink.place, &accepted, &all);
    assert!(output.status.success(), "{summary}");
    let stats = sink.wait();
    assert_eq!((&summary["accepted"], &summary["warm_up"]), (&40.into(), &25.into()));
    assert_eq!((&stats["messages"], &stats["warm_up"]), (&40.into(), &25.into()), "{stats}");
    assert_eq!((&stats["distinct"], &stats["lost"]), (&40.into(), &0.into()), "{stats}");
    assert_eq!(summary["bytes"], stats["bytes"]);
    assert_eq!(std::fs::read_to_string(accepted).unwrap().lines().count(), 40);
    for line in [&summary, &stats] {
        assert_eq!((sum(line, "messages"), sum(line, "errors")), (40.0, 0.0), "{line}");
        assert_eq!(sum(line, "bytes"), number(&line["bytes"]), "{line}");
    }
    assert_eq!(sum(&summary, "connections"), number(&summary["connections"]));
}

#[test]
fn both_say_when_on_one_clock_and_how_busy_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let sink = Sink::start(&["--expect", accepted.to_str().unwrap(), "--until", "100"]);
    let (_, summary) = source(&sink.place, &accepted, &["-s", "2", "-m", "100", "--every", "0.01"]);
    let stats = sink.wait();
    let [start, first, last, end] =
        [&summary["start_ns"], &stats["first_ns"], &stats["last_ns"], &summary["end_ns"]]
            .map(|moment| moment.as_u64().unwrap());
    // The sink notes a message when its 250 is on the way: the source may have read that by then.
    let noted = end + 1_000_000_000;
    assert!(start < first && first < last && last <= noted, "{start} {first} {last} {end}");
    let seconds = (end - start) as f64 / 1e9;
    assert!((seconds - number(&summary["seconds"])).abs() < 1e-6, "{summary}");
    for line in [&summary, &stats] {
        assert!(number(&line["cpu_seconds"]) > 0.0 && number(&line["busy_share"]) > 0.0, "{line}");
    }
    for (line, name) in [(&summary, "accept"), (&summary, "session"), (&stats, "arrive")] {
        let text = line["histograms"][name].as_str().unwrap();
        assert!(text.starts_with("HISTF"), "{name}: {text}");
    }
    assert!(number(&summary["latency_ms"]["max"]) > 0.0);
    assert!(number(&stats["delay_ms"]["max"]) >= 0.0);
}

#[test]
fn a_source_with_a_time_begins_nothing_after_it_and_prints_a_row_for_each_part_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let sink = Sink::start(&["--idle", "0.3", "--rate", "200"]);
    let all = ["-s", "2", "--seconds", "0.5", "--every", "0.1", "--table"];
    let (output, summary) = source(&sink.place, &accepted, &all);
    assert!(output.status.success(), "{summary}");
    let text = String::from_utf8(output.stderr).unwrap();
    let mut rows = text.lines();
    assert_eq!(rows.next(), Some("time,messages,data(K),errors,connections"));
    let messages: u64 =
        rows.map(|row| row.split(',').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(Value::from(messages), summary["accepted"], "{text}");
    // The sink let at most one through every five milliseconds.
    assert!(messages > 2 && messages <= 110, "{messages}");
    let stats = sink.wait();
    assert_eq!(stats["messages"], summary["accepted"], "the sink went by itself, all there");
}

#[test]
fn a_sink_stops_after_a_number_of_recipients_and_says_counts_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let sink = Sink::start(&["--until-recipients", "60"]);
    assert!(source(&sink.place, &accepted, &["-m", "3", "-r", "10"]).0.status.success());
    sink.signal("-USR1");
    std::thread::sleep(std::time::Duration::from_millis(100)); // two lines, not one, are wanted
    assert!(source(&sink.place, &accepted, &["-m", "3", "-r", "10"]).0.status.success());
    let lines = sink.lines();
    let counts: Vec<_> = lines.iter().map(|line| line["recipients"].as_u64().unwrap()).collect();
    assert_eq!(counts, [30, 60]);
}

#[test]
fn many_destinations_are_drawn_by_weight_and_the_slow_ones_alone_are_slow() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let list = accepted.to_str().unwrap();
    let sink =
        Sink::start(&["--delay", "150:slow.test", "--refuse", "rcpt:550:dead", "--expect", list]);
    let to =
        ["-t", "a@d{r}.test:90", "-t", "a@slow.test:5", "-t", "a@dead.test:5", "--spread", "9"];
    let all = [&["-s", "20", "-m", "300", "-d", "0"][..], &to].concat();
    let (output, summary) = source(&sink.place, &accepted, &all);
    assert!(!output.status.success());
    let dead = summary["refusals"]["550"].as_u64().unwrap();
    assert!((2..60).contains(&dead), "{summary}");
    assert_eq!(summary["accepted"].as_u64().unwrap(), 300 - dead);
    // The slow ones are the slowest: the rest is quicker than the delay on any machine that works.
    assert!(number(&summary["latency_ms"]["max"]) >= 150.0, "{summary}");
    assert!(number(&summary["latency_ms"]["min"]) < 150.0, "{summary}");
    let stats = sink.stop();
    assert_eq!((&stats["lost"], &stats["refused"]), (&0.into(), &dead.into()), "{stats}");
}

#[test]
fn refusals_hit_their_stage_and_share_and_the_rest_of_the_recipients_get_the_message() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    // The fault, the source's options, messages accepted of 20, recipients accepted.
    let table: &[(&[&str], &[&str], u64, u64)] = &[
        (&["--refuse", "connect:421:50%"], &[], 10, 40),
        (&["--refuse", "hello:550:50%"], &[], 10, 40),
        (&["--refuse", "mail:451:25%"], &[], 15, 60),
        (&["--refuse", "mail:451:25%"], &["-p"], 15, 60),
        (&["--refuse", "rcpt:450:25%"], &[], 20, 60),
        (&["--refuse", "rcpt:550:25%"], &["-p", "-d", "0"], 20, 60),
        (&["--refuse", "rcpt:550:user1@"], &["--bdat"], 20, 60),
        (&["--refuse", "data:451:50%"], &["-d", "0"], 10, 40),
        (&["--refuse", "end:552:50%"], &["-d", "0"], 10, 40),
        (&["--refuse", "end:421:50%"], &["-d", "0"], 10, 40),
        (&["--refuse", "end:450:user2@"], &[], 0, 0),
        (&["--lmtp", "--refuse", "end:450:25%"], &["--lmtp"], 20, 60),
        (
            &["--lmtp", "--refuse", "rcpt:450:25%", "--refuse", "end:550:user3"],
            &["--lmtp", "-p"],
            20,
            60,
        ),
    ];
    for (faults, way, messages, recipients) in table {
        let list = ["--chunking", "--expect", accepted.to_str().unwrap()];
        let sink = Sink::start(&[*faults, &list].concat());
        let all = [&["-m", "20", "-r", "4"][..], way].concat();
        let (_, summary) = source(&sink.place, &accepted, &all);
        let stats = sink.stop();
        let name = format!("{faults:?} {way:?} {summary} {stats}");
        assert_eq!(summary["accepted"], *messages, "{name}");
        for line in [&summary, &stats] {
            assert_eq!(line["recipients"], *recipients, "{name}");
        }
        assert_eq!(
            (&stats["messages"], &stats["lost"]),
            (&(*messages).into(), &0.into()),
            "{name}"
        );
        assert!(stats["refused"].as_u64().unwrap() > 0, "{name}");
    }
}

#[test]
fn more_sessions_than_the_usual_number_of_descriptors_are_no_obstacle() {
    let sink = Sink::start(&["--until", "800"]);
    let lab = env!("CARGO_BIN_EXE_posthaste-lab");
    let source = format!("ulimit -Sn 200; exec {lab} source {} -s 400 -m 800 -d 0", sink.place);
    let output = std::process::Command::new("sh").args(["-c", &source]).output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = ["accepted", "broken", "connections"].map(|name| summary[name].as_u64().unwrap());
    assert!(counts[0] == 800 && counts[1] == 0 && counts[2] > 200, "{summary}");
    assert_eq!(sink.wait()["whole"], 800);
}
