//! What `posthaste-lab report` makes of a campaign's file, from the outside.

#![allow(clippy::unwrap_used)]

#[path = "../../report/tests/synthetic/mod.rs"]
mod synthetic;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_posthaste-lab"))
        .arg("report")
        .args(arguments)
        .output()
        .unwrap()
}

fn lines(place: &Path) -> PathBuf {
    let path = place.join("campaign.jsonl");
    let text: String = synthetic::campaign()
        .iter()
        .map(|line| serde_json::to_string(line).unwrap() + "\n")
        .collect();
    std::fs::write(&path, text).unwrap();
    path
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_campaign_becomes_a_page_figures_rows_and_text() {
    let place = tempfile::tempdir().unwrap();
    let (path, page) = (lines(place.path()), place.path().join("page.html"));
    let (figures, rows) = (place.path().join("figures"), place.path().join("runs.csv"));
    let arguments = [
        "--html",
        page.to_str().unwrap(),
        "--svg",
        figures.to_str().unwrap(),
        "--csv",
        rows.to_str().unwrap(),
        "--text",
    ];
    let output = lab(&[&[path.to_str().unwrap()][..], &arguments[..]].concat());
    assert!(output.status.success(), "{}", said(&output));

    let text = String::from_utf8(output.stdout).unwrap();
    let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(widest.chars().count() <= 100, "{widest}");
    assert!(
        text.contains("no difference proven (n = 3)") && text.contains("lower, 99.5 %"),
        "{text}"
    );

    let runs = synthetic::campaign()
        .iter()
        .filter(|line| matches!(line, report::record::Line::Run(_)))
        .count();
    assert_eq!(std::fs::read_to_string(rows).unwrap().matches("\r\n").count(), runs + 1);
    assert!(std::fs::read_to_string(page).unwrap().ends_with("</html>\n"));
    let answer = std::fs::read_to_string(figures.join("senders-answer.svg")).unwrap();
    assert!(answer.starts_with("<svg xmlns=") && answer.contains("<style>"));
}

#[test]
fn an_empty_file_a_missing_one_and_an_unknown_reference_are_errors_that_say_so() {
    let place = tempfile::tempdir().unwrap();
    let empty = place.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let path = lines(place.path());
    for (arguments, expected) in [
        (vec![empty.to_str().unwrap()], "nothing to report"),
        (vec!["/nowhere/at/all"], "no such file"),
        (vec![path.to_str().unwrap(), "--reference", "nobody"], "no run of nobody"),
    ] {
        let output = lab(&arguments);
        assert!(!output.status.success());
        assert!(said(&output).contains(expected), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn budgets_are_judged_by_a_campaigns_file_and_stand_at_the_head_of_its_page() {
    let place = tempfile::tempdir().unwrap();
    let (path, page) = (place.path().join("lines.jsonl"), place.path().join("page.html"));
    let cell = synthetic::cell(&[
        ("sessions", synthetic::number(10.0)),
        ("per-connection", synthetic::number(1.0)),
    ]);
    let run = |(ordinal, subject, rate): (u32, &str, f64)| {
        let value = rate + f64::from(ordinal);
        let run = synthetic::run("inject", subject, cell.clone(), ordinal, value);
        serde_json::to_string(&report::record::Line::Run(Box::new(run))).unwrap() + "\n"
    };
    let rounds = (0..10).flat_map(|ordinal| {
        [("posthaste", 8000.0), ("postfix", 1700.0), ("limit", 10000.0)]
            .map(|(subject, rate)| (ordinal, subject, rate))
    });
    std::fs::write(&path, rounds.map(run).collect::<String>()).unwrap();
    let (path, page) = (path.to_str().unwrap(), page.to_str().unwrap());
    let budgets = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste-lab"));
        let output = command.arg("budgets").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let table = budgets(&[path, "--md"]);
    assert!(table.contains("| ≥ 70 % of the ceiling | 80.0 % |"), "{table}");
    assert!(table.contains("missed, proven at 99.5 %"), "4.7 times is not five: {table}");
    let rows = table.lines().filter(|line| line.contains("not measured")).count();
    assert!(rows > 20, "{table}");
    assert!(budgets(&[path]).contains("met at 99.5 %"));
    assert!(budgets(&[]).contains("[[row]]"), "the file itself");
    assert!(lab(&[path, "--html", page, "--budgets"]).status.success());
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("The budgets") && text.contains("80.0 %"));
}
