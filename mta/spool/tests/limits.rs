//! Sizes and limits, each at the value where it takes effect.

#![allow(clippy::unwrap_used)]

mod support;

use mail::{Change, Enhanced, MessageId, Reply, Report, Stage, Timestamp};
use spool::{Alarm, OpenError, Settings, change_bytes};
use std::time::Duration;
use support::{Ledger, Machine, settings};
use world::sim::{Call, Disk};
use world::{Clock as _, Errno};

fn machine(settings: Settings) -> Machine {
    let mut machine = Machine::open(&Disk::new(1), settings, Ledger::default(), 1).unwrap();
    run(&mut machine, 300);
    machine
}

fn run(machine: &mut Machine, millis: u64) {
    for _ in 0..millis {
        machine.clock.advance(Duration::from_millis(1));
        while machine.step() {}
    }
}

#[test]
fn settings_are_refused_one_past_what_can_work_and_taken_at_it() {
    type Change = fn(&mut Settings);
    let least = 64 << 10;
    let cases: [(&str, Change, Change); 9] = [
        ("segment_bytes", |s| s.segment_bytes = (64 << 10) - 4096, |s| s.segment_bytes = 64 << 10),
        ("segment_bytes", |s| s.segment_bytes = (1 << 30) + 4096, |s| s.segment_bytes = 1 << 30),
        ("segment_bytes", |s| s.segment_bytes = (64 << 10) + 1, |s| s.segment_bytes = 68 << 10),
        (
            "batch_bytes_max",
            |s| s.batch_bytes_max = 16 * 1024 + 1,
            |s| s.batch_bytes_max = 16 << 10,
        ),
        ("batch_bytes_max", |s| s.batch_bytes_max = 4095, |s| s.batch_bytes_max = 4096),
        ("chunk_bytes_max", |s| s.chunk_bytes_max = 8 * 1024 + 1, |s| s.chunk_bytes_max = 8 << 10),
        ("chunk_bytes_max", |s| s.chunk_bytes_max = 0, |s| s.chunk_bytes_max = 1),
        ("commits_in_flight", |s| s.commits_in_flight = 65, |s| s.commits_in_flight = 64),
        ("zero_slice_bytes", |s| s.zero_slice_bytes = 4095, |s| s.zero_slice_bytes = 4096),
    ];
    for (name, past, at) in cases {
        let small = || Settings {
            segment_bytes: least,
            batch_bytes_max: 4096,
            chunk_bytes_max: 4096,
            ..Settings::for_tests()
        };
        let (mut past_it, mut at_it) = (small(), small());
        past(&mut past_it);
        at(&mut at_it);
        assert!(past_it.problem().is_some_and(|text| text.contains(name)), "{name}: {past_it:?}");
        assert_eq!(at_it.problem(), None, "{name}: {at_it:?}");
    }
}

#[test]
fn a_change_never_takes_more_than_was_reckoned_and_not_much_less() {
    let message = MessageId((1 << 55) - 1);
    for count in [0, 1, 200, 5_000] {
        let recipients: Vec<u32> = (0..count).map(|at| u32::MAX - at).collect();
        let mut changes = vec![
            Change::Delivered { message, recipients: recipients.clone() },
            Change::Failed { message, recipients: recipients.clone() },
            Change::DelayNoticed { message, recipients: recipients.clone() },
            Change::Hold { message },
            Change::Priority { message, priority: -100 },
            Change::Retire { message },
        ];
        for text in [0, 300, 8_000] {
            let reply = Reply::new(599, Enhanced(4, 999, 999), "x".repeat(text));
            let peer = "p".repeat(text / 2).into();
            let report = Report { stage: Stage::Rcpt, reply, peer, from_peer: true };
            let (recipients, due) = (recipients.clone(), Timestamp::from_micros(i64::MAX));
            changes.push(Change::Due { message, recipients, due, attempts: u16::MAX, report });
        }
        for change in changes {
            let bytes = postcard::to_stdvec(&change).unwrap().len();
            let reckoned = change_bytes(&change);
            assert!(bytes <= reckoned && reckoned <= bytes + 64, "{bytes}, {reckoned}: {change:?}");
        }
    }
}

#[test]
fn a_spool_contains_a_message_from_its_promise_until_it_is_retired() {
    let mut machine = machine(settings(2));
    let message = machine.accept(vec![b'x'; 100]).unwrap();
    machine.settle();
    assert!(machine.spool.contains(message));
    assert!(!machine.spool.contains(MessageId(message.0 + 1)));
    machine.change(Change::Retire { message });
    machine.settle();
    assert!(!machine.spool.contains(message));
}

