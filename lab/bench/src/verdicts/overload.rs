//! The table of normal mail before, during and after an overload.
//!
//! Must never leave out deferred mail.

use super::fairness::{means, said};
use super::{number, values, word};
use report::record::Run;
use stats::{Confidence, Summary, equivalent};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const FACTOR: &str = "overload";
/// Rates count as the same within this share.
const MARGIN_SHARE: f64 = 0.05;
const PHASES: [&str; 3] = ["before", "during", "after"];
const HEAD: &str = "\
| overload | mailer | runs | messages/s before, during, after | p50, ms | p99, ms | normal mail put off, during | the others refused | peak memory, MiB | recovery, s | lost | rate, during against before | mean delay, in % of p99 before |
|---|---|--:|---|---|---|---|---|--:|--:|--:|---|---|
";

/// Returns the table; empty without a run of `overload`.
pub fn table(runs: &[Run]) -> String {
    let names: BTreeSet<(&str, &str)> =
        runs.iter().filter_map(|run| Some((word(run, FACTOR)?, run.subject.as_str()))).collect();
    let mut text = if names.is_empty() { String::new() } else { HEAD.to_string() };
    for (overload, subject) in names {
        let of = |run: &&Run| word(run, FACTOR) == Some(overload) && run.subject == subject;
        row(&mut text, (overload, subject), &runs.iter().filter(of).collect::<Vec<_>>());
    }
    text
}

fn row(text: &mut String, (overload, subject): (&str, &str), runs: &[&Run]) {
    let median = |name: &str| {
        let found = Summary::of(&values(runs, name)).map(|summary| summary.quantile(0.5));
        found.map_or_else(|| "–".into(), number)
    };
    let three = |name: &str| PHASES.map(|phase| median(&format!("{phase}_{name}"))).join(", ");
    let recovery: Vec<f64> = runs.iter().filter_map(|run| run.value).collect();
    let slowest = recovery.iter().copied().fold(f64::NAN, f64::max);
    let rates = PHASES.map(|phase| values(runs, &format!("{phase}_rate")));
    let rate = equivalent(&rates[0], &rates[1], MARGIN_SHARE, Confidence::P95);
    let [before, during] = ["before", "during"].map(|phase| format!("{phase}_mean_ms"));
    let delay =
        means(&values(runs, &before), &values(runs, &during), &values(runs, "before_p99_ms"));
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "| {overload} | {subject} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        recovery.len(),
        three("rate"),
        three("p50_ms"),
        three("p99_ms"),
        put_off(runs, "during"),
        put_off(runs, "burden"),
        median("peak_memory_mib"),
        if slowest.is_nan() { "–".into() } else { number(slowest) },
        values(runs, "lost").iter().sum::<f64>(),
        said(rate),
        said(delay),
    );
}

/// Replies by their codes, and connections that broke, over all runs.
fn put_off(runs: &[&Run], who: &str) -> String {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let names = ["refused_", "broken", "ambiguous", "unanswered", "failed"];
    for (name, value) in runs.iter().flat_map(|run| &run.values) {
        let Some(what) = name.strip_prefix(who).and_then(|rest| rest.strip_prefix('_')) else {
            continue;
        };
        if *value > 0.0 && names.iter().any(|known| what.starts_with(known)) {
            *sums.entry(what.replace("refused_", "")).or_default() += value;
        }
    }
    let all: Vec<String> = sums.into_iter().map(|(what, sum)| format!("{what}: {sum}")).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}
