//! The options of a campaign.
//!
//! Must never open a file that the options do not name.

use crate::peers;
use crate::scenario::{Scenario, Tool};
use crate::subject::{self, Subject};
use anyhow::Result;
use std::path::PathBuf;

/// The options of `run` and `compare`.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Scenarios: names (see `posthaste-lab scenarios`), or files of your own
    pub scenario: Vec<String>,
    /// Subjects to measure, instead of those that the scenarios name
    #[arg(long, value_delimiter = ',')]
    pub subject: Vec<String>,
    /// A file of further subjects, measured beside those of the scenarios
    #[arg(long)]
    pub subjects: Option<PathBuf>,
    /// Runs of each cell, including those in the file; the default is the scenario's number
    #[arg(long)]
    pub runs: Option<u32>,
    /// Change the scenarios: NAME=VALUE, or NAME=VALUE,VALUE for a factor; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// The file to which each run's JSON line is appended; runs in it are not repeated
    #[arg(long, default_value = "campaign.jsonl")]
    pub out: PathBuf,
    /// Directory of queues, mailboxes, logs and archives, on the disk to measure
    #[arg(long, default_value = "/var/tmp/posthaste-lab")]
    pub work: PathBuf,
    /// Directory of Debian's unpacked packages, fetched if missing; the default is below --work
    #[arg(long)]
    pub peers: Option<PathBuf>,
    /// Posthaste's program; the default is the one beside this program
    #[arg(long)]
    pub posthaste: Option<PathBuf>,
    /// Only list the missing runs
    #[arg(long)]
    pub dry_run: bool,
}

/// How a campaign ended.
pub enum Outcome {
    /// All runs are in the file.
    Done,
    /// It failed with this exit code.
    Failed(i32),
}

impl Options {
    /// Returns the scenarios, changed by `--set` and `--subject`.
    pub fn scenarios(&self) -> Result<Vec<Scenario>> {
        let own = match &self.subjects {
            Some(path) => subject::load(path)?,
            None => Vec::new(),
        };
        let mut scenarios = Vec::new();
        for name in &self.scenario {
            let mut scenario = Scenario::find(name)?;
            self.set.iter().try_for_each(|assignment| scenario.set(assignment))?;
            if !self.subject.is_empty() {
                scenario.subjects = self.subject.clone();
            } else {
                scenario.subjects.extend(own.iter().map(|subject| subject.name().into()));
            }
            scenarios.push(scenario);
        }
        anyhow::ensure!(
            !scenarios.is_empty(),
            "no scenario is named; `posthaste-lab scenarios` lists them"
        );
        Ok(scenarios)
    }

    /// Returns all known subjects.
    pub fn subjects(&self) -> Result<Vec<Box<dyn Subject>>> {
        let mut subjects = subject::builtin();
        if let Some(path) = &self.subjects {
            subjects.extend(subject::load(path)?);
        }
        Ok(subjects)
    }

    /// Returns the subjects that the scenarios name.
    fn asked(&self) -> Result<Vec<Box<dyn Subject>>> {
        let names: Vec<String> =
            self.scenarios()?.into_iter().flat_map(|scenario| scenario.subjects).collect();
        let mut subjects = self.subjects()?;
        subjects.retain(|subject| names.iter().any(|name| name == subject.name()));
        Ok(subjects)
    }

    /// Returns whether a subject runs outside the room and is reached over the machine's network.
    pub fn needs_network(&self) -> Result<bool> {
        Ok(self.asked()?.iter().any(|subject| subject.needs_machines_network()))
    }

    /// Returns whether Debian's packages are needed, for a subject or for Postfix's source and sink.
    pub fn needs_packages(&self) -> Result<bool> {
        let by_postfix = |scenario: &Scenario| {
            let questions = scenario.questions().unwrap_or_default();
            questions.iter().any(|one| [one.load.source, one.load.sink].contains(&Tool::Postfix))
        };
        let tools = self.scenarios()?.iter().any(by_postfix);
        Ok(tools || self.asked()?.iter().any(|subject| subject.is_fetched()))
    }

    /// Returns the directory of the packages.
    pub fn unpacked(&self) -> PathBuf {
        self.peers.clone().unwrap_or_else(|| self.work.join("peers"))
    }

    /// Fetches the packages, which needs the network, before the room is made.
    pub fn fetch(&self) -> Result<()> {
        std::fs::create_dir_all(&self.work)?;
        if self.needs_packages()? { peers::fetch(&self.unpacked()) } else { Ok(()) }
    }
}
