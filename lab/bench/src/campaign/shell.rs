//! The command lines `run` and `compare`, and what is printed when a campaign is done.
//!
//! Must never measure: it runs the campaign, then shows its lines.

use super::{Options, Outcome};
use crate::room;
use crate::scenario::{self, Scenario};
use anyhow::Result;
use report::record;
use report::{About, Abouts, table};
use std::io::Write;

/// The scenarios of `compare` if none is named.
const COMPARED: [&str; 8] =
    ["limit", "inject", "relay", "list", "local", "senders", "syscalls", "logging"];

impl Options {
    /// Fills in the scenarios of `compare` if none is named.
    pub fn or_all_compared(mut self) -> Options {
        if self.scenario.is_empty() {
            self.scenario = COMPARED.map(String::from).to_vec();
        }
        self
    }
}

/// `posthaste-lab scenarios [NAME]`: lists the scenarios, or prints one.
pub fn scenarios(name: Option<&str>) -> Result<()> {
    if let Some(text) = name.and_then(Scenario::text) {
        say(text);
        return Ok(());
    }
    if let Some(name) = name {
        return Scenario::find(name).map(|scenario| say(&format!("{scenario:#?}\n")));
    }
    let mut text = String::new();
    for name in scenario::names() {
        text += &format!("{name:12} {}\n", Scenario::find(name)?.question);
    }
    say(&format!("{text}{:12} See `posthaste-lab power --help`: are promises kept?\n", "power"));
    Ok(())
}

/// Prints to the standard output; a closed pipe is no error.
pub fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Ends the process with the campaign's exit code.
pub fn end(outcome: Outcome) {
    if let Outcome::Failed(code) = outcome {
        std::process::exit(code);
    }
}

/// `posthaste-lab run`.
pub fn run_alone(options: &Options) -> Result<()> {
    end(super::run(options)?);
    Ok(())
}

/// `posthaste-lab compare`: runs the campaign, then prints the tables.
pub fn compare(options: Options) -> Result<()> {
    end(super::run(&options)?);
    if room::is_inside() || options.dry_run {
        return Ok(()); // who waits for the room says it
    }
    let lines = record::read(&options.out)?;
    say(&table::compare(&lines, &abouts()?, None)?);
    Ok(())
}

/// Returns titles and questions of the built-in scenarios, for the report.
pub fn abouts() -> Result<Abouts> {
    let about = |name: &str| {
        let Scenario { title, question, delays, .. } = Scenario::find(name)?;
        Ok((name.to_string(), About { title, question, delays, ..About::default() }))
    };
    scenario::names().into_iter().map(about).collect()
}
