//! A campaign: runs of all scenarios by all subjects in turn, until each cell has its runs.
//!
//! Must never repeat a run that is in the file, or leave one out without a line with the reason.

mod burden;
mod curve;
mod delays;
mod fairness;
pub mod generator;
mod layouts;
mod load;
mod measure;
mod meter;
mod options;
mod orders;
mod overload;
mod place;
mod progress;
mod rate;
mod result;
mod schedule;
mod shell;
mod silence;

pub use options::{Options, Outcome};
pub use shell::{abouts, compare, run_alone, scenarios};

use crate::room;
use crate::scenario::{Measure, Scenario};
use anyhow::{Context, Result, ensure};
use fairness::Fairness;
use load::Loading;
use orders::Orders;
use overload::Overload;
use place::Place;
use progress::Progress;
use report::record::{self, Line};
use schedule::{Schedule, Step};
use std::path::Path;

/// Consecutive errors of the laboratory that end a campaign.
const ERRORS_MAX: u32 = 5;

/// Makes the missing runs.
pub fn run(options: &Options) -> Result<Outcome> {
    let scenarios = options.scenarios()?;
    if options.dry_run {
        return dry_run(options, &scenarios);
    }
    if !room::is_inside() {
        return outside(options);
    }
    let place = Place::furnish(options)?;
    let mut lines = record::read(&options.out)?;
    let schedule = Schedule::new(&scenarios, &place.subjects, &lines, options.runs)?;
    let progress = Progress::new(schedule.len());
    let mut errors = 0;
    for mut step in schedule.steps() {
        if schedule::is_hopeless(&lines, &step) {
            progress.skip(&step);
            continue;
        }
        progress.begin(&step);
        match rate::choose(&mut step, &lines).and_then(|()| run_once(&place, &step)) {
            Ok(new) => {
                new.iter().try_for_each(|line| record::append(&options.out, line))?;
                progress.end(&step, &new);
                lines.extend(new);
                errors = 0;
            }
            Err(error) => {
                progress.trouble(&step, &error);
                errors += 1;
                ensure!(errors < ERRORS_MAX, "{errors} errors of the laboratory in a row");
            }
        }
    }
    progress.close();
    Ok(Outcome::Done)
}

/// Makes one run. An error is the laboratory's; the subject's are in the lines.
fn run_once(place: &Place, step: &Step) -> Result<Vec<Line>> {
    match step.scenario.measure {
        _ if step.subject == schedule::TWO_FILES => layouts::run(place, step),
        Measure::Load => measure::lines::<Loading>(place, step),
        Measure::Order => measure::lines::<Orders>(place, step),
        Measure::Fairness => measure::lines::<Fairness>(place, step),
        Measure::Overload => measure::lines::<Overload>(place, step),
    }
}

/// Prints the runs that would be made.
fn dry_run(options: &Options, scenarios: &[Scenario]) -> Result<Outcome> {
    let lines = record::read(&options.out)?;
    let subjects = options.subjects()?;
    let schedule = Schedule::new(scenarios, &subjects, &lines, options.runs)?;
    let steps: Vec<String> = schedule.steps().map(|step| step.to_string()).collect();
    let out = options.out.display();
    shell::say(&format!("{}\n{} runs are missing in {out}\n", steps.join("\n"), steps.len()));
    Ok(Outcome::Done)
}

/// Fetches the packages, then runs the campaign inside the room and waits for it.
fn outside(options: &Options) -> Result<Outcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "this needs root: it makes namespaces and starts mailers; run it with sudo"
    );
    options.fetch()?;
    let end = room::enter(options.needs_network()?)?;
    match end {
        Some(0) => Ok(Outcome::Done),
        Some(code) => Ok(Outcome::Failed(code)),
        None => {
            eprintln!("interrupted; the same command goes on where it stopped");
            Ok(Outcome::Failed(130))
        }
    }
}

/// Creates a directory, or empties the existing one.
pub fn empty(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let is_directory = path.symlink_metadata()?.is_dir();
        let gone =
            if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        gone.with_context(|| path.display().to_string())?;
    }
    Ok(())
}