#[test]
fn a_spool_is_failing_from_a_failed_commit_to_the_next_that_succeeds() {
    let mut machine = machine(settings(1));
    assert!(!machine.spool.is_failing());
    machine.disk.fail_always(Call::Sync, Some(Errno::IO));
    machine.accept(vec![b'x'; 100]).unwrap();
    run(&mut machine, 100);
    assert!(machine.spool.is_failing());
    machine.disk.fail_always(Call::Sync, None);
    run(&mut machine, 60_000);
    machine.accept(vec![b'x'; 100]).unwrap();
    machine.settle();
    assert!(!machine.spool.is_failing());
}

#[test]
fn a_broken_disk_is_tried_again_at_the_very_time_that_the_spool_has_named() {
    // There are enough segments for the failures and for the next attempt.
    let mut machine = machine(Settings { spares: 6, ..settings(1) });
    machine.disk.fail_always(Call::Sync, Some(Errno::IO));
    machine.accept(vec![b'x'; 100]).unwrap();
    while !machine.spool.is_broken() {
        run(&mut machine, 1);
    }
    machine.disk.fail_always(Call::Sync, None);
    let now = machine.clock.now().monotonic;
    let named = machine.spool.next_wakeup().unwrap();
    assert_eq!(named, now + Duration::from_secs(1));
    machine.clock.advance(named.since(now));
    while machine.step() {}
    assert!(!machine.spool.is_broken() && machine.alarms.contains(&Alarm::Healthy));
}

#[test]
fn pauses_of_a_broken_disk_grow_and_never_shrink() {
    let mut machine = machine(settings(1));
    machine.disk.fail_always(Call::Sync, Some(Errno::IO));
    machine.accept(vec![b'x'; 100]).unwrap();
    run(&mut machine, 60_000);
    assert!(machine.spool.usage().broken);
    let before = machine.disk.calls(Call::Sync);
    run(&mut machine, 300_000);
    let tries = machine.disk.calls(Call::Sync) - before;
    // The commit is tried once in 30 s. Making a segment is tried every two seconds, with two syncs.
    assert!(tries <= 10 + 300, "{tries} syncs in five minutes");
}

#[test]
fn a_file_is_made_only_if_what_is_left_to_others_stays() {
    let made = |room: u64| {
        let disk = Disk::new(1);
        let settings = Settings { keep_free_bytes: 1 << 20, spares: 1, ..settings(1) };
        let mut machine = Machine::open(&disk, settings, Ledger::default(), 1).unwrap();
        disk.set_room(room);
        run(&mut machine, 500);
        let full = machine.alarms.iter().any(|alarm| matches!(alarm, Alarm::Full(_)));
        (disk.bytes("segment-00000000").is_some(), full)
    };
    let least = (1 << 20) + (64 << 10);
    assert_eq!(made(least - 1), (false, true), "a byte too few");
    assert_eq!(made(least + 3 * (64 << 10)), (true, false), "room for the spare also");
}

#[test]
fn a_check_refuses_a_newer_spool_and_takes_its_own() {
    let machine = machine(settings(1));
    let disk = machine.disk.clone();
    assert!(spool::check::check(&disk, 64 << 10).unwrap().is_clean());
    let marker = String::from_utf8(disk.bytes("format").unwrap()).unwrap();
    let newer = marker.replace(char::is_numeric, "9");
    disk.put("format", newer.as_bytes());
    let refused = spool::check::check(&disk, 64 << 10);
    assert!(matches!(refused, Err(OpenError::Newer(_))), "{marker}: {refused:?}");
}

#[test]
fn a_check_finds_damage_in_a_segment_that_the_snapshot_covers() {
    let mut machine = machine(settings(1));
    for _ in 0..40 {
        machine.accept(vec![b'x'; 3_000]).unwrap();
        machine.settle();
    }
    machine.spool.snapshot_now();
    run(&mut machine, 2_000);
    let disk = machine.disk.clone();
    assert!(spool::check::check(&disk, 64 << 10).unwrap().is_clean());
    let mut first = disk.bytes("segment-00000000").unwrap();
    let at = first.windows(100).position(|part| part.iter().all(|byte| *byte == b'x')).unwrap();
    first[at] = b'y';
    disk.put("segment-00000000", &first);
    let report = spool::check::check(&disk, 64 << 10).unwrap();
    let damage = &report.opening.damage;
    assert!(damage.iter().any(|damage| damage.file == "segment-00000000"), "{damage:?}");
}

