//! The send process with a test as its queue process and with real next hops.
//!
//! Must never need a queue process: the test holds the other end of the link.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::BytesMut;
use daemon::process::send::{self, Journal, Setup};
use daemon::resolve::{Resolver, Sources};
use link::send::{Attempt, AttemptRoute, QueueEnd, QueueEvent, Result};
use mail::{Address, Domain, Host, NextHop, Outcome, ReversePath, Stage};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{Script, Sink, free_port};
use tokio::sync::{Notify, mpsc};

const BUILD: u64 = 7;

struct Silent;

impl Journal for Silent {
    fn ended(&mut self, _: &::send::EndedAttempt) {}
    fn trouble(&mut self, _: &str) {}
    fn lost(&mut self, _: u64, _: link::streams::Loss) {}
}

/// A running send process, and queue's end of its link.
struct Queue {
    streams: mpsc::Sender<(u64, OwnedFd)>,
    drain: Arc<Notify>,
    process: Option<JoinHandle<()>>,
    stream: UnixStream,
    end: QueueEnd,
    input: BytesMut,
    body: Vec<u8>,
}

impl Queue {
    fn start() -> Queue {
        Queue::start_with(64)
    }

    fn start_with(connections_max: usize) -> Queue {
        let (streams, received) = mpsc::channel(4);
        let drain = Arc::new(Notify::new());
        let drained = Arc::clone(&drain);
        let process = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default())
                .unwrap();
            runtime.block_on(async {
                let timeout = Duration::from_secs(1);
                let sources = Sources {
                    servers: &[],
                    resolv_conf: "",
                    hosts: "127.0.0.1 named.test",
                    timeout,
                };
                let pool = ::send::Settings {
                    build: BUILD,
                    incarnation: 1,
                    attempts_max: 1000,
                    connections_max,
                    idle: Duration::from_secs(2),
                    client: Arc::new(smtp::client::Settings::for_tests()),
                    rules: Arc::new(delivery::Rules::for_tests()),
                    limits: delivery::Limits::for_tests(),
                };
                let setup = Setup {
                    pool,
                    resolver: Resolver::new(&sources),
                    sockets: Default::default(),
                    journal: Box::new(Silent),
                };
                send::run(setup, received, drained).await;
            });
        });
        let (stream, end) = connect(&streams);
        let input = BytesMut::new();
        let mut queue =
            Queue { streams, drain, process: Some(process), stream, end, input, body: Vec::new() };
        assert_eq!(queue.greeted(), 0);
        queue
    }

    /// The queue process dies and another one connects.
    fn restart(&mut self) -> usize {
        (self.stream, self.end) = connect(&self.streams);
        self.input.clear();
        self.greeted()
    }

    /// Waits for the hello, which contains the number of running attempts.
    fn greeted(&mut self) -> usize {
        let mut told = 0;
        loop {
            match self.event() {
                QueueEvent::UnderWay(_) => told += 1,
                QueueEvent::AllTold => return told,
                _ => {}
            }
        }
    }

    fn give(&mut self, attempt: Attempt, body: &[u8]) {
        let inline = body.len() as u64 <= link::send::INLINE_BYTES_MAX;
        self.body = body.to_vec();
        let holds = self.end.holds(attempt.message);
        self.end.attempt(attempt, (inline && !holds).then_some(body)).unwrap();
        self.flush();
    }

    fn flush(&mut self) {
        for frame in self.end.transmit().drain(..) {
            self.stream.write_all(&frame).unwrap();
        }
    }

    fn event(&mut self) -> QueueEvent {
        loop {
            if let Some(event) = self.end.poll() {
                self.flush();
                return event;
            }
            let mut room = [0; 65536];
            let count = self.stream.read(&mut room).unwrap();
            assert!(count > 0, "the send process is gone");
            self.input.extend_from_slice(&room[..count]);
            self.end.handle(&mut self.input).unwrap();
        }
    }

    /// Waits for the next result. Requests for bodies are answered meanwhile.
    fn result(&mut self) -> Result {
        loop {
            match self.event() {
                QueueEvent::Hello { .. }
                | QueueEvent::UnderWay(_)
                | QueueEvent::AllTold
                | QueueEvent::Drains => {}
                QueueEvent::Fetch { attempt, offset, bytes, .. } => {
                    let from = offset as usize;
                    let chunk = self.body[from..from + bytes as usize].to_vec();
                    self.end.chunk(attempt, offset, &chunk);
                    self.flush();
                }
                QueueEvent::Result(result) => {
                    self.end.recorded(vec![result.attempt]);
                    self.flush();
                    return result;
                }
            }
        }
    }

    fn stop(mut self) {
        self.drain.notify_one();
        self.process.take().unwrap().join().unwrap();
    }
}

