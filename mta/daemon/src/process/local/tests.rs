//! The local process against a queue process's end of the conversation, in one test process.
//! Must never depend on the users of this machine: a test that needs root says so without it.

mod accounts;
mod programs;

use super::*;
use crate::io::BUILD;
use crate::io::control::{Received, stream_pair};
use crate::log::Style;
use bytes::BytesMut;
use link::control::{FromMaster, ToMaster};
use link::send::{Attempt, CHUNK_BYTES_MAX, QueueEnd, QueueEvent, Result as AttemptResult};
use mail::Outcome;
use settings::{
    HostEnvironment, LocalSettings, LogFormat, LogLevel, Piece, Template, UserAccount, Users,
};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The part of a queue process that local can see.
struct Queue {
    end: QueueEnd,
    stream: UnixStream,
    input: BytesMut,
    master: Control,
    bodies: HashMap<u64, Vec<u8>>,
    process: Option<std::thread::JoinHandle<io::Result<()>>>,
}

fn template(pieces: &[&str]) -> Template {
    let piece = |text: &&str| match *text {
        "{user}" => Piece::User,
        "{home}" => Piece::Home,
        text => Piece::Text(text.into()),
    };
    Template(pieces.iter().map(piece).collect())
}

fn wanted(state: &Path, deliver: Deliver, users: Users, accounts: Vec<UserAccount>) -> Wanted {
    Wanted {
        hostname: "mx.test".into(),
        state: state.to_owned(),
        local: LocalSettings { domains: vec![], deliver, users },
        environment: HostEnvironment { accounts, ..HostEnvironment::default() },
    }
}

/// As `Start::read` does: the first reading makes calls that no jail allows, that of a worker included.
fn read_the_clock() {
    let _ = world::Clock::now(&world::real::Clock);
}

impl Queue {
    fn with(wanted: Wanted, privilege: Privilege) -> Queue {
        Queue::logging(wanted, privilege, Log::off())
    }

    fn logging(wanted: Wanted, privilege: Privilege, log: Log) -> Queue {
        read_the_clock();
        let (master, control) = Control::pair().unwrap();
        let forks = start_forks(&wanted, &privilege).unwrap();
        let directories = Directories::open(&wanted, owner(&privilege)).unwrap();
        let opened = StartedLocal { wanted, directories, forks };
        let (ours, theirs) = stream_pair().unwrap();
        let peers = vec![PeerStream { role: Role::Queue, instance: 0, stream: 1, fd: theirs }];
        let process = std::thread::spawn(|| begin(control, peers, opened, log));
        let mut queue = Queue::around(ours, master);
        queue.process = Some(process);
        assert!(queue.told().is_empty());
        queue
    }

    fn around(stream: OwnedFd, master: Control) -> Queue {
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (end, input) = (QueueEnd::new(BUILD), BytesMut::new());
        Queue { end, stream, input, master, bodies: HashMap::new(), process: None }
    }

    fn write(&mut self) {
        for frame in self.end.transmit().drain(..) {
            self.stream.write_all(&frame).unwrap();
        }
    }

    fn attempt(&mut self, number: u64, to: &[&str], body: &[u8]) {
        let mut attempt = Attempt::sample(number, to);
        attempt.body.bytes = body.len() as u64;
        let inline = body.len() as u64 <= link::send::INLINE_BYTES_MAX;
        if !inline {
            self.bodies.insert(number, body.to_vec());
        }
        self.end.attempt(attempt, inline.then_some(body)).unwrap();
        self.write();
    }

    /// The attempts that local says to be under way at the beginning of a stream, the latest first.
    fn told(&mut self) -> Vec<u64> {
        assert!(matches!(self.event(), QueueEvent::Hello { .. }));
        let mut told = Vec::new();
        loop {
            match self.event() {
                QueueEvent::UnderWay(one) => told.push(one.attempt),
                QueueEvent::AllTold => return told,
                other => panic!("{other:?}"),
            }
        }
    }

