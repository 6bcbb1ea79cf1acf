//! Attempts that no process knows of: if the message is held, deleted or too old by then, the attempt is not made.

#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use link::admin::{Action, Answer, Filter};
use link::control::Role;
use link::receive::ReceiverEnd;
use link::send::{SenderEnd, SenderEvent};
use mail::{
    Address, Domain, Envelope, MailFrom, MessageId, NextHop, Notify, Origin, Protocol, Recipient,
    ReversePath,
};
use queue::{LogEvent, Output, Queue, Read, SLICE_RECIPIENTS_MAX, SenderKey};
use scheduler::{NoticeKind, Scheduler};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;
use world::Clock as _;
use world::sim::{Clock, Disk};

const SENDER: SenderKey = SenderKey(Role::Send, 0);

/// A queue whose sending process dies, and whose reads run when the test says so.
struct Bench {
    disk: Disk,
    clock: Clock,
    queue: Queue,
    receiver: ReceiverEnd,
    sender: Option<SenderEnd>,
    /// The messages of the attempts that a process has received.
    tried: Vec<MessageId>,
    reads: Vec<Read>,
    answers: Vec<Answer>,
    bounces: Vec<NoticeKind>,
    /// The length of the longest write to a snapshot, in bytes.
    slice_bytes_max: usize,
}

fn settings(message_cache_bytes_max: usize) -> queue::Settings {
    let (own, name) = (HashSet::new(), Domain::parse("mx.test").unwrap());
    queue::Settings {
        hostname: "mx.test".into(),
        postmaster: address("postmaster@mx.test"),
        routes: policy::Routes::new(own, NextHop::Local, name, Vec::new(), false),
        scheduler: scheduler::Settings::for_tests(),
        original_bytes_max: 10_000,
        message_cache_bytes_max,
        credit_bytes: 64 << 20,
        receivers: 1,
    }
}

fn spool_settings() -> spool::Settings {
    spool::Settings {
        segment_bytes: 1 << 20,
        batch_bytes_max: 256 << 10,
        chunk_bytes_max: 64 << 10,
        reserve_bytes: 0,
        keep_free_bytes: 0,
        snapshot_log_bytes: 64 << 10,
        ..spool::Settings::for_tests()
    }
}

fn address(text: &str) -> Address {
    Address::parse(text, false).unwrap()
}

fn carried(frames: Option<&mut VecDeque<Bytes>>) -> BytesMut {
    frames.into_iter().flat_map(|frames| frames.drain(..)).flatten().collect()
}

impl Bench {
    /// A bench whose sending process has said hello; `message_cache_bytes_max` bounds its cache of messages.
    fn new(message_cache_bytes_max: usize) -> Bench {
        let (disk, clock) =
            (Disk::new(1), Clock::starting(mail::Timestamp::from_micros(1_000_000)));
        let (settings, now) = (settings(message_cache_bytes_max), clock.now());
        let scheduler = Scheduler::new(settings.scheduler.clone(), 1, now);
        let (spool, _) = spool::open(&disk, spool_settings(), 1, &mut |_| {}).unwrap();
        let mut queue = Queue::new(1, 99, settings, spool, scheduler, 1, now);
        let mut receiver = ReceiverEnd::new(1, 7);
        queue.receiver_connected(0);
        receiver.connected(now.monotonic);
        let mut bench = Bench {
            disk,
            clock,
            queue,
            receiver,
            sender: None,
            tried: Vec::new(),
            reads: Vec::new(),
            answers: Vec::new(),
            bounces: Vec::new(),
            slice_bytes_max: 0,
        };
        bench.process_starts();
        bench
    }

    fn process_starts(&mut self) {
        self.queue.sender_connected(SENDER, self.clock.now());
        let mut sender = SenderEnd::new(1, 8, 10);
        sender.connected();
        self.sender = Some(sender);
        self.run();
    }

    fn process_dies(&mut self) {
        self.sender = None;
        self.queue.sender_gone(SENDER, self.clock.now());
        self.run();
    }

    /// Runs everything except reads.
    fn run(&mut self) {
        for _ in 0..200 {
            self.turn();
            self.clock.advance(Duration::from_millis(1));
        }
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.queue.receiver_input(0, &mut carried(Some(self.receiver.transmit())), now).unwrap();
        if let Some(sender) = &mut self.sender {
            self.queue.sender_input(SENDER, &mut carried(Some(sender.transmit())), now).unwrap();
        }
        self.queue.advance(now);
        while let Some(output) = self.queue.poll() {
            match output {
                Output::Io(io) => {
                    if let spool::IoWork::Write { file: spool::File::Snapshot(_), buffer, .. } =
                        io.work()
                    {
                        self.slice_bytes_max = self.slice_bytes_max.max(buffer.len());
                    }
                    self.queue.io_done(spool::execute(&self.disk, io), now);
                }
                Output::Read(read) => self.reads.push(read),
                Output::Answer(_, answer) => self.answers.push(answer),
                Output::Log(LogEvent::Bounce { kind, .. }) => self.bounces.push(kind),
                Output::Log(_) => {}
            }
        }
        self.receiver.handle(&mut carried(self.queue.receiver_output(0))).unwrap();
        let Some(sender) = &mut self.sender else { return };
        sender.handle(&mut carried(self.queue.sender_output(SENDER))).unwrap();
        while let Some(event) = sender.poll() {
            if let SenderEvent::Attempt { attempt, .. } = event {
                self.tried.push(attempt.message);
            }
        }
    }

