//! Scenarios: the questions, each a TOML file that a person can copy and change.
//!
//! Must never run anything: scenarios are questions, `campaign` answers them.

mod cells;
mod load;

pub use load::{Ends, Load, Measure, Sink, Tool};

use crate::subject::Setup;
use anyhow::{Context, Result, bail, ensure};
use cells::Vary;
use report::record::{Cell, Factor, Figure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Upper bound on the cells of a scenario: more are a mistake in a file.
const CELLS_MAX: usize = 1_000;

/// One question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// The name on the command line and in the record.
    pub name: String,
    /// The heading in a report.
    pub title: String,
    /// The question, in one or two sentences.
    pub question: String,
    /// The way of measuring.
    #[serde(default)]
    pub measure: Measure,
    /// The name and unit of the result.
    pub figure: Figure,
    /// Subjects, unless the command line names others.
    pub subjects: Vec<String>,
    /// Runs of each cell, unless the command line says otherwise.
    #[serde(default = "ten")]
    pub runs: u32,
    /// Whether system calls are counted during the load, which slows the subject down.
    #[serde(default)]
    pub trace: bool,
    /// Whether the cost of a message is measured for each process: a short traced load precedes the load.
    #[serde(default)]
    pub cost: bool,
    /// Whether delays are a result too: tables and figures then show them first.
    #[serde(default)]
    pub delays: bool,
    /// What the source sends.
    #[serde(default)]
    pub load: Load,
    /// The faults of the sink.
    #[serde(default)]
    pub sink: Sink,
    /// The setup of the subject.
    #[serde(default)]
    pub setup: Setup,
    /// For `measure = "fairness"`: loads that may be queued before the load, by name.
    #[serde(default)]
    pub beside: BTreeMap<String, Load>,
    /// The factors: names of `load` or `setup`, each with its values.
    #[serde(default)]
    vary: Vary,
    /// Values of `load` for single subjects, by name. The record still has the scenario's cell.
    #[serde(default)]
    only: BTreeMap<String, BTreeMap<String, Factor>>,
}

fn ten() -> u32 {
    10
}

/// One combination of the factors' values.
#[derive(Clone, Debug)]
pub struct Question {
    /// The cell.
    pub cell: Cell,
    /// What the source sends.
    pub load: Load,
    /// How the subject is set up.
    pub setup: Setup,
}

/// The scenarios that come with the laboratory.
const BUILT_IN: &[(&str, &str)] = &[
    ("limit", include_str!("../../../scenarios/limit.toml")),
    ("inject", include_str!("../../../scenarios/inject.toml")),
    ("growth", include_str!("../../../scenarios/growth.toml")),
    ("relay", include_str!("../../../scenarios/relay.toml")),
    ("list", include_str!("../../../scenarios/list.toml")),
    ("local", include_str!("../../../scenarios/local.toml")),
    ("senders", include_str!("../../../scenarios/senders.toml")),
    ("syscalls", include_str!("../../../scenarios/syscalls.toml")),
    ("cost", include_str!("../../../scenarios/cost.toml")),
    ("cost-relay", include_str!("../../../scenarios/cost-relay.toml")),
    ("cost-local", include_str!("../../../scenarios/cost-local.toml")),
    ("logging", include_str!("../../../scenarios/logging.toml")),
    ("slow-disks", include_str!("../../../scenarios/slow-disks.toml")),
    ("latency", include_str!("../../../scenarios/latency.toml")),
    ("minute", include_str!("../../../scenarios/minute.toml")),
    ("directories", include_str!("../../../scenarios/directories.toml")),
    ("disks", include_str!("../../../scenarios/disks.toml")),
    ("order", include_str!("../../../scenarios/order.toml")),
    ("runners", include_str!("../../../scenarios/runners.toml")),
    ("hosts", include_str!("../../../scenarios/hosts.toml")),
    ("depth", include_str!("../../../scenarios/depth.toml")),
    ("mix", include_str!("../../../scenarios/mix.toml")),
    ("fairness", include_str!("../../../scenarios/fairness.toml")),
    ("crowd", include_str!("../../../scenarios/crowd.toml")),
    ("strangers", include_str!("../../../scenarios/strangers.toml")),
    ("overload", include_str!("../../../scenarios/overload.toml")),
];

