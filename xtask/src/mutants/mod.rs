//! `cargo xtask mutants CRATE`: a sample of cargo-mutants' changes of one crate, each of which its tests must catch, or
//! else the simulator's.
//!
//! Must never change a file of the working tree but the results below `docs/mutants` and the page made of them: the
//! changes are made in a copy below `target/mutants`.

mod list;
mod page;
mod results;
mod trial;

use anyhow::{Context, Result, ensure};
use list::Mutant;
use results::{Line, Outcome};
use std::path::{Path, PathBuf};
use std::process::Command;
use trial::{Tests, Trial};

/// The version that made the committed results: another one makes other mutants.
const VERSION: &str = "26.2.0";
/// What must be caught of those that compile, in percent.
const CAUGHT_PERCENT_MIN: usize = 90;
/// Mutants tried in each crate if the command does not say how many.
const SAMPLES: &[(&str, usize)] = &[
    ("spool", 80),
    ("scheduler", 80),
    ("queue", 80),
    ("link", 80),
    ("smtp", 30),
    ("policy", 30),
    ("delivery", 30),
];

/// What is asked for.
#[derive(clap::Args)]
pub struct Options {
    /// One of spool, scheduler, queue, link, smtp, policy, delivery; without one the page is written anew
    name: Option<String>,
    /// Mutants to try; 80 or 30 by default
    #[arg(long)]
    sample: Option<usize>,
    /// Which of them: the same number gives the same sample
    #[arg(long, default_value_t = 13)]
    seed: u64,
    /// Try those again that nothing has caught
    #[arg(long)]
    again: bool,
    /// Leave to a later run what only the simulator can still catch: it takes minutes for each
    #[arg(long)]
    crate_only: bool,
}

/// Tries what has no result yet; true if enough is caught.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let Some(name) = &options.name else {
        page::write(root)?;
        return Ok(true);
    };
    let usual = SAMPLES.iter().find(|(sampled, _)| sampled == name);
    let (_, usual) =
        usual.with_context(|| format!("{name} is not among the crates with mutants"))?;
    let place = Place::prepare(root)?;
    let all = place.list(name)?;
    let sample = list::sample(all, options.seed, options.sample.unwrap_or(*usual));
    println!("== {} mutants of {name}", sample.len());
    let mut known = results::read(root, name)?;
    known.retain(|line| {
        let is_asked = sample.iter().any(|mutant| mutant.key == line.key);
        is_asked && !(options.again && line.outcome == Outcome::Missed)
    });
    results::write(root, name, &known)?;
    let stages = [Tests::OfCrate, Tests::OfSimulator];
    for tests in stages.into_iter().take(if options.crate_only { 1 } else { 2 }) {
        for (number, mutant) in sample.iter().enumerate() {
            let at = known.iter().position(|line| line.key == mutant.key);
            if at.is_some_and(|at| !known[at].awaits(tests)) {
                continue;
            }
            let line = at.map_or_else(|| Line::new(mutant, &place.commit), |at| known.remove(at));
            let line = place.try_one(name, mutant, tests, line)?;
            let Line { outcome, name: change, seconds, .. } = &line;
            println!("{} of {}: {outcome:?} {change} ({seconds} s)", number + 1, sample.len());
            known.push(line);
            results::write(root, name, &known)?;
        }
    }
    page::write(root)?;
    let sum = results::Sum::of(&known);
    println!("{name}: {} of {} caught", sum.caught(), sum.viable());
    Ok(sum.caught() * 100 >= sum.viable() * CAUGHT_PERCENT_MIN)
}

/// The tool, the copy of the tree and what is built of it.
struct Place {
    tool: PathBuf,
    tree: PathBuf,
    target: PathBuf,
    output: PathBuf,
    commit: String,
}

impl Place {
    fn prepare(root: &Path) -> Result<Place> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let here = target.join("mutants");
        std::fs::create_dir_all(&here)?;
        let here = here.canonicalize()?;
        let place = Place {
            tool: tool(&here)?,
            tree: here.join("tree"),
            target: here.join("target"),
            output: here.clone(),
            commit: said(Command::new("git").current_dir(root).args([
                "rev-parse",
                "--short",
                "HEAD",
            ]))?,
        };
        copy(root, &place.tree)?;
        Ok(place)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.tool);
        command.args(["mutants", "--colors", "never", "--dir"]).arg(&self.tree);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    fn list(&self, name: &str) -> Result<Vec<Mutant>> {
        let mut command = self.command();
        list::parse(&said(command.args(["--list", "--json", "--package", name]))?)
    }

    fn try_one(&self, name: &str, mutant: &Mutant, tests: Tests, mut line: Line) -> Result<Line> {
        let trial = Trial { package: name, mutant, tests };
        let (outcome, seconds) = trial.run(self.command(), &self.output)?;
        line.outcome = outcome;
        line.by = tests.name().into();
        line.seconds += seconds;
        line.commit.clone_from(&self.commit);
        line.name.clone_from(&mutant.name);
        Ok(line)
    }
}

/// Installs cargo-mutants below the target directory unless it is there.
fn tool(here: &Path) -> Result<PathBuf> {
    let tool = here.join("tool/bin/cargo-mutants");
    let version = said(Command::new(&tool).args(["mutants", "--version"]));
    if version.is_ok_and(|version| version.ends_with(VERSION)) {
        return Ok(tool);
    }
    println!("== building cargo-mutants {VERSION}");
    let mut command = Command::new(env!("CARGO"));
    command.args(["install", "--quiet", "--locked", "--debug", "--force", "--version", VERSION]);
    let status = command.arg("--root").arg(here.join("tool")).arg("cargo-mutants").status()?;
    ensure!(status.success(), "cargo-mutants could not be built");
    Ok(tool)
}

/// Copies what git knows or would take; a file that has not changed keeps its time, so that little is built again.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = said(Command::new("git").current_dir(root).args(list))?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(bytes) = std::fs::read(&from) else { continue }; // removed, and not yet committed
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file lies in a directory")?)?;
        std::fs::write(&to, bytes).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// What a program prints; its complaint if it fails.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?}: {complaint}", command.get_program());
    Ok(String::from_utf8(output.stdout)?.trim_end_matches('\n').to_string())
}
