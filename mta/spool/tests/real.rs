//! The spool on a real file system with threads for its I/O, and a stored spool of version 1.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use mail::{MessageId, TransactionId};
use spool::{Class, IoDone, Output, Replay, Settings, Spool};
use std::sync::mpsc;
use std::time::Instant;
use support::{envelope, now, read_with};
use world::real::{Clock, Disk};
use world::{Clock as _, Disk as _};

fn small() -> Settings {
    Settings {
        segment_bytes: 1 << 20,
        batch_bytes_max: 128 << 10,
        reserve_bytes: 1 << 20,
        keep_free_bytes: 0,
        chunk_bytes_max: 64 << 10,
        bulk_body_bytes_min: 128 << 10,
        snapshot_log_bytes: 4 << 20,
        ..Settings::for_tests()
    }
}

/// Runs a spool with threads for commits and for background work, each with its own descriptors.
struct Threads {
    spool: Spool,
    commit: Vec<mpsc::Sender<spool::Io>>,
    background: mpsc::Sender<spool::Io>,
    done: mpsc::Receiver<IoDone>,
    turn: usize,
    under_way: usize,
    durable: Vec<MessageId>,
}

fn thread(disk: &Disk, done: mpsc::Sender<IoDone>) -> mpsc::Sender<spool::Io> {
    let (sender, receiver) = mpsc::channel::<spool::Io>();
    let disk = disk.another();
    std::thread::spawn(move || {
        for io in receiver {
            if done.send(spool::execute(&disk, io)).is_err() {
                return;
            }
        }
    });
    sender
}

