//! Processes that die under load: nothing that got 250 is lost, and mail flows again (X184, X185,
//! X187).
//!
//! Must never call mail lost before the queue has had time to drain.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::load::Load;
use support::{Daemon, PATIENCE, Script, Setup, Sink, until};

/// Mail flows again after at most this, on a machine that does much else besides.
const PAUSE_MAX: Duration = Duration::from_secs(15);

fn start() -> (Daemon, Sink) {
    let sink = Sink::start(Script::default());
    let setup = Setup {
        sink_port: sink.port,
        // What failed because a process died is tried again at once.
        tables: "[retry]\nfirst = \"1s\"\nlongest = \"2s\"\n".into(),
        ..Setup::default()
    };
    (Daemon::start(setup), sink)
}

/// The tokens of the load that have come to the sink.
fn at_sink(sink: &Sink) -> BTreeSet<String> {
    sink.mails().iter().filter_map(|mail| subject(&mail.text())).collect()
}

fn in_mailbox(daemon: &Daemon, user: &str) -> BTreeSet<String> {
    daemon.mailbox(user).iter().filter_map(|text| subject(text)).collect()
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

/// Kills all processes of a role three times under load.
fn survives_the_death_of(role: &str, recipient: &str) {
    let (daemon, sink) = start();
    let load = Load::start(4, daemon.port, recipient);
    load.wait_for_more(20);
    for _ in 0..3 {
        let killed = until(role, || {
            let pids = daemon.pids_of(role);
            (!pids.is_empty()).then_some(pids)
        });
        for pid in &killed {
            support::daemon::signal_to(*pid, libc::SIGKILL);
        }
        until("another process of the role", || {
            let pids = daemon.pids_of(role);
            (!pids.is_empty() && pids.iter().all(|pid| !killed.contains(pid))).then_some(())
        });
        let pause = load.wait_for_more(20);
        assert!(pause < PAUSE_MAX, "no mail for {pause:?} after {role} was killed");
    }
    let promised = load.stop();
    match recipient.strip_suffix("@local.test") {
        Some(user) => nothing_is_lost(&promised, || in_mailbox(&daemon, user)),
        None => nothing_is_lost(&promised, || at_sink(&sink)),
    }
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    daemon.works();
}

#[test]
fn x185_a_killed_queue_process_loses_nothing() {
    survives_the_death_of("queue", "b@sink.test");
}

#[test]
fn x185_a_killed_receive_process_loses_nothing() {
    survives_the_death_of("receive", "b@sink.test");
}

#[test]
fn x185_a_killed_send_process_loses_nothing() {
    survives_the_death_of("send", "b@sink.test");
}

#[test]
fn x185_a_killed_local_process_loses_nothing() {
    survives_the_death_of("local", "box@local.test");
}

#[test]
fn x184_a_killed_daemon_started_again_loses_nothing() {
    let (daemon, sink) = start();
    let load = Load::start(4, daemon.port, "b@sink.test");
    for _ in 0..3 {
        load.wait_for_more(20);
        daemon.kill();
        daemon.start_again();
    }
    load.wait_for_more(20);
    nothing_is_lost(&load.stop(), || at_sink(&sink));
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
}

#[test]
fn x187_a_stop_under_load_takes_less_than_ten_seconds_and_loses_nothing() {
    let (daemon, sink) = start();
    let load = Load::start(4, daemon.port, "b@sink.test");
    load.wait_for_more(50);
    let (time, well) = daemon.stop();
    assert!(well && time < Duration::from_secs(10), "{time:?} {well}");
    daemon.start_again();
    load.wait_for_more(20);
    nothing_is_lost(&load.stop(), || at_sink(&sink));
}
