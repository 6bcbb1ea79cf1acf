//! A long queue is opened without holding its whole snapshot in memory.

#![allow(clippy::unwrap_used)]

mod support;

use mail::{Change, MessageId};
use spool::SnapshotSlice;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use support::{Ledger, Machine, settings};
use world::sim::Disk;
use world::{DiskError, Entry, Synced};

/// A disk that notes the largest read of a snapshot.
struct Watched {
    disk: Disk,
    largest: AtomicUsize,
}

impl world::Disk for Watched {
    fn list(&self) -> Result<Vec<Entry>, DiskError> {
        self.disk.list()
    }
    fn create(&self, name: &str) -> Result<(), DiskError> {
        self.disk.create(name)
    }
    fn allocate(&self, name: &str, bytes: u64, extend: bool) -> Result<(), DiskError> {
        self.disk.allocate(name, bytes, extend)
    }
    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        if name.starts_with("snapshot") {
            self.largest.fetch_max(into.len(), Relaxed);
        }
        self.disk.read_at(name, offset, into)
    }
    fn write_at(&self, name: &str, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        self.disk.write_at(name, offset, from)
    }
    fn sync(&self, name: &str) -> Result<Synced, DiskError> {
        self.disk.sync(name)
    }
    fn sync_dir(&self) -> Result<(), DiskError> {
        self.disk.sync_dir()
    }
    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.disk.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }
    fn forget_cache(&self, name: &str) -> Result<(), DiskError> {
        self.disk.forget_cache(name)
    }
    fn lock(&self, name: &str) -> Result<(), DiskError> {
        self.disk.lock(name)
    }
    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.disk.free_bytes()
    }
}

/// Returns a machine with 400 messages, whose snapshot may not be complete.
fn with_messages(disk: &Disk, slice_messages_max: usize) -> Machine {
    let mut machine = Machine::open(disk, settings(2), Ledger::default(), 5).unwrap();
    machine.slice_messages_max = slice_messages_max;
    for _ in 0..400 {
        let body = machine.body(100);
        machine.accept(body).unwrap();
        machine.settle();
    }
    machine.spool.snapshot_now();
    machine.settle();
    machine
}

/// Completes the snapshot and cuts the power. Returns the messages that the next start replays, and the number of its
/// snapshot.
fn told_after_a_cut(machine: &mut Machine) -> (Vec<MessageId>, u64) {
    for _ in 0..5_000 {
        machine.step();
    }
    machine.disk.cut();
    machine.disk.power_on();
    let mut told = Vec::new();
    let (_, report) = spool::open(&machine.disk, settings(2), 7, &mut |replay| match replay {
        spool::Replay::Snapshot { message, .. } | spool::Replay::Accepted { message, .. } => {
            told.push(message);
        }
        spool::Replay::Change(_) => {}
    })
    .unwrap();
    (told, report.snapshot)
}

#[test]
fn r222_slices_that_end_early_leave_no_message_out() {
    let disk = Disk::new(5);
    let mut machine = with_messages(&disk, 2);
    let (told, snapshot) = told_after_a_cut(&mut machine);
    assert!(told.iter().eq(machine.ledger.sent.keys()) && snapshot > 0);
}

/// The caller answers late, because it first hands in records that it still has.
#[test]
fn what_becomes_durable_while_a_slice_is_waited_for_is_not_taken_for_a_part_of_it() {
    let disk = Disk::new(5);
    let mut machine = Machine::open(&disk, settings(2), Ledger::default(), 5).unwrap();
    let body = machine.body(100);
    let first = machine.accept(body.clone()).unwrap();
    machine.settle();
    let second = machine.accept(body.clone()).unwrap();
    machine.snapshots = false;
    machine.spool.snapshot_now();
    while machine.held_slice.is_none() {
        assert!(machine.step_background(), "the slice is asked for");
    }
    // Two messages become durable, one of which got its id before the snapshot began. The first message ends.
    let third = machine.accept(body).unwrap();
    machine.change(Change::Retire { message: first });
    machine.settle();
    machine.snapshots = true;
    let slice = machine.held_slice.take().unwrap();
    assert_eq!(slice.messages, [first]);
    machine.answer(slice);
    let (told, snapshot) = told_after_a_cut(&mut machine);
    assert_eq!(told, [second, third]);
    assert_eq!(snapshot, 1);
}

