//! What was measured, from several files: runs by scenario, subject and cell, and other commands' lines.
//!
//! Must never pair runs of two files: what stands side by side was made side by side.

use crate::lines;
use crate::record::{Cell, Line, RecordError, Run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// All files.
#[derive(Default)]
pub struct Measured {
    files: Vec<Vec<Run>>,
    others: Vec<Value>,
}

/// A file, and a round in it.
pub type Round = (usize, u32);

impl Measured {
    /// Adds a file: a campaign's lines, or those of another command, one JSON object each. A last line without its end
    /// was cut short and does not count.
    pub fn add(&mut self, path: &Path) -> Result<(), RecordError> {
        let text = lines::complete(path)
            .map_err(|error| RecordError::File { path: path.display().to_string(), error })?;
        let mut runs = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let wrong = |error| RecordError::Line {
                path: path.display().to_string(),
                number: number + 1,
                error,
            };
            let value: Value = serde_json::from_str(line).map_err(wrong)?;
            if value.get("line").is_none() {
                self.others.push(value);
            } else if let Line::Run(run) = serde_json::from_value(value).map_err(wrong)? {
                runs.push(*run);
            }
        }
        self.files.push(runs);
        Ok(())
    }

    /// Adds the runs of lines that were read before.
    pub fn add_lines(&mut self, lines: &[Line]) {
        let run =
            |line: &Line| if let Line::Run(run) = line { Some((**run).clone()) } else { None };
        self.files.push(lines.iter().filter_map(run).collect());
    }

    /// One number of each run in a cell that has it, by round. `value`: a name of `values`; empty: the result.
    pub fn values(
        &self,
        (scenario, subject, cell): (&str, &str, &Cell),
        value: &str,
    ) -> BTreeMap<Round, f64> {
        let mut found = BTreeMap::new();
        for (file, runs) in self.files.iter().enumerate() {
            let here = |run: &&Run| {
                run.scenario == scenario && run.subject == subject && run.cell == *cell
            };
            for run in runs.iter().filter(here) {
                // What failed has no result, and its other numbers are of no whole run.
                let number = run.value.and_then(|result| {
                    if value.is_empty() { Some(result) } else { run.values.get(value).copied() }
                });
                found.extend(number.map(|number| ((file, run.ordinal), number)));
            }
        }
        found
    }

    /// One number of each other line that has all these fields. `subject`: whose lines, where lines say so.
    pub fn of_lines(
        &self,
        fields: &BTreeMap<String, Value>,
        subject: &str,
        path: &str,
    ) -> Vec<f64> {
        let fits = |line: &&Value| {
            let whose = line.get("subject").and_then(Value::as_str);
            whose.is_none_or(|whose| whose == subject)
                && fields.iter().all(|(name, wanted)| is_same(line.get(name), wanted))
        };
        let number = |line: &Value| {
            path.split('.').try_fold(line, |value, name| value.get(name)).and_then(Value::as_f64)
        };
        self.others.iter().filter(fits).filter_map(number).collect()
    }
}

/// 1 and 1.0 are one number.
fn is_same(found: Option<&Value>, wanted: &Value) -> bool {
    let Some(found) = found else { return false };
    match (found.as_f64(), wanted.as_f64()) {
        (Some(found), Some(wanted)) => found == wanted,
        _ => found == wanted,
    }
}