fn connect(streams: &mpsc::Sender<(u64, OwnedFd)>) -> (UnixStream, QueueEnd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(support::PATIENCE)).unwrap();
    theirs.set_nonblocking(true).unwrap();
    streams.blocking_send((1, theirs.into())).unwrap();
    (ours, QueueEnd::new(BUILD))
}

fn attempt(number: u64, port: u16, recipients: &[&str], body_bytes: usize) -> Attempt {
    let mut attempt = Attempt::sample(number, recipients);
    attempt.route = AttemptRoute {
        hop: NextHop::Smtp(Host::Address("127.0.0.1".parse().unwrap()), port),
        connections_max: 10,
        messages_per_connection_max: 100,
    };
    attempt.from.sender = ReversePath::Address(Address::parse("s@source.test", false).unwrap());
    attempt.body.bytes = body_bytes as u64;
    attempt.recipients.iter_mut().for_each(|(index, _)| *index += 3);
    attempt
}

fn summary(result: &Result) -> String {
    let word = |(index, outcome): &(u32, Outcome)| {
        let report = outcome.report();
        let kind = match outcome {
            Outcome::Delivered { .. } => 'D',
            Outcome::Deferred(_) => 'T',
            Outcome::Failed(_) => 'F',
        };
        format!("{index} {kind} {:?} {}", report.stage, report.reply.code)
    };
    result.outcomes.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[test]
fn small_and_large_bodies_arrive_byte_for_byte_and_each_recipient_has_its_outcome() {
    let rcpt = |to: &str| match to.contains("no@") {
        true => "550 5.1.1 no".to_string(),
        false => "250 ok".to_string(),
    };
    let sink = Sink::start(Script { rcpt, ..Script::default() });
    let mut queue = Queue::start();
    let line = b"0123456789 .abc\r\n.\r\n..dots\r\n";
    for (number, bytes) in [(1, 100), (2, 64 << 10), (3, 3_000_000), (4, 65_600)] {
        let mut body = b"Subject: x\r\n\r\n".to_vec();
        body.extend(line.iter().cycle().take(bytes - body.len() - 2));
        body.extend(b"\r\n");
        if body[body.len() - 3] == b'\r' {
            let at = body.len() - 3;
            body[at] = b'x';
        }
        let to = ["a@sink.test", "no@sink.test", "b@sink.test"];
        queue.give(attempt(number, sink.port, &to, body.len()), &body);
        let result = queue.result();
        assert_eq!(summary(&result), "3 D End 250, 4 F Rcpt 550, 5 D End 250");
        let mail = sink.mails().pop().unwrap();
        assert!(mail.data == body, "{bytes} bytes differ");
        assert_eq!(mail.to.len(), 2);
    }
    queue.stop();
}

#[test]
fn connections_are_kept_up_to_the_messages_that_one_may_carry() {
    let sink = Sink::start(Script::default());
    let mut queue = Queue::start();
    for number in 1..=25 {
        let mut attempt = attempt(number, sink.port, &["a@sink.test"], 3);
        attempt.route.messages_per_connection_max = 10;
        queue.give(attempt, b"a\r\n");
        queue.result();
    }
    let connections: Vec<_> = sink.mails().iter().map(|mail| mail.connection).collect();
    assert_eq!(connections[0], connections[9]);
    assert_eq!(connections.iter().collect::<std::collections::HashSet<_>>().len(), 3);
    queue.stop();
}

#[test]
fn connections_are_bounded_for_each_hop_and_over_all() {
    let sinks = [(); 4].map(|()| Sink::start(Script::default()));
    let mut queue = Queue::start_with(3);
    for number in 1..=200u64 {
        let sink = &sinks[number as usize % 4];
        let mut attempt = attempt(number, sink.port, &["a@sink.test"], 3);
        attempt.route.connections_max = 2;
        queue.give(attempt, b"a\r\n");
    }
    let mut seen: Vec<_> = (0..200).map(|_| queue.result().attempt).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    assert_eq!(sinks.iter().map(|sink| sink.mails().len()).sum::<usize>(), 200);
    queue.stop();
}

#[test]
fn the_longest_idle_connection_makes_room_for_another_next_hop() {
    let sinks: Vec<Sink> = (0..3).map(|_| Sink::start(Script::default())).collect();
    let mut queue = Queue::start_with(2);
    // The messages go to each of these in turn. Idle connections wait between them.
    for (number, sink) in (1u64..).zip([0, 1, 2, 1, 2, 0]) {
        queue.give(attempt(number, sinks[sink].port, &["a@sink.test"], 3), b"a\r\n");
        assert_eq!(summary(&queue.result()), "3 D End 250");
        std::thread::sleep(Duration::from_millis(60));
    }
    let connections = |sink: &Sink| sink.mails().iter().map(|mail| mail.connection).collect();
    let connections: Vec<Vec<usize>> = sinks.iter().map(connections).collect();
    assert_eq!(connections, [vec![0, 1], vec![0, 0], vec![0, 0]], "only the first one had to go");
    queue.stop();
}

#[test]
fn a_dead_next_hop_defers_at_connect_and_a_name_of_the_hosts_file_is_found() {
    let sink = Sink::start(Script::default());
    let mut queue = Queue::start();
    for number in 1..=20 {
        queue.give(attempt(number, 1, &["a@sink.test"], 3), b"a\r\n");
    }
    for _ in 1..=20 {
        assert_eq!(summary(&queue.result()), "3 T Connect 451");
    }
    let name = |text: &str| Host::Name(Domain::parse(text).unwrap());
    for (number, host, expected) in
        [(30, "named.test", "3 D End 250"), (31, "other.test", "3 T Resolve 451")]
    {
        let mut attempt = attempt(number, sink.port, &["a@sink.test"], 3);
        attempt.route.hop = NextHop::Smtp(name(host), sink.port);
        queue.give(attempt, b"a\r\n");
        assert_eq!(summary(&queue.result()), expected);
    }
    queue.stop();
}

#[test]
fn d158_a_unix_socket_that_is_missing_or_refuses_defers() {
    let mut queue = Queue::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lmtp");
    for number in 1..=2 {
        let mut attempt = attempt(number, 1, &["a@sink.test"], 3);
        attempt.route.hop = NextHop::LmtpUnix(path.to_str().unwrap().into());
        queue.give(attempt, b"a\r\n");
        assert_eq!(summary(&queue.result()), "3 T Connect 451");
        // The second time the socket exists, but no process listens.
        drop(std::os::unix::net::UnixListener::bind(&path));
    }
    queue.stop();
}

#[test]
fn d176_an_idle_connection_that_the_peer_closed_costs_no_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        // Each connection takes one message and is closed when the next message begins.
        let mut kept = 0;
        for stream in listener.incoming().take(3) {
            let mut output = stream.unwrap();
            let mut input = BufReader::new(output.try_clone().unwrap()).lines();
            output.write_all(b"220 x\r\n").unwrap();
            let (mut data, mut mails) = (false, 0);
            while let Some(Ok(line)) = input.next() {
                let reply: &[u8] = match (data, line.split([' ', ':']).next().unwrap()) {
                    (true, ".") => {
                        data = false;
                        kept += 1;
                        b"250 kept\r\n"
                    }
                    (true, _) => continue,
                    (_, "DATA") => {
                        data = true;
                        b"354 go\r\n"
                    }
                    (_, "MAIL") if mails == 1 => break,
                    (_, "MAIL") => {
                        mails += 1;
                        b"250 ok\r\n"
                    }
                    _ => b"250 ok\r\n",
                };
                output.write_all(reply).unwrap();
            }
        }
        kept
    });
    let mut queue = Queue::start();
    for number in 1..=3 {
        queue.give(attempt(number, port, &["a@sink.test"], 3), b"a\r\n");
        assert_eq!(summary(&queue.result()), "3 D End 250");
    }
    queue.stop();
    assert_eq!(server.join().unwrap(), 3);
}

