//! `cargo xtask swarm`: builds the simulator and runs many seeds, or tells one again.
//!
//! Must never simulate anything itself.

use anyhow::{Result, ensure};
use clap::Args;
use std::path::Path;
use std::process::Command;

/// What to simulate.
#[derive(Args)]
pub struct Swarm {
    /// How long
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// The first seed; by default another one each time
    #[arg(long)]
    first: Option<u64>,
    /// The number of seeds at most
    #[arg(long)]
    seeds: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Tells this seed line by line instead
    #[arg(long, conflicts_with_all = ["minutes", "first", "seeds", "threads"])]
    replay: Option<u64>,
    /// With --replay: the parts that are left of its plan, `m3,f7`
    #[arg(long, requires = "replay")]
    only: Option<String>,
    /// With --replay: only the verdict
    #[arg(long, requires = "replay")]
    quiet: bool,
}

impl Swarm {
    /// Builds and runs; true: no check has failed.
    pub fn run(&self, root: &Path) -> Result<bool> {
        let build = ["run", "--quiet", "--profile", "quick", "--package", "sim", "--"];
        let mut command = Command::new(env!("CARGO"));
        let status = command.current_dir(root).args(build).args(self.words()).status()?;
        ensure!(status.code().is_some(), "the simulator was killed: {status}");
        Ok(status.success())
    }

    /// What `posthaste-sim` is told.
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut say = |name: &str, value: String| words.extend([name.to_owned(), value]);
        match self.replay {
            Some(seed) => {
                say("replay", seed.to_string());
                if let Some(only) = &self.only {
                    say("--only", only.clone());
                }
            }
            None => {
                say("swarm", format!("--minutes={}", self.minutes));
                say("--threads", self.threads.to_string());
                if let Some(first) = self.first {
                    say("--first", first.to_string());
                }
                if let Some(seeds) = self.seeds {
                    say("--seeds", seeds.to_string());
                }
            }
        }
        if self.quiet {
            words.push("--quiet".into());
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        swarm: Swarm,
    }

    fn words(arguments: &[&str]) -> String {
        let all = ["swarm"].iter().chain(arguments);
        Cli::try_parse_from(all).unwrap().swarm.words().join(" ")
    }

    #[test]
    fn the_line_that_a_failure_prints_replays_it() {
        assert_eq!(words(&["--replay", "7"]), "replay 7");
        let only = words(&["--replay", "7", "--only", "m3,f7", "--quiet"]);
        assert_eq!(only, "replay 7 --only m3,f7 --quiet");
    }

    #[test]
    fn a_swarm_is_told_its_time_seeds_and_threads() {
        assert_eq!(words(&["--minutes", "0.5"]), "swarm --minutes=0.5 --threads 2");
        let all = words(&["--first", "9", "--seeds", "3", "--threads", "1"]);
        assert_eq!(all, "swarm --minutes=5 --threads 1 --first 9 --seeds 3");
    }
}
