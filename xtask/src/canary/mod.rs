//! `cargo xtask canary`: builds the simulator with one known bug at a time. The simulator must find each.
//!
//! Must never change a file of the working tree: bugs go into a copy of it.

mod list;
mod trial;

use anyhow::{Context, Result, ensure};
use clap::Args;
use list::Canary;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trial::{Ran, Tree};

/// Which bugs to try.
#[derive(Args)]
pub struct Chosen {
    /// The name of one; all if there is none
    name: Option<String>,
}

/// The result of a build with a bug.
struct Line<'a> {
    canary: &'a Canary,
    ran: Ran,
    took: Duration,
}

/// Tries the unchanged build first, then each canary; true: all were as they must be.
pub fn run(root: &Path, chosen: &Chosen) -> Result<bool> {
    let mut canaries = list::all(root)?;
    if let Some(name) = &chosen.name {
        canaries.retain(|canary| canary.name == *name);
        ensure!(!canaries.is_empty(), "there is no canary {name} in {}", list::FOLDER);
    }
    let tree = Tree::copy(root, &place(root))?;
    tree.build().context("the unchanged build")?;
    for (first, seeds) in list::ranges(&canaries) {
        let ran = tree.swarm(first, seeds)?;
        if !ran.passed() {
            println!("without any bug, {seeds} seeds from {first}: {}", ran.told());
            return Ok(false);
        }
        println!("without any bug {seeds} seeds from {first} pass");
    }
    let mut lines = Vec::new();
    for canary in &canaries {
        let began = Instant::now();
        let ran = tree.with(canary, |tree| {
            tree.build().with_context(|| format!("canary {} does not build", canary.name))?;
            tree.swarm(canary.first, canary.seeds)
        })?;
        println!("{}: {}", canary.name, ran.told());
        lines.push(Line { canary, ran, took: began.elapsed() });
    }
    table(&lines);
    Ok(lines.iter().all(Line::is_caught))
}

/// Beside everything else that is built.
fn place(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    root.join(target).join("canaries")
}

impl Line<'_> {
    fn is_caught(&self) -> bool {
        self.ran.checks.iter().any(|check| self.canary.checks.contains(check))
    }

    /// How many seeds it took.
    fn seeds(&self) -> Option<u64> {
        self.ran.seed.filter(|_| self.is_caught()).map(|seed| seed + 1 - self.canary.first)
    }
}

fn table(lines: &[Line]) {
    println!("\n| canary | what | seeds it took | at most | check | s |");
    println!("|---|---|---|---|---|---|");
    for line in lines {
        let Canary { name, what, seeds, .. } = line.canary;
        let took = line.seeds().map_or("NOT CAUGHT".into(), |seeds| seeds.to_string());
        let (checks, s) = (line.ran.checks.join(", "), line.took.as_secs());
        println!("| {name} | {what} | {took} | {seeds} | {checks} | {s} |");
    }
    let caught = lines.iter().filter(|line| line.is_caught()).count();
    println!("\n{caught} of {} caught", lines.len());
}
