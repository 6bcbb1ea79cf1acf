//! `posthaste-lab verdicts`: tables of what a campaign's page does not judge by itself, in Markdown.
//!
//! Must never measure, or say "the same" by another test than `stats::equivalent`.

mod fairness;
mod overload;

use anyhow::{Result, ensure};
use report::record::{self, Factor, Line, Run};
use std::path::PathBuf;

/// The options of `verdicts`.
#[derive(clap::Args)]
pub struct Options {
    /// Files of a campaign's lines, one JSON object each
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write the tables to this file, too
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// Prints the tables.
pub fn run(options: &Options) -> Result<()> {
    let mut lines = Vec::new();
    for file in &options.files {
        ensure!(file.exists(), "{}: there is no such file", file.display());
        lines.extend(record::read(file)?);
    }
    let runs: Vec<Run> = lines
        .into_iter()
        .filter_map(|line| match line {
            Line::Run(run) => Some(*run),
            _ => None,
        })
        .collect();
    let tables = [fairness::table(&runs), overload::table(&runs)];
    let tables: Vec<String> = tables.into_iter().filter(|table| !table.is_empty()).collect();
    ensure!(!tables.is_empty(), "no run of fairness or overload is among these");
    let text = tables.join("\n");
    print!("{text}");
    if let Some(path) = &options.markdown {
        std::fs::write(path, &text)?;
    }
    Ok(())
}

/// Returns the word that a run's cell has for `factor`.
fn word<'a>(run: &'a Run, factor: &str) -> Option<&'a str> {
    match run.cell.get(factor) {
        Some(Factor::Word(word)) => Some(word),
        _ => None,
    }
}

/// Returns one value of each successful run.
fn values(runs: &[&Run], name: &str) -> Vec<f64> {
    let good = runs.iter().filter(|run| run.failed.is_none());
    good.filter_map(|run| run.values.get(name).copied()).collect()
}

/// Writes a value with three digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
