//! A disk that fails, fills up, or holds damaged bytes.

#![allow(clippy::unwrap_used)]

mod support;

use mail::{Change, MessageId};
use spool::{Alarm, IoWork, Output, Refusal, Replay};
use std::time::Duration;
use support::{Ledger, Machine, due, settings};
use world::sim::{Call, Disk};
use world::{Clock as _, Disk as _, Errno};

fn fresh(seed: u64) -> Machine {
    Machine::open(&Disk::new(seed), settings(2), Ledger::default(), seed).unwrap()
}

fn reopened(machine: &Machine) -> Machine {
    let (disk, ledger) = (&machine.disk, machine.ledger.clone());
    Machine::open(disk, settings(2), ledger, 77).unwrap()
}

fn cut_and_judge(machine: &Machine) -> Machine {
    machine.disk.cut();
    machine.disk.power_on();
    let mut again = reopened(machine);
    again.judge();
    again
}

/// Returns a machine with one live message for each body.
fn with_messages(seed: u64, bodies: &[usize]) -> (Machine, Vec<MessageId>) {
    let mut machine = fresh(seed);
    let mut ids = Vec::new();
    for bytes in bodies {
        let body = machine.body(*bytes as u64);
        ids.push(machine.accept(body).unwrap());
        machine.settle();
    }
    run(&mut machine, 300); // quiet: the spares are zeroed
    (machine, ids)
}

fn run(machine: &mut Machine, millis: u64) {
    for _ in 0..millis {
        machine.clock.advance(Duration::from_millis(1));
        for _ in 0..8 {
            machine.step();
        }
    }
}

#[test]
fn s122_a_commit_whose_sync_failed_is_never_promised_though_the_next_sync_succeeds() {
    for seed in 0..60 {
        let (mut machine, ids) = with_messages(seed, &[100, 200]);
        machine.disk.fail_nth(Call::Sync, 1 + seed % 3, Errno::IO);
        let body = machine.body(500);
        machine.accept(body);
        machine.change(due(ids[0], 1));
        machine.bounce(ids[1]);
        for _ in 0..5 {
            let body = machine.body(500);
            machine.accept(body);
            machine.step();
        }
        machine.settle();
        let failed = |alarm: &Alarm| matches!(alarm, Alarm::CommitFailed(_));
        let in_background = |alarm: &Alarm| matches!(alarm, Alarm::Background(_));
        assert!(machine.alarms.iter().any(|a| failed(a) || in_background(a)));
        // Every change was written elsewhere and is recorded now.
        assert!(ids.iter().all(|id| machine.ledger.sent[id].recorded == 1));
        let again = cut_and_judge(&machine);
        assert_eq!(again.states[&ids[0]].attempts, 1);
        assert!(again.states[&ids[1]].failed);
    }
}

#[test]
fn s121_a_failed_write_sets_the_segment_aside_and_refuses_its_clients() {
    let mut refusals = Vec::new();
    for nth in 1..12 {
        let (mut machine, _) = with_messages(3, &[100]);
        machine.disk.fail_nth(Call::Write, nth, Errno::IO);
        for _ in 0..6 {
            let body = machine.body(900);
            machine.accept(body);
            machine.step();
            machine.step();
        }
        machine.settle();
        refusals.extend(machine.refusals.clone());
        cut_and_judge(&machine);
    }
    assert!(!refusals.is_empty());
    assert!(refusals.iter().all(|refusal| *refusal == Refusal::Broken), "{refusals:?}");
}

#[test]
fn s122_random_failures_of_any_call_lose_nothing() {
    for seed in 0..60 {
        let mut machine = fresh(seed);
        let calls = [Call::Write, Call::Sync, Call::SyncDir, Call::Allocate, Call::Read];
        for round in 0..6 {
            let call = calls[((seed + round) % 5) as usize];
            let errno = if round % 2 == 0 { Errno::IO } else { Errno::FULL };
            machine.disk.fail_nth(call, 1 + (seed * 31 + round * 17) % 20, errno);
            machine.work(15);
        }
        cut_and_judge(&machine);
    }
}

