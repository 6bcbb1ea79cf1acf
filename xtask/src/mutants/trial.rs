//! The trial of one mutant with the tests of one crate.
//!
//! Must never count tests as passed that did not run.

use super::list::Mutant;
use super::results::Outcome;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Tests that take longer did not end: a crate's take up to a minute, the simulator's up to five on a busy machine.
const CRATE_SECONDS_MAX: u32 = 120;
const SIMULATOR_SECONDS_MAX: u32 = 1200;
const BUILD_SECONDS_MAX: u32 = 3600;

/// Whose tests.
#[derive(Clone, Copy, PartialEq)]
pub enum Tests {
    /// Those of the crate that is changed.
    OfCrate,
    /// Those of `proof/sim`: every cut, the first seeds, and every seed that ever failed.
    OfSimulator,
}

impl Tests {
    /// As in the results.
    pub fn name(self) -> &'static str {
        match self {
            Tests::OfCrate => "crate",
            Tests::OfSimulator => "simulator",
        }
    }
}

/// What is tried.
pub struct Trial<'a> {
    /// The crate that is changed,
    pub package: &'a str,
    /// how,
    pub mutant: &'a Mutant,
    /// and who must notice.
    pub tests: Tests,
}

#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    summary: String,
}

impl Trial<'_> {
    /// Runs cargo-mutants, whose directory `mutants.out` goes below `output`; how long it took, in seconds.
    pub fn run(&self, mut command: Command, output: &Path) -> Result<(Outcome, u64)> {
        let (package, seconds_max) = match self.tests {
            Tests::OfCrate => (self.package, CRATE_SECONDS_MAX),
            Tests::OfSimulator => ("sim", SIMULATOR_SECONDS_MAX),
        };
        command.args(["--in-place", "--baseline", "skip", "--package", self.package]);
        command.args(["--test-package", package, "--output"]).arg(output);
        command.args(["--timeout", &seconds_max.to_string()]);
        command.args(["--build-timeout", &BUILD_SECONDS_MAX.to_string()]);
        command.args(["--re", &exactly(&self.mutant.name)]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        let found = std::fs::read_to_string(output.join("mutants.out/outcomes.json"));
        let found = found.with_context(|| format!("cargo-mutants ended with {status}"))?;
        Ok((outcome(&found)?, start.elapsed().as_secs()))
    }
}

/// What became of the only mutant of a run.
fn outcome(text: &str) -> Result<Outcome> {
    let found: Outcomes = serde_json::from_str(text)?;
    let [Found { summary }] = found.outcomes.as_slice() else {
        bail!("{} mutants were tried, not one", found.outcomes.len());
    };
    Ok(match summary.as_str() {
        "CaughtMutant" => Outcome::Caught,
        "MissedMutant" => Outcome::Missed,
        "Timeout" => Outcome::Timeout,
        "Unviable" => Outcome::Unviable,
        other => bail!("cargo-mutants calls the outcome {other}"),
    })
}

/// A regular expression for this text alone.
fn exactly(text: &str) -> String {
    let mut pattern = String::from("^");
    for letter in text.chars() {
        // Not all punctuation: `\<` is the beginning of a word.
        if r"\.+*?()|[]{}^$".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "$"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_that_of_one_mutant_alone() {
        let of =
            |summary: &str| outcome(&format!(r#"{{"outcomes":[{{"summary":"{summary}"}}]}}"#)).ok();
        assert_eq!(of("CaughtMutant"), Some(Outcome::Caught));
        assert_eq!(of("MissedMutant"), Some(Outcome::Missed));
        assert_eq!(of("Failure"), None);
        assert!(outcome(r#"{"outcomes":[]}"#).is_err());
    }

    #[test]
    fn a_name_is_matched_letter_by_letter() {
        assert_eq!(exactly("a.rs:1:2: x + y -> ()"), r"^a\.rs:1:2: x \+ y -> \(\)$");
    }
}
