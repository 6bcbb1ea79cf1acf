//! A whole spool of hostile files: opened, judged, read, used, and opened again.
//!
//! Must never reach another disk than the simulated one.

use super::files::{build, envelope, settings};
use crate::input::Input;
use crate::memory;
use bytes::Bytes;
use mail::{Domain, Instant, MessageId, NextHop, Now, Timestamp, TransactionId};
use policy::Routes;
use spool::{Output, Spool, execute, read_chunk, read_message};
use std::collections::BTreeSet;
use std::time::Duration;
use world::sim::Disk;

/// What opening and reading may hold at once: files of 64 KiB, read whole, what is made of them, and
/// a chunk of the longest kind.
const HELD_BYTES_MAX: usize = 192 << 20;

/// Now, long after everything.
pub fn now() -> Now {
    Now { monotonic: Instant::from_nanos(1), wall: Timestamp::from_micros(1_795_000_000_000_000) }
}

/// The hostile spool.
pub fn open(data: &[u8]) {
    let disk = build(&mut Input(data));
    memory::within(HELD_BYTES_MAX, || {
        let _ = spool::check::check(&disk, 64 << 10);
        let Some((first, ids)) = opened(&disk) else { return };
        let Some((again, same)) = opened(&disk) else { panic!("it opens once and not twice") };
        assert_eq!(ids, same, "recovering twice is recovering once");
        drop(again);
        used(&disk, first, &ids);
    });
}

/// Opens it, gives the scheduler what is replayed, and reads every message.
fn opened(disk: &Disk) -> Option<(Spool, BTreeSet<MessageId>)> {
    let now = now();
    let own = Domain::parse("local.test").expect("it is one");
    let routes = Routes::new([].into(), NextHop::Local, own, Vec::new(), false);
    let mut restore = queue::Restore::new(&routes);
    let mut scheduler = scheduler::Scheduler::new(scheduler::Settings::for_tests(), 1, now);
    let opened = spool::open(disk, settings(), 9, &mut |replay| {
        restore.replay(&mut scheduler, replay, now);
    });
    let (mut spool, report) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    assert!(report.damage.len() < 10_000 && report.bytes_read < 64 << 20);
    let ids: BTreeSet<MessageId> = spool.messages_above(0).collect();
    for id in &ids {
        let Some(plan) = spool.plan(*id) else { continue };
        if let Ok(stored) = read_message(disk, &plan) {
            assert_eq!(stored.message, *id);
            for chunk in &stored.chunks {
                let _ = read_chunk(disk, chunk);
            }
        }
        spool.unplan(plan);
    }
    scheduler.summary(now);
    Some((spool, ids))
}

/// A spool that opened takes mail, and keeps it: whatever was wrong with the old files.
fn used(disk: &Disk, mut spool: Spool, before: &BTreeSet<MessageId>) {
    let mut now = now();
    let transaction = TransactionId { incarnation: 77, number: 1 };
    let staged = spool.stage(transaction, Bytes::from_static(b"new body"));
    let message = spool.next_message_id(now);
    let accepted =
        staged.and_then(|()| spool.accept(message, transaction, &envelope(), b"X: y\r\n", now));
    let durable = drive(disk, &mut spool, &mut now);
    if accepted.is_ok() {
        assert!(!before.contains(&message), "an id was given twice");
        assert_eq!(durable, [message], "a good disk keeps what it takes");
        drop(spool);
        let Some((mut spool, after)) = opened(disk) else { panic!("it does not open any more") };
        assert!(after.contains(&message), "what was promised is gone");
        let plan = spool.plan(message).expect("it is there");
        let stored = read_message(disk, &plan).expect("it was written well");
        assert_eq!(stored.body.as_deref(), Some(&b"new body"[..]));
        spool.unplan(plan);
    }
}

/// Runs the machine until nothing is left to do, or for a minute of its time; what became durable.
pub fn drive(disk: &Disk, spool: &mut Spool, now: &mut Now) -> Vec<MessageId> {
    let mut durable = Vec::new();
    for _ in 0..2_000 {
        match spool.poll(*now) {
            Some(Output::Io(io)) => {
                let done = execute(disk, io);
                spool.handle(done, *now);
            }
            Some(Output::Durable(proof)) => durable.push(proof.message()),
            Some(Output::SnapshotWanted(slice)) => {
                let blobs = slice.messages.iter().map(|id| (*id, Vec::new())).collect();
                spool.snapshot_slice(slice, blobs);
            }
            Some(_) => {}
            None => match spool.next_wakeup() {
                Some(due) if due.since(Instant::from_nanos(1)) < Duration::from_secs(60) => {
                    let step = due.since(now.monotonic).max(Duration::from_millis(1));
                    *now = Now { monotonic: now.monotonic + step, wall: now.wall + step };
                }
                _ => return durable,
            },
        }
    }
    durable
}
