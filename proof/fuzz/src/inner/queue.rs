//! The queue machine on a simulated disk, with processes around it that say what they like.
//!
//! Must never let a promise pass that the disk does not hold.

use super::frames::{FromReceiver, FromSender, frame, greeting};
use crate::disk::files::{envelope, settings};
use crate::disk::open::now;
use crate::input::Input;
use bytes::{Bytes, BytesMut};
use link::admin::{Action, Filter};
use link::control::Role;
use link::receive::{ReceiverEnd, ReceiverEvent};
use link::send::{Result, SenderEnd, SenderEvent, UnderWay};
use mail::{
    Address, Domain, Enhanced, Envelope, MessageId, NextHop, Now, Outcome, Reply, Report, Stage,
};
use policy::{Pattern, Route, Routes};
use queue::{Output, Queue, SenderKey, Settings, perform};
use scheduler::Scheduler;
use spool::execute;
use std::collections::BTreeMap;
use std::time::Duration;
use world::sim::Disk;

const BUILD: u64 = 5;
const SEND: SenderKey = SenderKey(Role::Send, 0);
/// What it may hold at once in all; the disk's files are part of it.
const HELD_BYTES_MAX: usize = 128 << 20;

/// A queue, its disk, one honest receiving process and one honest sending process beside whoever
/// is hostile.
struct Machine {
    disk: Disk,
    queue: Queue,
    now: Now,
    honest: ReceiverEnd,
    /// The number of the next honest transaction.
    number: u64,
    /// Messages that the honest receiver was promised, with their bodies.
    promised: BTreeMap<MessageId, Option<Vec<u8>>>,
    waiting: BTreeMap<u64, Option<Vec<u8>>>,
    /// Nothing was ended on purpose: whatever was promised must still be there.
    keeps_all: bool,
}

fn queue_settings() -> Settings {
    let domain = |text: &str| Domain::parse(text).expect("it is one");
    let route = |pattern: &str, to| Route { pattern: Pattern::Exact(domain(pattern)), to };
    let routes = vec![
        route("hold.test", NextHop::Hold),
        route("discard.test", NextHop::Discard),
        route("error.test", NextHop::Error("no".into())),
    ];
    Settings {
        hostname: "mx.test".into(),
        postmaster: Address::parse("postmaster@mx.test", false).expect("it is one"),
        routes: Routes::new([].into(), NextHop::Local, domain("mx.test"), routes, false),
        scheduler: scheduler::Settings::for_tests(),
        original_bytes_max: 10_000,
        message_cache_bytes_max: 4_000,
        credit_bytes: 100_000,
        receivers: 2,
    }
}

impl Machine {
    fn new() -> Machine {
        let (disk, now) = (Disk::new(1), now());
        let settings = queue_settings();
        let (spool, _) = spool::open(&disk, self::settings(), 9, &mut |_| {}).expect("it is empty");
        let scheduler = Scheduler::new(settings.scheduler.clone(), 1, now);
        let mut queue = Queue::new(BUILD, 4, settings, spool, scheduler, 1, now);
        queue.receiver_connected(0);
        queue.receiver_connected(1);
        let mut honest = ReceiverEnd::new(BUILD, 1_000);
        honest.connected(now.monotonic);
        let mut machine = Machine {
            disk,
            queue,
            now,
            honest,
            number: 0,
            promised: BTreeMap::new(),
            waiting: BTreeMap::new(),
            keeps_all: true,
        };
        machine.settle();
        machine
    }

