//! `cargo xtask ci | tidy | settings | bounds | decisions | faults | counts | swarm | canary | fuzz | bounces | mutants`: checks
//! of the tree, and generated pages.
//!
//! Must never be needed to build or to run Posthaste.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bounces;
mod bounds;
mod canary;
mod ci;
mod counts;
mod decisions;
mod faults;
mod fuzz;
mod mutants;
mod settings;
mod swarm;
mod tidy;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Checks the tree and generates pages.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Format, lints, licences, tidy, counts, all tests; ends with `N passed, N failed`
    Ci {
        /// Leave out cargo-deny, where it cannot be installed
        #[arg(long)]
        without_deny: bool,
    },
    /// Check the arrows between the crates and the rules of STYLE.md
    Tidy,
    /// Write docs/settings.md anew from the settings in the code
    Settings,
    /// Write docs/bounds.md anew from the list of bounds, the settings and the constants
    Bounds,
    /// Write the indexes of docs/decisions and lab/docs/decisions from the titles and dates of the pages
    Decisions,
    /// Write docs/faults.md anew from the list of faults and the names of the tests
    Faults {
        /// Write nothing; say what is missing, and whether the page is what the tests say
        #[arg(long)]
        check: bool,
    },
    /// Count instructions and allocations of one message at each station; a rise is a failure
    Counts(counts::Counts),
    /// Simulate the whole mailer with many seeds, or print one of them line by line
    Swarm(swarm::Swarm),
    /// Build the simulator with one known bug at a time; it must find each
    Canary(canary::Chosen),
    /// Pass our bounces to a program that parses bounces, if it is installed
    Bounces,
    /// Search for inputs that break a parser or a decoder; print what was run, reached and found
    Fuzz(fuzz::Options),
    /// Change one thing at a time in a crate; its tests or the simulator's must notice
    Mutants(mutants::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task. Returns false if it failed and has already said why.
fn run(task: Task) -> Result<bool> {
    let root = root()?;
    match task {
        Task::Ci { without_deny } => ci::run(&root, without_deny),
        Task::Tidy => tidy::run(&root).map(|()| true),
        Task::Settings => settings::write(&root).map(|()| true),
        Task::Bounces => bounces::run(&root).map(|()| true),
        Task::Bounds => bounds::write(&root).map(|()| true),
        Task::Decisions => decisions::write(&root).map(|()| true),
        Task::Fuzz(options) => fuzz::run(&root, &options),
        Task::Faults { check: true } => faults::check(&root).map(|()| true),
        Task::Faults { check: false } => faults::write(&root).map(|()| true),
        Task::Counts(counts) => counts.run(&root),
        Task::Swarm(swarm) => swarm.run(&root),
        Task::Mutants(options) => mutants::run(&root, &options),
        Task::Canary(chosen) => canary::run(&root, &chosen),
    }
}

/// Returns the top of the workspace: the directory above this crate's.
fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask lies below the workspace")?.to_path_buf())
}

/// Runs the posthaste of this working tree, and returns what it prints.
fn posthaste(arguments: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "daemon", "--bin", "posthaste", "--"])
        .args(arguments)
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "posthaste {arguments:?}: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}
