//! The mailer is told to stop, to read its settings again, or to start a second time. Mail that got 250 is not
//! lost, and errors are reported (N106, N117, S140, X187, X188). Processes that die are tested in `kill.rs`.
//!
//! Must never report mail as lost before the queue has had time to drain.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::load::Load;
use support::{Client, Daemon, PATIENCE, Script, Setup, Sink, free_port, token, until};

/// Upper bound on the duration of a stop.
const STOP_MAX: Duration = Duration::from_secs(10);

fn start() -> (Daemon, Sink) {
    let sink = Sink::start(Script::default());
    let setup = Setup {
        sink_port: sink.port,
        // Messages that failed because a process died are tried again at once.
        tables: "[retry]\nfirst = \"1s\"\nlongest = \"2s\"\n".into(),
        ..Setup::default()
    };
    (Daemon::start(setup), sink)
}

/// The tokens of the load that have arrived at the sink.
fn at_sink(sink: &Sink) -> BTreeSet<String> {
    sink.mails().iter().filter_map(|mail| subject(&mail.text())).collect()
}

fn subject(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("Subject: ")).map(String::from)
}

fn nothing_is_lost(promised: &BTreeSet<String>, arrived: impl Fn() -> BTreeSet<String>) {
    let deadline = Instant::now() + PATIENCE * 2;
    loop {
        let arrived = arrived();
        let missing: Vec<&String> = promised.difference(&arrived).collect();
        if missing.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{} of {} promised messages are lost, such as {}",
            missing.len(),
            promised.len(),
            missing[0]
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn x187_a_stop_under_load_takes_less_than_ten_seconds_and_loses_nothing() {
    let (daemon, sink) = start();
    let load = Load::start(4, daemon.port, "b@sink.test");
    load.wait_for_more(50);
    let (time, well) = daemon.stop();
    assert!(well && time < STOP_MAX, "{time:?} {well}");
    daemon.start_again();
    load.wait_for_more(20);
    nothing_is_lost(&load.stop(), || at_sink(&sink));
}

#[test]
fn x187_a_second_stop_changes_nothing_about_the_first() {
    let (daemon, sink) = start();
    let load = Load::start(4, daemon.port, "b@sink.test");
    load.wait_for_more(50);
    daemon.signal(libc::SIGTERM);
    std::thread::sleep(Duration::from_millis(5));
    let (time, well) = daemon.stop();
    assert!(well && time < STOP_MAX, "{time:?} {well}");
    daemon.start_again();
    load.wait_for_more(20);
    nothing_is_lost(&load.stop(), || at_sink(&sink));
}

#[test]
fn x187_a_stop_at_any_moment_of_a_recovery_is_short_and_loses_nothing() {
    let (daemon, sink) = start();
    let load = Load::start(4, daemon.port, "b@sink.test");
    for moment in [0, 10, 30, 60, 120] {
        load.wait_for_more(50);
        daemon.kill_and_start_again();
        std::thread::sleep(Duration::from_millis(moment));
        // Before master handles signals, a signal ends it as it ends any process. It has started no process
        // then.
        let has_begun = !daemon.pids_of("queue").is_empty();
        let (time, well) = daemon.stop();
        assert!((well || !has_begun) && time < STOP_MAX, "after {moment} ms: {time:?} {well}");
        daemon.start_again();
    }
    nothing_is_lost(&load.stop(), || at_sink(&sink));
}

fn settings_of(daemon: &Daemon) -> PathBuf {
    daemon.directory.join("posthaste.toml")
}

/// Master and the roles that stay. The process that reads the settings comes and goes with each reload.
fn lasting(daemon: &Daemon) -> Vec<u32> {
    let roles = ["queue", "send", "local", "receive"];
    roles.iter().flat_map(|role| daemon.pids_of(role)).chain([daemon.pid()]).collect()
}

fn times_in_log(daemon: &Daemon, text: &str) -> usize {
    daemon.log().matches(text).count()
}

/// Writes the settings, lets the daemon read them again, and waits for master's report.
fn reload(daemon: &Daemon, settings: &[u8], said: &str) {
    std::fs::write(settings_of(daemon), settings).unwrap();
    let before = times_in_log(daemon, said);
    daemon.signal(libc::SIGHUP);
    until(said, || (times_in_log(daemon, said) > before).then_some(()));
}

#[test]
fn n117_a_bad_file_changes_nothing() {
    let (daemon, _sink) = start();
    let good = std::fs::read_to_string(settings_of(&daemon)).unwrap();
    let pids = lasting(&daemon);
    let unknown = format!("{good}\n[retry_]\nfirst = \"1s\"\n");
    let half = &good[..good.find("maildir:").unwrap()];
    let elsewhere = good.replace("/state\"", "/elsewhere\"");
    let bad_text = [good.as_bytes(), b"# \xff\xfe\n"].concat();
    for bad in [unknown.as_bytes(), half.as_bytes(), b"", elsewhere.as_bytes(), &bad_text] {
        reload(&daemon, bad, "settings not reloaded");
        daemon.works();
    }
    std::fs::remove_file(settings_of(&daemon)).unwrap();
    let before = times_in_log(&daemon, "settings not reloaded");
    daemon.signal(libc::SIGHUP);
    until("a word about the missing file", || {
        (times_in_log(&daemon, "settings not reloaded") > before).then_some(())
    });
    reload(&daemon, good.as_bytes(), "settings reloaded");
    daemon.works();
    assert_eq!(lasting(&daemon), pids, "a reload starts nobody again");
}

#[test]
fn a_reload_opens_and_closes_ports_and_routes_new_mail_anew() {
    let (daemon, old_sink) = start();
    let new_sink = Sink::start(Script::default());
    let old = std::fs::read_to_string(settings_of(&daemon)).unwrap();
    let port = free_port();
    let moved = old.replace(&old_sink.port.to_string(), &new_sink.port.to_string());
    let more = format!("{moved}\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n");
    reload(&daemon, more.as_bytes(), "settings reloaded");
    let token = token("moved");
    until("the new port and the new route", || {
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        drop(stream);
        let mut client = Client::in_data(port, "a@client.test", "b@sink.test");
        client.send(format!("Subject: {token}\r\n\r\nx\r\n.\r\n"));
        client.expect(250);
        client.ask("QUIT", 221);
        (!new_sink.with(&token).is_empty()).then_some(())
    });
    reload(&daemon, moved.as_bytes(), "settings reloaded");
    until("the port to close", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).err().map(drop)
    });
    daemon.works();
}