    fn event(&mut self) -> QueueEvent {
        loop {
            if let Some(event) = self.end.poll() {
                return event;
            }
            let mut buffer = [0; 65536];
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "local is gone");
            self.input.extend_from_slice(&buffer[..read]);
            self.end.handle(&mut self.input).unwrap();
            self.write();
        }
    }

    /// The next result, which is recorded; fetches before it are answered.
    fn result(&mut self) -> AttemptResult {
        loop {
            match self.event() {
                QueueEvent::Result(result) => {
                    self.end.recorded(vec![result.attempt]);
                    self.write();
                    return result;
                }
                QueueEvent::Fetch { attempt, offset, bytes, .. } => {
                    assert!(bytes <= CHUNK_BYTES_MAX);
                    let chunk = self.bodies[&attempt][offset as usize..][..bytes as usize].to_vec();
                    self.end.chunk(attempt, offset, &chunk);
                    self.write();
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn one(&mut self, number: u64, to: &str, body: &[u8]) -> Outcome {
        self.attempt(number, &[to], body);
        let mut result = self.result();
        assert_eq!((result.attempt, result.outcomes.len()), (number, 1));
        result.outcomes.remove(0).1
    }

    fn end(mut self) {
        self.master.send(&FromMaster::Drain, None).unwrap();
        self.process.take().unwrap().join().unwrap().unwrap();
    }
}

fn enhanced(outcome: &Outcome) -> String {
    outcome.report().reply.enhanced.unwrap().to_string()
}

fn delivered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Delivered { .. })
}

fn texts(maildir: &Path) -> Vec<String> {
    let new = fs::read_dir(maildir.join("new")).unwrap();
    new.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

fn maildir_queue(dir: &Path) -> Queue {
    let mail = dir.join("mail").to_string_lossy().into_owned();
    let deliver = Deliver::Maildir(template(&[&format!("{mail}/"), "{user}", "/"]));
    Queue::with(wanted(dir, deliver, Users::Any, vec![]), local_user())
}

#[test]
fn each_recipient_of_each_attempt_gets_its_outcome_and_its_mail() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    for number in 1..=500 {
        let body = format!("Subject: {number}\r\n\r\nbody {number}\r\n");
        queue.attempt(number, &["a@l.test", "\"../bad\"@l.test", "B@l.test"], body.as_bytes());
    }
    let mut seen: Vec<u64> = (0..500)
        .map(|_| {
            let mut result = queue.result();
            result.outcomes.sort_by_key(|(index, _)| *index);
            let codes: Vec<_> = result.outcomes.iter().map(|(i, o)| (*i, enhanced(o))).collect();
            assert_eq!(codes, [(0, "2.0.0".into()), (1, "5.1.1".into()), (2, "2.0.0".into())]);
            result.attempt
        })
        .collect();
    seen.sort();
    assert!(seen.into_iter().eq(1..=500));
    for (user, address) in [("a", "a@l.test"), ("b", "B@l.test")] {
        let mut found = texts(&dir.path().join("mail").join(user));
        let mut expected: Vec<_> = (1..=500)
            .map(|n| {
                format!("Return-Path: <>\nDelivered-To: {address}\nSubject: {n}\n\nbody {n}\n")
            })
            .collect();
        found.sort();
        expected.sort();
        assert!(found == expected);
    }
    queue.end();
}

#[test]
fn a_large_message_is_fetched_in_chunks_and_a_damaged_one_is_deferred() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    let body = b"From a line of text\r\n".repeat(100_000);
    assert!(delivered(&queue.one(1, "big@l.test", &body)));
    let text = texts(&dir.path().join("mail/big")).remove(0);
    let expected = String::from_utf8(body.clone()).unwrap().replace("\r\n", "\n");
    assert!(text == format!("Return-Path: <>\nDelivered-To: big@l.test\n{expected}"));
    queue.attempt(2, &["big@l.test"], &body);
    assert!(matches!(queue.event(), QueueEvent::Fetch { .. }));
    queue.end.chunk_bad(2);
    queue.write();
    let result = queue.result();
    assert!(matches!(&result.outcomes[0].1, Outcome::Deferred(_)));
    assert_eq!(fs::read_dir(dir.path().join("mail")).unwrap().count(), 1, "nothing staged is left");
    queue.end();
}

#[test]
fn d182_a_new_queue_process_hears_what_the_former_one_did_not_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    queue.attempt(1, &["a@l.test"], b"x\r\n");
    while !matches!(queue.event(), QueueEvent::Result(_)) {}
    let body = b"0123456789abcdef\r\n".repeat(30_000);
    queue.attempt(2, &["a@l.test"], &body);
    assert!(matches!(queue.event(), QueueEvent::Fetch { offset: 0, .. }));
    let (ours, theirs) = stream_pair().unwrap();
    let peer = FromMaster::Peer { role: Role::Queue, instance: 0, stream: 2 };
    queue.master.send(&peer, Some(theirs.as_fd())).unwrap();
    drop(theirs);
    let Queue { master, process, bodies, .. } = queue;
    let mut queue = Queue { process, bodies, ..Queue::around(ours, master) };
    assert_eq!(queue.told(), [2, 1]);
    assert_eq!(queue.result().attempt, 1);
    assert_eq!(queue.result().attempt, 2);
    assert_eq!(texts(&dir.path().join("mail/a")).len(), 2);
    queue.end();
}

/// Local's own user.
fn local_user() -> Privilege {
    jail::privilege(Role::Local, 61_000)
}

/// A home that only its user may use.
fn home(dir: &Path, name: &str, uid: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let home = dir.join(name);
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&home, Some(uid), Some(uid)).unwrap();
    home
}

fn open_to_all(dir: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn r206_a_result_is_told_over_the_next_stream_though_the_process_drains() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    queue.attempt(1, &["a@l.test"], b"Subject: x\r\n\r\nbody\r\n");
    let QueueEvent::Result(result) = queue.event() else { panic!() };
    // The stream is lost before the result is recorded.
    let Queue { stream, master, process, .. } = queue;
    drop(stream);
    let is_lost = |said| matches!(said, Received::Message(ToMaster::StreamLost { .. }, _));
    while !is_lost(master.receive().unwrap()) {}
    master.send(&FromMaster::Drain, None).unwrap();
    let (ours, theirs) = stream_pair().unwrap();
    let peer = FromMaster::Peer { role: Role::Queue, instance: 0, stream: 2 };
    master.send(&peer, Some(theirs.as_fd())).unwrap();
    drop(theirs);
    // Local ends as soon as it has told its results, and waits for no answer.
    let (mut stream, mut said) = (UnixStream::from(ours), Vec::new());
    stream.set_nonblocking(false).unwrap();
    stream.read_to_end(&mut said).unwrap();
    let mut end = QueueEnd::new(BUILD);
    end.handle(&mut BytesMut::from(&said[..])).unwrap();
    let told: Vec<_> = std::iter::from_fn(|| end.poll()).skip(1).collect();
    let [QueueEvent::UnderWay(one), QueueEvent::AllTold, QueueEvent::Drains, again] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((one.attempt, again), (1, &QueueEvent::Result(result)));
    process.unwrap().join().unwrap().unwrap();
}
