//! What the table of budgets says of hand-made campaigns.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod synthetic;

use report::budget::{self, Budgets, Found, Judged, Measured, Verdict};
use report::record::{Cell, Line, Run};
use serde_json::json;
use synthetic::{cell, number, run};

/// Of one row, by its claims.
fn budgets(claims: serde_json::Value) -> Budgets {
    let budgets: Budgets = serde_json::from_value(json!({
        "subject": "posthaste", "beside": "postfix", "ceiling": "limit",
        "other-ceiling": {
            "name": "the others' tools", "scenario": "limit", "cell": { "source": "postfix" }, "by": ["sessions"],
        },
        "row": [{ "work": "taking <mail>", "wanted": "much", "claim": claims }],
    }))
    .unwrap();
    budgets.check().unwrap();
    budgets
}

fn ten() -> Cell {
    cell(&[("sessions", number(10.0))])
}

/// Ten rounds in which the machine is as slow as it likes; `rates` of subjects where it is not.
fn rounds(rates: &[(&str, f64)], count: u32) -> Vec<Line> {
    let mut lines = Vec::new();
    for ordinal in 0..count {
        let mood = if ordinal % 2 == 0 { 1.0 } else { 0.1 };
        for (subject, rate) in rates {
            let value = rate * mood * (1.0 + 0.01 * f64::from(ordinal % 5));
            lines.push(Line::Run(Box::new(run("inject", subject, ten(), ordinal, value))));
        }
    }
    lines
}

fn each(lines: &mut [Line], change: impl Fn(&mut Run)) {
    lines.iter_mut().for_each(|line| {
        let Line::Run(run) = line else { return };
        change(run);
    });
}

fn judged(claims: serde_json::Value, lines: &[Line]) -> Judged {
    let mut measured = Measured::default();
    measured.add_lines(lines);
    budget::judge(&budgets(claims), &measured)
}

fn one(claims: serde_json::Value, lines: &[Line]) -> Found {
    judged(claims, lines).rows[0].1[0].clone()
}

const SHARE: &str = r#"[{ "scenario": "inject", "cells": [{ "sessions": 10 }], "to": { "subject": "limit" }, "at-least": 0.7 }]"#;

fn share() -> serde_json::Value {
    serde_json::from_str(SHARE).unwrap()
}

#[test]
fn a_ratio_is_of_one_round_however_the_machine_changes_between_rounds() {
    let found = one(share(), &rounds(&[("posthaste", 800.0), ("limit", 1000.0)], 10));
    assert_eq!((found.verdict, found.reached().as_str()), (Verdict::Met, "80.0 %"));
    assert_eq!((found.wanted.as_str(), found.values.len()), ("≥ 70 % of the ceiling", 10));
    let interval = found.interval.unwrap();
    assert!(interval.low > 0.79 && interval.high < 0.81, "{interval:?}");
    assert!(found.own.is_some() && found.beside.is_none());
    assert!(found.ceiling.is_some_and(|ceiling| ceiling < 1000.0), "the median of all rounds");
}

#[test]
fn each_verdict_is_said_where_it_is_due() {
    let verdict = |rate: f64, rounds_made: u32| {
        one(share(), &rounds(&[("posthaste", rate), ("limit", 1000.0)], rounds_made)).verdict
    };
    assert_eq!(verdict(800.0, 10), Verdict::Met);
    assert_eq!(verdict(800.0, 9), Verdict::MetInMedian);
    assert_eq!(verdict(600.0, 3), Verdict::Missed);
    assert_eq!(verdict(600.0, 10), Verdict::MissedProven);
    assert_eq!(verdict(600.0, 0), Verdict::NotMeasured);
    let mut noisy = rounds(&[("posthaste", 710.0), ("limit", 1000.0)], 10);
    each(&mut noisy, |run| {
        let swing = if run.ordinal % 3 == 0 { 0.5 } else { 1.1 };
        run.value =
            run.value.map(|value| if run.subject == "limit" { value } else { value * swing });
    });
    assert_eq!(one(share(), &noisy).verdict, Verdict::MetInMedian);
}

#[test]
fn runs_of_two_files_are_never_a_pair_and_failed_ones_are_none() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &[Line]| {
        let path = place.path().join(name);
        let text: String =
            lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        std::fs::write(&path, text + "{\"cut").unwrap();
        path
    };
    let both = write("both", &rounds(&[("posthaste", 800.0), ("limit", 1000.0)], 4));
    let alone = write("alone", &rounds(&[("posthaste", 100.0)], 9));
    let mut failed = rounds(&[("posthaste", 1.0), ("limit", 1000.0)], 6);
    each(&mut failed, |run| run.value = None);
    let failed = write("failed", &failed);
    let mut measured = Measured::default();
    [&both, &alone, &failed].into_iter().for_each(|path| measured.add(path).unwrap());
    let found = budget::judge(&budgets(share()), &measured).rows[0].1[0].clone();
    assert_eq!(found.values.len(), 4);
    assert!(found.values.iter().all(|ratio| (ratio - 0.8).abs() < 1e-9), "{:?}", found.values);
    assert!(measured.add(&place.path().join("nowhere")).is_err());
}

