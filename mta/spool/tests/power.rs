//! Power cuts at every step of a workload and of a recovery, and two in a row.

#![allow(clippy::unwrap_used)]

mod support;

use mail::Change;
use spool::Settings;
use support::{Ledger, Machine, due};
use world::Rng as _;
use world::sim::Disk;

/// With odd seeds snapshots are rare, so that much of the replayed log is about messages that have ended.
fn settings_of(seed: u64, commits: usize) -> Settings {
    let usual = support::settings(commits);
    let snapshot_log_bytes = usual.snapshot_log_bytes * if seed % 2 == 1 { 8 } else { 1 };
    Settings { snapshot_log_bytes, ..usual }
}

fn fresh(seed: u64, commits: usize) -> Machine {
    Machine::open(&Disk::new(seed), settings_of(seed, commits), Ledger::default(), seed).unwrap()
}

/// Runs the workload on a new disk whose power goes at `step`. Returns the disk and the ledger of promises.
fn run_and_cut(seed: u64, commits: usize, acts: u64, step: u64) -> (Disk, Ledger) {
    let disk = Disk::new(seed.wrapping_mul(1_000_003) ^ step);
    disk.cut_at(Some(step));
    let Some(mut machine) =
        Machine::open(&disk, settings_of(seed, commits), Ledger::default(), seed)
    else {
        return (disk, Ledger::default());
    };
    machine.work(acts);
    disk.cut();
    (disk, machine.ledger)
}

/// Recovers, judges, recovers again and compares, goes on, cuts the power, and judges again.
fn judge(disk: &Disk, ledger: Ledger, seed: u64, commits: usize) {
    disk.power_on();
    let mut first = Machine::open(disk, settings_of(seed, commits), ledger.clone(), seed).unwrap();
    first.judge();
    let mut second = Machine::open(disk, settings_of(seed, commits), ledger, seed).unwrap();
    assert_eq!(first.states, second.states, "recovering twice equals recovering once");
    assert_eq!(first.report.torn, second.report.torn);
    second.judge();
    second.adopt();
    second.work(6);
    let (ledger, states) = (second.ledger.clone(), second.states.clone());
    disk.cut();
    disk.power_on();
    let mut third = Machine::open(disk, settings_of(seed, commits), ledger, seed).unwrap();
    third.judge();
    assert_eq!(states, third.states, "all was settled");
}

fn every_cut(seed: u64, commits: usize, acts: u64) {
    let mut whole = fresh(seed, commits);
    whole.work(acts);
    let steps = whole.disk.steps();
    for step in 1..=steps {
        let (disk, ledger) = run_and_cut(seed, commits, acts, step);
        judge(&disk, ledger, seed + step, commits);
    }
}

#[test]
fn the_workload_reaches_what_it_is_meant_to_reach() {
    let mut machine = fresh(2, 2);
    machine.work(400);
    let usage = machine.spool.usage();
    assert!(usage.snapshots > 3 && usage.recycled > 3, "{usage:?}");
    assert!(usage.copied_forward > 0 && usage.batch_messages_max > 1, "{usage:?}");
    assert_eq!(machine.alarms, []);
}

#[test]
fn s127_s138_a_cut_at_every_step_with_one_commit_in_flight_keeps_every_promise() {
    every_cut(11, 1, 60);
}

#[test]
fn s127_s138_a_cut_at_every_step_with_two_commits_in_flight_keeps_every_promise() {
    every_cut(12, 2, 60);
}

#[test]
fn s129_commits_of_four_in_flight_may_reach_the_disk_in_any_order() {
    every_cut(13, 4, 40);
}

#[test]
fn a_snapshot_that_knows_of_a_change_is_not_complete_before_the_change_is_durable() {
    for seed in (40..60).step_by(2) {
        let mut machine = fresh(seed, 2);
        let ids: Vec<_> = (0..12).map(|_| machine.accept(vec![2; 500]).unwrap()).collect();
        machine.settle();
        machine.spool.snapshot_now();
        while machine.step_background() {}
        let before = machine.spool.usage().snapshots;
        machine.change(due(ids[0], 1));
        for message in &ids[1..9] {
            machine.bounce(*message);
            machine.change(Change::Retire { message: *message });
        }
        machine.spool.snapshot_now();
        while machine.step_background() {}
        assert_eq!(machine.spool.usage().snapshots, before, "it waits for the log");
        machine.disk.cut();
        judge(&machine.disk, machine.ledger, seed, 2);
    }
}