#[test]
fn s123_when_every_sync_fails_all_get_451_nothing_spins_and_old_mail_stays_readable() {
    let (mut machine, ids) = with_messages(5, &[100, 3000]);
    machine.disk.fail_always(Call::Sync, Some(Errno::IO));
    let body = machine.body(100);
    machine.accept(body);
    machine.change(due(ids[0], 1));
    run(&mut machine, 100);
    assert!(machine.spool.usage().broken);
    assert!(machine.refusals.len() == 1 && machine.accept(vec![1]).is_none());
    let syncs = machine.disk.calls(Call::Sync);
    run(&mut machine, 10_000);
    let tried = machine.disk.calls(Call::Sync) - syncs;
    assert!((1..40).contains(&tried), "{tried} syncs in ten seconds");
    let ledger = machine.ledger.clone();
    assert_eq!(machine.read(ids[1]).unwrap().1, ledger.sent[&ids[1]].body);
    machine.disk.fail_always(Call::Sync, None);
    run(&mut machine, 60_000);
    assert!(!machine.spool.usage().broken && machine.alarms.contains(&Alarm::Healthy));
    assert_eq!(machine.ledger.sent[&ids[0]].recorded, 1, "the outcome was kept and written");
    let body = machine.body(100);
    machine.accept(body).unwrap();
    machine.settle();
    assert_eq!(cut_and_judge(&machine).states.len(), 3);
}

#[test]
fn s136_a_disk_that_turns_read_only_refuses_and_resumes() {
    let (mut machine, ids) = with_messages(6, &[100]);
    for call in [Call::Write, Call::Create, Call::Allocate, Call::Sync] {
        machine.disk.fail_always(call, Some(Errno::READ_ONLY));
    }
    machine.change(due(ids[0], 1));
    let body = machine.body(100);
    machine.accept(body);
    run(&mut machine, 5_000);
    assert!(machine.durable == 1 && machine.accept(vec![1]).is_none());
    // After mounting the file system again and restarting:
    cut_and_judge(&machine);
}

#[test]
fn s124_nothing_is_promised_while_a_sync_takes_half_a_minute() {
    let mut machine = fresh(8);
    machine.settle();
    while machine.step() {}
    let body = machine.body(10);
    machine.accept(body);
    let mut commit = None;
    while let Some(output) = machine.spool.poll(machine.clock.now()) {
        if let Output::Io(io) = output
            && matches!(io.work(), IoWork::Write { offset, .. } if *offset > 0)
        {
            commit = Some(io);
        }
    }
    machine.clock.advance(Duration::from_secs(30));
    let said = std::iter::from_fn(|| machine.spool.poll(machine.clock.now()));
    assert!(!said.into_iter().any(|output| matches!(output, Output::Durable(_))));
    let done = spool::execute(&machine.disk, commit.unwrap());
    machine.spool.handle(done, machine.clock.now());
    assert!(matches!(machine.spool.poll(machine.clock.now()), Some(Output::Durable(_))));
}

#[test]
fn s118_a_full_disk_refuses_new_mail_with_452_and_still_records_and_retires() {
    let mut machine = fresh(9);
    machine.disk.set_room(600 << 10);
    let mut ids = Vec::new();
    let mut refused = None;
    for _ in 0..400 {
        let body = machine.body(2500);
        match machine.try_accept(body) {
            Ok(id) => ids.push(id),
            Err(refusal) => refused = Some(refusal),
        }
        machine.settle();
    }
    assert_eq!(refused, Some(Refusal::Full));
    assert!(machine.spool.usage().full, "{:?}", machine.spool.usage());
    assert!(machine.alarms.iter().any(|alarm| matches!(alarm, Alarm::Full(_))));
    let live: Vec<_> = machine.states.keys().copied().collect();
    assert!(live.len() > 50, "{}", live.len());
    for some in live.chunks(20) {
        for message in some {
            machine.change(due(*message, 1));
            machine.change(Change::Retire { message: *message });
        }
        machine.settle();
    }
    assert_eq!(machine.spool.usage().messages, 0);
    // Retiring made room without any help.
    run(&mut machine, 20_000);
    let body = machine.body(100);
    machine.accept(body).expect("there is room again");
    machine.settle();
    cut_and_judge(&machine);
}

#[test]
fn s118_a_bounce_has_the_reserve_of_a_full_disk() {
    let mut machine = fresh(10);
    machine.disk.set_room(600 << 10);
    for _ in 0..400 {
        let body = machine.body(2500);
        machine.accept(body);
        machine.settle();
    }
    assert!(machine.spool.usage().full);
    let failed = *machine.states.keys().next().unwrap();
    let body = machine.body(100);
    assert!(machine.accept(body).is_none(), "no room for what comes from outside");
    assert!(machine.bounce(failed), "an outcome is recorded with its bounce or not at all");
    machine.settle();
    assert_eq!(machine.ledger.sent[&failed].recorded, 1);
    cut_and_judge(&machine);
}

