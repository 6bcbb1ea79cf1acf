//! Processes that are stopped, signalled, killed and restarted under load: X187, X189 to X192, X196, X202,
//! X204.
//!
//! Must never count a connection as refused that was accepted and then closed with a reply.

use crate::field::{Field, Promised, RETRY};
use crate::support::daemon::{lives, signal_to};
use crate::support::{Client, Daemon, Script, Setup, Sink, free_port, token, until};
use needs::Need;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Stops the load and asserts that nothing is lost. Returns the number of duplicates.
fn settle(field: &Field, load: crate::field::Loads) -> usize {
    let mut promised = Promised::default();
    load.stop(&mut promised);
    let count = field.judge(&promised);
    assert!(count.lost.is_empty(), "lost {:?}", count.lost);
    field.daemon.works();
    count.twice
}

#[test]
fn x187_who_is_idle_hears_421_at_a_stop_and_who_is_in_a_message_may_end_it() {
    let field = Field::start(Setup::default());
    let daemon = &field.daemon;
    let mut idle = Client::ready(daemon.port);
    let mut busy = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
    let token = token("busy");
    busy.send(format!("Subject: {token}\r\n\r\n"));
    let stopping = std::thread::scope(|scope| {
        let stopping = scope.spawn(|| daemon.stop());
        idle.expect(421);
        assert_eq!(idle.next_reply(), None);
        busy.send("end\r\n.\r\n");
        busy.expect(250);
        busy.expect(421);
        stopping.join().unwrap()
    });
    assert!(stopping.1 && stopping.0 < Duration::from_secs(10), "{stopping:?}");
    assert!(TcpStream::connect(("127.0.0.1", daemon.port)).is_err(), "still listening");
    daemon.start_again();
    field.sink.wait(&token);
}

/// The fault says ten minutes. This is longer than every timeout of clients with these settings.
const STOPPED: Duration = Duration::from_secs(3);

#[test]
fn x189_all_or_one_process_stopped_for_long_and_continued_loses_and_doubles_nothing() {
    let limits =
        "[limits]\ncommand_timeout = \"2s\"\ndata_timeout = \"2s\"\ncommit_timeout = \"2s\"\n";
    let field = Field::start(Setup { tables: limits.into(), ..Setup::default() });
    let daemon = &field.daemon;
    let mut idle = Client::ready(daemon.port);
    let load = field.load(2);
    load.wait_for_more(5);
    let pids = daemon.pids();
    daemon.signal_all(libc::SIGSTOP);
    std::thread::sleep(STOPPED);
    daemon.signal_all(libc::SIGCONT);
    idle.expect(421);
    load.wait_for_more(5);
    for role in ["queue", "send", "local", "receive"] {
        daemon.pids_of(role).iter().for_each(|pid| signal_to(*pid, libc::SIGSTOP));
        std::thread::sleep(STOPPED);
        daemon.pids_of(role).iter().for_each(|pid| signal_to(*pid, libc::SIGCONT));
        load.wait_for_more(5);
    }
    assert_eq!(settle(&field, load), 0, "came twice");
    assert_eq!(daemon.pids(), pids, "nobody was started again");
}

#[test]
fn x190_signals_that_mean_nothing_end_no_process() {
    let field = Field::start(Setup::default());
    let daemon = &field.daemon;
    let pids = daemon.pids();
    let load = field.load(1);
    for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH] {
        load.wait_for_more(2);
        daemon.signal_all(signal);
    }
    let children: Vec<u32> = pids.iter().copied().filter(|pid| *pid != daemon.pid()).collect();
    for signal in [libc::SIGHUP, libc::SIGINT] {
        load.wait_for_more(2);
        children.iter().for_each(|pid| signal_to(*pid, signal));
    }
    load.wait_for_more(2);
    assert_eq!(settle(&field, load), 0);
    assert_eq!(daemon.pids(), pids, "{}", daemon.log());
}

/// The number of open sessions when the kernel kills.
const SESSIONS: usize = 1_000;

#[test]
fn x191_killed_as_by_the_kernel_during_a_thousand_sessions_loses_nothing() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let field = Field::start(Setup::default());
    let daemon = &field.daemon;
    let sessions: Vec<Client> = (0..SESSIONS)
        .map(|_| {
            let mut client = Client::in_data(daemon.port, "a@many.test", "half@sink.test");
            client.send("Subject: half\r\n\r\nnever ended\r\n");
            client
        })
        .collect();
    let load = field.load(2);
    load.wait_for_more(5);
    // The kernel first kills one process, the largest, and then all of them.
    for role in ["receive", "queue"] {
        daemon.pids_of(role).iter().for_each(|pid| signal_to(*pid, libc::SIGKILL));
        load.wait_for_more(2);
    }
    daemon.kill_all();
    daemon.start_again();
    load.wait_for_more(2);
    drop(sessions);
    settle(&field, load);
    assert!(daemon.queue(&["--recipient", "half@sink.test"]).is_empty());
    assert!(field.sink.with("half@sink.test").is_empty(), "half a message was delivered");
}

