//! The records of one message reach the log in their order, whatever has to be read in between.

#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use link::control::Role;
use link::receive::ReceiverEnd;
use link::send::{Attempt, SenderEnd, SenderEvent};
use mail::{
    Address, BodyKind, Domain, Enhanced, Envelope, NextHop, Notify, Origin, Outcome, Protocol,
    Recipient, Reply, Report, ReversePath, Stage, Wall,
};
use queue::{Output, Queue, Read, Restore, SenderKey};
use scheduler::Scheduler;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;
use world::Clock as _;
use world::sim::{Clock, Disk};

const SENDER: SenderKey = SenderKey(Role::Send, 0);

/// A queue whose reads take for ever until they are asked for.
struct Bench {
    disk: Disk,
    clock: Clock,
    queue: Queue,
    receiver: ReceiverEnd,
    sender: SenderEnd,
    attempts: Vec<Attempt>,
    reads: Vec<Read>,
}

fn settings() -> queue::Settings {
    let (own, name) = (HashSet::new(), Domain::parse("mx.test").unwrap());
    queue::Settings {
        hostname: "mx.test".into(),
        postmaster: address("postmaster@mx.test"),
        routes: policy::Routes::new(own, NextHop::Local, name, Vec::new(), false),
        scheduler: scheduler::Settings::default(),
        bounce_bytes_max: 10_000,
        shelf_bytes_max: 0,
        credit_bytes: 1 << 20,
        receivers: 1,
    }
}

fn spool_settings() -> spool::Settings {
    spool::Settings {
        segment_bytes: 64 << 10,
        batch_bytes_max: 16 << 10,
        chunk_bytes_max: 4 << 10,
        reserve_bytes: 0,
        keep_free_bytes: 0,
        snapshot_log_bytes: 4 << 10,
        ..spool::Settings::default()
    }
}

fn address(text: &str) -> Address {
    Address::parse(text, false).unwrap()
}

fn envelope(to: &[&str]) -> Envelope {
    let recipient =
        |to: &&str| Recipient { address: address(to), notify: Notify::DEFAULT, orcpt: None };
    Envelope {
        sender: ReversePath::Address(address("sender@from.test")),
        ret: None,
        envid: None,
        body: BodyKind::SevenBit,
        smtputf8: false,
        origin: Origin { client: None, helo: "client.test".into(), protocol: Protocol::Esmtp },
        arrived: Wall::from_micros(1_000_000),
        recipients: to.iter().map(recipient).collect(),
    }
}

fn report(code: u16, enhanced: Enhanced) -> Report {
    let reply = Reply::new(code, enhanced, "so it is");
    Report { stage: Stage::End, reply, peer: "hop.test".into(), from_peer: true }
}

fn carried(frames: Option<&mut VecDeque<Bytes>>) -> BytesMut {
    frames.unwrap().drain(..).flatten().collect()
}

