//! A queue on a simulated disk; the test plays one receiving and one sending process.

#![allow(dead_code)] // each test file uses only a part

use bytes::{Bytes, BytesMut};
use link::admin::Answer;
use link::control::Role;
use link::receive::{ReceiverEnd, ReceiverEvent};
use link::send::{Attempt, SenderEnd, SenderEvent};
use mail::{
    Address, Domain, Enhanced, Envelope, MailFrom, NextHop, Notify, Origin, Outcome, Protocol,
    Recipient, Reply, Report, ReversePath, Stage, Timestamp,
};
use queue::{LogEvent, Output, Queue, Read, Restore, SenderKey};
use scheduler::Scheduler;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;
use world::Clock as _;
use world::sim::{Clock, Disk};

pub const SENDER: SenderKey = SenderKey(Role::Send, 0);

/// A queue whose reads end only when the test says so.
pub struct Bench {
    pub disk: Disk,
    pub clock: Clock,
    pub queue: Queue,
    pub receiver: ReceiverEnd,
    pub sender: SenderEnd,
    pub attempts: Vec<Attempt>,
    /// The fetched bodies: the attempt, the offset, and the bytes, which are empty if they could not be read.
    pub pieces: Vec<(u64, u64, Bytes)>,
    pub heard: Vec<ReceiverEvent>,
    pub answers: Vec<Answer>,
    pub reads: Vec<Read>,
    pub logged: Vec<LogEvent>,
    /// True if reads end at once.
    pub reads_at_once: bool,
    /// Requests whose results are kept back, while `Some`.
    pub stuck: Option<Vec<spool::Io>>,
}

pub fn settings() -> queue::Settings {
    let (own, name) = (HashSet::new(), Domain::parse("mx.test").unwrap());
    queue::Settings {
        hostname: "mx.test".into(),
        postmaster: address("postmaster@mx.test"),
        routes: policy::Routes::new(own, NextHop::Local, name, Vec::new(), false),
        scheduler: scheduler::Settings::for_tests(),
        original_bytes_max: 10_000,
        message_cache_bytes_max: 0,
        credit_bytes: 1 << 20,
        receivers: 1,
    }
}

pub fn spool_settings() -> spool::Settings {
    spool::Settings {
        segment_bytes: 64 << 10,
        batch_bytes_max: 16 << 10,
        chunk_bytes_max: 4 << 10,
        reserve_bytes: 0,
        keep_free_bytes: 0,
        snapshot_log_bytes: 4 << 10,
        ..spool::Settings::for_tests()
    }
}

pub fn address(text: &str) -> Address {
    Address::parse(text, false).unwrap()
}

pub fn envelope(to: &[&str]) -> Envelope {
    let recipient =
        |to: &&str| Recipient { address: address(to), notify: Notify::DEFAULT, orcpt: None };
    Envelope {
        from: MailFrom::new(ReversePath::Address(address("sender@from.test"))),
        origin: Origin { client: None, helo: "client.test".into(), protocol: Protocol::Esmtp },
        arrived: Timestamp::from_micros(1_000_000),
        recipients: to.iter().map(recipient).collect(),
    }
}

pub fn report(code: u16, enhanced: Enhanced) -> Report {
    let reply = Reply::new(code, enhanced, "so it is");
    Report { stage: Stage::End, reply, peer: "hop.test".into(), from_peer: true }
}

fn carried(frames: Option<&mut VecDeque<Bytes>>) -> BytesMut {
    frames.map(|frames| frames.drain(..).flatten().collect()).unwrap_or_default()
}

