//! The table of delays beside other mail, compared to the delays alone.
//!
//! Must never compare runs of two subjects, or of two scenarios.

use super::{number, values, word};
use report::record::Run;
use stats::{Confidence, Equivalence, Sameness, Summary, equivalent};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Margin of the delay, as a share of the 99th percentile alone.
const MARGIN_SHARE: f64 = 0.05;
/// Upper bound on a margin: `equivalent` needs one below 1.
const MARGIN_SHARE_MAX: f64 = 0.99;
/// The value of `beside` in the reference runs.
const ALONE: &str = "nothing";
const FACTOR: &str = "beside";
const HEAD: &str = "\
| scenario | mailer | beside | runs | queued | p50, ms | mean, ms | p99, ms | slowest, ms | mean against alone, in % of alone's p99 | p99 against alone | not accounted for |
|---|---|---|--:|--:|--:|--:|--:|--:|---|---|--:|
";

/// Returns the table; empty without a run of `fairness`.
pub fn table(runs: &[Run]) -> String {
    let names: BTreeSet<(&str, &str)> = runs
        .iter()
        .filter(|run| word(run, FACTOR).is_some())
        .map(|run| (run.scenario.as_str(), run.subject.as_str()))
        .collect();
    let mut text = if names.is_empty() { String::new() } else { HEAD.to_string() };
    for (scenario, subject) in names {
        let of = |run: &&Run| run.scenario == scenario && run.subject == subject;
        let these: Vec<&Run> = runs.iter().filter(of).collect();
        let of_word = |wanted: &str| -> Vec<&Run> {
            these.iter().copied().filter(|run| word(run, FACTOR) == Some(wanted)).collect()
        };
        let alone = of_word(ALONE);
        let others: BTreeSet<&str> = these.iter().filter_map(|run| word(run, FACTOR)).collect();
        let others = others.into_iter().filter(|word| *word != ALONE);
        for word in std::iter::once(ALONE).chain(others) {
            row(&mut text, &alone, word, &of_word(word));
        }
    }
    text
}

fn row(text: &mut String, alone: &[&Run], word: &str, runs: &[&Run]) {
    let Some(first) = runs.first() else { return };
    let median = |name: &str| {
        let found = Summary::of(&values(runs, name)).map(|summary| summary.quantile(0.5));
        found.map_or_else(|| "–".into(), number)
    };
    let least =
        values(runs, "unaccounted").iter().sum::<f64>() + values(runs, "lost").iter().sum::<f64>();
    let (means, tails) = if word == ALONE {
        (String::new(), String::new())
    } else {
        let of = |runs, name| values(runs, name);
        let (one, two) = (of(alone, "delay_mean_ms"), of(runs, "delay_mean_ms"));
        let means = means(&one, &two, &of(alone, "delay_p99_ms"));
        (said(means), said(tails(alone, runs)))
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "| {} | {} | {word} | {} | {} | {} | {} | {} | {} | {means} | {tails} | {least} |",
        first.scenario,
        first.subject,
        values(runs, "delay_mean_ms").len(),
        median("queued_beside"),
        median("delay_p50_ms"),
        median("delay_mean_ms"),
        median("delay_p99_ms"),
        median("delay_max_ms"),
    );
}

/// Means of runs beside those of others, with a margin that is a share of their 99th percentiles; in shares of that.
pub fn means(alone: &[f64], beside: &[f64], alone_p99: &[f64]) -> Option<Equivalence> {
    let to_tail = Summary::of(alone)?.mean / Summary::of(alone_p99)?.mean;
    let margin = (MARGIN_SHARE / to_tail).min(MARGIN_SHARE_MAX);
    let mut found = equivalent(alone, beside, margin, Confidence::P95)?;
    found.share *= to_tail;
    found.interval.low *= to_tail;
    found.interval.high *= to_tail;
    Some(found)
}

/// The 99th percentiles of the runs, with a margin that is a share of themselves.
fn tails(alone: &[&Run], beside: &[&Run]) -> Option<Equivalence> {
    let [one, two] = [alone, beside].map(|runs| values(runs, "delay_p99_ms"));
    equivalent(&one, &two, MARGIN_SHARE, Confidence::P95)
}

/// Describes the result.
pub fn said(found: Option<Equivalence>) -> String {
    let Some(found) = found else { return "no statement".into() };
    let verdict = match found.verdict {
        Sameness::Same => "the same",
        Sameness::NotShown => "not shown to be the same",
        Sameness::TooFew => "too few runs",
    };
    let percent = |share: f64| format!("{:+.1}", share * 100.0).replace('-', "−");
    let (low, high) = (percent(found.interval.low), percent(found.interval.high));
    format!("{} % ({low} to {high}): {verdict}", percent(found.share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::record::{Factor, Line};

    fn runs(beside: &str, mean_ms: f64, p99_ms: f64) -> Vec<Run> {
        let text = r#"{"line":"run","time":1,"scenario":"fairness","subject":"x","version":"1","cell":{},"ordinal":0,
            "seed":1,"figure":{"name":"delay","unit":"ms","better":"lower"},"settings":"","machine":{"cpu":"","cores":1,
            "memory_mib":1,"kernel":"","system":"","file_system":"","disk":"","sync_us":1,"load":0},"lab":"0"}"#;
        let Line::Run(one) = serde_json::from_str(text).unwrap() else { unreachable!() };
        let run = |number: u32| {
            let noise = 1.0 + f64::from(number % 5) * 0.004;
            let mut run = (*one).clone();
            run.cell.insert(FACTOR.into(), Factor::Word(beside.into()));
            run.values.insert("delay_mean_ms".into(), mean_ms * noise);
            run.values.insert("delay_p99_ms".into(), p99_ms * noise);
            run
        };
        (0..10).map(run).collect()
    }

    #[test]
    fn a_mean_may_move_by_a_twentieth_of_the_p99_and_a_p99_by_a_twentieth_of_itself() {
        let mut all = runs(ALONE, 2.0, 10.0);
        all.extend(runs("slow", 2.3, 10.1));
        all.extend(runs("dead", 2.9, 13.0));
        let text = table(&all);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        let line = |word: &str| lines.iter().find(|line| line.contains(word)).unwrap().to_string();
        assert_eq!(line("| slow |").matches(": the same").count(), 2, "{text}");
        assert_eq!(line("| dead |").matches("not shown").count(), 2, "{text}");
        assert!(table(&[]).is_empty());
    }

    #[test]
    fn three_runs_say_nothing() {
        let mut all = runs(ALONE, 2.0, 10.0);
        all.extend(runs("slow", 2.0, 10.0).drain(..3));
        assert_eq!(table(&all).matches("too few runs").count(), 2);
    }
}