#[test]
fn x188_a_storm_of_reloads_drops_nothing_leaks_nothing_and_ends_with_the_last_settings() {
    let (daemon, sink) = start();
    let settings = std::fs::read_to_string(settings_of(&daemon)).unwrap();
    let load = Load::start(4, daemon.port, "b@sink.test");
    load.wait_for_more(20);
    let storm = std::env::var("POSTHASTE_STORM_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(storm.unwrap_or(3));
    let pids = lasting(&daemon);
    daemon.signal(libc::SIGHUP);
    daemon.wait_for_log(&["settings reloaded"]);
    let open_before = open_files(&pids);
    while Instant::now() < end {
        daemon.signal(libc::SIGHUP);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(lasting(&daemon), pids, "the same settings start nobody again");
    let last = settings.replace("mx.local.test", "last.local.test");
    std::fs::write(settings_of(&daemon), last).unwrap();
    daemon.signal(libc::SIGHUP);
    until("the last settings", || {
        let greeting = Client::connect(daemon.port).next_reply()?;
        greeting.lines.concat().contains("last.local.test").then_some(())
    });
    assert_eq!(load.failed(), 0, "connections broken by a reload");
    nothing_is_lost(&load.stop(), || at_sink(&sink));
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    let reloads = times_in_log(&daemon, "settings reloaded");
    assert!(reloads > 10, "{reloads} reloads");
    until("no descriptor to be left behind", || {
        (open_files(&lasting(&daemon)) <= open_before + OPEN_FILES_SLACK).then_some(())
    });
}

/// The connections of the load come and go.
const OPEN_FILES_SLACK: usize = 20;

fn open_files(pids: &[u32]) -> usize {
    let of = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    pids.iter().map(of).sum()
}

/// Starts another mailer with these settings and waits for its end. Returns its messages and its exit code.
fn another(daemon: &Daemon, settings: &str) -> (String, Option<i32>) {
    let file = daemon.directory.join("another.toml");
    std::fs::write(&file, settings).unwrap();
    let output = daemon.command(&["run", "--config", file.to_str().unwrap()]);
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

#[test]
fn s140_a_second_mailer_on_the_same_spool_says_so_and_leaves_the_first_alone() {
    let (daemon, _sink) = start();
    let settings = std::fs::read_to_string(settings_of(&daemon)).unwrap();
    let other_port = settings
        .replace(&format!("127.0.0.1:{}\"", daemon.port), &format!("127.0.0.1:{}\"", free_port()));
    for settings in [&settings, &other_port] {
        let (said, code) = another(&daemon, settings);
        assert!(said.contains("is locked"), "{said}");
        assert!(code.is_some_and(|code| code != 0), "{code:?}");
        daemon.works();
        // Through the control socket, which still belongs to the first mailer.
        until("an empty queue", || (daemon.queued() == 0).then_some(()));
    }
}

#[test]
fn n106_a_port_in_use_ends_the_start_with_an_error_that_names_it() {
    let (daemon, _sink) = start();
    let settings = std::fs::read_to_string(settings_of(&daemon)).unwrap();
    let (said, code) = another(&daemon, &settings.replace("/state\"", "/another\""));
    assert!(said.contains(&format!("port {} is in use", daemon.port)), "{said}");
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    daemon.works();
}
