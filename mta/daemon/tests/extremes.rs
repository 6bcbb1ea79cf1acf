//! Every numeric setting at the smallest and at the largest value that it may have: alone, and all of them together.
//!
//! Must never name a setting to leave it out: the list is the table of settings.

#![allow(clippy::unwrap_used)]

mod support;

use daemon::settings::setting::{Range, Setting};
use daemon::settings::settings;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use support::{Client, Daemon, PATIENCE, Script, Setup, Sink, token};

/// Mailers at once: each takes a second or two of waiting and little of the processor.
const AT_ONCE: usize = 4;
/// No disk of a test has what this asks for at its largest: mail is refused at run time, and the log says why.
const LEFT_FREE: &str = "spool.keep_free_bytes";
const NO_ROOM: &str = "no room for another segment";

/// Which end of the ranges.
#[derive(Clone, Copy, Debug)]
enum End {
    Smallest,
    Largest,
}

/// One setting and its value as the file has it.
#[derive(Clone, Debug)]
struct Set {
    name: &'static str,
    value: String,
}

/// Numeric settings alone have ends.
fn at(setting: &Setting, end: End) -> Option<Set> {
    let pick = |low: u64, high: u64| match end {
        End::Smallest => low,
        End::Largest => high,
    };
    let value = match setting.range {
        Range::Count(low, high) | Range::Bytes(low, high) => pick(low, high).to_string(),
        Range::Time(low, high) => format!("\"{}s\"", pick(low, high)),
        Range::Number(low, high) => match end {
            End::Smallest => format!("{low:?}"),
            End::Largest => format!("{high:?}"),
        },
        Range::Flag | Range::OneOf(_) | Range::Text(_) => return None,
    };
    Some(Set { name: setting.name, value })
}

/// What all mailers of this file have: little disk, and some of the machine's left alone.
const SPOOL: &[(&str, &str)] = &[
    ("segment_bytes", "\"8MiB\""),
    ("batch_bytes_max", "\"1MiB\""),
    ("reserve_bytes", "\"8MiB\""),
    ("snapshot_log_bytes", "\"16MiB\""),
    ("keep_free_bytes", "\"512MiB\""),
];

/// A file that says this, and what else a mailer of a test needs.
fn setup(sets: &[Set], sink: &Sink) -> Setup {
    let mut tables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Set { name, value } in sets {
        let (table, name) = name.split_once('.').expect("no numeric setting is above all tables");
        tables.entry(table).or_default().push(format!("{name} = {value}"));
    }
    let listen_lines = tables.remove("listen").unwrap_or_default().join("\n");
    let mut spool = tables.remove("spool").unwrap_or_default();
    let says = |lines: &[String], name: &str| lines.iter().any(|line| line.starts_with(name));
    for (name, value) in SPOOL {
        if !says(&spool, name) {
            spool.push(format!("{name} = {value}"));
        }
    }
    let table = |(name, lines): (&str, Vec<String>)| {
        let head = if name == "destination" { "destination.default" } else { name };
        format!("[{head}]\n{}\n", lines.join("\n"))
    };
    Setup {
        sink_port: sink.port,
        listen_lines,
        spool: spool.join("\n"),
        tables: tables.into_iter().map(table).collect(),
        ..Setup::default()
    }
}

/// What `check` has against these settings: the name of the first that it refuses.
fn refused(setup: &Setup) -> Option<(String, String)> {
    let said = Daemon::check(setup).err()?;
    // file:line:column: setting: why
    let mut words = said.lines().next().unwrap_or_default().split(": ").skip(2);
    Some((words.next().unwrap_or_default().to_string(), said))
}

/// How a try to send a message went.
#[derive(Debug)]
enum Tried {
    Promised,
    Refused(String),
}