/// The names of the scenarios that come with the laboratory.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Scenario {
    /// Returns a built-in scenario by its name, or reads one from a file.
    pub fn find(name: &str) -> Result<Scenario> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Scenario::parse(text).with_context(|| format!("scenario {name}"));
        }
        if !Path::new(name).exists() {
            bail!("{name} is neither a file nor one of: {}", names().join(" "));
        }
        let text = std::fs::read_to_string(name).with_context(|| name.to_string())?;
        Scenario::parse(&text).with_context(|| name.to_string())
    }

    /// The text of a scenario that comes with the laboratory, to be copied and changed.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    fn parse(text: &str) -> Result<Scenario> {
        let scenario: Scenario = toml::from_str(text)?;
        ensure!(!scenario.subjects.is_empty(), "`subjects` is empty");
        scenario.questions()?;
        scenario
            .only
            .keys()
            .try_for_each(|name| scenario.load_for(name, &scenario.load).map(drop))?;
        Ok(scenario)
    }

    /// Changes one of `load` or `setup`, or what is varied: `sessions=5` or `sessions=5,10`.
    pub fn set(&mut self, assignment: &str) -> Result<()> {
        let (name, values) = assignment.split_once('=').context("NAME=VALUE is expected")?;
        cells::name_is_known(name, &self.load, &self.setup)?;
        let values: Vec<Factor> = values.split(',').map(cells::factor).collect();
        match &values[..] {
            [value] if !self.vary.has(name) => {
                let one = Cell::from([(name.to_string(), value.clone())]);
                let question = cells::question(one, &self.load, &self.setup)?;
                (self.load, self.setup) = (question.load, question.setup);
            }
            _ => self.vary.set(name, values),
        }
        self.questions().map(|_| ())
    }

    /// The load for this subject: one that takes fast and hands on slowly needs a shorter one.
    pub fn load_for(&self, subject: &str, load: &Load) -> Result<Load> {
        let Some(only) = self.only.get(subject) else { return Ok(load.clone()) };
        let cell = only.clone().into_iter().collect();
        Ok(cells::question(cell, load, &self.setup)?.load)
    }

    /// All cells, in the order of the file.
    pub fn questions(&self) -> Result<Vec<Question>> {
        let cells = self.vary.cells();
        ensure!(cells.len() <= CELLS_MAX, "{} cells, where {CELLS_MAX} are allowed", cells.len());
        cells.into_iter().map(|cell| cells::question(cell, &self.load, &self.setup)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_comes_along_can_be_read_and_has_the_name_of_its_file() {
        for name in names() {
            let scenario = Scenario::find(name).unwrap();
            assert_eq!(scenario.name, name);
            assert!(!scenario.questions().unwrap().is_empty(), "{name}");
            assert!(scenario.question.ends_with(['.', '?']), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_none_says_which_there_are() {
        let error = format!("{:#}", Scenario::find("rely").unwrap_err());
        assert!(error.contains("relay"), "{error}");
        let mut scenario = Scenario::find("relay").unwrap();
        let error = format!("{:#}", scenario.set("sesions=5").unwrap_err());
        assert!(error.contains("sesions") && error.contains("sessions"), "{error}");
    }

    #[test]
    fn what_is_set_on_the_command_line_replaces_what_is_varied() {
        let mut scenario = Scenario::find("relay").unwrap();
        assert_eq!(scenario.questions().unwrap().len(), 3);
        scenario.set("sessions=7").unwrap();
        scenario.set("sizes=1k,2k").unwrap();
        let questions = scenario.questions().unwrap();
        assert_eq!(questions.len(), 2);
        assert!(questions.iter().all(|question| question.load.sessions == 7));
        assert_eq!(questions[1].load.sizes, "2k");
    }
}
