//! `posthaste-lab costs`: the cost of a message by mailer and process, from a campaign's lines.
//!
//! Must never mix runs of different cells, or of files with different labels.

use crate::watch::cost::{ALL, BETWEEN};
use anyhow::{Context, Result, ensure};
use report::record::{self, Cell, Factor, Line, Run};
use std::collections::BTreeMap;
use std::path::Path;

/// The options of `costs`.
#[derive(clap::Args)]
pub struct Options {
    /// Files of a campaign's lines; LABEL=FILE adds a column with the label: before=old.jsonl after=new.jsonl
    #[arg(required = true)]
    files: Vec<String>,
    /// As Markdown
    #[arg(long)]
    markdown: bool,
}

/// The columns of figures: name in the record, heading, digits after the point, divisor.
const COLUMNS: [(&str, &str, usize, f64); 11] = [
    ("system_calls", "calls", 1, 1.0),
    ("bytes_read", "KB in", 1, 1000.0),
    ("bytes_written", "KB out", 1, 1000.0),
    ("waits", "waits", 2, 1.0),
    ("wakes", "wakes", 2, 1.0),
    ("syncs", "syncs", 2, 1.0),
    ("voluntary_switches", "sleeps", 2, 1.0),
    ("involuntary_switches", "preempted", 2, 1.0),
    ("user_us", "user us", 0, 1.0),
    ("system_us", "system us", 0, 1.0),
    ("page_faults", "faults", 2, 1.0),
];
/// Number of first columns, which hold words and are aligned left.
const WORDS: usize = 2;

/// The key of a row: a mailer, the file's label, and one of its processes; the sum comes first.
type Who = (String, bool, String);
/// All samples of a row, by name.
type Samples = BTreeMap<String, Vec<f64>>;
/// The rows of each cell.
type Tables = BTreeMap<String, BTreeMap<Who, Samples>>;

/// Prints a table for each cell: medians over its runs.
pub fn run(options: &Options) -> Result<()> {
    let mut tables = Tables::new();
    for file in &options.files {
        let (label, path) = file.split_once('=').unwrap_or(("", file));
        ensure!(Path::new(path).exists(), "{path}: there is no such file");
        for line in record::read(Path::new(path)).with_context(|| path.to_string())? {
            if let Line::Run(run) = line {
                take(&mut tables, label, &run);
            }
        }
    }
    ensure!(
        !tables.is_empty(),
        "no run in there says what a message cost: see the scenario `cost`"
    );
    for (cell, rows) in &tables {
        let busy = rows.iter().filter(|(_, samples)| is_busy(samples));
        let rows: Vec<Vec<String>> = busy.map(row).collect();
        print!("{}", if options.markdown { markdown(cell, &rows) } else { text(cell, &rows) });
    }
    Ok(())
}

/// Returns whether the process did anything for a message; a shell that waits for the mailer's end does not.
fn is_busy(samples: &Samples) -> bool {
    let some = |name: &str| samples.get(name).is_some_and(|values| median(values) >= 0.5);
    some("system_calls") || some("user_us") || some("system_us")
}

fn take(tables: &mut Tables, label: &str, run: &Run) {
    let mailer =
        if label.is_empty() { run.subject.clone() } else { format!("{} {label}", run.subject) };
    for (name, value) in &run.values {
        let Some((role, name)) = name.split_once(BETWEEN) else { continue };
        let rows = tables.entry(title(&run.scenario, &run.cell)).or_default();
        let samples = rows.entry((mailer.clone(), role != ALL, role.to_string())).or_default();
        samples.entry(name.to_string()).or_default().push(*value);
    }
}

fn title(scenario: &str, cell: &Cell) -> String {
    let factor = |(name, factor): (&String, &Factor)| match factor {
        Factor::Number(number) => format!(", {name} {number}"),
        Factor::Word(word) => format!(", {name} {word}"),
    };
    let cell: String = cell.iter().map(factor).collect();
    format!("{scenario}{cell}")
}

fn row(((mailer, _, role), samples): (&Who, &Samples)) -> Vec<String> {
    let figure = |(name, _, digits, unit): &(&str, &str, usize, f64)| match samples.get(*name) {
        Some(values) => format!("{:.digits$}", median(values) / unit),
        None => String::new(),
    };
    [mailer.clone(), role.clone()].into_iter().chain(COLUMNS.iter().map(figure)).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

fn head() -> Vec<String> {
    let figures = COLUMNS.iter().map(|(_, heading, ..)| (*heading).to_string());
    ["mailer".to_string(), "process".to_string()].into_iter().chain(figures).collect()
}

fn markdown(title: &str, rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> =
        (0..head().len()).map(|at| if at < WORDS { "---" } else { "--:" }.into()).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("**{title}**\n\n{}{}{rows}\n", line(&head()), line(&rule))
}

fn text(title: &str, rows: &[Vec<String>]) -> String {
    let head = head();
    let width = |at: usize| rows.iter().chain([&head]).map(|row| row[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let cell = |(at, text): (usize, &String)| match at < WORDS {
        true => format!("{text:<width$}", width = widths[at]),
        false => format!("{text:>width$}", width = widths[at]),
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        format!("{}\n", cells.join("  "))
    };
    format!("{title}\n{}{}\n", line(&head), rows.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(calls: &[f64]) -> Samples {
        Samples::from([("system_calls".to_string(), calls.to_vec())])
    }

    #[test]
    fn a_row_has_the_median_of_its_runs_and_nothing_where_nothing_was_counted() {
        let who = ("posthaste before".to_string(), true, "queue".to_string());
        let row = row((&who, &samples(&[9.0, 1.0, 2.0, 4.0])));
        assert_eq!(row[..3], ["posthaste before", "queue", "3.0"]);
        assert!(row[3..].iter().all(String::is_empty));
        assert_eq!(row.len(), head().len());
    }

    #[test]
    fn a_process_that_does_nothing_for_a_message_has_no_row() {
        assert!(is_busy(&samples(&[0.1, 3.0, 4.0])));
        assert!(!is_busy(&samples(&[0.1, 0.0, 4.0])));
        assert!(!is_busy(&Samples::new()));
    }

    #[test]
    fn both_forms_of_a_table_have_a_line_for_each_row() {
        let who = ("postfix".to_string(), false, "all".to_string());
        let rows = [row((&who, &samples(&[240.0])))];
        let markdown = markdown("cost, sessions 1", &rows);
        assert!(markdown.contains("| postfix | all | 240.0 |"), "{markdown}");
        let text = text("cost, sessions 1", &rows);
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