/// A workload of few messages with many changes each, and of bounces that end at once.
fn burst(machine: &mut Machine) {
    for _ in 0..3 {
        machine.accept(vec![1; 40]);
    }
    machine.settle();
    for round in 0..14u16 {
        for message in machine.states.keys().copied().take(3).collect::<Vec<_>>() {
            let state = machine.states[&message].clone();
            match (machine.chance.below(4), state.held, state.failed) {
                (0, _, _) => machine.change(due(message, round + 1)),
                (1, false, _) => machine.change(Change::Hold { message }),
                (1 | 2, true, _) => machine.change(Change::Release { message }),
                (3, _, false) if machine.bounce(message) => {
                    machine.change(Change::Retire { message });
                }
                _ => {}
            }
            machine.clock.advance(std::time::Duration::from_millis(21));
            for _ in 0..machine.chance.below(3) {
                machine.step();
            }
        }
        if machine.disk.is_off() {
            return;
        }
    }
    machine.settle();
}

#[test]
fn s129_changes_of_one_message_survive_in_their_order_whatever_commit_is_lost() {
    for seed in [31, 32, 33] {
        let mut whole = fresh(seed, 4);
        burst(&mut whole);
        for step in 1..=whole.disk.steps() {
            let disk = Disk::new(seed * 1000 + step);
            disk.cut_at(Some(step));
            let settings = settings_of(seed, 4);
            let opened = Machine::open(&disk, settings, Ledger::default(), seed);
            let Some(mut machine) = opened else { continue };
            burst(&mut machine);
            disk.cut();
            judge(&disk, machine.ledger, seed, 4);
        }
    }
}

#[test]
fn s137_random_long_workloads_survive_a_cut_at_a_random_step() {
    for seed in 100..140 {
        let mut whole = fresh(seed, 2);
        whole.work(250);
        let step = 1 + seed * 7919 % whole.disk.steps();
        let (disk, ledger) = run_and_cut(seed, 2, 250, step);
        judge(&disk, ledger, seed, 2);
    }
}

#[test]
fn s139_a_second_cut_at_every_step_of_the_recovery_changes_nothing() {
    let (disk, ledger) = run_and_cut(21, 2, 150, 260);
    disk.power_on();
    let mut steps = disk.steps();
    loop {
        let again = disk.forked(steps);
        let before = again.steps();
        again.cut_at(Some(before + steps - disk.steps() + 1));
        if let Some(mut machine) = Machine::open(&again, settings_of(21, 2), ledger.clone(), 5) {
            // The first polls write what recovery requires.
            for _ in 0..40 {
                machine.step();
            }
            if !again.is_off() {
                break;
            }
        }
        judge(&again, ledger.clone(), steps, 2);
        steps += 1;
    }
    assert!(steps > disk.steps() + 3, "recovery has steps to be cut at");
}

/// The process dies and the kernel lives: the next start reads from the cache what a power cut may still remove, and
/// must not rely on it.
#[test]
fn s137_a_kill_at_every_step_and_a_cut_in_the_start_after_keeps_every_promise() {
    let (seed, commits, acts) = (14, 2, 30);
    let mut whole = fresh(seed, commits);
    whole.work(acts);
    for step in 1..=whole.disk.steps() {
        let (disk, ledger) = run_and_cut(seed, commits, acts, step);
        for later in 1..=12 {
            let killed = disk.forked(step * 100 + later);
            killed.cut_at(Some(later));
            let settings = settings_of(seed, commits);
            if let Some(mut machine) = Machine::open(&killed, settings, ledger.clone(), later) {
                while !killed.is_off() && machine.step() {}
            }
            killed.cut();
            judge(&killed, ledger.clone(), seed + later, commits);
        }
    }
}

#[test]
fn s142_a_copy_taken_while_it_runs_opens_to_a_consistent_state() {
    for acts in [20, 60, 120] {
        let mut machine = fresh(31, 2);
        for _ in 0..acts {
            machine.act();
            machine.step();
        }
        let copy = machine.disk.copied(1);
        judge(&copy, machine.ledger.clone(), 31, 2);
    }
}
