//! Streams between running processes that are poisoned or lost, processes that send what they must not send,
//! and envelopes at their bound: R205, R206, R220, R241.
//!
//! The test plays a process that was taken over: it copies a descriptor of a running process (pidfd_getfd(2))
//! and speaks in its place.
//!
//! Must never stop the daemon.

use crate::field::{Field, Promised, RETRY};
use crate::support::daemon::{lives, signal_to};
use crate::support::{Client, Daemon, Mail, Script, Setup, Sink, token, until};
use link::control::ToMaster;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The number of the control socket in each child.
const CONTROL_FD: i32 = 3;

/// Copies a descriptor of another process.
fn seize(pid: u32, fd: i32) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
    let flags = rustix::process::PidfdGetfdFlags::empty();
    rustix::process::pidfd_getfd(process, fd, flags).ok()
}

/// The descriptors of streams to other processes of the daemon: Unix sockets with the large buffer that only
/// these have.
fn streams_of(pid: u32) -> Vec<UnixStream> {
    use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_send_buffer_size};
    let Ok(names) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let numbers = names.flatten().filter_map(|name| name.file_name().to_str()?.parse().ok());
    let is_stream = |fd: &OwnedFd| {
        socket_domain(fd) == Ok(rustix::net::AddressFamily::UNIX)
            && rustix::net::sockopt::socket_type(fd) == Ok(rustix::net::SocketType::STREAM)
            && socket_acceptconn(fd) == Ok(false)
            && socket_send_buffer_size(fd).is_ok_and(|bytes| bytes > usual_buffer())
    };
    let seized = numbers.filter_map(|fd| seize(pid, fd)).filter(is_stream);
    seized.map(UnixStream::from).collect()
}

fn usual_buffer() -> usize {
    let (one, _) = UnixStream::pair().unwrap();
    rustix::net::sockopt::socket_send_buffer_size(one.as_fd()).unwrap()
}