#[test]
fn what_ends_while_a_slice_is_waited_for_takes_no_other_message_out_of_it() {
    let (mut machine, ids, slice) = asked_for_three(|machine, ids| {
        machine.change(Change::Retire { message: ids[1] });
        machine.settle();
    });
    machine.answer(slice);
    let (told, snapshot) = told_after_a_cut(&mut machine);
    assert_eq!((told, snapshot), (vec![ids[0], ids[2]], 1));
}

/// The caller no longer has the state of a message whose end is handed in.
#[test]
fn a_message_whose_end_waits_for_another_commit_does_not_stop_the_snapshot() {
    let (mut machine, ids, slice) = asked_for_three(|machine, ids| {
        machine.change(Change::Hold { message: ids[0] });
        machine.clock.advance(Duration::from_secs(1));
        while machine.step_background() {}
        // The commit of the first change is under way.
        machine.change(Change::Retire { message: ids[0] });
    });
    assert!(machine.spool.contains(ids[0]), "its end is in no batch yet");
    machine.answer(slice);
    machine.settle();
    while machine.step() {}
    assert!(machine.held_slice.is_none(), "no other slice is asked for");
    assert_eq!(machine.spool.usage().snapshots, 1);
    let (told, snapshot) = told_after_a_cut(&mut machine);
    assert_eq!((told, snapshot), (ids[1..].to_vec(), 1));
}

/// Returns a machine with three messages, the changes that came after their slice was asked for, and the slice.
fn asked_for_three(
    meanwhile: impl FnOnce(&mut Machine, &[MessageId]),
) -> (Machine, Vec<MessageId>, SnapshotSlice) {
    let mut machine = Machine::open(&Disk::new(5), settings(2), Ledger::default(), 5).unwrap();
    let body = machine.body(100);
    let ids: Vec<_> = (0..3).map(|_| machine.accept(body.clone()).unwrap()).collect();
    machine.settle();
    machine.snapshots = false;
    machine.spool.snapshot_now();
    while machine.held_slice.is_none() {
        assert!(machine.step_background(), "the slice is asked for");
    }
    meanwhile(&mut machine, &ids);
    let slice = machine.held_slice.take().unwrap();
    assert_eq!(slice.messages, ids);
    (machine, ids, slice)
}

/// The log is replayed from the record at which the snapshot began; its later slices contain more.
#[test]
fn what_a_later_slice_knows_is_not_told_a_second_time() {
    let disk = Disk::new(5);
    let mut machine = Machine::open(&disk, settings(2), Ledger::default(), 5).unwrap();
    let body = machine.body(100);
    let messages: Vec<_> = (0..12).map(|_| machine.accept(body.clone()).unwrap()).collect();
    machine.settle();
    machine.snapshots = false;
    machine.spool.snapshot_now();
    while machine.held_slice.is_none() {
        assert!(machine.step_background(), "the slice is asked for");
    }
    machine.change(Change::Hold { message: messages[11] });
    machine.settle();
    machine.snapshots = true;
    let slice = machine.held_slice.take().unwrap();
    machine.answer(slice);
    for _ in 0..5_000 {
        machine.step();
    }
    disk.cut();
    disk.power_on();
    let (mut known, mut changes) = (0, Vec::new());
    spool::open(&disk, settings(2), 7, &mut |replay| match replay {
        spool::Replay::Snapshot { .. } => known += 1,
        spool::Replay::Accepted { message, .. } => panic!("{message} is in the snapshot"),
        spool::Replay::Change(change) => changes.push(change),
    })
    .unwrap();
    assert_eq!((known, changes), (12, Vec::new()));
}

#[test]
fn a_snapshot_of_many_slices_is_read_one_slice_at_a_time() {
    let disk = Disk::new(5);
    with_messages(&disk, usize::MAX);
    disk.cut();
    disk.power_on();
    let watched = Watched { disk, largest: AtomicUsize::new(0) };
    let mut told = 0;
    let count = &mut |replay: spool::Replay<'_>| {
        told += u32::from(matches!(replay, spool::Replay::Snapshot { .. }));
    };
    let (_, report) = spool::open(&watched, settings(2), 7, count).unwrap();
    assert_eq!((report.messages, report.damage.len()), (400, 0));
    assert!(report.snapshot > 0 && told >= 300, "{told} came from a snapshot: {report:?}");
    // Five messages and the padding to a block; the table of segments and transactions is one slice, too.
    let largest = watched.largest.into_inner();
    assert!(largest <= 24 << 10, "{largest} bytes at once");
}
