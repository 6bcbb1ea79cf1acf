//! A sending process is believed only about attempts that it was given.

#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::control::Role;
use link::receive::ReceiverEnd;
use link::send::{Attempt, SenderEnd, SenderEvent};
use mail::{
    Address, Domain, Enhanced, Envelope, MailFrom, NextHop, Notify, Origin, Outcome, Protocol,
    Recipient, Reply, Report, ReversePath, Stage, Timestamp,
};
use queue::{Output, Queue, Restore, SenderKey};
use scheduler::Scheduler;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;
use world::Clock as _;
use world::sim::{Clock, Disk};

const SEAL_KEY: [u64; 2] = [3, 4];
const KEYS: [SenderKey; 3] =
    [SenderKey(Role::Send, 0), SenderKey(Role::Send, 1), SenderKey(Role::Local, 0)];
/// One message for each of the two sending processes, and one for the mailboxes.
const RECIPIENTS: [&str; 3] = ["a@a.test", "b@b.test", "c@local.test"];

/// A queue with three sending processes, each of which has an attempt under way.
struct Bench {
    disk: Disk,
    clock: Clock,
    queue: Queue,
    receiver: ReceiverEnd,
    ends: [SenderEnd; 3],
    given: [Vec<Attempt>; 3],
    /// What the queue has said to each process over its present stream.
    said: [Vec<u8>; 3],
}

fn settings() -> queue::Settings {
    let domain = |name: &str| Domain::parse(name).unwrap();
    let own = HashSet::from([domain("local.test")]);
    queue::Settings {
        hostname: "mx.test".into(),
        postmaster: address("postmaster@mx.test"),
        routes: policy::Routes::new(own, NextHop::Local, domain("mx.test"), Vec::new(), false),
        scheduler: scheduler::Settings::for_tests(),
        original_bytes_max: 10_000,
        message_cache_bytes_max: 1 << 20,
        credit_bytes: 1 << 20,
        receivers: 1,
    }
}

fn address(text: &str) -> Address {
    Address::parse(text, false).unwrap()
}

fn envelope(to: &str) -> Envelope {
    let recipient = Recipient { address: address(to), notify: Notify::DEFAULT, orcpt: None };
    Envelope {
        from: MailFrom::new(ReversePath::Address(address("sender@from.test"))),
        origin: Origin { client: None, helo: "client.test".into(), protocol: Protocol::Esmtp },
        arrived: Timestamp::from_micros(1_000_000),
        recipients: vec![recipient],
    }
}

fn delivered() -> Outcome {
    let reply = Reply::new(250, Enhanced(2, 0, 0), "so it is");
    let report = Report { stage: Stage::End, reply, peer: "hop.test".into(), from_peer: true };
    Outcome::Delivered { report, relayed: false }
}

fn carried(frames: Option<&mut VecDeque<Bytes>>) -> BytesMut {
    frames.map(|frames| frames.drain(..).flatten().collect()).unwrap_or_default()
}

fn open(disk: &Disk, clock: &Clock) -> Queue {
    let (settings, now) = (settings(), clock.now());
    let mut scheduler = Scheduler::new(settings.scheduler.clone(), now.monotonic.nanos(), now);
    let mut restore = Restore::new(&settings.routes);
    let spool = spool::Settings {
        segment_bytes: 64 << 10,
        batch_bytes_max: 16 << 10,
        chunk_bytes_max: 4 << 10,
        reserve_bytes: 0,
        keep_free_bytes: 0,
        ..spool::Settings::for_tests()
    };
    let opened = spool::open(disk, spool, 1, &mut |replay| {
        restore.replay(&mut scheduler, replay, now);
    });
    let (spool, _) = opened.unwrap();
    Queue::new(1, now.monotonic.nanos(), settings, spool, scheduler, 3, now).sealed_with(SEAL_KEY)
}

impl Bench {
    fn new() -> Bench {
        let (disk, clock) = (Disk::new(1), Clock::starting(Timestamp::from_micros(1_000_000)));
        let mut bench = Bench {
            queue: open(&disk, &clock),
            disk,
            clock,
            receiver: ReceiverEnd::new(1, 7),
            ends: [0, 1, 2].map(|incarnation| SenderEnd::new(1, incarnation, 10)),
            given: Default::default(),
            said: Default::default(),
        };
        bench.connect();
        for (number, to) in RECIPIENTS.iter().enumerate() {
            bench.receiver.accept(number as u64 + 1, envelope(to), b"Subject: x\r\n\r\nbody\r\n");
            bench.run().unwrap();
        }
        let given = bench.given.each_ref().map(Vec::len);
        assert_eq!(given, [1, 1, 1], "each has something under way");
        bench
    }