/// One message to a mailbox and to the next hop; any refusal is an answer.
fn send(daemon: &Daemon, token: &str) -> Tried {
    let Ok(stream) = std::net::TcpStream::connect(daemon.address()) else {
        return Tried::Refused("not connected".into());
    };
    let mut client = Client::over(stream);
    let steps = [
        (String::new(), 220),
        ("EHLO client.test\r\n".into(), 250),
        ("MAIL FROM:<a@client.test>\r\n".into(), 250),
        ("RCPT TO:<probe@local.test>\r\n".into(), 250),
        ("RCPT TO:<probe@sink.test>\r\n".into(), 250),
        ("DATA\r\n".into(), 354),
        (format!("Subject: {token}\r\n\r\nprobe\r\n.\r\n"), 250),
    ];
    for (line, code) in steps {
        if !client.try_send(&line) {
            return Tried::Refused(format!("closed before {line:?}"));
        }
        match client.next_reply() {
            Some(reply) if reply.code == code => {}
            reply => return Tried::Refused(format!("{reply:?} to {line:?}")),
        }
    }
    Tried::Promised
}

/// The mailer starts with these settings and takes a message to the mailbox and to the sink; or it says that there is
/// no room on the disk, and clients hear 452: then `false`.
fn works(setup: Setup, sink: &Sink, what: &str) -> bool {
    let daemon = Daemon::start(setup);
    let token = token("extreme");
    let deadline = Instant::now() + PATIENCE;
    // A short patience or a single place for clients may run out on a loaded machine: a client comes again.
    let promised = loop {
        match send(&daemon, &token) {
            Tried::Promised => break true,
            Tried::Refused(why) if why.contains("452") && daemon.log().contains(NO_ROOM) => {
                break false;
            }
            Tried::Refused(why) => {
                assert!(Instant::now() < deadline, "{what}: {why}\n{}", daemon.log())
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if promised {
        daemon.wait_in_mailbox("probe", &token);
        sink.wait(&token);
    }
    let (time, well) = daemon.stop();
    assert!(well && time < Duration::from_secs(30), "{what}: stopping took {time:?}, well: {well}");
    promised
}

/// One setting alone: it works, or `check` names it or another that it contradicts.
fn alone(set: &Set, sink: &Sink) {
    let setup = setup(std::slice::from_ref(set), sink);
    match refused(&setup) {
        None => drop(works(setup, sink, &format!("{set:?}"))),
        Some((name, said)) => {
            let word = set.name.rsplit('.').next().unwrap();
            let digits = said.chars().any(|c| c.is_ascii_digit());
            assert!(
                said.contains(word) && digits && settings().any(|k| k.name == name),
                "{set:?}: {said}"
            );
        }
    }
}

/// Each numeric setting, a few at once.
#[test]
fn r243_each_setting_at_its_smallest_and_its_largest_value_starts_or_is_refused_by_check() {
    let sink = Sink::start(Script::default());
    let ends = [End::Smallest, End::Largest];
    let sets = settings().flat_map(|setting| ends.iter().filter_map(|end| at(setting, *end)));
    let sets = Mutex::new(sets.collect::<VecDeque<Set>>());
    assert!(sets.lock().unwrap().len() > 80);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let set = sets.lock().unwrap().pop_front();
                    let Some(set) = set else { return };
                    alone(&set, &sink);
                }
            });
        }
    });
}

/// All at one end. What contradicts the others is named by `check`, one after the other, and left at its default.
fn together(end: End, expected: &[&str]) {
    let sink = Sink::start(Script::default());
    let mut sets: Vec<Set> = settings().filter_map(|setting| at(setting, end)).collect();
    let mut left_out: Vec<String> = Vec::new();
    while let Some((name, said)) = refused(&setup(&sets, &sink)) {
        let before = sets.len();
        sets.retain(|set| set.name != name);
        assert!(sets.len() < before, "{end:?}: {said}");
        left_out.push(name);
    }
    assert_eq!(left_out, expected, "{end:?}");
    if !works(setup(&sets, &sink), &sink, &format!("{end:?}")) {
        sets.retain(|set| set.name != LEFT_FREE);
        assert!(works(setup(&sets, &sink), &sink, &format!("{end:?} but {LEFT_FREE}")));
    }
}

#[test]
fn r243_all_settings_at_their_smallest_start_together() {
    together(End::Smallest, &[]);
}

#[test]
fn r243_all_settings_at_their_largest_start_together() {
    together(End::Largest, &[]);
}
