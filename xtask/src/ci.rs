//! `cargo xtask ci`: all checks that must pass before a change may land, in one run with one sum.
//!
//! Must never count a step as passed that did not run.

use anyhow::Result;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The environment variable with the file to which a test that cannot run here appends a line (`proof/needs`).
const SKIPPED_FILE: &str = "POSTHASTE_TEST_SKIPPED";

/// The number of passed checks, and the names of those that failed or were skipped.
#[derive(Default)]
struct Sum {
    passed: u64,
    failed: u64,
    names: Vec<String>,
    /// Returns the lines of tests that this machine cannot run, each once.
    skipped: BTreeSet<String>,
}

/// Runs all steps, even after one has failed. Returns true if none has. The last line of the output is the sum.
pub fn run(root: &Path, without_deny: bool) -> Result<bool> {
    let mut sum = Sum::default();
    sum.step(root, "format", &["fmt", "--all", "--check"]);
    let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    sum.step(root, "lints", &lints);
    if without_deny {
        println!("== licences: left out, as asked");
    } else {
        // The advisory database is on the network; what is checked here needs none.
        sum.step(root, "licences", &["deny", "--offline", "check", "bans", "licenses", "sources"]);
    }
    sum.step(root, "tidy", &["xtask", "tidy"]);
    sum.step(root, "counts", &["xtask", "counts"]);
    sum.tests(root)?;
    println!();
    sum.skipped.iter().for_each(|line| println!("{line}"));
    sum.names.iter().for_each(|name| println!("failed: {name}"));
    println!("{}", sum.line());
    Ok(sum.failed == 0)
}

impl Sum {
    /// One command that passes or fails as a whole.
    fn step(&mut self, root: &Path, name: &str, arguments: &[&str]) {
        println!("== {name}: cargo {}", arguments.join(" "));
        let start = Instant::now();
        let status = cargo(root).args(arguments).status();
        let passed = status.is_ok_and(|status| status.success());
        let word = if passed { "passed" } else { "FAILED" };
        println!("== {name} {word} in {} s", start.elapsed().as_secs());
        self.passed += u64::from(passed);
        if !passed {
            self.fail(name.into());
        }
    }

    fn fail(&mut self, name: String) {
        self.failed += 1;
        self.names.push(name);
    }

    /// All tests, each counted on its own.
    fn tests(&mut self, root: &Path) -> Result<()> {
        let arguments = ["test", "--workspace", "--all-targets", "--no-fail-fast"];
        println!("== tests: cargo {}", arguments.join(" "));
        let start = Instant::now();
        let skipped = tempfile::NamedTempFile::new()?;
        let mut command = cargo(root);
        command.args(arguments).env(SKIPPED_FILE, skipped.path());
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let failed_before = self.failed;
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                let line = line?;
                println!("{line}");
                self.count(&line);
            }
        }
        let well = child.wait()?.success();
        self.skip(&std::fs::read_to_string(skipped.path())?);
        println!("== tests ended after {} s", start.elapsed().as_secs());
        if !well && self.failed == failed_before {
            self.fail("tests: they did not build, or one of them ended the program".into());
        }
        Ok(())
    }

    /// Subtracts the tests of these lines from those that passed. The test harness counts a skipped test as passed.
    fn skip(&mut self, lines: &str) {
        self.skipped.extend(lines.lines().map(String::from));
        self.passed = self.passed.saturating_sub(self.skipped.len() as u64);
    }

    /// Returns the last line. It mentions skipped tests only if there are any.
    fn line(&self) -> String {
        let sum = format!("{} passed, {} failed", self.passed, self.failed);
        match self.skipped.len() {
            0 => sum,
            skipped => format!("{sum}, {skipped} skipped"),
        }
    }

    fn count(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.names.push(name.into());
        }
        if let Some((passed, failed)) = result(line) {
            self.passed += passed;
            self.failed += failed;
        }
    }
}

/// Returns the numbers of `test result: ok. 11 passed; 0 failed; …`.
fn result(line: &str) -> Option<(u64, u64)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        let part = counts.split(';').find(|part| part.trim().ends_with(word))?;
        part.trim().split(' ').next()?.parse().ok()
    };
    Some((count("passed")?, count("failed")?))
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_has_not_passed_and_is_counted_once() {
        let mut sum = Sum::default();
        sum.count("test result: ok. 11 passed; 0 failed; 0 ignored; 0 measured");
        assert_eq!(sum.line(), "11 passed, 0 failed");
        let line = "SKIPPED storage::a: it needs root, for mount: this is another user\n";
        sum.skip(&format!("{line}SKIPPED storage::b: it needs root\n{line}"));
        assert_eq!(sum.line(), "9 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn the_counts_of_a_test_program_are_read_and_other_lines_are_not() {
        let ok = "test result: ok. 11 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out";
        let bad = "test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured";
        assert_eq!(result(ok), Some((11, 0)));
        assert_eq!(result(bad), Some((3, 4)));
        assert_eq!(result("test a::b ... ok"), None);
    }
}