#[test]
fn what_a_snapshot_knows_is_not_told_a_second_time_from_the_log_behind_it() {
    let mut machine = machine(Settings { snapshot_log_bytes: 1 << 30, ..settings(1) });
    let message = machine.accept(vec![b'x'; 100]).unwrap();
    machine.settle();
    machine.change(Change::Hold { message });
    machine.settle();
    machine.spool.snapshot_now();
    run(&mut machine, 2_000);
    let later = machine.accept(vec![b'x'; 100]).unwrap();
    machine.settle();
    machine.change(Change::Release { message });
    machine.settle();
    machine.disk.cut();
    machine.disk.power_on();
    let mut told = Vec::new();
    spool::open(&machine.disk, settings(1), 7, &mut |replay| {
        told.push(match replay {
            spool::Replay::Snapshot { message, .. } => ("snapshot", message),
            spool::Replay::Accepted { message, .. } => ("accepted", message),
            spool::Replay::Change(change) => ("change", change.message()),
        });
    })
    .unwrap();
    // The hold is in the state that the snapshot has.
    assert_eq!(told, [("snapshot", message), ("accepted", later), ("change", message)]);
}

/// This holds for any number of segments that are left when the disk begins to fail.
#[test]
fn a_spool_that_gets_no_segment_says_that_it_is_broken_and_works_again_after_the_disk_does() {
    for spares in 1..5 {
        let mut machine = machine(Settings { spares, ..settings(1) });
        machine.disk.fail_always(Call::Sync, Some(Errno::IO));
        for _ in 0..10 {
            machine.accept(vec![b'x'; 100]);
            run(&mut machine, 3_000);
        }
        assert!(machine.spool.usage().broken, "{spares} spares");
        let told = machine.alarms.iter().filter(|alarm| matches!(alarm, Alarm::Broken(_)));
        assert_eq!(told.count(), 1, "{spares} spares: {:?}", machine.alarms);
        machine.disk.fail_always(Call::Sync, None);
        run(&mut machine, 60_000);
        assert!(!machine.spool.usage().broken, "{spares} spares");
        machine.accept(vec![b'x'; 100]).unwrap();
        machine.settle();
        assert_eq!(machine.durable, 1, "{spares} spares");
    }
}

#[test]
fn what_still_lives_in_a_nearly_empty_segment_is_copied_out_of_it() {
    let mut machine = machine(settings(1));
    let bodies: Vec<_> = (0..120).map(|number| machine.body(1_000 + number)).collect();
    let messages: Vec<_> = bodies.into_iter().map(|body| machine.accept(body).unwrap()).collect();
    machine.settle();
    for message in messages.iter().skip(1) {
        machine.change(Change::Retire { message: *message });
    }
    machine.settle();
    let before = machine.spool.usage();
    // A segment is covered by the older one of two snapshots.
    for _ in 0..2 {
        machine.spool.snapshot_now();
        machine.settle();
        run(&mut machine, 1_000);
    }
    let after = machine.spool.usage();
    assert_eq!((before.copied_forward, after.copied_forward), (0, 1));
}

/// Each message takes a block of 4 KiB, because it came alone; its copy takes a block as well.
#[test]
fn short_messages_that_stay_are_not_copied_again_and_again() {
    let mut machine = machine(settings(1));
    let mut messages = Vec::new();
    for _ in 0..100 {
        messages.push(machine.accept(vec![b'x'; 100]).unwrap());
        machine.settle();
    }
    let copied = |machine: &mut Machine| {
        for _ in 0..4 {
            machine.spool.snapshot_now();
            machine.settle();
            run(machine, 10_000);
        }
        machine.spool.usage().copied_forward
    };
    assert_eq!(copied(&mut machine), 0, "no segment is worth it");
    // A few messages of each segment are left.
    for (_, message) in messages.iter().enumerate().filter(|(at, _)| at % 3 > 0) {
        machine.change(Change::Retire { message: *message });
    }
    machine.settle();
    let first = copied(&mut machine);
    assert!((20..=34).contains(&first), "{first} of 34 messages");
    assert_eq!(copied(&mut machine), first, "none twice");
}
