//! Asks the mailer's command line about the full queue, and times the answers.
//!
//! Must never accept an answer that is not about this queue: the counts are checked.

use super::{Bench, median};
use crate::subject::Subject;
use anyhow::{Context, Result, ensure};
use report::record::Run;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Messages of a destination that are listed where it has many.
const LISTED: &str = "100";

/// See the module.
pub fn ask(bench: &Bench, run: &mut Run) -> Result<()> {
    let destination = format!("d{}.test", bench.cell.destinations / 2);
    let list = ["list", "--json", "--limit", LISTED, "--destination", &destination];
    let rows = said(bench.subject.queue(bench.site, &list))?.0;
    let row: Value = serde_json::from_str(rows.lines().last().context("an empty list")?)?;
    let id = row["id"].as_str().context("a row without an id")?;
    let version = || {
        let mut command = Command::new(&bench.site.posthaste);
        command.arg("--version");
        command
    };
    let queue = |words: &[&str]| bench.subject.queue(bench.site, words);
    let missing = ["list", "--json", "--destination", "nowhere.test"];
    let questions: [(&str, &dyn Fn() -> Command); 6] = [
        ("command_line_ms", &version),
        ("summary_ms", &|| queue(&["summary", "--json"])),
        ("list_ms", &|| queue(&list)),
        ("list_of_nobody_ms", &|| queue(&missing)),
        ("explain_ms", &|| queue(&["explain", "--json", id])),
        ("show_ms", &|| queue(&["show", id])),
    ];
    for (name, question) in questions {
        let times: Result<Vec<f64>> =
            (0..bench.options.repeats.max(1)).map(|_| Ok(said(question())?.1)).collect();
        run.values.insert(name.into(), median(times?));
    }
    let messages = bench.subject.queued(bench.site)?;
    ensure!(messages == bench.cell.queued, "{messages} queued, {} accepted", bench.cell.queued);
    run.values.insert("listed".into(), rows.lines().count() as f64);
    if !bench.options.no_orders {
        orders(bench, run)?;
    }
    Ok(())
}

/// Runs the queue in each order while the network is down.
fn orders(bench: &Bench, run: &mut Run) -> Result<()> {
    // The default comes last, and stays.
    for order in bench.subject.orders().iter().rev() {
        let words = ["run", "--json", "--order", order];
        let (text, whole_ms) = said(bench.subject.queue(bench.site, &words))?;
        let answer: Value = serde_json::from_str(text.trim())?;
        for part in ["read", "sort", "begin"] {
            let seconds = answer[format!("{part}_seconds")].as_f64();
            let ms = seconds.with_context(|| format!("no {part}_seconds in {text}"))? * 1e3;
            run.values.insert(format!("run_{order}_{part}_ms"), ms);
        }
        run.values.insert(format!("run_{order}_ms"), whole_ms);
    }
    Ok(())
}

/// Returns what a command prints, and the milliseconds from its start to its end.
pub fn said(mut command: Command) -> Result<(String, f64)> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", error.trim());
    Ok((String::from_utf8(output.stdout)?, ms))
}