#[test]
fn s118_no_room_again_and_again_is_452_and_not_451() {
    let (mut machine, _) = with_messages(11, &[100]);
    machine.disk.fail_always(Call::Sync, Some(Errno::FULL));
    let body = machine.body(100);
    machine.accept(body);
    run(&mut machine, 100);
    assert!(machine.spool.usage().broken);
    let transaction = machine.transaction();
    let refused = machine.spool.stage(transaction, b"x"[..].into());
    assert_eq!(refused, Err(Refusal::Full));
    machine.disk.fail_always(Call::Sync, None);
    run(&mut machine, 60_000);
    let body = machine.body(100);
    machine.accept(body).unwrap();
    machine.settle();
    cut_and_judge(&machine);
}

/// Each failure costs a segment, and no other segment can be made. At the end the record that voids the failed
/// commits has no segment either.
#[test]
fn s118_s121_without_any_segment_left_each_client_is_answered_within_seconds() {
    for errno in [Errno::FULL, Errno::IO] {
        let (mut machine, _) = with_messages(13, &[100]);
        run(&mut machine, 1_000);
        machine.disk.fail_always(Call::Allocate, Some(errno));
        let mut taken = 1;
        for round in 0..40 {
            if round % 2 == 1 {
                machine.disk.fail_nth(Call::Sync, 1, errno);
            }
            let body = machine.body(100);
            taken += u64::from(machine.accept(body).is_some());
            run(&mut machine, 100);
        }
        run(&mut machine, 10_000);
        assert!(machine.refusals.len() > 3, "{:?}", machine.refusals);
        let refused = machine.refusals.len() as u64;
        assert_eq!(machine.durable + refused, taken, "somebody waits for ever: {errno:?}");
        let usage = machine.spool.usage();
        assert!(usage.segments < 20, "files that nobody needs pile up: {usage:?}");
        machine.disk.fail_always(Call::Allocate, None);
        run(&mut machine, 60_000);
        let body = machine.body(100);
        machine.accept(body).expect("there are segments again");
        machine.settle();
        cut_and_judge(&machine);
    }
}

#[test]
fn s123_a_bounce_waits_for_a_disk_that_fails_and_is_not_lost() {
    let (mut machine, ids) = with_messages(12, &[100, 100]);
    machine.disk.fail_always(Call::Sync, Some(Errno::IO));
    let body = machine.body(100);
    machine.accept(body);
    run(&mut machine, 100);
    assert!(machine.spool.usage().broken);
    assert!(machine.bounce(ids[0]));
    run(&mut machine, 1_000);
    assert_eq!(machine.ledger.sent[&ids[0]].recorded, 0);
    machine.disk.fail_always(Call::Sync, None);
    run(&mut machine, 60_000);
    assert_eq!(machine.ledger.sent[&ids[0]].recorded, 1);
    cut_and_judge(&machine);
}

#[test]
fn s118_enospc_at_any_write_or_creation_answers_452_and_keeps_what_was_promised() {
    for nth in 1..20 {
        for call in [Call::Write, Call::Create, Call::Allocate, Call::Sync] {
            let mut machine = fresh(nth);
            machine.work(5);
            machine.disk.fail_nth(call, nth, Errno::FULL);
            machine.work(20);
            cut_and_judge(&machine);
        }
    }
}

/// Flips one bit somewhere in the durable log and returns what recovery says.
fn flipped(disk: &Disk, file: &str, byte: usize, ledger: &Ledger) -> (Machine, usize) {
    let hurt = disk.copied(1);
    hurt.flip(file, byte, (byte % 8) as u8);
    let mut machine = Machine::open(&hurt, settings(2), ledger.clone(), 3).unwrap();
    let mut wrong = 0;
    let ids: Vec<_> = machine.states.keys().copied().collect();
    for message in &ids {
        match machine.read(*message) {
            Ok((found, body)) => {
                let sent = &ledger.sent[message];
                assert_eq!((&body, &found.envelope), (&sent.body, &sent.envelope));
                assert_eq!(found.prefix, sent.prefix);
            }
            Err(_) => wrong += 1,
        }
    }
    (machine, wrong)
}

#[test]
fn s130_a_flipped_bit_anywhere_in_the_log_costs_at_most_one_message_and_is_reported() {
    let (machine, ids) = with_messages(14, &[50, 700, 0, 5000]);
    let file = "segment-00000000";
    let used = 8 * 4096;
    let mut hit = 0;
    for byte in (0..used).step_by(7) {
        let (again, wrong) = flipped(&machine.disk, file, byte, &machine.ledger);
        let gone = ids.len() - again.states.len();
        assert!(gone + wrong <= 1, "byte {byte}: {gone} gone, {wrong} unreadable");
        // Damage in the very last commits cannot be told from a torn write.
        if gone + wrong > 0 && byte < 4 * 4096 {
            hit += 1;
            let told = !again.report.damage.is_empty() || !again.report.torn.is_empty();
            assert!(told, "byte {byte}");
        }
    }
    assert!(hit > 100, "{hit}");
}