impl Threads {
    fn new(disk: &Disk, spool: Spool) -> Threads {
        let (sender, done) = mpsc::channel();
        Threads {
            spool,
            commit: (0..2).map(|_| thread(disk, sender.clone())).collect(),
            background: thread(disk, sender),
            done,
            turn: 0,
            under_way: 0,
            durable: Vec::new(),
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.spool.poll(Clock.now()) {
            match output {
                Output::Io(io) => {
                    self.under_way += 1;
                    if io.class() == Class::Commit {
                        self.turn += 1;
                        self.commit[self.turn % 2].send(io).unwrap();
                    } else {
                        self.background.send(io).unwrap();
                    }
                }
                Output::Durable(durable) => self.durable.push(durable.message()),
                Output::SnapshotWanted(slice) => {
                    let blobs = slice.messages.iter().map(|id| (*id, vec![7; 40])).collect();
                    self.spool.snapshot_slice(slice, blobs);
                }
                Output::Recorded(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits for the end of one I/O, if one is under way.
    fn turn(&mut self) {
        self.drain();
        if self.under_way > 0 {
            let done = self.done.recv().unwrap();
            self.under_way -= 1;
            self.spool.handle(done, Clock.now());
            self.drain();
        }
    }

    fn settle(&mut self) {
        while !self.spool.is_settled() {
            self.turn();
        }
    }
}

fn accept(threads: &mut Threads, number: u64, bytes: usize) -> MessageId {
    let transaction = TransactionId { incarnation: 1, number };
    let body = Bytes::from(vec![number as u8; bytes]);
    threads.spool.stage(transaction, body).unwrap();
    let message = threads.spool.next_message_id(Clock.now());
    let to = envelope("a@b.example");
    threads.spool.accept(message, transaction, &to, b"X: y\r\n", Clock.now()).unwrap();
    message
}

#[test]
fn what_was_durable_on_a_real_disk_is_read_back_after_the_process_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let (spool, report) = spool::open(&disk, small(), 1, &mut |_| {}).unwrap();
    assert!(report.created);
    let mut threads = Threads::new(&disk, spool);
    let sizes = [0, 1, 100, 4096, 70_000, 400_000];
    let ids: Vec<_> = (0..600u64)
        .map(|number| accept(&mut threads, number, sizes[number as usize % 6]))
        .collect();
    threads.settle();
    assert_eq!(threads.durable.len(), ids.len());
    let usage = threads.spool.usage();
    assert!(usage.batch_messages_max > 1 && usage.commits_failed == 0, "{usage:?}");
    drop(threads);
    let mut found = 0;
    let again = Disk::open(directory.path()).unwrap();
    drop(disk);
    let mut count = |replay: Replay<'_>| match replay {
        Replay::Snapshot { .. } | Replay::Accepted { .. } => found += 1,
        Replay::Change(_) => {}
    };
    let mut opened = None;
    for _ in 0..200 {
        // The threads of the first incarnation hold the lock until they have noticed its end.
        match spool::open(&again, small(), 2, &mut count) {
            Ok(spool) => {
                opened = Some(spool);
                break;
            }
            Err(spool::OpenError::Locked) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    let (mut spool, report) = opened.unwrap();
    assert_eq!((found, report.damage.len()), (600, 0));
    for (number, id) in ids.iter().enumerate() {
        let plan = spool.plan(*id).unwrap();
        let (stored, body) = read_with(&again, &plan).unwrap();
        assert_eq!(body, vec![number as u8; sizes[number % 6]]);
        assert_eq!(stored.prefix, "X: y\r\n");
        spool.unplan(plan);
    }
    assert!(spool::check::check(&again, 1 << 20).unwrap().is_clean());
}

#[test]
fn s140_a_second_daemon_is_told_that_the_spool_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let first = Disk::open(directory.path()).unwrap();
    let opened = spool::open(&first, small(), 1, &mut |_| {}).unwrap();
    let second = Disk::open(directory.path()).unwrap();
    let refused = spool::open(&second, small(), 1, &mut |_| {});
    assert!(matches!(refused, Err(spool::OpenError::Locked)));
    drop((opened, first));
    assert!(spool::open(&second, small(), 1, &mut |_| {}).is_ok());
}

#[test]
fn s141_a_spool_deleted_under_a_running_daemon_promises_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let (mut spool, _) = spool::open(&disk, small(), 1, &mut |_| {}).unwrap();
    let run = |spool: &mut Spool| {
        let mut durable = 0;
        for _ in 0..200 {
            match spool.poll(Clock.now()) {
                Some(Output::Io(io)) => spool.handle(spool::execute(&disk, io), Clock.now()),
                Some(Output::Durable(_)) => durable += 1,
                Some(_) => {}
                None => break,
            }
        }
        durable
    };
    run(&mut spool);
    let to = envelope("a@b.example");
    let transaction = |number| TransactionId { incarnation: 1, number };
    let message = spool.next_message_id(Clock.now());
    spool.accept(message, transaction(1), &to, b"", Clock.now()).unwrap();
    assert_eq!(run(&mut spool), 1);
    for file in std::fs::read_dir(directory.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let message = spool.next_message_id(Clock.now());
    let _ = spool.accept(message, transaction(2), &to, b"", Clock.now());
    assert_eq!(run(&mut spool), 0);
}

#[test]
fn s133_links_and_directories_named_like_segments_are_left_alone_and_do_not_stop_the_spool() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("segment-00000000");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    std::fs::create_dir(directory.path().join("segment-00000001")).unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    disk.create("format").unwrap();
    disk.write_at("format", 0, b"posthaste spool 1\n").unwrap();
    let (spool, report) = spool::open(&disk, small(), 1, &mut |_| {}).unwrap();
    assert_eq!(report.strangers, ["segment-00000000", "segment-00000001"]);
    let mut threads = Threads::new(&disk, spool);
    accept(&mut threads, 1, 100);
    threads.settle();
    assert_eq!(threads.durable.len(), 1);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// A spool of version 1 as it was written when version 1 was new. Made by
/// `cargo test -p spool --test real -- --ignored write_the_golden_spool`.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1");

fn golden_settings() -> Settings {
    Settings { snapshot_log_bytes: 16 << 10, ..support::settings(1) }
}

#[test]
fn s143_a_spool_written_by_the_first_version_is_read_by_this_one() {
    let disk = Disk::open(GOLDEN.as_ref()).unwrap().reading_only();
    let report = spool::check::check(&disk, 64 << 10).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.whole, 5);
    assert!(report.opening.snapshot >= 1 && report.opening.replayed >= 1);
}

#[test]
#[ignore = "writes the stored file; run it by hand when the format changes"]
fn write_the_golden_spool() {
    std::fs::create_dir_all(GOLDEN).unwrap();
    let disk = Disk::open(GOLDEN.as_ref()).unwrap();
    let (spool, _) = spool::open(&disk, golden_settings(), 1, &mut |_| {}).unwrap();
    let mut threads = Threads::new(&disk, spool);
    let ids: Vec<_> = (0..8)
        .map(|n| {
            let id = accept(&mut threads, n, 3000 * n as usize);
            threads.settle();
            id
        })
        .collect();
    for id in &ids[..3] {
        threads.spool.change(support::due(*id, 1), now(5));
        threads.spool.change(mail::Change::Retire { message: *id }, now(5));
    }
    threads.settle();
    while threads.under_way > 0 {
        threads.turn();
    }
    threads.spool.change(support::due(ids[4], 2), Clock.now());
    threads.settle();
}

/// Prints durations and sizes. Run it in release mode on a quiet machine.
#[test]
#[ignore = "takes long: a million messages"]
fn s144_a_million_messages_are_accepted_flat_and_opened_within_two_seconds() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let (spool, _) = spool::open(&disk, Settings::for_tests(), 1, &mut |_| {}).unwrap();
    let mut threads = Threads::new(&disk, spool);
    let body = Bytes::from(vec![b'x'; 1024]);
    let to = envelope("someone@example.org");
    let start = Instant::now();
    for number in 0..1_000_000u64 {
        let transaction = TransactionId { incarnation: 1, number };
        threads.spool.stage(transaction, body.clone()).unwrap();
        let (message, prefix) =
            (threads.spool.next_message_id(Clock.now()), b"Received: by here\r\n");
        threads.spool.accept(message, transaction, &to, prefix, Clock.now()).unwrap();
        if number % 100 == 99 {
            threads.turn();
        }
        if number % 100_000 == 99_999 {
            println!("{} messages after {:?}", number + 1, start.elapsed());
        }
    }
    threads.settle();
    println!("all durable after {:?}: {:?}", start.elapsed(), threads.spool.usage());
    drop(threads);
    drop(disk);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let disk = Disk::open(directory.path()).unwrap();
    let start = Instant::now();
    let mut told = 0u64;
    let (_, report) = spool::open(&disk, Settings::for_tests(), 1, &mut |_| told += 1).unwrap();
    println!("opened {told} in {:?}: {report:?}", start.elapsed());
    assert_eq!(told, 1_000_000);
}
