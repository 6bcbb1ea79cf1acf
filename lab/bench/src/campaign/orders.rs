//! Runs of `measure = "order"`: a queue restored and run once, as a line of the record.
//!
//! Must never show a rate: what is asked is time.

use super::place::Place;
use super::run::absent;
use super::schedule::Step;
use crate::order::{self, Cache, Plan, Until};
use anyhow::{Context, Result};
use report::record::{Absent, Line};
use std::time::Duration;

/// One run. An error is the laboratory's; what the subject does wrong stands in the line.
pub fn run(place: &Place, step: &Step) -> Result<Vec<Line>> {
    let subject = place.subject(&step.subject)?;
    let site = place.site(step)?;
    let version = place.version(subject, &site)?;
    let plan = plan(place, step, version.clone())?;
    let why = order::refuses(subject, &plan).map(|why| absence(step, why));
    if let Some(line) = why.or_else(|| absent(step, subject)) {
        return Ok(vec![line]);
    }
    let mut run = place.new_run(step, version);
    let files = subject.configure(&site)?;
    let (id, settings) = place.settings(subject.name(), &files)?;
    run.settings = id;
    match order::run(&site, subject, &plan) {
        Ok(measured) => {
            run.value = measured.empty_s.or(Some(measured.sum_ms));
            run.values = measured.values;
            run.how = measured.how;
            run.warnings = measured.warnings;
        }
        Err(error) => run.failed = Some(format!("{error:#}")),
    }
    Ok(settings.into_iter().chain([Line::Run(Box::new(run))]).collect())
}

fn plan(place: &Place, step: &Step, version: String) -> Result<Plan> {
    let (load, setup) = (&step.question.load, &step.question.setup);
    Ok(Plan {
        order: setup.order.clone(),
        messages: load.messages,
        size_bytes: load.sizes.parse().context("`sizes` is one number for a queue run")?,
        runners: setup.runners.max(1),
        hosts: load.hosts,
        cache: if load.cold { Cache::Cold } else { Cache::Warm },
        until: if load.until_empty { Until::Empty } else { Until::Sorted },
        settle: Duration::from_secs_f64(load.settle),
        delay: step.scenario.sink.delay.first().cloned().unwrap_or_default(),
        acknowledge_at_once: load.acknowledge_at_once,
        version,
        archives: place.work.join("archives"),
        lab: std::env::current_exe()?,
    })
}

fn absence(step: &Step, why: String) -> Line {
    Line::Absent(Absent {
        scenario: step.scenario.name.clone(),
        subject: step.subject.clone(),
        cell: step.question.cell.clone(),
        why,
    })
}
