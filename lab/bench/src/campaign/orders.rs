//! Runs of `measure = "order"`: a queue restored and run once, as a line of the record.
//!
//! Must never show a rate: the question is time.

use super::measure::{Measure, Stand};
use super::place::Place;
use super::schedule::Step;
use crate::order::{self, Cache, Plan, Until};
use crate::subject::{Site, Subject};
use anyhow::{Context, Result};
use report::record::Run;
use std::time::Duration;

/// The measurement.
pub struct Orders(Plan);

impl Measure for Orders {
    const HAS_CLASS: bool = false;

    fn plan(place: &Place, step: &Step, site: &mut Site) -> Result<Orders> {
        let (load, setup) = (&step.question.load, &step.question.setup);
        Ok(Orders(Plan {
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
            version: place.version(place.subject(&step.subject)?, site)?,
            archives: place.work.join("archives"),
            lab: std::env::current_exe()?,
        }))
    }

    fn refuses(&self, subject: &dyn Subject) -> Option<String> {
        order::refuses(subject, &self.0)
    }

    fn run(self, stand: &Stand, run: &mut Run) -> Result<()> {
        let measured = order::run(&stand.site, stand.subject, &self.0)?;
        run.value = measured.empty_s.or(Some(measured.sum_ms));
        run.values = measured.values;
        run.how = measured.how;
        run.warnings = measured.warnings;
        Ok(())
    }
}
