//! Every numeric setting at its smallest and at its largest value, alone and together with all others.
//!
//! Must never exclude a setting by name: the list is the table of settings.

#![allow(clippy::unwrap_used)]

mod support;

use settings::setting::{Range, Setting};
use settings::settings;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use support::{Client, Daemon, PATIENCE, Script, Setup, Sink, token};

/// Upper bound on the mailers that run at the same time. Each waits for a second or two and uses little CPU
/// time.
const AT_ONCE: usize = 4;
/// The settings that require more disk space at their largest value than any test has. Mail is then refused at
/// run time, and the log says why.
const LEFT_FREE: &str = "spool.keep_free_bytes";
const NO_ROOM: &str = "no room for another segment";

/// Which end of the ranges is tested.
#[derive(Clone, Copy, Debug)]
enum End {
    Smallest,
    Largest,
}

/// A setting and its value as written in the file.
#[derive(Clone, Debug)]
struct Set {
    name: &'static str,
    value: String,
}

/// Returns the setting with the value at this end of its range, or `None` if it is not numeric.
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

/// The settings of all mailers here: they use little disk space and leave some of the machine's limits to
/// others.
const SPOOL: &[(&str, &str)] = &[
    ("segment_bytes", "\"8MiB\""),
    ("batch_bytes_max", "\"1MiB\""),
    ("reserve_bytes", "\"8MiB\""),
    ("snapshot_log_bytes", "\"16MiB\""),
    ("keep_free_bytes", "\"512MiB\""),
];

/// Returns a settings file with these lines and the lines that each mailer of a test needs.
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

/// Returns the name of the first setting that `check` refuses.
fn refused(setup: &Setup) -> Option<(String, String)> {
    let said = Daemon::check(setup).err()?;
    // The format is file:line:column: setting: reason.
    let mut words = said.lines().next().unwrap_or_default().split(": ").skip(2);
    Some((words.next().unwrap_or_default().to_string(), said))
}

/// The result of an attempt to send a message.
#[derive(Debug)]
enum Tried {
    Promised,
    Refused(String),
}

/// Sends one message to a mailbox and one to the next hop. Any refusal counts as an answer.
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

/// Starts the mailer with these settings and sends a message to the mailbox and to the sink. Returns false if
/// the mailer has no room on the disk and answers clients with 452.
fn works(setup: Setup, sink: &Sink, what: &str) -> bool {
    let daemon = Daemon::start(setup);
    let token = token("extreme");
    let deadline = Instant::now() + PATIENCE;
    // With a short timeout or a limit of one client a connection may fail on a loaded machine, so the client
    // tries again.
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

/// Tests one setting alone: the mailer works, or `check` names this setting or another one that it contradicts.
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

/// Tests each numeric setting, a few at the same time.
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

/// Tests all settings at the same end. A setting that `check` refuses is set back to its default, one after the
/// other.
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
