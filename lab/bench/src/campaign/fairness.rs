//! Runs of `measure = "fairness"`: the delay of steady mail while other mail is queued.
//!
//! Must never wait for the other mail: it stays queued during the measurement, and must be there at the end.

use super::generator::Sink;
use super::measure::{Measure, Stand, await_all, keep_faults, number, warn_of};
use super::meter::Meter;
use super::place::Place;
use super::schedule::Step;
use super::silence::Silence;
use crate::scenario::Load;
use crate::subject::Site;
use crate::watch::Family;
use anyhow::{Context, Result, ensure};
use report::record::Run;
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// The second sink's port.
const ASIDE_PORT: u16 = 2601;
/// The port at which nobody answers.
const SILENT_PORT: u16 = 2602;
/// Time in which a queue must be filled, in seconds.
const FILL_SECONDS_MAX: f64 = 900.0;
/// The word for nothing beside the load.
const NOTHING: &str = "nothing";

/// The measurement.
pub struct Fairness;

impl Measure for Fairness {
    fn plan(_: &Place, _: &Step, _: &mut Site) -> Result<Fairness> {
        Ok(Fairness)
    }

    fn run(self, stand: &Stand, run: &mut Run) -> Result<()> {
        let (steady, other) = (stand.accepted(), stand.place.work.join("accepted-beside"));
        let faults = &stand.step.scenario.sink;
        std::fs::write(&steady, "")?;
        let sink = Sink::open(&everywhere(stand.site.next_hop), faults, None, &steady)?;
        let aside = (faults.aside_rate > 0.0).then(|| {
            let rate = Some(faults.aside_rate);
            Sink::open(&everywhere(ASIDE_PORT), &Default::default(), rate, &other)
        });
        let aside = aside.transpose()?;
        let _silence = Silence::at(SILENT_PORT)?;
        let running = stand.start(&[])?;
        let mut promised = number(&send(stand, &stand.warm_up(), &steady)?, "accepted");
        await_all(&sink).context("before the clock started")?;
        promised += fill(stand, &other, run)?;
        stand.settle();
        let meter = Meter::begin(Some(&Family::below(&running.pids())), &stand.site.queue)?;
        let sent = send(stand, stand.load(), &steady)?;
        let accepted = number(&sent, "accepted");
        await_all(&sink)?;
        meter.end(run, accepted);
        let queued = stand.subject.queued(&stand.site)? as f64;
        let came = came_to(&sink)? + aside.as_ref().map_or(Ok(0.0), came_to)?;
        // A message that was delivered a moment ago may still be queued: it counts twice rather than not at all.
        run.values.insert("unaccounted".into(), (promised + accepted - queued - came).max(0.0));
        run.values.insert("queued_beside".into(), queued);
        judge(run, &sent, &sink.stop()?)
    }
}

fn everywhere(port: u16) -> String {
    format!("0.0.0.0:{port}")
}

/// Queues the mail that waits beside the load; returns its number of messages.
fn fill(stand: &Stand, other: &Path, run: &mut Run) -> Result<f64> {
    let load = stand.load();
    if load.beside == NOTHING {
        return Ok(0.0);
    }
    let beside = stand.step.scenario.beside.get(&load.beside);
    let mut beside = beside.with_context(|| format!("no [beside.{}]", load.beside))?.clone();
    if load.crowd > 0 {
        beside.messages = load.crowd;
    }
    beside.seconds = FILL_SECONDS_MAX;
    let begun = Instant::now();
    let messages = number(&send(stand, &beside, other)?, "accepted");
    run.values.insert("fill_seconds".into(), begun.elapsed().as_secs_f64());
    run.values.insert("beside_messages".into(), messages);
    Ok(messages)
}

/// Sends a load of which each message must be accepted.
fn send(stand: &Stand, load: &Load, accepted: &Path) -> Result<Value> {
    let sent = stand.send(load, stand.step.seed, accepted)?;
    let missed = number(&sent, "not_accepted");
    ensure!(missed == 0.0, "{missed} messages were not accepted: {}", sent["refusals"]);
    Ok(sent)
}

fn came_to(sink: &Sink) -> Result<f64> {
    Ok(number(&sink.counts()?, "recipients"))
}

/// Keeps what source and sink have counted.
fn judge(run: &mut Run, sent: &Value, counts: &Value) -> Result<()> {
    let delay = &counts["delay_ms"];
    for name in ["mean", "p50", "p99", "max"] {
        run.values.insert(format!("delay_{name}_ms"), number(delay, name));
    }
    run.values.insert("accept_p99_ms".into(), number(&sent["latency_ms"], "p99"));
    keep_faults(run, counts);
    run.values.insert("messages".into(), number(sent, "accepted"));
    run.values.insert("seconds".into(), number(sent, "seconds"));
    for (from, name) in [(sent, "accept"), (counts, "arrive")] {
        if let Some(text) = from["histograms"][name].as_str() {
            run.histograms.insert(name.into(), text.into());
        }
    }
    let few = run.figure.name.contains("last");
    run.value = Some(number(delay, if few { "max" } else { "p99" }));
    warn_of(run, &["lost", "duplicates", "damaged", "unaccounted"]);
    ensure!(run.value > Some(0.0), "no delay was measured");
    Ok(())
}