#[test]
fn s130_the_checker_names_the_message_whose_body_was_hit() {
    let (machine, ids) = with_messages(15, &[600, 600, 600]);
    let clean = spool::check::check(&machine.disk, 64 << 10).unwrap();
    assert!(clean.is_clean() && clean.whole == 3 && clean.body_bytes == 1800, "{clean:?}");
    let bytes = machine.disk.bytes("segment-00000000").unwrap();
    let body = &machine.ledger.sent[&ids[1]].body;
    let at = bytes.windows(64).position(|window| window == &body[..64]).unwrap();
    machine.disk.flip("segment-00000000", at + 10, 3);
    let before = machine.disk.steps();
    let report = spool::check::check(&machine.disk, 64 << 10).unwrap();
    assert_eq!(machine.disk.steps(), before, "a check writes nothing");
    assert_eq!(report.damaged.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ids[1]]);
    assert!(report.opening.damage.iter().any(|d| d.messages == [ids[1]]), "{report:?}");
    assert_eq!(report.whole, 2);
}

#[test]
fn s128_s132_a_zeroed_or_misdirected_block_is_noticed_and_the_rest_is_served() {
    let (machine, ids) = with_messages(16, &[6000, 6000, 100, 100]);
    let blocks = machine.disk.bytes("segment-00000000").unwrap().len() / 4096;
    for block in 1..blocks.min(10) {
        for other in [None, Some(1), Some(block - 1)] {
            let hurt = machine.disk.copied(1);
            hurt.damage("segment-00000000", |bytes| match other {
                None => bytes[block * 4096..(block + 1) * 4096].fill(0),
                Some(from) => bytes.copy_within(from * 4096..(from + 1) * 4096, block * 4096),
            });
            let ledger = machine.ledger.clone();
            let mut again = Machine::open(&hurt, settings(2), ledger, 3).unwrap();
            let mut whole = 0;
            for message in again.states.keys().copied().collect::<Vec<_>>() {
                if let Ok((_, body)) = again.read(message) {
                    assert_eq!(body, machine.ledger.sent[&message].body);
                    whole += 1;
                }
            }
            assert!(whole + 1 >= ids.len(), "block {block}: {whole}");
        }
    }
}

#[test]
fn s132_a_lost_snapshot_is_an_alarm_and_the_older_one_serves() {
    let mut machine = fresh(17);
    machine.work(300);
    assert!(machine.spool.usage().snapshots >= 3);
    let newest = machine.report.snapshot + machine.spool.usage().snapshots;
    let file = format!("snapshot-{}", newest % 2);
    machine.disk.cut();
    machine.disk.power_on();
    machine.disk.damage(&file, |bytes| bytes[4100] ^= 1);
    let mut again = reopened(&machine);
    assert_eq!(again.report.snapshot, newest - 1);
    assert!(!again.report.damage.is_empty());
    again.report.damage.clear();
    again.judge();
}

#[test]
fn s133_strangers_truncated_and_missing_segments_are_reported_and_the_rest_is_served() {
    let mut machine = fresh(18);
    machine.work(60);
    machine.disk.put("notes.txt", b"not ours");
    machine.disk.put("segment-9", b"not how we write it");
    let again = reopened(&machine);
    assert_eq!(again.report.strangers, ["notes.txt", "segment-9"]);
    assert_eq!(again.states, machine.states);
    for file in ["segment-00000000", "segment-00000001"] {
        let gone = machine.disk.copied(2);
        gone.remove(file).unwrap();
        let short = machine.disk.copied(3);
        short.damage(file, |bytes| bytes.truncate(20_000));
        for disk in [gone, short] {
            let mut again = Machine::open(&disk, settings(2), machine.ledger.clone(), 3).unwrap();
            for message in again.states.keys().copied().collect::<Vec<_>>() {
                if let Ok((_, body)) = again.read(message) {
                    assert_eq!(body, machine.ledger.sent[&message].body);
                }
            }
            again.adopt();
            again.work(5);
        }
    }
}

