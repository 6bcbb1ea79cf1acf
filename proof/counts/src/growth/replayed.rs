//! Recovery: a spool is filled on a disk in memory, then opened, and what it tells goes into a scheduler.
//!
//! Must never count the filling, nor the reads of the disk.

use super::{counted, due, envelope, scattered};
use crate::house::routes;
use crate::memory_disk::MemoryDisk;
use crate::meter::Count;
use bytes::Bytes;
use mail::{Change, Envelope, MessageId, Now, Timestamp, TransactionId};
use queue::Restore;
use scheduler::Scheduler;
use spool::{Output, Settings, Spool};
use std::time::Duration;

/// Recipients of one attempt.
const ATTEMPT: usize = 100;

pub fn delivered(n: usize) -> Count {
    let all: Vec<u32> = scattered(n).collect();
    let one =
        |message| move |some: &[u32]| Change::Delivered { message, recipients: some.to_vec() };
    // One recipient is left.
    let changes = |message| all[1..].chunks(ATTEMPT).map(one(message)).collect();
    recover(&[envelope(n, false)], changes, 1)
}

pub fn deferred(n: usize) -> Count {
    let changes = |message| (0..n as u32).map(|at| due(message, at)).collect();
    recover(&[envelope(n, false)], changes, 1)
}

pub fn retired(n: usize) -> Count {
    let changes = |message| {
        let one = |some: &[u32]| Change::Delivered { message, recipients: some.to_vec() };
        let all: Vec<u32> = scattered(n).collect();
        let retire = Change::Retire { message };
        all.chunks(ATTEMPT).map(one).chain([retire]).collect()
    };
    recover(&[envelope(n, false)], changes, 0)
}

pub fn messages(n: usize) -> Count {
    let one = |at: usize| {
        let mut all = envelope(1, false);
        all.recipients[0].address = super::address(&format!("user@d{at}.test"));
        all
    };
    recover(&(0..n).map(one).collect::<Vec<_>>(), |_| Vec::new(), n)
}

/// Counts an opening after these messages and changes of each; `left` are still there.
fn recover(
    envelopes: &[Envelope],
    changes: impl Fn(MessageId) -> Vec<Change>,
    left: usize,
) -> Count {
    let disk = MemoryDisk::default();
    fill(&disk, envelopes, changes);
    let (routes, now) = (routes(), start());
    let mut scheduler = Scheduler::new(scheduler::Settings::for_tests(), 1, now);
    let (count, _spool) = counted(|| {
        let mut restore = Restore::new(&routes);
        spool::open(&disk, settings(), 1, &mut |replay| restore.replay(&mut scheduler, replay, now))
            .expect("the disk is in order")
    });
    assert_eq!(scheduler.len(), left);
    count
}

fn fill(disk: &MemoryDisk, envelopes: &[Envelope], changes: impl Fn(MessageId) -> Vec<Change>) {
    let (mut spool, _) = spool::open(disk, settings(), 1, &mut |_| ()).expect("there is room");
    let mut now = start();
    settle(&mut spool, disk, &mut now);
    for (number, envelope) in envelopes.iter().enumerate() {
        let transaction = TransactionId { incarnation: 7, number: number as u64 + 1 };
        let body = Bytes::from_static(b"Subject: x\r\n\r\nbody\r\n");
        spool.stage(transaction, body).expect("there is room");
        let message = spool.next_message_id(now);
        let accepted = spool.accept(message, transaction, envelope, b"Received: x\r\n", now);
        accepted.expect("there is room");
        for change in changes(message) {
            spool.change(change, now);
        }
        if number % 100 == 0 {
            settle(&mut spool, disk, &mut now);
        }
    }
    settle(&mut spool, disk, &mut now);
}

/// Runs the spool until all is on the disk.
fn settle(spool: &mut Spool, disk: &MemoryDisk, now: &mut Now) {
    let mut idle = 0;
    while idle < 100 || !spool.is_settled() {
        idle += 1;
        while let Some(output) = spool.poll(*now) {
            if let Output::Io(io) = output {
                idle = 0;
                spool.handle(spool::execute(disk, io), *now);
            }
        }
        now.monotonic = now.monotonic + Duration::from_millis(1);
    }
}

/// A segment is zeros for the most part, and its length is a fixed part of every opening.
fn settings() -> Settings {
    Settings {
        segment_bytes: 4 << 20,
        batch_bytes_max: 1 << 20,
        bulk_body_bytes_min: 512 << 10,
        spares: 1,
        reserve_bytes: 0,
        ..Settings::for_tests()
    }
}

fn start() -> Now {
    Now { wall: Timestamp::from_micros(1_795_253_400_000_000), ..Now::default() }
}