/// True if descriptors of other processes may be copied here. Otherwise prints that the test is skipped.
fn may_seize(daemon: &Daemon) -> bool {
    let may = seize(daemon.pids_of("send")[0], CONTROL_FD).is_some();
    if !may {
        let name = std::thread::current().name().unwrap_or("a test").to_string();
        let line = format!("SKIPPED {name}: it needs pidfd_getfd(2), to speak as a process\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    may
}

fn status(daemon: &Daemon) -> Value {
    let output = daemon.command(&["status", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// The number of times that the stream of this role was reconnected, and whether it is connected.
fn renewals(daemon: &Daemon, role: &str) -> (u64, bool, String) {
    let status = status(daemon);
    let streams = status["streams"].as_array().cloned().unwrap_or_default();
    let one = streams.iter().find(|one| one["role"] == role).cloned().unwrap_or_default();
    let loss = one["loss"].as_str().unwrap_or_default().to_string();
    (one["renewals"].as_u64().unwrap_or(0), one["up"] == true, loss)
}

/// A frame whose length exceeds the bound of every end.
const POISON: [u8; 16] = [0xff; 16];

#[test]
fn r206_a_poisoned_stream_of_each_process_is_begun_again_and_nothing_is_lost_or_refused() {
    let field = Field::start(Setup::default());
    let daemon = &field.daemon;
    if !may_seize(daemon) {
        return;
    }
    let pids = daemon.pids();
    let load = field.load(2);
    for role in ["receive", "send", "local"] {
        for from_queue in [false, true] {
            load.wait_for_more(3);
            let before = renewals(daemon, role).0;
            let holder = if from_queue { "queue" } else { role };
            let ours = streams_of(daemon.pids_of(holder)[0]);
            assert!(!ours.is_empty(), "{holder} has streams");
            // Each stream is poisoned from queue's side.
            ours.iter().for_each(|mut stream| drop(stream.write_all(&POISON)));
            let now = until("the stream to be begun again", || {
                let now = renewals(daemon, role);
                (now.0 > before && now.1).then_some(now)
            });
            assert!(["frame too long", "the stream was closed"].contains(&&*now.2), "{now:?}");
            load.wait_for_more(3);
        }
    }
    daemon.wait_for_log(&["the stream between queue and receive 0 was lost", "replaced"]);
    let mut promised = Promised::default();
    load.stop(&mut promised);
    let count = field.judge(&promised);
    assert!(count.lost.is_empty(), "lost {:?}", count.lost);
    assert_eq!(daemon.pids(), pids, "no process was started again");
    daemon.works();
}

#[test]
#[cfg(debug_assertions)]
fn r206_a_client_that_waits_for_its_promise_has_it_over_the_next_stream() {
    use crate::support::faults::{FREEZE, Faults, Point};
    let faults = Faults::new();
    let field = Field::start(Setup { environment: faults.environment(), ..Setup::default() });
    let daemon = &field.daemon;
    if !may_seize(daemon) {
        return;
    }
    let mut client = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
    faults.arm(FREEZE, &[(Point::BeforeWrite, 1)]);
    let token = token("waits");
    client.send(format!("Subject: {token}\r\n\r\nx\r\n.\r\n"));
    faults.wait_until_done("the commit");
    for mut stream in streams_of(daemon.pids_of("receive")[0]) {
        stream.write_all(&POISON).unwrap();
    }
    faults.thaw();
    client.expect(250);
    field.sink.wait(&token);
    assert_eq!(field.sink.with(&token).len(), 1);
}

/// The lock that a sink waits for before it answers a message.
struct Gate {
    is_reached: AtomicBool,
    is_open: AtomicBool,
}

impl Gate {
    const fn closed() -> Gate {
        Gate { is_reached: AtomicBool::new(false), is_open: AtomicBool::new(false) }
    }

    fn pass(&self) {
        self.is_reached.store(true, Relaxed);
        until("the gate to be opened", || self.is_open.load(Relaxed).then_some(()));
    }

    fn open(&self) {
        self.is_open.store(true, Relaxed);
    }

    /// Starts such a sink, and a daemon with one process that sends to it.
    fn before_a_sink(&self, end: fn(&Mail) -> String) -> (Sink, Daemon) {
        let sink = Sink::start(Script { end, ..Script::default() });
        let tables = format!("[processes]\nsend = 1\n{RETRY}");
        let daemon = Daemon::start(Setup { sink_port: sink.port, tables, ..Setup::default() });
        (sink, daemon)
    }

    /// Lets the daemon try a message, which waits at the sink. Returns its queue id.
    fn bring_a_message(&self, daemon: &Daemon) -> String {
        let token = token("outlives");
        let mut client = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
        client.send(format!("Subject: {token}\r\n\r\nx\r\n.\r\n"));
        client.expect(250);
        until("the message to be at the sink", || self.is_reached.load(Relaxed).then_some(()));
        token
    }
}

#[test]
fn r206_what_a_process_finds_while_it_drains_is_told_over_the_next_stream() {
    static GATE: Gate = Gate::closed();
    let (sink, daemon) = GATE.before_a_sink(|_| {
        GATE.pass();
        "250 2.0.0 Ok".to_string()
    });
    if !may_seize(&daemon) {
        return;
    }
    let (before, token) = (daemon.pids_of("send"), GATE.bring_a_message(&daemon));
    let file = daemon.directory.join("posthaste.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("mx.local.test", "other.local.test")).unwrap();
    daemon.signal(libc::SIGHUP);
    daemon.wait_for_log(&["settings have changed: ending what is under way"]);
    let mut client = Client::in_data(daemon.port, "a@client.test", "late@sink.test");
    client.send("Subject: late\r\n\r\nx\r\n.\r\n");
    client.expect(250);
    until("both to be given out", || (daemon.summary()["attempts_in_flight"] == 2).then_some(()));
    for mut stream in streams_of(before[0]) {
        stream.write_all(&POISON).unwrap();
    }
    daemon.wait_for_log(&["the stream between queue and send 0 was lost", "replaced"]);
    GATE.open();
    sink.wait(&token);
    until("the next process", || {
        let now = daemon.pids_of("send");
        (!lives(&before[0]) && !now.is_empty() && now != before).then_some(())
    });
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    assert_eq!(sink.with(&token).len(), 1, "{}", daemon.log());
    // The process has begun nothing that it got while it was draining.
    let late = daemon.wait_for_log(&["late@sink.test", "delivered"]);
    assert!(!late.contains(&format!("send[{}]", before[0])), "{late}");
    daemon.works();
}

#[test]
fn an_attempt_that_a_drain_cuts_short_is_made_again_and_its_message_is_not_held_for_it() {
    static GATE: Gate = Gate::closed();
    let end = |_: &Mail| {
        GATE.pass();
        "250 2.0.0 Ok".to_string()
    };
    let sink = Sink::start(Script { end, ..Script::default() });
    let tables = format!("[processes]\nsend = 1\n[queue]\nlosses_max = 1\n{RETRY}");
    let daemon = Daemon::start(Setup { sink_port: sink.port, tables, ..Setup::default() });
    let (before, _) = (daemon.pids_of("send"), GATE.bring_a_message(&daemon));
    let file = daemon.directory.join("posthaste.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("mx.local.test", "other.local.test")).unwrap();
    daemon.signal(libc::SIGHUP);
    // The next hop answers after the end of the drain.
    until("the next process", || {
        let now = daemon.pids_of("send");
        (!lives(&before[0]) && !now.is_empty() && now != before).then_some(())
    });
    GATE.open();
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    daemon.works();
}

/// The largest number of processes that the settings allow, each with a stream that was lost once. Queue must
/// hear from all of them when it starts.
#[test]
fn r206_a_queue_process_is_started_again_beside_as_many_others_as_there_may_be() {
    let tables = format!("[processes]\nreceive = 64\nsend = 64\n{RETRY}");
    let field = Field::start(Setup { tables, ..Setup::default() });
    let daemon = &field.daemon;
    if !may_seize(daemon) {
        return;
    }
    let all = 64 + 64 + 1;
    let up = |times| {
        let streams = status(daemon)["streams"].as_array().cloned().unwrap_or_default();
        let is_up = |one: &&Value| one["up"] == true && one["renewals"].as_u64() >= Some(times);
        (streams.iter().filter(is_up).count() == all).then_some(())
    };
    until("all streams", || up(0));
    let queue = daemon.pids_of("queue")[0];
    streams_of(queue).iter().for_each(|mut stream| drop(stream.write_all(&POISON)));
    until("all streams to be begun again", || up(1));
    signal_to(queue, libc::SIGKILL);
    until("all streams of the next queue process", || {
        (daemon.pids_of("queue") != [queue]).then(|| up(1)).flatten()
    });
    assert!(!daemon.log().contains("cannot start"), "{}", daemon.log());
    daemon.works();
}

/// Leaves a process no descriptor for new files. Returns its previous limit.
fn leave_no_descriptor(pid: u32) -> Rlimit {
    let taken = |fd: &u64| Path::new(&format!("/proc/{pid}/fd/{fd}")).exists();
    let free = (0..).find(|fd| !taken(fd));
    set_limit(pid, Rlimit { current: free, maximum: getrlimit(Resource::Nofile).maximum })
}

fn set_limit(pid: u32, limit: Rlimit) -> Rlimit {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
    prlimit(pid, Resource::Nofile, limit).unwrap()
}

#[test]
fn r206_a_stream_that_could_not_be_made_is_begun_again_and_what_was_tried_meanwhile_is_not_doubled()
{
    static GATE: Gate = Gate::closed();
    let (sink, daemon) = GATE.before_a_sink(|_| {
        GATE.pass();
        "250 2.0.0 Ok".to_string()
    });
    if !may_seize(&daemon) {
        return;
    }
    let (pids, token) = (daemon.pids(), GATE.bring_a_message(&daemon));
    let limit = leave_no_descriptor(daemon.pid());
    for mut stream in streams_of(daemon.pids_of("send")[0]) {
        stream.write_all(&POISON).unwrap();
    }
    // Longer than queue waits for the process to reconnect.
    let failed = || daemon.log().matches("no stream between queue and send 0: ").count();
    until("four failures to make a stream", || (failed() >= 4).then_some(()));
    GATE.open();
    sink.wait(&token);
    assert!(!renewals(&daemon, "send").1, "there is none");
    set_limit(daemon.pid(), limit);
    until("the stream to be begun again", || {
        let (renewals, up, _) = renewals(&daemon, "send");
        (renewals == 1 && up).then_some(())
    });
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    assert_eq!(sink.with(&token).len(), 1, "{}", daemon.log());
    assert_eq!(daemon.pids(), pids, "no process was started again");
    daemon.works();
}

#[test]
fn r220_a_process_that_says_that_all_must_end_is_started_again_and_mail_flows() {
    let field = Field::start(Setup::default());
    let daemon = &field.daemon;
    if !may_seize(daemon) {
        return;
    }
    let fatal = ToMaster::Fatal { text: "enough".into() };
    let fatal = postcard::to_stdvec(&fatal).unwrap();
    for words in [&fatal[..], b"\xff\xff\xff"] {
        for role in ["receive", "send", "local", "queue"] {
            daemon.works();
            let before = daemon.pids_of(role)[0];
            let control = seize(before, CONTROL_FD).unwrap();
            rustix::net::send(&control, words, rustix::net::SendFlags::empty()).unwrap();
            drop(control);
            until("it to be started again", || {
                let now = daemon.pids_of(role);
                (!lives(&before) && !now.is_empty()).then_some(())
            });
        }
    }
    daemon.wait_for_log(&["receive 0 sent Fatal", "it is killed and restarted"]);
    daemon.wait_for_log(&["send 0 sent a malformed message"]);
    daemon.works();
}

#[test]
fn r205_an_envelope_above_the_bound_is_cut_by_452_and_other_clients_are_not_affected() {
    // An envelope must fit into a frame and into a segment.
    for (segment, fits) in [("64MiB", 29_000..32_000), ("1MiB", 400..500)] {
        let spool = format!("segment_bytes = \"{segment}\"\nbatch_bytes_max = \"256KiB\"\n");
        let taken = long_envelope(Setup { spool, ..Setup::default() });
        assert!(fits.contains(&taken), "{taken} with segments of {segment}");
    }
}

/// The number of recipients of the longest kind that are accepted in one message.
fn long_envelope(setup: Setup) -> usize {
    let field = Field::start(setup);
    let daemon = &field.daemon;
    let label = "d".repeat(63);
    let domain = format!("{label}.{label}.{label}.{}.hold.test", "e".repeat(40));
    let orcpt = format!("rfc822;{}", "y".repeat(490));
    let mut client = Client::ready(daemon.port);
    client.ask("MAIL FROM:<s@client.test>", 250);
    let (mut taken, mut put_off) = (0, 0);
    for nth in 0..40 {
        if put_off > 0 {
            break;
        }
        let lines: String = (0..1_000)
            .map(|one| {
                format!("RCPT TO:<{nth:03}{one:04}{}@{domain}> ORCPT={orcpt}\r\n", "x".repeat(57))
            })
            .collect();
        let mut sending = client.stream.try_clone().unwrap();
        let sent = std::thread::spawn(move || sending.write_all(lines.as_bytes()).unwrap());
        for _ in 0..1_000 {
            let reply = client.reply();
            match (reply.code, reply.enhanced()) {
                (250, _) => taken += 1,
                (452, "4.5.3") => put_off += 1,
                other => panic!("{other:?}"),
            }
        }
        sent.join().unwrap();
    }
    client.ask("DATA", 354);
    client.send("Subject: x\r\n\r\nhi\r\n.\r\n");
    client.expect(250);
    daemon.works();
    assert_eq!(renewals(daemon, "receive").0, 0, "{}", daemon.log());
    taken
}

/// Kills each new process of this role until `done` returns true.
fn keep_down(daemon: &Daemon, role: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "nobody has said it: {}", daemon.log());
        daemon.pids_of(role).iter().for_each(|pid| signal_to(*pid, libc::SIGKILL));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn r241_queue_without_receive_and_receive_without_queue_are_told_in_status_and_as_errors() {
    let field = Field::start(Setup::default());
    let daemon = &field.daemon;
    let trouble = || status(daemon)["troubles"].to_string();
    let says = || trouble().contains("no stream between queue and receive 0 for");
    keep_down(daemon, "receive", says);
    assert_eq!(daemon.command(&["status"]).status.code(), Some(1));
    daemon.wait_for_log(&["error", "no stream between queue and receive 0 for"]);
    until("status to be well again", || (trouble() == "[]").then_some(()));
    keep_down(daemon, "queue", || daemon.log().contains("no conversation with queue for"));
    until("status to be well again", || (trouble() == "[]").then_some(()));
    daemon.works();
}
