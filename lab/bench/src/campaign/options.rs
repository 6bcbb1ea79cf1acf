//! What a campaign is told on its command line.
//!
//! Must never open a file that is not named there.

use crate::peers;
use crate::scenario::{Scenario, Tool};
use crate::subject::{self, Subject};
use anyhow::Result;
use std::path::PathBuf;

/// What `run` and `compare` are told.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Scenarios: names (see `posthaste-lab scenarios`), or files of your own
    pub scenario: Vec<String>,
    /// Whom to ask, in place of those that the scenarios name
    #[arg(long, value_delimiter = ',')]
    pub subject: Vec<String>,
    /// A file of subjects of your own; they are asked beside those of the scenarios
    #[arg(long)]
    pub subjects: Option<PathBuf>,
    /// Runs of each cell, those in the file included; else what the scenario says
    #[arg(long)]
    pub runs: Option<u32>,
    /// Change the scenarios: NAME=VALUE or NAME=VALUE,VALUE for what is varied; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// One JSON line a run is appended to this file; what stands there is not run again
    #[arg(long, default_value = "campaign.jsonl")]
    pub out: PathBuf,
    /// Queues, mailboxes, logs and archives; on the disk that is to be measured
    #[arg(long, default_value = "/var/tmp/posthaste-lab")]
    pub work: PathBuf,
    /// Debian's packages, unpacked; fetched if they are not there; without it below --work
    #[arg(long)]
    pub peers: Option<PathBuf>,
    /// Posthaste's program; without it the one beside this program
    #[arg(long)]
    pub posthaste: Option<PathBuf>,
    /// Only say which runs are missing
    #[arg(long)]
    pub dry_run: bool,
}

/// How a campaign ended.
pub enum Outcome {
    /// All runs are in the file.
    Done,
    /// With this code.
    Failed(i32),
}

impl Options {
    /// The scenarios, changed as the command line says.
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

    /// All that may be asked.
    pub fn subjects(&self) -> Result<Vec<Box<dyn Subject>>> {
        let mut subjects = subject::builtin();
        if let Some(path) = &self.subjects {
            subjects.extend(subject::load(path)?);
        }
        Ok(subjects)
    }

    /// Those that are asked.
    fn asked(&self) -> Result<Vec<Box<dyn Subject>>> {
        let names: Vec<String> =
            self.scenarios()?.into_iter().flat_map(|scenario| scenario.subjects).collect();
        let mut subjects = self.subjects()?;
        subjects.retain(|subject| names.iter().any(|name| name == subject.name()));
        Ok(subjects)
    }

    /// Whether a subject runs outside the room and is reached over the machine's network.
    pub fn needs_network(&self) -> Result<bool> {
        Ok(self.asked()?.iter().any(|subject| subject.needs_machines_network()))
    }

    /// Whether Debian's packages are needed, for a subject or for Postfix's source and sink.
    pub fn needs_packages(&self) -> Result<bool> {
        let by_postfix = |scenario: &Scenario| {
            let questions = scenario.questions().unwrap_or_default();
            questions.iter().any(|one| [one.load.source, one.load.sink].contains(&Tool::Postfix))
        };
        let tools = self.scenarios()?.iter().any(by_postfix);
        Ok(tools || self.asked()?.iter().any(|subject| subject.is_fetched()))
    }

    /// Where the packages are, or will be.
    pub fn unpacked(&self) -> PathBuf {
        self.peers.clone().unwrap_or_else(|| self.work.join("peers"))
    }

    /// What needs the network, before the room closes.
    pub fn fetch(&self) -> Result<()> {
        std::fs::create_dir_all(&self.work)?;
        if self.needs_packages()? { peers::fetch(&self.unpacked()) } else { Ok(()) }
    }
}