/// Connects repeatedly until stopped. Returns the number of connections and of refused ones.
fn knock(port: u16, stop: &AtomicBool, knocks: &AtomicU64, refused: &AtomicU64) {
    while !stop.load(SeqCst) {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => drop(stream),
            Err(_) => drop(refused.fetch_add(1, SeqCst)),
        }
        knocks.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Restarts three times under load. Returns the number of connections and of refused ones.
fn upgrade(setup: Setup) -> (u64, u64) {
    let field = Field::start(setup);
    let daemon = &field.daemon;
    let (stop, knocks, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| knock(daemon.port, &stop, &knocks, &refused));
        let load = field.load(2);
        for _ in 0..3 {
            load.wait_for_more(3);
            let (time, well) = daemon.stop();
            assert!(well && time < Duration::from_secs(10), "{time:?}");
            daemon.start_again();
        }
        load.wait_for_more(3);
        stop.store(true, SeqCst);
        // Mail without a result when the timeout of a stop ends is delivered again: on a busy machine one
        // message per stop.
        let doubled = settle(&field, load);
        assert!(doubled <= 3, "{doubled} came twice over three stops in good order");
    });
    (knocks.into_inner(), refused.into_inner())
}

#[test]
fn x192_an_upgrade_under_load_with_the_port_held_by_the_service_manager_refuses_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (knocks, refused) =
        upgrade(Setup { listener: Some(Arc::new(listener)), ..Setup::default() });
    println!("port held: {knocks} connections, {refused} refused");
    assert_eq!(refused, 0);
}

#[test]
fn x192_an_upgrade_under_load_loses_nothing_and_refuses_connections_while_nobody_listens() {
    let (knocks, refused) = upgrade(Setup::default());
    println!("port closed in between: {knocks} connections, {refused} refused");
    assert!(refused > 0 && refused < knocks, "{refused} of {knocks} refused");
}

/// `POSTHASTE_RESTARTS=100 cargo test --release -p daemon --test faults x196` is the long run.
#[test]
fn x196_killed_at_random_moments_under_load_again_and_again_keeps_all_promises() {
    let rounds = number("POSTHASTE_RESTARTS", 5);
    let field = Field::start(Setup::default());
    let load = field.load(3);
    load.wait_for_more(5);
    let mut twice = 0;
    for round in 0..rounds {
        std::thread::sleep(Duration::from_micros(rand_micros(round)));
        field.daemon.kill_all();
        field.daemon.start_again();
        load.wait_for_more(1);
    }
    let mut promised = Promised::default();
    load.stop(&mut promised);
    let count = field.judge(&promised);
    twice += count.twice;
    println!(
        "{rounds} kills, {} promised, {} lost, {twice} came twice",
        count.promised,
        count.lost.len()
    );
    assert!(count.lost.is_empty(), "lost {:?}", count.lost);
    assert!(twice <= 100 * rounds as usize, "{twice} came twice");
}

/// Up to 300 ms, different each time and in each run.
fn rand_micros(round: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(round) % 300_000
}

#[test]
fn x202_root_that_cannot_become_another_user_is_refused_at_the_start() {
    if !needs::met(&[Need::Root("something to give up")]) {
        return;
    }
    let field = Field::start(Setup::default());
    let settings = std::fs::read_to_string(field.daemon.directory.join("posthaste.toml")).unwrap();
    let file = field.daemon.directory.join("powerless.toml");
    let port = free_port();
    let settings = settings
        .replace("/state\"", "/powerless\"")
        .replace(&format!("127.0.0.1:{}\"", field.daemon.port), &format!("127.0.0.1:{port}\""));
    std::fs::write(&file, settings).unwrap();
    for capability in ["setuid", "setgid", "sys_chroot"] {
        let without = format!("--bounding-set=-{capability}");
        let mut child = Command::new("setpriv")
            .args([&without, env!("CARGO_BIN_EXE_posthaste"), "run", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("it to end", || child.try_wait().unwrap());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code != 0), "{capability}: {said}");
        assert!(said.contains("cannot"), "{capability}: {said}");
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it accepts mail nevertheless");
    }
}

#[test]
fn x204_a_spool_that_another_host_or_another_path_has_locked_is_refused() {
    let sink = Sink::start(Script::default());
    let daemon =
        Daemon::start(Setup { sink_port: sink.port, tables: RETRY.into(), ..Setup::default() });
    let settings = std::fs::read_to_string(daemon.directory.join("posthaste.toml")).unwrap();
    let run = |settings: &str| {
        let file = daemon.directory.join("other.toml");
        std::fs::write(&file, settings).unwrap();
        let output = daemon.command(&["run", "--config", file.to_str().unwrap()]);
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
    };
    let elsewhere = settings
        .replace(&format!("127.0.0.1:{}\"", daemon.port), &format!("127.0.0.1:{}\"", free_port()));
    // The same directory by another name.
    std::os::unix::fs::symlink(daemon.directory.join("state"), daemon.directory.join("alias"))
        .unwrap();
    let (said, code) = run(&elsewhere.replace("/state\"", "/alias/../state/.\""));
    assert!(said.contains("is locked") && code.is_some_and(|code| code != 0), "{said} {code:?}");
    daemon.works();
    // Only the lock of the spool, as on a host that shares only that directory.
    let (_, well) = daemon.stop();
    assert!(well);
    let lock = std::fs::File::open(daemon.directory.join("state/spool/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (said, code) = run(&elsewhere);
    assert!(said.contains("lock") && code.is_some_and(|code| code != 0), "{said} {code:?}");
    drop(lock);
    daemon.start_again();
    daemon.works();
    assert!(daemon.pids().iter().all(lives));
}