    fn connect(&mut self) {
        let now = self.clock.now();
        self.queue.receiver_connected(0);
        self.receiver.connected(now.monotonic);
        for (at, key) in KEYS.into_iter().enumerate() {
            self.queue.sender_connected(key, now);
            self.ends[at].connected();
            self.said[at].clear();
        }
    }

    /// Kills the queue process and starts it again; the other processes go on.
    fn restart(&mut self) {
        self.clock.advance(Duration::from_millis(5));
        self.queue = open(&self.disk, &self.clock);
        self.connect();
    }

    /// Carries frames for a while. Returns the first error of a stream to a sending process.
    fn run(&mut self) -> Result<(), LinkError> {
        for _ in 0..300 {
            let now = self.clock.now();
            let mut said = carried(Some(self.receiver.transmit()));
            self.queue.receiver_input(0, &mut said, now)?;
            for (at, key) in KEYS.into_iter().enumerate() {
                let mut said = carried(Some(self.ends[at].transmit()));
                self.queue.sender_input(key, &mut said, now)?;
            }
            self.queue.advance(now);
            while let Some(output) = self.queue.poll() {
                match output {
                    Output::Io(io) => self.queue.io_done(spool::execute(&self.disk, io), now),
                    Output::Read(read) => {
                        self.queue.read_done(queue::perform(&self.disk, read), now);
                    }
                    Output::Log(_) | Output::Answer(..) => {}
                }
            }
            self.receiver.handle(&mut carried(self.queue.receiver_output(0))).unwrap();
            for (at, key) in KEYS.into_iter().enumerate() {
                let mut said = carried(self.queue.sender_output(key));
                self.said[at].extend_from_slice(&said);
                self.ends[at].handle(&mut said).unwrap();
                while let Some(event) = self.ends[at].poll() {
                    let SenderEvent::Attempt { attempt, .. } = event else { continue };
                    self.given[at].push(*attempt);
                }
            }
            self.clock.advance(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Replaces this process by one that lies: it knows everything that another process was told.
    fn knows_what_was_told_to(&mut self, liar: usize, other: usize) -> SenderEnd {
        let mut end = SenderEnd::new(1, 99, 10);
        end.connected();
        end.handle(&mut BytesMut::from(&self.said[other][..])).unwrap();
        end.transmit().clear();
        std::mem::replace(&mut self.ends[liar], end)
    }

    fn say(&mut self, liar: usize, attempt: u64, about: &Attempt) {
        let outcomes = about.recipients.iter().map(|(index, _)| (*index, delivered())).collect();
        self.ends[liar].result(link::send::Result { attempt, message: about.message, outcomes });
    }

    /// Returns what the scheduler and the spool know. A lie must not change it.
    fn known(&self) -> (u64, u64, u64) {
        let now = self.clock.now();
        let summary = self.queue.summary(now);
        (summary.messages, summary.recipients, self.queue.counters().delivered)
    }

    fn refuses(&mut self, what: &str) {
        let before = self.known();
        assert_eq!(self.run(), Err(LinkError::NotGiven), "{what}");
        assert_eq!(self.known(), before, "{what}");
    }
}

#[test]
fn r219_an_outcome_of_another_process_s_attempt_is_refused_and_changes_nothing() {
    for (liar, other) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
        let mut bench = Bench::new();
        let about = bench.given[other][0].clone();
        bench.knows_what_was_told_to(liar, other);
        bench.say(liar, about.id, &about);
        bench.refuses("an outcome");
    }
}

#[test]
fn r219_an_outcome_or_a_fetch_of_another_message_by_an_attempt_of_its_own_is_refused() {
    let mut bench = Bench::new();
    let (own, other) = (bench.given[0][0].clone(), bench.given[2][0].clone());
    bench.say(0, own.id, &other);
    bench.refuses("an outcome");
    let mut bench = Bench::new();
    let (own, other) = (bench.given[0][0].clone(), bench.given[2][0].clone());
    bench.ends[0].fetch(own.id, other.message, 0, 1_000);
    bench.refuses("a fetch");
}

#[test]
fn r219_what_another_process_has_under_way_is_not_taken_over_by_this_one() {
    for restarted in [false, true] {
        let mut bench = Bench::new();
        bench.knows_what_was_told_to(0, 2);
        if restarted {
            bench.restart();
        } else {
            let now = bench.clock.now();
            bench.queue.sender_connected(KEYS[0], now);
            bench.ends[0].connected();
        }
        bench.refuses("what is under way");
    }
}

#[test]
fn r219_what_a_process_was_given_is_believed_over_a_new_stream_and_by_a_new_queue_process() {
    for restarted in [false, true] {
        let mut bench = Bench::new();
        let attempts = bench.given.each_ref().map(|given| given[0].clone());
        match restarted {
            true => bench.restart(),
            false => bench.connect(),
        }
        bench.run().unwrap();
        assert_eq!(bench.given.each_ref().map(Vec::len), [1, 1, 1], "no attempt is made twice");
        for (at, attempt) in attempts.iter().enumerate() {
            bench.say(at, attempt.id, attempt);
        }
        bench.run().unwrap();
        assert_eq!(bench.known(), (0, 0, 3));
    }
}

#[test]
fn r206_attempts_whose_process_does_not_come_back_are_made_again() {
    let mut bench = Bench::new();
    // Each process was started again and knows nothing; the last one does not come back at all.
    bench.ends = [10, 11, 12].map(|incarnation| SenderEnd::new(1, incarnation, 10));
    let now = bench.clock.now();
    KEYS.iter().for_each(|key| bench.queue.sender_gone(*key, now));
    for at in [0, 1] {
        bench.queue.sender_connected(KEYS[at], now);
        bench.ends[at].connected();
    }
    (0..15).for_each(|_| bench.run().unwrap());
    assert_eq!(bench.given.each_ref().map(Vec::len), [2, 2, 1], "by those that came back");
    bench.queue.sender_connected(KEYS[2], bench.clock.now());
    bench.ends[2].connected();
    bench.run().unwrap();
    assert_eq!(bench.given.each_ref().map(Vec::len), [2, 2, 2]);
}

#[test]
fn r206_a_result_that_becomes_durable_while_it_is_said_again_ends_no_process() {
    let mut bench = Bench::new();
    let attempt = bench.given[0][0].clone();
    bench.say(0, attempt.id, &attempt);
    // The queue has the result, and the disk is writing its record, when the stream ends.
    let now = bench.clock.now();
    let mut said = carried(Some(bench.ends[0].transmit()));
    bench.queue.sender_input(KEYS[0], &mut said, now).unwrap();
    bench.queue.advance(now);
    bench.clock.advance(Duration::from_millis(50));
    let now = bench.clock.now();
    bench.queue.advance(now);
    let under_way: Vec<_> = std::iter::from_fn(|| bench.queue.poll()).collect();
    assert!(under_way.iter().any(|output| matches!(output, Output::Io(_))));
    bench.queue.sender_connected(KEYS[0], now);
    bench.ends[0].connected();
    let mut frames: Vec<Bytes> = bench.ends[0].transmit().drain(..).collect();
    let result = frames.pop().unwrap();
    let mut first: BytesMut = frames.into_iter().flatten().collect();
    bench.queue.sender_input(KEYS[0], &mut first, now).unwrap();
    for output in under_way {
        let Output::Io(io) = output else { continue };
        bench.queue.io_done(spool::execute(&bench.disk, io), now);
    }
    bench.queue.advance(now);
    let heard = bench.queue.sender_input(KEYS[0], &mut BytesMut::from(&result[..]), now);
    assert_eq!(heard, Ok(()), "the process is honest");
    bench.run().unwrap();
    assert_eq!(bench.known(), (2, 2, 1));
    assert!(!bench.ends[0].is_open(attempt.id));
}

#[test]
fn r206_over_a_new_stream_nothing_is_said_before_the_greeting() {
    let mut bench = Bench::new();
    let attempt = bench.given[0][0].clone();
    bench.say(0, attempt.id, &attempt);
    let now = bench.clock.now();
    let mut said = carried(Some(bench.ends[0].transmit()));
    bench.queue.sender_input(KEYS[0], &mut said, now).unwrap();
    // The queue has its end of the new stream before the process has the other end.
    bench.queue.sender_connected(KEYS[0], now);
    bench.ends[0].connected();
    let on_the_way: Vec<Bytes> = bench.ends[0].transmit().drain(..).collect();
    bench.run().unwrap();
    bench.ends[0].transmit().extend(on_the_way);
    bench.run().unwrap();
    assert!(!bench.ends[0].is_open(attempt.id));
}

#[test]
fn r206_a_piece_that_was_read_for_a_former_stream_is_not_said_over_the_next_one() {
    let mut bench = Bench::new();
    let attempt = bench.given[0][0].clone();
    bench.ends[0].fetch(attempt.id, attempt.message, 0, 10);
    let now = bench.clock.now();
    let mut said = carried(Some(bench.ends[0].transmit()));
    bench.queue.sender_input(KEYS[0], &mut said, now).unwrap();
    // The piece is being read from the disk when the stream ends.
    bench.queue.sender_connected(KEYS[0], now);
    bench.ends[0].connected();
    let on_the_way: Vec<Bytes> = bench.ends[0].transmit().drain(..).collect();
    bench.run().unwrap();
    bench.ends[0].transmit().extend(on_the_way);
    bench.ends[0].fetch(attempt.id, attempt.message, 0, 10);
    bench.run().unwrap();
    assert_eq!(bench.known(), (3, 3, 0), "nothing is lost");
}

#[test]
fn r206_a_deferral_that_becomes_durable_while_no_stream_is_up_counts_once() {
    let mut bench = Bench::new();
    let attempt = bench.given[0][0].clone();
    let reply = Reply::new(450, Enhanced(4, 2, 0), "later");
    let report = Report { stage: Stage::Rcpt, reply, peer: "hop.test".into(), from_peer: true };
    bench.ends[0].result(link::send::Result {
        attempt: attempt.id,
        message: attempt.message,
        outcomes: vec![(0, Outcome::Deferred(report))],
    });
    let now = bench.clock.now();
    let mut said = carried(Some(bench.ends[0].transmit()));
    bench.queue.sender_input(KEYS[0], &mut said, now).unwrap();
    bench.queue.sender_gone(KEYS[0], now);
    bench.run().unwrap();
    assert_eq!(bench.queue.counters().deferred, 1);
    let now = bench.clock.now();
    bench.queue.sender_connected(KEYS[0], now);
    bench.ends[0].connected();
    bench.run().unwrap();
    assert_eq!(bench.queue.counters().deferred, 1, "the outcome counts once");
    assert!(!bench.ends[0].is_open(attempt.id));
}

/// The processes live, but nobody can open a stream for longer than their attempts are waited for.
#[test]
fn r206_an_attempt_that_outlives_a_long_time_without_streams_is_not_made_again() {
    let mut bench = Bench::new();
    let [first, other, local] = bench.given.each_ref().map(|given| given[0].clone());
    bench.say(1, other.id, &other);
    bench.run().unwrap();
    let now = bench.clock.now();
    KEYS.into_iter().for_each(|key| bench.queue.sender_gone(key, now));
    for _ in 0..20 {
        bench.clock.advance(Duration::from_millis(500));
        bench.run().unwrap();
    }
    // One process has its result by now; the other gets its result later.
    bench.say(0, first.id, &first);
    bench.connect();
    bench.run().unwrap();
    bench.say(2, local.id, &local);
    bench.run().unwrap();
    assert_eq!(bench.given.each_ref().map(Vec::len), [1, 1, 1], "no attempt is made twice");
    assert_eq!(bench.known(), (0, 0, 3));
}

#[test]
fn a_process_that_drains_is_given_nothing_more_and_what_it_leaves_counts_as_no_loss() {
    let mut bench = Bench::new();
    let drained = [bench.given[0][0].message, bench.given[2][0].message];
    for incarnation in 20..30 {
        for at in [0, 2] {
            bench.ends[at].drain();
        }
        bench.run().unwrap();
        let given = bench.given.each_ref().map(Vec::len);
        bench.receiver.accept(
            incarnation,
            envelope("new@local.test"),
            b"Subject: x\r\n\r\nbody\r\n",
        );
        bench.run().unwrap();
        assert_eq!(
            bench.given.each_ref().map(Vec::len),
            given,
            "the attempt waits for the next process"
        );
        // Its stream is lost and opened again, and then the process ends before its attempts have ended.
        for at in [0, 2] {
            bench.queue.sender_connected(KEYS[at], bench.clock.now());
            bench.ends[at].connected();
            bench.run().unwrap();
            assert_eq!(bench.given[at].len(), given[at]);
            bench.ends[at] = SenderEnd::new(1, incarnation, 10);
            bench.queue.sender_connected(KEYS[at], bench.clock.now());
            bench.ends[at].connected();
        }
        bench.run().unwrap();
        bench.run().unwrap();
        assert!(bench.given[2].len() > given[2], "the next one is given what waited");
    }
    for message in drained {
        let tries = bench.given.iter().flatten().filter(|one| one.message == message);
        assert_eq!(tries.count(), 11, "the message is tried again each time, and never held");
    }
    assert_eq!(bench.queue.summary(bench.clock.now()).held, 0);
}
