//! The missing runs in their order: subjects A B C, then B C A, so that drift affects all alike.
//!
//! Must never put two runs of one subject next to each other while another subject's run of that cell is missing.

use crate::scenario::{Question, Scenario};
use crate::subject::Subject;
use anyhow::{Result, ensure};
use report::record::{Cell, Factor, Line};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Failures in a cell, without a success, after which a subject is not measured there again.
const FAILURES_MAX: usize = 2;
/// The subject that is no mailer at all.
pub const LIMIT: &str = "limit";
/// The subject that writes two files a message itself, without a mailer.
pub const TWO_FILES: &str = "two-files";

/// One run that is missing.
#[derive(Clone)]
pub struct Step<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The cell.
    pub question: Question,
    /// The subject's name.
    pub subject: String,
    /// The run's number within the cell.
    pub ordinal: u32,
    /// The seed, the same for all subjects.
    pub seed: u64,
}

/// All missing runs.
pub struct Schedule<'a> {
    steps: Vec<Step<'a>>,
}

/// The scenario, the subject and the cell.
type Key = (String, String, String);

impl<'a> Schedule<'a> {
    /// Finds the runs that `lines` lacks. `runs` replaces the scenarios' number of runs.
    pub fn new(
        scenarios: &'a [Scenario],
        subjects: &[Box<dyn Subject>],
        lines: &[Line],
        runs: Option<u32>,
    ) -> Result<Schedule<'a>> {
        let mut done: HashMap<Key, u32> = HashMap::new();
        for line in lines {
            match line {
                Line::Run(run) => {
                    *done.entry(key(&run.scenario, &run.subject, &run.cell)).or_default() += 1;
                }
                Line::Absent(absent) => {
                    let key = key(&absent.scenario, &absent.subject, &absent.cell);
                    done.insert(key, u32::MAX);
                }
                Line::Settings(_) => {}
            }
        }
        let mut by_ordinal: BTreeMap<u32, Vec<Step<'a>>> = BTreeMap::new();
        for scenario in scenarios {
            for name in &scenario.subjects {
                let known = subjects.iter().any(|subject| subject.name() == name);
                ensure!(known || name == TWO_FILES, "no subject is called {name}");
            }
            for question in scenario.questions()? {
                for ordinal in 0..runs.unwrap_or(scenario.runs) {
                    let steps = by_ordinal.entry(ordinal).or_default();
                    for subject in turned(&scenario.subjects, ordinal) {
                        let key = key(&scenario.name, subject, &question.cell);
                        if done.get(&key).copied().unwrap_or(0) <= ordinal {
                            let seed = seed(&scenario.name, &question.cell, ordinal);
                            let (mut question, subject) = (question.clone(), subject.clone());
                            question.load = scenario.load_for(&subject, &question.load)?;
                            steps.push(Step { scenario, question, subject, ordinal, seed });
                        }
                    }
                }
            }
        }
        Ok(Schedule { steps: by_ordinal.into_values().flatten().collect() })
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns them in order.
    pub fn steps(&self) -> impl Iterator<Item = Step<'a>> + '_ {
        self.steps.iter().cloned()
    }
}

/// Returns whether the subject has failed too often in this cell, or cannot do it.
pub fn is_hopeless(lines: &[Line], step: &Step) -> bool {
    let of_it = |line: &&Line| match line {
        Line::Run(run) => {
            run.scenario == step.scenario.name
                && run.subject == step.subject
                && run.cell == step.question.cell
        }
        Line::Absent(absent) => {
            absent.scenario == step.scenario.name
                && absent.subject == step.subject
                && absent.cell == step.question.cell
        }
        Line::Settings(_) => false,
    };
    let mut failures = 0;
    for line in lines.iter().filter(of_it) {
        match line {
            Line::Run(run) if run.failed.is_none() => return false,
            Line::Run(_) => failures += 1,
            Line::Absent(_) | Line::Settings(_) => return true,
        }
    }
    failures >= FAILURES_MAX
}

fn turned(subjects: &[String], by: u32) -> impl Iterator<Item = &String> {
    let by = by as usize % subjects.len();
    subjects[by..].iter().chain(&subjects[..by])
}

fn key(scenario: &str, subject: &str, cell: &Cell) -> Key {
    (scenario.into(), subject.into(), text(cell))
}

/// Writes a cell as `duty=mbox sessions=10`.
pub fn text(cell: &Cell) -> String {
    let factor = |factor: &Factor| match factor {
        Factor::Number(number) => number.to_string(),
        Factor::Word(word) => word.clone(),
    };
    let pairs: Vec<String> =
        cell.iter().map(|(name, value)| format!("{name}={}", factor(value))).collect();
    pairs.join(" ")
}

/// Derives a seed from the names alone: each subject gets the same messages, and so does a resumed campaign.
fn seed(scenario: &str, cell: &Cell, ordinal: u32) -> u64 {
    let hash = Sha256::digest(format!("{scenario} {} {ordinal}", text(cell)));
    u64::from_le_bytes(hash[..8].try_into().expect("a hash has 32 bytes"))
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scenario, cell) = (&self.scenario.name, text(&self.question.cell));
        write!(f, "{scenario} {cell} {} #{}", self.subject, self.ordinal + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject;
    use report::record::Absent;

    fn relay() -> Vec<Scenario> {
        let mut scenario = Scenario::find("relay").unwrap();
        scenario.subjects = vec!["posthaste".into(), "postfix".into(), "exim".into()];
        vec![scenario]
    }

    #[test]
    fn subjects_take_turns_and_another_one_begins_each_time() {
        let scenarios = relay();
        let schedule = Schedule::new(&scenarios, &subject::builtin(), &[], Some(3)).unwrap();
        assert_eq!(schedule.len(), 27);
        let names: Vec<String> = schedule.steps().map(|step| step.subject).collect();
        for pair in names[..9].windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
        assert_eq!([&names[0], &names[9], &names[18]], ["posthaste", "postfix", "exim"]);
    }

    #[test]
    fn what_a_subject_cannot_do_is_not_asked_again_and_all_get_the_same_seed() {
        let scenarios = relay();
        let all = Schedule::new(&scenarios, &subject::builtin(), &[], Some(1)).unwrap();
        let first = all.steps().next().unwrap();
        let absent = Absent {
            scenario: "relay".into(),
            subject: "exim".into(),
            cell: first.question.cell.clone(),
            why: "a test".into(),
        };
        let lines = [Line::Absent(absent)];
        let rest = Schedule::new(&scenarios, &subject::builtin(), &lines, Some(1)).unwrap();
        assert_eq!(rest.len(), all.len() - 1);
        let seeds: Vec<u64> = all.steps().take(3).map(|step| step.seed).collect();
        assert!(seeds.iter().all(|seed| *seed == seeds[0]));
        let step = all.steps().find(|step| step.subject == "exim").unwrap();
        assert!(is_hopeless(&lines, &step) && !is_hopeless(&[], &step));
    }

    #[test]
    fn a_subject_that_is_none_is_an_error() {
        let mut scenarios = relay();
        scenarios[0].subjects.push("fastmail".into());
        let error = Schedule::new(&scenarios, &subject::builtin(), &[], None).err().unwrap();
        assert!(error.to_string().contains("fastmail"));
    }
}