    /// Runs what can run without time passing.
    fn settle(&mut self) {
        for _ in 0..500 {
            self.queue.advance(self.now);
            let mut moved = self.honest_round();
            while let Some(output) = self.queue.poll() {
                moved = true;
                match output {
                    Output::Io(io) => {
                        let done = execute(&self.disk, io);
                        self.queue.io_done(done, self.now);
                    }
                    Output::Read(read) => {
                        let done = perform(&self.disk, read);
                        self.queue.read_done(done, self.now);
                    }
                    Output::Log(_) | Output::Answer(..) => {}
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// The honest receiver hears and says what there is; it is never disturbed by the others.
    fn honest_round(&mut self) -> bool {
        let mut said: BytesMut = self.honest.transmit().drain(..).flatten().collect();
        let moved = !said.is_empty();
        self.queue.receiver_input(1, &mut said, self.now).expect("an honest process is heard");
        let heard =
            self.queue.receiver_output(1).map(|frames| frames.drain(..).flatten().collect());
        let mut heard: BytesMut = heard.unwrap_or_default();
        self.honest.handle(&mut heard).expect("queue is honest");
        while let Some(event) = self.honest.poll() {
            match event {
                ReceiverEvent::Promised { number, durable } => {
                    let body = self.waiting.remove(&number).expect("promised once");
                    assert!(self.promised.insert(durable.message(), body).is_none());
                }
                ReceiverEvent::Refused { number, .. } | ReceiverEvent::Abandoned { number } => {
                    self.waiting.remove(&number);
                }
                ReceiverEvent::Credit => {}
            }
        }
        moved
    }

    fn pass(&mut self, time: Duration) {
        self.now = Now { monotonic: self.now.monotonic + time, wall: self.now.wall + time };
        self.settle();
    }

    /// One message from the honest receiver.
    fn honest_message(&mut self, input: &mut Input<'_>) {
        self.number += 1;
        let (body, which) = (input.short(), input.byte());
        // What goes to `discard` and `error` ends by itself.
        let stays = which % 6 < 4;
        self.waiting.insert(self.number, stays.then(|| body.to_vec()));
        self.honest.accept(self.number, envelope_to(which), body);
        self.settle();
    }

    /// False: that was too much, and it was hung up on; it is back with a greeting.
    fn hear_receiver(&mut self, bytes: &[u8], hello: &[u8]) -> bool {
        let heard = self.queue.receiver_input(0, &mut BytesMut::from(bytes), self.now).is_ok();
        if !heard {
            self.queue.receiver_connected(0);
            let greeted = self.queue.receiver_input(0, &mut BytesMut::from(hello), self.now);
            assert!(greeted.is_ok(), "a greeting is heard");
        }
        self.settle();
        self.queue.receiver_output(0).map(|frames| frames.drain(..).count());
        heard
    }

    fn hear_sender(&mut self, bytes: &[u8]) -> BytesMut {
        if self.queue.sender_input(SEND, &mut BytesMut::from(bytes), self.now).is_err() {
            self.queue.sender_connected(SEND, self.now);
            let mut hello = BytesMut::from(&greeting(BUILD, 1, 4, vec![])[..]);
            let greeted = self.queue.sender_input(SEND, &mut hello, self.now);
            assert!(greeted.is_ok(), "a greeting is heard");
        }
        self.settle();
        let frames =
            self.queue.sender_output(SEND).map(|frames| frames.drain(..).flatten().collect());
        frames.unwrap_or_default()
    }

    /// At the end everything settles, and a new process finds what was promised, byte for byte.
    fn finish(mut self) {
        self.queue.receiver_gone(0);
        for _ in 0..5 {
            self.pass(Duration::from_millis(50));
        }
        assert!(self.waiting.is_empty(), "an honest transaction was never answered");
        self.queue.summary(self.now);
        self.queue.usage();
        drop(self.queue);
        let opened = spool::open(&self.disk, settings(), 9, &mut |_| {});
        let (mut spool, report) = opened.expect("it was written well");
        assert_eq!(report.damage, []);
        if !self.keeps_all {
            return;
        }
        for (message, body) in &self.promised {
            let Some(body) = body else { continue };
            let plan = spool.plan(*message).expect("what was promised is there");
            let stored = spool::read_message(&self.disk, &plan).expect("and whole");
            assert_eq!(stored.body.as_deref().unwrap_or_default(), body);
            spool.unplan(plan);
        }
    }
}

fn envelope_to(which: u8) -> Envelope {
    let mut envelope = envelope();
    let domain = ["a.test", "b.test", "hold.test", "c.test", "error.test", "discard.test"]
        [usize::from(which % 6)];
    let address = Address::parse(&format!("x@{domain}"), false).expect("it is one");
    envelope.recipients[0].address = address;
    envelope.recipients.truncate(1 + usize::from(which >> 7));
    envelope
}

/// A hostile receiving process beside an honest one.
pub fn receiver(data: &[u8]) {
    crate::memory::within(HELD_BYTES_MAX, || receiver_run(data));
}

fn receiver_run(data: &[u8]) {
    let mut input = Input(data);
    let mut machine = Machine::new();
    let incarnation = 7;
    input.byte();
    let hello = frame(&FromReceiver::Hello { build: BUILD, incarnation }, b"");
    machine.hear_receiver(&hello, &hello);
    let mut checksums: BTreeMap<u64, u32> = BTreeMap::new();
    // What is said in one go with the next frame.
    let mut held: Vec<u8> = Vec::new();
    while !input.is_over() {
        let op = input.byte();
        match op % 12 {
            1 => machine.honest_message(&mut input),
            2 => machine.pass(Duration::from_millis(u64::from(input.u16()))),
            3 => {
                machine.queue.receiver_connected(0);
                checksums.clear();
                machine.hear_receiver(&hello, &hello);
            }
            forgery => {
                match forgery {
                    0 => held.extend(input.short()),
                    _ => held.extend(forged(forgery, incarnation, &mut input, &mut checksums)),
                }
                if op < 192 && !machine.hear_receiver(&std::mem::take(&mut held), &hello) {
                    checksums.clear();
                }
            }
        }
    }
    machine.finish();
}

/// A well-formed frame with hostile numbers; a body's checksum is right as a rule.
fn forged(
    op: u8,
    incarnation: u64,
    input: &mut Input<'_>,
    checksums: &mut BTreeMap<u64, u32>,
) -> Bytes {
    let number = input.number();
    match op {
        4..=6 => {
            let body = input.short();
            let sum = checksums.entry(number).or_default();
            *sum = crc32c::crc32c_append(*sum, body);
            frame(&FromReceiver::Stage { number }, body)
        }
        7 | 8 => {
            let body = input.short();
            let before = checksums.get(&number).copied().unwrap_or(0);
            let checksum = crc32c::crc32c_append(before, body);
            let envelope = Box::new(hostile_envelope(input));
            frame(&FromReceiver::Accept { number, checksum, envelope }, body)
        }
        9 => {
            checksums.remove(&number);
            frame(&FromReceiver::Unstage { number }, b"")
        }
        10 => {
            let numbers = (0..input.byte()).map(|_| input.number()).collect();
            frame(&FromReceiver::Question { numbers }, b"")
        }
        _ => frame(&FromReceiver::Hello { build: input.number(), incarnation }, b""),
    }
}

fn hostile_envelope(input: &mut Input<'_>) -> Envelope {
    let flags = input.byte();
    let mut envelope = envelope_to(flags & 0x87);
    if flags & 8 != 0 {
        envelope.recipients.clear();
    }
    if flags & 16 != 0 {
        envelope.from.sender = mail::ReversePath::Null;
    }
    if flags & 32 != 0 {
        let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into());
        envelope.from.envid = text(input.short());
        envelope.origin.helo = text(input.short()).unwrap_or_default();
        envelope.recipients.iter_mut().for_each(|recipient| recipient.orcpt = text(input.short()));
    }
    if flags & 64 != 0 {
        envelope.arrived = mail::Timestamp::from_micros(input.u64() as i64);
    }
    envelope
}

/// A hostile sending process.
pub fn sender(data: &[u8]) {
    crate::memory::within(HELD_BYTES_MAX, || sender_run(data));
}

fn sender_run(data: &[u8]) {
    let mut input = Input(data);
    let mut machine = Machine::new();
    machine.queue.sender_connected(SEND, machine.now);
    let capacity = if input.byte() & 1 != 0 { 4 } else { u32::MAX };
    // What an honest one would know: the attempts that it was given.
    let mut knows = SenderEnd::new(BUILD, 1, capacity);
    let mut open: Vec<Open> = Vec::new();
    let mut heard = machine.hear_sender(&greeting(BUILD, 1, capacity, vec![]));
    loop {
        learn(&mut knows, &mut heard, &mut open);
        if input.is_over() {
            break;
        }
        heard = match input.byte() % 12 {
            0 => {
                let bytes = input.short();
                machine.hear_sender(bytes)
            }
            1..=3 => {
                machine.honest_message(&mut input);
                machine.hear_sender(b"")
            }
            4 => {
                let seconds = u64::from(input.u16());
                // After a day and more mail expires.
                machine.keeps_all &= seconds < 600;
                machine.pass(Duration::from_secs(seconds));
                machine.hear_sender(b"")
            }
            5 => {
                machine.queue.sender_connected(SEND, machine.now);
                let under_way = under_way(&mut input, &open);
                knows = SenderEnd::new(BUILD, 1, capacity);
                open.clear();
                machine.hear_sender(&greeting(BUILD, 1, capacity, under_way))
            }
            6 => {
                let message = MessageId(input.number());
                operate(&mut machine, &mut input, message);
                machine.hear_sender(b"")
            }
            7 => {
                let Open { attempt, message, .. } = pick(&mut input, &open);
                let (offset, bytes) = (input.number(), input.u32());
                machine.hear_sender(&frame(
                    &FromSender::Fetch { attempt, message, offset, bytes },
                    b"",
                ))
            }
            _ => {
                machine.keeps_all = false;
                let result = result(&mut input, &open);
                machine.hear_sender(&frame(&FromSender::Result(result), b""))
            }
        };
    }
    machine.finish();
}

/// An attempt that was handed out.
#[derive(Clone)]
struct Open {
    attempt: u64,
    seal: u64,
    message: MessageId,
    recipients: Vec<u32>,
}

/// Remembers the attempts that were handed out.
fn learn(knows: &mut SenderEnd, heard: &mut BytesMut, open: &mut Vec<Open>) {
    if knows.handle(heard).is_err() {
        heard.clear();
    }
    while let Some(event) = knows.poll() {
        if let SenderEvent::Attempt { attempt, .. } = event {
            let recipients = attempt.recipients.iter().map(|(index, _)| *index).collect();
            let link::send::Attempt { id: attempt, seal, message, .. } = *attempt;
            open.push(Open { attempt, seal, message, recipients });
        }
    }
}

/// One of the attempts that are open, or numbers of the input's.
fn pick(input: &mut Input<'_>, open: &[Open]) -> Open {
    let which = usize::from(input.byte());
    match open.get(which % (open.len() + 2)) {
        Some(found) => found.clone(),
        None => Open {
            attempt: input.number(),
            seal: input.number(),
            message: MessageId(input.number()),
            recipients: vec![input.number() as u32],
        },
    }
}

fn under_way(input: &mut Input<'_>, open: &[Open]) -> Vec<UnderWay> {
    let one = |Open { attempt, seal, message, recipients }| UnderWay {
        attempt,
        seal,
        message,
        recipients,
    };
    (0..input.byte() % 4).map(|_| one(pick(input, open))).collect()
}

fn result(input: &mut Input<'_>, open: &[Open]) -> Result {
    let flags = input.byte();
    let Open { attempt, mut message, mut recipients, .. } = pick(input, open);
    if flags & 1 != 0 {
        message = MessageId(input.number());
    }
    if flags & 2 != 0 {
        recipients.extend([input.number() as u32, 0]);
    }
    if flags & 4 != 0 {
        recipients.pop();
    }
    let report = Report {
        stage: Stage::End,
        reply: Reply::new(
            200 + u16::from(input.byte()) * 2,
            Enhanced(5, 1, 1),
            String::from_utf8_lossy(input.short()),
        ),
        peer: "peer".into(),
        from_peer: flags & 8 != 0,
    };
    let outcome = || match flags >> 4 & 3 {
        0 => Outcome::Delivered { report: report.clone(), relayed: flags & 64 != 0 },
        1 => Outcome::Failed(report.clone()),
        _ => Outcome::Deferred(report.clone()),
    };
    let outcomes = recipients.into_iter().map(|index| (index, outcome())).collect();
    Result { attempt, message, outcomes }
}

/// An operator between it all.
fn operate(machine: &mut Machine, input: &mut Input<'_>, message: MessageId) {
    let actions =
        [Action::Hold, Action::Release, Action::Retry, Action::Delete, Action::Priority(5)];
    let action = actions[input.below(5)];
    machine.keeps_all &= action != Action::Delete;
    let filter = Filter::default();
    let now = machine.now;
    machine.queue.admin_act(1, action, &filter, None, input.byte() & 1 != 0, now);
    machine.queue.admin_list(&filter, Some(message), 10, now);
    machine.queue.admin_explain(message, 0, now);
    machine.queue.admin_show(2, message, now);
    machine.settle();
}
