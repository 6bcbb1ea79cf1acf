//! The power goes at every step of a small workload, with everything that may survive.
//!
//! `POSTHASTE_EVERY_CUT=full` tries more at each step, for a night; a number tries that step alone,
//! with all there is, to see a broken check again.

#![allow(clippy::unwrap_used)]

use sim::every_cut::{Depth, Plan, Tally, every_cut};

fn plan(acts: u32) -> Plan {
    Plan { acts, restart_at: [acts / 3, acts * 3 / 4], ignores_syncs: false }
}

fn cut(seed: u64, commits: usize, acts: u32) -> Tally {
    let depth = match std::env::var("POSTHASTE_EVERY_CUT").as_deref() {
        Ok("full") => Depth::FULL,
        Ok(step) => Depth::only(step.parse().unwrap()),
        Err(_) => Depth::QUICK,
    };
    let began = std::time::Instant::now();
    let tally = match every_cut(seed, commits, &plan(acts), &depth) {
        Ok(tally) => tally,
        Err(broken) => panic!("{broken}"),
    };
    println!("every_cut, {commits} in flight, {:?}: {tally}", began.elapsed());
    tally
}

/// What the lead of this test promises its readers.
fn reaches_everything(tally: &Tally) {
    let reached = tally.reached;
    let enough = reached.snapshots >= 2 && reached.recycled >= 2 && reached.copied_forward >= 1;
    let all = reached.deferred >= 3 && reached.noticed >= 3 && reached.deleted >= 1;
    let big = reached.bulk >= 1 && reached.held >= 1;
    assert!(enough && all && big, "{tally}");
    assert!(tally.cuts > 200 && tally.cuts_with_every_subset > 50 && tally.drained > 0, "{tally}");
}

#[test]
fn s127_s138_every_cut_with_one_commit_in_flight_keeps_every_promise() {
    reaches_everything(&cut(1, 1, 60));
}

#[test]
fn s127_s138_every_cut_with_two_commits_in_flight_keeps_every_promise() {
    reaches_everything(&cut(2, 2, 50));
}

#[test]
fn s129_every_cut_with_four_commits_in_flight_keeps_every_promise() {
    reaches_everything(&cut(3, 4, 40));
}

const SHALLOW: Depth =
    Depth { random: 30, again_every: 50, thorough_every: 1_000, drained_every: 500, only: None };

#[test]
#[ignore = "a campaign: runs for as long as it is let; every seed is said when it is through"]
fn many_seeds_keep_every_promise() {
    for seed in 100..1_000 {
        let (commits, acts) = ([1, 2, 4][seed as usize % 3], 30 + (seed % 7) as u32 * 10);
        match every_cut(seed, commits, &plan(acts), &SHALLOW) {
            Ok(tally) => println!("seed {seed}, {commits} in flight: {tally}"),
            Err(broken) => panic!("{acts} acts, {broken}"),
        }
    }
}

#[test]
fn a_disk_that_ignores_syncs_is_found_out() {
    let lying = Plan { ignores_syncs: true, ..plan(30) };
    let broken = every_cut(4, 2, &lying, &SHALLOW).unwrap_err();
    // A cut shows it at the first segment already.
    assert!(broken.to_string().contains("a cut is no damage"), "{broken}");
}

#[test]
fn the_same_seed_goes_the_same_way() {
    let run = || every_cut(5, 2, &plan(40), &SHALLOW).unwrap().to_string();
    assert_eq!(run(), run());
}
