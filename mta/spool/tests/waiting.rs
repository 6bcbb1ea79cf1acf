//! Data that waits in memory to be written: bodies of clients that have stopped sending, and messages of our own.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use mail::{Change, Durable, MessageId, TransactionId};
use spool::{Group, NewMessage, Output, Refusal, Settings, Spool};
use std::time::Duration;
use support::{envelope, read_with};
use world::Clock as _;
use world::sim::{Clock, Disk};

const KIB: u64 = 1 << 10;

struct Rig {
    disk: Disk,
    clock: Clock,
    spool: Spool,
    durable: Vec<Durable>,
    recorded: usize,
    last: u64,
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 1 << 20,
        batch_bytes_max: 128 << 10,
        reserve_bytes: 1 << 20,
        keep_free_bytes: 0,
        chunk_bytes_max: 64 << 10,
        bulk_body_bytes_min: 128 << 10,
        staged_bytes_max: 1 << 20,
        own_bytes_max: 128 << 10,
        ..Settings::for_tests()
    }
}

impl Rig {
    fn new() -> Rig {
        Rig::on(Disk::new(1))
    }

    fn on(disk: Disk) -> Rig {
        let (spool, _) = spool::open(&disk, settings(), 1, &mut |_| {}).unwrap();
        let clock = Clock::starting(mail::Timestamp::from_micros(1_000_000));
        let mut rig = Rig { disk, clock, spool, durable: Vec::new(), recorded: 0, last: 0 };
        rig.run(true);
        rig
    }

    /// Lets half a second pass, with a disk that works or one that does not.
    fn run(&mut self, disk_works: bool) {
        for _ in 0..50 {
            while let Some(output) = self.spool.poll(self.clock.now()) {
                match output {
                    Output::Io(io) if disk_works => {
                        let done = spool::execute(&self.disk, io);
                        self.spool.handle(done, self.clock.now());
                    }
                    Output::Durable(durable) => self.durable.push(durable),
                    Output::Recorded(_) => self.recorded += 1,
                    _ => {}
                }
            }
            self.clock.advance(Duration::from_millis(10));
        }
    }

    fn transaction(&mut self) -> TransactionId {
        self.last += 1;
        TransactionId { incarnation: 1, number: self.last }
    }

    /// Stages a body of this length, one piece at a time.
    fn stage(&mut self, of: TransactionId, bytes: u64) -> Result<(), Refusal> {
        for piece in content(of, bytes).chunks(32 << 10) {
            self.spool.stage(of, Bytes::copy_from_slice(piece))?;
        }
        Ok(())
    }

    fn accept(&mut self, of: TransactionId) -> MessageId {
        self.try_accept(of).unwrap()
    }

    fn try_accept(&mut self, of: TransactionId) -> Result<MessageId, Refusal> {
        let (now, to) = (self.clock.now(), envelope("to@b.test"));
        let message = self.spool.next_message_id(now);
        self.spool.accept(message, of, &to, b"", now).map(|()| message)
    }

    fn read(&mut self, message: MessageId) -> Vec<u8> {
        let plan = self.spool.plan(message).unwrap();
        let read = read_with(&self.disk, &plan);
        self.spool.unplan(plan);
        read.unwrap().1
    }

    fn own(&mut self, bytes: u64) -> Result<TransactionId, Refusal> {
        let transaction = self.transaction();
        self.spool.stage_own(transaction, content(transaction, bytes).into())?;
        Ok(transaction)
    }

    /// A notice and an outcome.
    fn submit(&mut self, transaction: TransactionId) -> Result<MessageId, Refusal> {
        let to = envelope("sender@a.test");
        let messages = vec![NewMessage { transaction, envelope: to, prefix: Vec::new() }];
        let changes = vec![Change::Hold { message: MessageId(1) }];
        let taken = self.spool.submit(Group { messages, changes }, self.clock.now());
        taken.map(|(_, ids)| ids[0])
    }
}

fn content(of: TransactionId, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(of.number * 2 + 1) >> 3) as u8).collect()
}

#[test]
fn r215_bodies_that_stand_still_keep_nobody_out_and_end_whole() {
    let mut rig = Rig::new();
    // Three times the bytes that all clients together may have in memory.
    let stalled: Vec<TransactionId> = (0..64).map(|_| rig.transaction()).collect();
    for transaction in &stalled {
        rig.stage(*transaction, 48 * KIB).unwrap();
        rig.run(true);
    }
    assert!(rig.spool.usage().staged_bytes <= 512 * KIB + 48 * KIB, "half, and what came last");
    for bytes in [1, 20 * KIB, 100 * KIB, 300 * KIB, 3_000 * KIB] {
        let other = rig.transaction();
        for piece in content(other, bytes).chunks(32 << 10) {
            rig.spool.stage(other, Bytes::copy_from_slice(piece)).unwrap();
            rig.run(true);
        }
        let message = rig.accept(other);
        rig.run(true);
        assert!(rig.durable.iter().any(|durable| durable.message() == message));
        assert_eq!(rig.read(message), content(other, bytes));
    }
    for transaction in stalled {
        let message = rig.accept(transaction);
        rig.run(true);
        assert_eq!(rig.read(message), content(transaction, 48 * KIB));
    }
    assert!(rig.spool.usage().staged_bytes < KIB);
}

