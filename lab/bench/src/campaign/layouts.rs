//! Runs without a mailer, in which the laboratory writes two files a message; and the disks made for one run.
//!
//! Must never be taken for a mailer: nothing is received and nothing delivered.

use super::place::Place;
use super::schedule::Step;
use crate::layout::disks::{DISK_BYTES, Disks, FileSystem};
use crate::layout::{self, LayoutPlan, Spread};
use crate::subject::{Logging, Site};
use anyhow::{Context, Result};
use report::record::{Class, Durability, Line, Run};

/// Makes the disks that a site's setup asks for, for its queue and its log. They end when they are dropped.
pub fn disks(site: &Site) -> Result<Vec<Disks>> {
    let mut disks = Vec::new();
    if site.setup.disks > 0 {
        disks.push(Disks::make(site.setup.disks, DISK_BYTES, FileSystem::Ext4, &site.queue)?);
    }
    if site.setup.logging == Logging::Slow {
        disks.push(Disks::slow(&site.log)?);
    }
    Ok(disks)
}

/// Records what kind of disks they are.
pub fn tell(disks: &[Disks], run: &mut Run) {
    for (number, disks) in disks.iter().enumerate() {
        run.how.insert(format!("disks {number}"), disks.how().into());
    }
}

/// Makes one run of the bare layout.
pub fn run(place: &Place, step: &Step) -> Result<Vec<Line>> {
    let site = place.site(step)?;
    let disks = disks(&site)?;
    let (load, setup) = (&step.question.load, &step.question.setup);
    let places = match disks.first() {
        Some(disks) => disks.places().to_vec(),
        None => vec![site.queue.clone()],
    };
    let plan = LayoutPlan {
        places,
        directories: setup.directories.max(1),
        writers: load.sessions,
        messages: load.messages,
        size_bytes: load.sizes.parse().context("`sizes` is one number for this subject")?,
        sync: true,
        sync_directory: false,
        spread: Spread::Turns,
        seed: step.seed,
    };
    rustix::fs::sync();
    let mut run = place.new_run(step, env!("CARGO_PKG_VERSION").into());
    tell(&disks, &mut run);
    let result = layout::run(&plan)?;
    run.value = Some(result.rate);
    run.values.insert("messages".into(), result.messages as f64);
    run.values.insert("seconds".into(), result.seconds);
    for (name, value) in [
        ("create_slope_us_per_entry", result.slope_us),
        ("create_slope_error_us_per_entry", result.slope_error_us),
        ("create_us_at_0", result.intercept_us),
    ] {
        value.map(|value| run.values.insert(name.into(), value));
    }
    run.histograms.insert("create".into(), result.histogram);
    run.series.insert("create_us over queued".into(), result.medians);
    run.how.insert("create".into(), "two files a message, both synced, then renamed".into());
    run.durability = Some(Durability {
        class: Class::Synced,
        syncs_before_250: 2.0,
        messages: result.messages,
        how: "by its own code: each file is synced before it is renamed".into(),
    });
    Ok(vec![Line::Run(Box::new(run))])
}