#[test]
fn s134_a_duplicated_segment_is_ignored() {
    let mut machine = fresh(19);
    machine.work(40);
    let bytes = machine.disk.bytes("segment-00000000").unwrap();
    machine.disk.put("segment-00000040", &bytes);
    let again = reopened(&machine);
    assert_eq!(again.states, machine.states);
    assert_eq!(again.report.strangers, ["segment-00000040"]);
}

#[test]
fn s131_s145_garbage_in_every_file_neither_panics_nor_allocates_without_bound() {
    for seed in 0..40 {
        let mut machine = fresh(seed);
        machine.work(40);
        let names: Vec<_> = machine.disk.list().unwrap().into_iter().map(|e| e.name).collect();
        for name in names.iter().filter(|name| *name != "format") {
            let garbage = machine.body(4096);
            machine.disk.damage(name, |bytes| {
                let at = (seed as usize * 4096) % bytes.len().max(1);
                let end = (at + garbage.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&garbage[..end - at]);
            });
        }
        let opened = spool::open(&machine.disk, settings(2), 1, &mut |_| {});
        assert!(opened.is_ok());
        spool::check::check(&machine.disk, 64 << 10).unwrap();
    }
}

#[test]
fn s135_a_spool_that_may_not_be_made_is_not_made() {
    let disk = Disk::new(1);
    let never = spool::Settings { create: false, ..settings(1) };
    let opened = spool::open(&disk, never, 1, &mut |_| {});
    assert!(matches!(opened, Err(spool::OpenError::Missing)));
    assert!(disk.bytes("format").is_none());
}

#[test]
fn s132_a_spool_made_over_a_long_marker_of_zeros_opens_again() {
    let disk = Disk::new(1);
    let mut zeros = vec![0; 100];
    zeros[80] = 7;
    disk.put("format", &zeros);
    let opens =
        || spool::open(&disk, settings(1), 1, &mut |_| {}).map(|(_, report)| report.created);
    assert!(opens().unwrap(), "nothing was in it");
    assert!(!opens().unwrap());
    disk.cut();
    disk.power_on();
    assert!(!opens().unwrap());
}

#[test]
fn s143_a_newer_format_is_refused_and_not_touched() {
    let mut machine = fresh(20);
    machine.work(10);
    machine.disk.damage("format", |bytes| *bytes = b"posthaste spool 2\n".to_vec());
    let before = machine.disk.steps();
    let opened = spool::open(&machine.disk, settings(1), 1, &mut |_| {});
    assert!(matches!(opened, Err(spool::OpenError::Newer(2))));
    assert_eq!(machine.disk.steps(), before);
    machine.disk.remove("format").unwrap();
    let opened = spool::open(&machine.disk, settings(1), 1, &mut |_| {});
    assert!(matches!(opened, Err(spool::OpenError::NoMarker)));
}

#[test]
fn a_body_that_imitates_a_batch_is_never_taken_for_one() {
    let (mut machine, _) = with_messages(22, &[100]);
    // A whole batch as it is on the disk, inside a body, at the start of a block.
    let bytes = machine.disk.bytes("segment-00000000").unwrap();
    let mut body = vec![b'x'; 4096 - 96];
    body.extend_from_slice(&bytes[4096..8192]);
    machine.accept(body);
    machine.settle();
    let again = cut_and_judge(&machine);
    assert_eq!(again.states.len(), 2);
}

#[test]
fn x184_many_restarts_in_a_row_do_not_make_each_slower_than_the_one_before() {
    let mut machine = fresh(9);
    let mut read = Vec::new();
    for _ in 0..16 {
        let body = machine.body(100);
        machine.accept(body);
        machine.settle();
        run(&mut machine, 50);
        machine = cut_and_judge(&machine);
        read.push(machine.report.bytes_read);
    }
    let segment = u64::from(settings(2).segment_bytes);
    assert!(read.iter().all(|bytes| *bytes <= 5 * segment), "bytes read at each start: {read:?}");
}

#[test]
fn r209_of_a_message_that_ended_in_the_log_nothing_is_told_at_the_start() {
    let (mut machine, ids) = with_messages(10, &[100, 100]);
    let (gone, stays) = (ids[0], ids[1]);
    machine.change(due(gone, 1));
    machine.change(due(stays, 1));
    machine.change(Change::Delivered { message: gone, recipients: vec![0] });
    machine.change(Change::Retire { message: gone });
    machine.settle();
    let mut told = Vec::new();
    spool::open(&machine.disk, settings(2), 78, &mut |replay| match replay {
        Replay::Accepted { message, .. } | Replay::Snapshot { message, .. } => told.push(message),
        Replay::Change(change) => told.push(change.message()),
    })
    .unwrap();
    assert_eq!(told, [stays, stays]);
}