    fn send(&mut self, number: u64, recipients: u32) {
        let one = |at| Recipient {
            address: address(&format!("user{at}@to.test")),
            notify: Notify::DEFAULT,
            orcpt: None,
        };
        let envelope = Envelope {
            from: MailFrom::new(ReversePath::Address(address("sender@from.test"))),
            origin: Origin { client: None, helo: "c.test".into(), protocol: Protocol::Esmtp },
            arrived: self.clock.now().wall,
            recipients: (0..recipients).map(one).collect(),
        };
        self.receiver.accept(number, envelope, b"Subject: x\r\n\r\nbody\r\n");
        self.run();
    }

    /// Applies an action to all messages and waits for the answer.
    fn act(&mut self, action: Action) {
        let before = self.answers.len();
        let now = self.clock.now();
        self.queue.admin_act(1, action, &Filter::default(), None, false, now);
        self.run();
        assert_eq!(self.answers.len(), before + 1, "the action is confirmed");
    }

    fn read(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            let done = queue::perform(&self.disk, read);
            self.queue.read_done(done, self.clock.now());
        }
        self.run();
    }
}

/// Returns a bench with one message whose attempt waits for a sending process.
fn waiting() -> Bench {
    let mut bench = Bench::new(1 << 20);
    bench.process_dies();
    bench.send(1, 1);
    assert_eq!(bench.queue.summary(bench.clock.now()).attempts_in_flight, 1);
    bench
}

#[test]
fn r240_a_message_is_not_tried_once_its_hold_is_confirmed_though_its_attempt_had_been_given_out() {
    let mut bench = waiting();
    bench.act(Action::Hold);
    assert_eq!(bench.queue.summary(bench.clock.now()).held, 1);
    bench.process_starts();
    assert_eq!(bench.tried, []);
    bench.act(Action::Release);
    assert_eq!(bench.tried.len(), 1);
}

#[test]
fn r240_the_same_while_its_message_is_read_for_the_attempt() {
    let mut bench = Bench::new(0);
    bench.send(1, 1);
    bench.tried.clear();
    bench.process_dies();
    // The second message replaces the first in the cache.
    bench.send(2, 1);
    // The process does not come back in time, so its attempt is lost and made again.
    for _ in 0..2 {
        bench.clock.advance(Duration::from_secs(3));
        bench.run();
    }
    bench.process_starts();
    assert_eq!(bench.reads.len(), 1);
    let before = bench.tried.len();
    bench.act(Action::Hold);
    bench.read();
    assert_eq!(bench.tried.len(), before);
    bench.act(Action::Release);
    bench.read();
    assert!(bench.tried.len() > before);
}

#[test]
fn an_attempt_whose_message_is_being_read_for_a_process_that_dies_counts_as_never_begun() {
    let mut bench = Bench::new(0);
    bench.process_dies();
    bench.send(1, 1);
    bench.send(2, 1);
    for deaths in 1..10 {
        bench.process_starts();
        assert_eq!(bench.reads.len(), deaths, "the message is read at once");
        bench.process_dies();
    }
    bench.process_starts();
    bench.read();
    let first = bench.tried.iter().min();
    assert_eq!(bench.tried.iter().filter(|tried| Some(*tried) == first).count(), 1);
}

#[test]
fn r240_nor_is_one_that_was_deleted() {
    let mut bench = waiting();
    bench.act(Action::Delete);
    bench.process_starts();
    assert_eq!(bench.tried, []);
    assert_eq!(bench.queue.summary(bench.clock.now()).attempts_in_flight, 0);
}

#[test]
fn r240_one_that_expires_while_no_process_is_there_bounces() {
    let mut bench = waiting();
    bench.clock.advance(Duration::from_secs(30 * 86_400));
    bench.run();
    assert_eq!(bench.bounces, [NoticeKind::Delayed, NoticeKind::Expired]);
    assert_eq!(bench.tried, []);
}

#[test]
fn r222_a_slice_of_a_snapshot_ends_before_it_has_many_more_recipients_than_its_bound() {
    let mut bench = Bench::new(1 << 20);
    bench.process_dies();
    for number in 0..100 {
        bench.send(number, 500);
    }
    bench.run();
    assert_eq!(bench.queue.summary(bench.clock.now()).recipients, 50_000);
    let usage = bench.queue.usage();
    assert!(usage.snapshots > 0);
    // A recipient takes about 20 bytes. The last snapshot alone has 446 KB.
    let fit = SLICE_RECIPIENTS_MAX * 10..SLICE_RECIPIENTS_MAX * 25;
    assert!(fit.contains(&bench.slice_bytes_max), "{}", bench.slice_bytes_max);
}