/// What a start on this disk finds: each message with the recipients that are not done.
fn found(disk: &Disk) -> Vec<(String, Vec<u32>)> {
    let now = Clock::starting(Wall::from_micros(2_000_000)).now();
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
    fn new() -> Bench {
        let (disk, clock) = (Disk::new(1), Clock::starting(Wall::from_micros(1_000_000)));
        let (settings, now) = (settings(), clock.now());
        let scheduler = Scheduler::new(settings.scheduler.clone(), 1, now);
        let (spool, _) = spool::open(&disk, spool_settings(), 1, &mut |_| {}).unwrap();
        let mut queue = Queue::new(1, 99, settings, spool, scheduler, 1, now);
        let (mut receiver, mut sender) = (ReceiverEnd::new(1, 7), SenderEnd::new(1, 8, 10));
        queue.receiver_connected(0);
        receiver.connected(now.monotonic);
        queue.sender_connected(SENDER, now);
        sender.connected();
        let (attempts, reads) = (Vec::new(), Vec::new());
        Bench { disk, clock, queue, receiver, sender, attempts, reads }
    }

    /// Everything happens but reads.
    fn run(&mut self) {
        self.run_for(200);
    }

    fn run_for(&mut self, milliseconds: u32) {
        for _ in 0..milliseconds {
            let now = self.clock.now();
            let mut said = carried(Some(self.receiver.output()));
            self.queue.receiver_input(0, &mut said, now).unwrap();
            let mut said = carried(Some(self.sender.output()));
            self.queue.sender_input(SENDER, &mut said, now).unwrap();
            self.queue.advance(now);
            while let Some(output) = self.queue.poll() {
                match output {
                    Output::Io(io) => self.queue.io_done(spool::execute(&self.disk, io), now),
                    Output::Read(read) => self.reads.push(read),
                    Output::Log(_) | Output::Answer(..) => {}
                }
            }
            self.receiver.handle(&mut carried(self.queue.receiver_output(0))).unwrap();
            self.sender.handle(&mut carried(self.queue.sender_output(SENDER))).unwrap();
            while let Some(event) = self.sender.poll() {
                let SenderEvent::Attempt { attempt, .. } = event else { continue };
                self.attempts.push(*attempt);
            }
            self.clock.advance(Duration::from_millis(1));
        }
    }

    fn send(&mut self, number: u64, to: &[&str]) {
        self.receiver.accept(number, envelope(to), b"Subject: x\r\n\r\nbody\r\n");
        self.run();
    }

    fn answer(&mut self, to: &str, outcome: Outcome) {
        self.say(to, outcome);
        self.run();
    }

    /// The sending process knows what became of an attempt; its name.
    fn say(&mut self, to: &str, outcome: Outcome) -> u64 {
        let is = |attempt: &Attempt| attempt.recipients[0].1.address.to_string() == to;
        let at = self.attempts.iter().position(is).unwrap();
        let Attempt { attempt, message, recipients, .. } = self.attempts.swap_remove(at);
        let outcomes = vec![(recipients[0].0, outcome)];
        self.sender.result(link::send::Result { attempt, message, outcomes });
        attempt
    }

    fn read(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            let done = queue::perform(&self.disk, read);
            self.queue.read_done(done, self.clock.now());
        }
        self.run();
    }

    /// What a start would find if the power went now and took all that it can.
    fn after_a_cut(&self) -> Vec<(String, Vec<u32>)> {
        let disk = self.disk.forked(1);
        disk.power_on_with(&[]);
        found(&disk)
    }
}

/// A message to two, with one refused; the notice needs a read that has not come back.
fn refused() -> Bench {
    let mut bench = Bench::new();
    bench.send(1, &["a@a.test", "b@b.test"]);
    bench.send(2, &["c@c.test"]); // takes the first one's place in memory
    bench.answer("a@a.test", Outcome::Failed(report(550, Enhanced(5, 1, 1))));
    assert_eq!(bench.reads.len(), 1);
    bench
}

#[test]
fn a_message_does_not_end_before_the_notice_that_waits_for_a_read_is_stored() {
    let mut bench = refused();
    let report = report(250, Enhanced(2, 0, 0));
    bench.answer("b@b.test", Outcome::Delivered { report, relayed: false });
    let first = ("sender@from.test".to_string(), vec![0, 1]);
    assert_eq!(bench.after_a_cut()[0], first, "neither its end nor the failure");
    bench.read();
    let senders: Vec<_> = bench.after_a_cut().into_iter().map(|(sender, _)| sender).collect();
    assert_eq!(senders, ["sender@from.test", ""], "the second message and the notice");
}

#[test]
fn a_durable_result_is_told_with_the_next_attempt_or_after_a_while() {
    let mut bench = Bench::new();
    let delivered =
        || Outcome::Delivered { report: report(250, Enhanced(2, 0, 0)), relayed: false };
    bench.send(1, &["a@a.test"]);
    let first = bench.say("a@a.test", delivered());
    bench.run_for(50);
    assert_eq!(bench.after_a_cut(), [], "it is durable");
    assert!(bench.sender.is_open(first), "and a frame of its own is saved");
    bench.receiver.accept(2, envelope(&["b@b.test"]), b"Subject: x\r\n\r\nbody\r\n");
    bench.run_for(30);
    assert!(!bench.sender.is_open(first), "the next attempt brings it");
    let second = bench.say("b@b.test", delivered());
    bench.run();
    assert!(!bench.sender.is_open(second), "where there is none it comes alone");
}

#[test]
fn a_snapshot_knows_nothing_of_a_failure_whose_notice_waits_for_a_read() {
    let mut bench = refused();
    let before = bench.queue.usage().snapshots;
    for number in 3..12 {
        bench.send(number, &["d@d.test"]);
    }
    assert_eq!(bench.after_a_cut()[0].1, [0, 1], "the failure is not known");
    bench.read();
    for number in 12..24 {
        bench.send(number, &["d@d.test"]);
    }
    assert!(bench.queue.usage().snapshots > before, "there are snapshots again");
    let found = bench.after_a_cut();
    assert_eq!(found[0].1, [1]);
    assert!(found.iter().any(|(sender, _)| sender.is_empty()), "the notice is there");
}
