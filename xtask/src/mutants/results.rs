//! The result of each mutant: a file of JSON lines for each crate below `docs/mutants`.
//!
//! Must never count a mutant that did not compile as caught.

use super::list::Mutant;
use super::trial::Tests;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The result of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A test failed.
    Caught,
    /// The tests did not end.
    Timeout,
    /// It does not compile.
    Unviable,
    /// All tests passed.
    Missed,
}

/// One mutant and its result.
#[derive(Clone, Serialize, Deserialize)]
pub struct Line {
    /// Which, whatever its line; see `Mutant::key`.
    pub key: String,
    /// Which, as cargo-mutants calls it.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Whose tests were the last to try it: `crate` or `simulator`.
    pub by: String,
    /// How long it took.
    pub seconds: u64,
    /// The commit whose tests these were.
    pub commit: String,
}

impl Line {
    /// Before any test has run.
    pub fn new(mutant: &Mutant, commit: &str) -> Line {
        Line {
            key: mutant.key.clone(),
            name: mutant.name.clone(),
            outcome: Outcome::Missed,
            by: String::new(),
            seconds: 0,
            commit: commit.to_string(),
        }
    }

    /// Whether these tests have still to try it.
    pub fn awaits(&self, tests: Tests) -> bool {
        tests == Tests::OfSimulator
            && self.outcome == Outcome::Missed
            && self.by == Tests::OfCrate.name()
    }
}

/// Where the results are.
pub fn folder(root: &Path) -> PathBuf {
    root.join("docs/mutants")
}

/// What is known of a crate; nothing if no mutant of it was tried.
pub fn read(root: &Path, name: &str) -> Result<Vec<Line>> {
    let path = folder(root).join(format!("{name}.jsonl"));
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(Vec::new()) };
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().with_context(|| path.display().to_string())
}

/// Replaces what is known of a crate.
pub fn write(root: &Path, name: &str, lines: &[Line]) -> Result<()> {
    std::fs::create_dir_all(folder(root))?;
    let path = folder(root).join(format!("{name}.jsonl"));
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(line)?;
        text.push('\n');
    }
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, &path).with_context(|| path.display().to_string())
}

/// Counts of a crate's results.
#[derive(Default)]
pub struct Sum {
    /// By the crate's tests.
    pub by_crate: usize,
    /// By the simulator's, after the crate's had not.
    pub by_simulator: usize,
    /// Tests that did not end: those are caught, too.
    pub timeout: usize,
    /// Not compiled.
    pub unviable: usize,
    /// Survivors.
    pub missed: usize,
}

impl Sum {
    /// Counts them.
    pub fn of(lines: &[Line]) -> Sum {
        let mut sum = Sum::default();
        for line in lines {
            *match line.outcome {
                Outcome::Caught if line.by == "simulator" => &mut sum.by_simulator,
                Outcome::Caught => &mut sum.by_crate,
                Outcome::Timeout => &mut sum.timeout,
                Outcome::Unviable => &mut sum.unviable,
                Outcome::Missed => &mut sum.missed,
            } += 1;
        }
        sum
    }

    /// Mutants that the tests noticed.
    pub fn caught(&self) -> usize {
        self.by_crate + self.by_simulator + self.timeout
    }

    /// Mutants that compile.
    pub fn viable(&self) -> usize {
        self.caught() + self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_written_and_what_does_not_compile_is_neither_caught_nor_missed() {
        let place = tempfile::tempdir().unwrap();
        let mutant = Mutant { name: "a.rs:1:1: x".into(), key: "a.rs: x".into() };
        let mut line = Line::new(&mutant, "0123456");
        let mut lines = vec![line.clone()];
        for (outcome, by) in [
            (Outcome::Caught, "crate"),
            (Outcome::Caught, "simulator"),
            (Outcome::Timeout, "crate"),
            (Outcome::Unviable, "crate"),
        ] {
            (line.outcome, line.by) = (outcome, by.into());
            lines.push(line.clone());
        }
        write(place.path(), "spool", &lines).unwrap();
        let survivor = Line { by: "crate".into(), ..Line::new(&mutant, "0123456") };
        assert!(survivor.awaits(Tests::OfSimulator) && !survivor.awaits(Tests::OfCrate));
        assert!(!lines[1].awaits(Tests::OfSimulator));
        let sum = Sum::of(&read(place.path(), "spool").unwrap());
        assert_eq!((sum.caught(), sum.viable(), sum.unviable), (3, 4, 1));
        assert!(read(place.path(), "queue").unwrap().is_empty());
    }
}