#[test]
fn a_restart_of_queue_ends_no_delivery_and_loses_no_result() {
    let sink = Sink::start(Script {
        end: |_| {
            std::thread::sleep(Duration::from_millis(700));
            "250 ok".into()
        },
        ..Script::default()
    });
    let mut queue = Queue::start();
    for number in 1..=3 {
        queue.give(attempt(number, sink.port, &["a@sink.test"], 3), b"a\r\n");
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(queue.restart(), 3);
    let mut seen: Vec<_> = (0..3).map(|_| queue.result().attempt).collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
    assert_eq!(sink.mails().len(), 3);
    queue.stop();
}

#[test]
fn d151_a_damaged_body_ends_the_attempt_before_the_final_dot() {
    let sink = Sink::start(Script::default());
    let mut queue = Queue::start();
    queue.give(attempt(1, sink.port, &["a@sink.test"], 1_000_000), &vec![b'x'; 1_000_000]);
    let mut fetches = 0;
    let result = loop {
        match queue.event() {
            QueueEvent::Fetch { attempt, offset, bytes, .. } => {
                fetches += 1;
                if fetches == 2 {
                    queue.end.chunk_bad(attempt);
                } else {
                    queue.end.chunk(attempt, offset, &vec![b'x'; bytes as usize]);
                }
                queue.flush();
            }
            QueueEvent::Result(result) => break result,
            QueueEvent::Hello { .. }
            | QueueEvent::UnderWay(_)
            | QueueEvent::AllTold
            | QueueEvent::Drains => {}
        }
    };
    assert_eq!(result.outcomes[0].1.report().stage, Stage::Data);
    assert!(matches!(result.outcomes[0].1, Outcome::Deferred(_)));
    assert!(sink.mails().is_empty());
    queue.stop();
}

/// Sends to another project's sink. Every message arrives; the test prints the rate.
#[test]
fn ten_thousand_messages_reach_postfix_s_sink() {
    const COUNT: u64 = 10_000;
    let port = free_port();
    let mut command = support::postfix_tool("smtp-sink");
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "nobody"]);
    }
    let _sink = Killed(command.args([&format!("127.0.0.1:{port}"), "1000"]).spawn().unwrap());
    support::until("smtp-sink", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let mut queue = Queue::start();
    let body = b"Subject: x\r\n\r\n".iter().chain([b'x'; 70].iter()).copied();
    let body: Vec<u8> = body.chain(*b"\r\n").cycle().take(4096 - 2).chain(*b"\r\n").collect();
    let started = Instant::now();
    let (mut given, mut ended) = (0, 0);
    while ended < COUNT {
        while given < COUNT && given - ended < 500 {
            given += 1;
            queue.give(attempt(given, port, &["a@sink.test"], body.len()), &body);
        }
        assert_eq!(summary(&queue.result()), "3 D End 250");
        ended += 1;
    }
    let rate = COUNT as f64 / started.elapsed().as_secs_f64();
    eprintln!("{rate:.0} messages a second over 10 connections");
    queue.stop();
}

/// A child process that ends with the test, however the test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
