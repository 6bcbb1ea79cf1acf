//! Every seed that ever failed, and the first ones of all, pass.

#![allow(clippy::unwrap_used)]

use sim::plan::Plan;
use sim::run::run;
use std::collections::BTreeSet;

/// What once failed.
const KEPT: &str = include_str!("../seeds.txt");
/// Seeds from 1 that run besides.
const FIRST_SEEDS: u64 = 60;

/// The plan of a line of `seeds.txt`.
fn plan(line: &str) -> Plan {
    let mut words = line.split_whitespace();
    let seed = words.next().unwrap().parse().unwrap();
    match (words.next(), words.next()) {
        (Some("only"), Some(parts)) => {
            let parts: BTreeSet<String> = parts.split(',').map(str::to_owned).collect();
            let plan = Plan::only(seed, &parts);
            assert_eq!(plan.parts().len(), parts.len(), "parts that are not in the plan: {line}");
            plan
        }
        _ => Plan::drawn(seed, &BTreeSet::new()),
    }
}

fn passes(plan: Plan) {
    let line = plan.line();
    let found = run(plan, false).findings;
    assert!(found.is_empty(), "{line}\n{found:#?}");
}

#[test]
fn every_seed_that_ever_failed_passes() {
    let lines: Vec<&str> =
        KEPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(lines.len() >= 13, "seeds are only ever added");
    lines.into_iter().for_each(|line| passes(plan(line)));
}

#[test]
fn the_first_seeds_pass() {
    (1..=FIRST_SEEDS).for_each(|seed| passes(Plan::drawn(seed, &BTreeSet::new())));
}

#[test]
fn a_seed_goes_the_same_way_twice() {
    let way = |seed| {
        let verdict = run(Plan::drawn(seed, &BTreeSet::new()), false);
        (verdict.trace, verdict.counts, verdict.sums, verdict.time)
    };
    (1..=5).for_each(|seed| assert_eq!(way(seed), way(seed), "seed {seed}"));
}