#[test]
fn what_is_to_cost_nothing_has_its_equivalence_beside_the_verdict() {
    let claim = json!([{
        "scenario": "inject", "cells": [{ "logging": "full" }], "to": { "cell": { "logging": "none" } },
        "at-least": 0.97, "same-within": 0.03,
    }]);
    let lines = |full: f64| {
        let mut lines = rounds(&[("posthaste", 1000.0 * full)], 10);
        lines.extend(rounds(&[("posthaste", 1000.0)], 10));
        for (index, line) in lines.iter_mut().enumerate() {
            let Line::Run(run) = line else { continue };
            let word = if index < 10 { "full" } else { "none" };
            run.cell = cell(&[("logging", synthetic::word(word))]);
        }
        lines
    };
    let same = one(claim.clone(), &lines(0.999));
    assert_eq!(same.verdict, Verdict::Met);
    assert_eq!(same.sameness(), "the same within 3 %, at 99.5 %");
    assert_eq!(same.wanted, "≥ 97 % of logging none");
    let faster = one(claim.clone(), &lines(1.2));
    assert_eq!(faster.verdict, Verdict::Met, "that it is faster breaks no budget");
    assert_eq!(faster.sameness(), "not shown to be the same within 3 %");
    assert_eq!(one(claim, &lines(0.9)).verdict, Verdict::MissedProven);
}

#[test]
fn a_value_stands_for_itself_or_beside_another_of_its_run() {
    let mut lines = rounds(&[("posthaste", 1000.0), ("postfix", 100.0)], 10);
    each(&mut lines, |run| {
        run.values
            .insert("syncs_per_message".into(), if run.subject == "postfix" { 1.0 } else { 0.1 });
        run.values.insert("before".into(), 200.0);
    });
    let found = one(
        json!([{
            "scenario": "inject", "cells": [{ "sessions": 10 }], "value": "syncs_per_message", "unit": "syncs", "at-most": 0.12,
        }]),
        &lines,
    );
    assert_eq!((found.verdict, found.own, found.beside), (Verdict::Met, Some(0.1), Some(1.0)));
    assert_eq!((found.reached().as_str(), found.wanted.as_str()), ("0.100", "≤ 0.12 syncs"));
    let of_run = one(
        json!([{
            "scenario": "inject", "cells": [{ "sessions": 10 }], "value": "syncs_per_message", "to": { "value": "before" }, "at-most": 1,
        }]),
        &lines,
    );
    assert!((of_run.median.unwrap() - 0.0005).abs() < 1e-12);
}

#[test]
fn lines_of_other_commands_are_read_by_their_fields() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("lines");
    let lines = [
        json!({ "measures": "growth", "queued": 1000000, "rate": { "grown": 0.95 } }),
        json!({ "measures": "growth", "queued": 10, "rate": { "grown": 0.1 } }),
        json!({ "measures": "growth", "queued": 1000000, "subject": "postfix", "rate": { "grown": 0.5 } }),
    ];
    std::fs::write(&path, lines.map(|line| line.to_string() + "\n").concat()).unwrap();
    let mut measured = Measured::default();
    measured.add(&path).unwrap();
    let claim = json!([{ "lines": { "measures": "growth", "queued": 1e6 }, "value": "rate.grown", "at-least": 0.9 }]);
    let found = budget::judge(&budgets(claim), &measured).rows[0].1[0].clone();
    assert_eq!((found.values.as_slice(), found.verdict), (&[0.95][..], Verdict::MetInMedian));
}

#[test]
fn all_forms_of_the_table_have_each_claim_both_ceilings_and_what_is_missing() {
    let mut claims = share();
    claims[0]["cells"] = json!([{ "sessions": 10 }, { "sessions": 50 }]);
    let mut lines = rounds(&[("posthaste", 800.0), ("postfix", 100.0), ("limit", 1000.0)], 10);
    let other = cell(&[("sessions", number(10.0)), ("source", synthetic::word("postfix"))]);
    lines.push(Line::Run(Box::new(run("limit", "limit", other, 0, 777.0))));
    let judged = judged(claims, &lines);
    let found = &judged.rows[0].1;
    assert_eq!((found[0].other_ceiling, found[1].verdict), (Some(777.0), Verdict::NotMeasured));
    let text = budget::text(&judged);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let table = budget::markdown(&judged);
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 2 + 2);
    assert!(rows.iter().all(|row| row.matches('|').count() == 10), "{table}");
    let page = report::html_of_budgets(&judged, "title", "a<b>.jsonl");
    assert!(!page.contains("taking <mail>") && !page.contains("a<b>"), "{page}");
    for form in [&text, &table, &page] {
        for said in [
            "met at 99.5 %",
            "not measured",
            "(777)",
            "the others",
            "80.0 %",
            "70 % of the ceiling",
        ] {
            assert!(form.contains(said), "{said}: {form}");
        }
    }
    assert!(text.contains("met at 99.5 %; 1 of 2 not measured"), "{text}");
    let campaign = report::Campaign::new(&lines, &report::Abouts::new(), None).unwrap();
    let whole = report::html_with_budgets(&campaign, Some(&judged), "title", "file");
    let place = |what: &str| whole.find(what).unwrap();
    assert!(
        place("</header>") < place("The budgets") && place("The budgets") < place("How to read")
    );
    assert!(!report::html(&campaign, "title", "file").contains("The budgets"));
}