/// Returns what a start on this disk finds: each message with the recipients that are not done.
fn found(disk: &Disk) -> Vec<(String, Vec<u32>)> {
    let now = Clock::starting(Timestamp::from_micros(2_000_000)).now();
    let settings = settings();
    let mut scheduler = Scheduler::new(settings.scheduler.clone(), 1, now);
    let mut restore = Restore::new(&settings.routes);
    let opened = spool::open(disk, spool_settings(), 1, &mut |replay| {
        restore.replay(&mut scheduler, replay, now);
    });
    let ids: Vec<_> = opened.unwrap().0.messages_above(0).collect();
    let told = ids.iter().map(|id| scheduler.explain(*id, now).unwrap());
    told.map(|told| (told.sender, told.recipients.iter().map(|r| r.recipient).collect())).collect()
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(settings(), spool_settings())
    }

    pub fn with(settings: queue::Settings, spool_settings: spool::Settings) -> Bench {
        let (disk, clock) = (Disk::new(1), Clock::starting(Timestamp::from_micros(1_000_000)));
        let now = clock.now();
        let scheduler = Scheduler::new(settings.scheduler.clone(), 1, now);
        let (spool, _) = spool::open(&disk, spool_settings, 1, &mut |_| {}).unwrap();
        let mut queue = Queue::new(1, 99, settings, spool, scheduler, 1, now);
        let (mut receiver, mut sender) = (ReceiverEnd::new(1, 7), SenderEnd::new(1, 8, 10));
        queue.receiver_connected(0);
        receiver.connected(now.monotonic);
        queue.sender_connected(SENDER, now);
        sender.connected();
        Bench {
            disk,
            clock,
            queue,
            receiver,
            sender,
            attempts: Vec::new(),
            pieces: Vec::new(),
            heard: Vec::new(),
            answers: Vec::new(),
            reads: Vec::new(),
            logged: Vec::new(),
            reads_at_once: false,
            stuck: None,
        }
    }

    /// Runs everything except reads.
    pub fn run(&mut self) {
        self.run_for(200);
    }

    pub fn run_for(&mut self, milliseconds: u32) {
        for _ in 0..milliseconds {
            self.turn();
            self.clock.advance(Duration::from_millis(1));
        }
    }

    /// Runs everything that happens at one time.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        let mut said = carried(Some(self.receiver.transmit()));
        self.queue.receiver_input(0, &mut said, now).unwrap();
        let mut said = carried(Some(self.sender.transmit()));
        self.queue.sender_input(SENDER, &mut said, now).unwrap();
        self.queue.advance(now);
        let outputs: Vec<Output> = std::iter::from_fn(|| self.queue.poll()).collect();
        self.queue.advance(now);
        assert!(self.queue.poll().is_none(), "one call does everything that can be done");
        for output in outputs {
            match output {
                Output::Io(io) => match &mut self.stuck {
                    Some(stuck) => stuck.push(io),
                    None => self.queue.io_done(spool::execute(&self.disk, io), now),
                },
                Output::Read(read) if self.reads_at_once => {
                    self.queue.read_done(queue::perform(&self.disk, read), now);
                }
                Output::Read(read) => self.reads.push(read),
                Output::Log(logged) => self.logged.push(logged),
                Output::Answer(_, answer) => self.answers.push(answer),
            }
        }
        self.receiver.handle(&mut carried(self.queue.receiver_output(0))).unwrap();
        self.heard.extend(std::iter::from_fn(|| self.receiver.poll()));
        self.sender.handle(&mut carried(self.queue.sender_output(SENDER))).unwrap();
        while let Some(event) = self.sender.poll() {
            match event {
                SenderEvent::Attempt { attempt, body } => {
                    self.pieces.extend(body.map(|body| (attempt.id, 0, body)));
                    self.attempts.push(*attempt);
                }
                SenderEvent::Chunk { attempt, offset, bytes } => {
                    self.pieces.push((attempt, offset, bytes));
                }
                SenderEvent::ChunkBad { attempt } => self.pieces.push((attempt, 0, Bytes::new())),
            }
        }
    }

    /// Ends the stream to the sending process, which comes back over another one.
    pub fn reconnect(&mut self) {
        self.queue.sender_connected(SENDER, self.clock.now());
        self.sender.connected();
    }

    pub fn send(&mut self, number: u64, to: &[&str]) {
        self.receiver.accept(number, envelope(to), b"Subject: x\r\n\r\nbody\r\n");
        self.run();
    }

    pub fn answer(&mut self, to: &str, outcome: Outcome) {
        self.say(to, outcome);
        self.run();
    }

    /// Ends the attempt at this address with an outcome. Returns the id of the attempt.
    pub fn say(&mut self, to: &str, outcome: Outcome) -> u64 {
        let is = |attempt: &Attempt| attempt.recipients[0].1.address.to_string() == to;
        let at = self.attempts.iter().position(is).unwrap();
        let Attempt { id: attempt, message, recipients, .. } = self.attempts.swap_remove(at);
        let outcomes = vec![(recipients[0].0, outcome)];
        self.sender.result(link::send::Result { attempt, message, outcomes });
        attempt
    }

    pub fn read(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            let done = queue::perform(&self.disk, read);
            self.queue.read_done(done, self.clock.now());
        }
        self.run();
    }

    /// Returns what a start would find if the power went now and took everything that it may take.
    pub fn after_a_cut(&self) -> Vec<(String, Vec<u32>)> {
        let disk = self.disk.forked(1);
        disk.power_on_with(&[]);
        found(&disk)
    }
}