#[test]
fn r215_a_body_that_trickles_under_pressure_does_not_become_thousands_of_chunks() {
    let mut rig = Rig::new();
    let slow = rig.transaction();
    let (mut sent, mut chunks) = (0, 0);
    while sent < 512 << 10 {
        rig.spool.stage(slow, Bytes::copy_from_slice(&[7; 1_000])).unwrap();
        sent += 1_000;
        // Other bodies keep the memory more than half full and are removed again.
        let others: Vec<TransactionId> = (0..9).map(|_| rig.transaction()).collect();
        for other in &others {
            let _ = rig.spool.stage(*other, content(*other, 60 * KIB).into());
        }
        rig.run(true);
        others.into_iter().for_each(|other| rig.spool.unstage(other));
    }
    let message = rig.accept(slow);
    rig.run(true);
    let plan = rig.spool.plan(message).unwrap();
    chunks += read_with(&rig.disk, &plan).unwrap().0.chunks.len();
    assert!((32..=128).contains(&chunks), "{chunks} chunks of 512 KiB");
}

#[test]
fn r208_our_own_messages_are_bounded_apart_from_those_of_clients() {
    let mut rig = Rig::new();
    assert_eq!(rig.own(129 * KIB), Err(Refusal::TooLarge));
    let mut taken = 0;
    let refused = loop {
        match rig.own(20 * KIB) {
            Ok(transaction) => rig.submit(transaction).unwrap(),
            Err(refusal) => break refusal,
        };
        taken += 1;
        rig.run(false);
    };
    assert_eq!((refused, taken), (Refusal::Busy, 6));
    assert_eq!(rig.spool.own_bytes(), 120 * KIB);
    // Clients may have as many bytes in memory as before.
    let other = rig.transaction();
    rig.spool.stage(other, content(other, 60 * KIB).into()).unwrap();
    rig.accept(other);
}

#[test]
fn r208_when_they_are_durable_there_is_room_again_and_nothing_leaks() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        let own = rig.own(100 * KIB).unwrap();
        let message = rig.submit(own).unwrap();
        rig.run(true);
        assert!(rig.durable.iter().any(|durable| durable.message() == message));
        let dropped = rig.own(100 * KIB).unwrap();
        rig.spool.unstage(dropped);
        rig.run(true);
    }
    assert_eq!((rig.recorded, rig.spool.own_bytes()), (100, 0));
    assert!(rig.spool.usage().staged_bytes < KIB);
}

#[test]
fn r208_a_group_that_is_too_large_leaves_nothing_staged() {
    let mut rig = Rig::new();
    let transaction = rig.own(50 * KIB).unwrap();
    let message = NewMessage { transaction, envelope: envelope("a@a.test"), prefix: Vec::new() };
    let recipients = (0..300_000).collect();
    let changes = vec![Change::Failed { message: MessageId(1), recipients }];
    let group = Group { messages: vec![message], changes };
    let refused = rig.spool.submit(group, rig.clock.now());
    assert_eq!(refused.map(|_| ()), Err(Refusal::TooLarge));
    assert_eq!(rig.spool.own_bytes(), 0);
    assert!(rig.spool.usage().staged_bytes < KIB);
}

#[test]
fn r208_a_full_disk_takes_a_notice_longer_than_a_body_of_the_log() {
    // Bodies of this length go to bulk.
    let disk = Disk::new(1);
    disk.set_room(12 << 20);
    let mut rig = Rig::on(disk);
    let mut refused = None;
    while refused.is_none() {
        let other = rig.transaction();
        let staged = rig.stage(other, 30 * KIB);
        let taken = staged.and_then(|()| rig.try_accept(other));
        refused = taken.err();
        rig.run(true);
    }
    assert!(refused == Some(Refusal::Full) && rig.spool.usage().full);
    let other = rig.transaction();
    let large = rig.stage(other, 200 * KIB);
    assert_eq!(large, Err(Refusal::Full), "clients are refused");
    let own = rig.own(128 * KIB).unwrap();
    let message = rig.submit(own).unwrap();
    rig.run(true);
    assert!(rig.durable.iter().any(|durable| durable.message() == message));
}
