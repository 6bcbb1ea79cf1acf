//! Runs of `measure = "fairness"`: steady mail beside what else is queued, and how long it was on its way.
//!
//! Must never wait for what is queued beside it: that is not to be delivered while we look, but it has to be there.

use super::generator::{self, Sink, Target};
use super::meter::Meter;
use super::place::Place;
use super::run::{absent, accepted, number, syncs};
use super::schedule::Step;
use super::silence::Silence;
use crate::running::Running;
use crate::scenario::Load;
use crate::subject::{Phase, Site, Subject};
use crate::watch::Family;
use anyhow::{Context, Result, ensure};
use report::record::{Line, Run};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// The second sink's port.
const ASIDE_PORT: u16 = 2601;
/// Where nobody answers.
const SILENT_PORT: u16 = 2602;
/// A queue may be filled for so long, in seconds.
const FILL_SECONDS_MAX: f64 = 900.0;
/// Nothing more has come for so long: it will not come.
const STUCK_TIME: Duration = Duration::from_secs(30);
/// Between two looks at a sink.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// The word for nothing beside the load.
const NOTHING: &str = "nothing";

/// One run. An error is the laboratory's; what the subject does wrong stands in the line.
pub fn run(place: &Place, step: &Step) -> Result<Vec<Line>> {
    let subject = place.subject(&step.subject)?;
    if let Some(line) = absent(step, subject) {
        return Ok(vec![line]);
    }
    let durability = syncs(place, step, subject)?;
    let site = place.site(step)?;
    let mut run = place.new_run(step, place.version(subject, &site)?);
    run.durability = durability;
    let (id, settings) = place.settings(subject.name(), &subject.configure(&site)?)?;
    run.settings = id;
    let stand = Stand { step, subject, site, work: &place.work };
    if let Err(error) = stand.attempt(&accepted(place), &mut run) {
        (run.value, run.failed) = (None, Some(format!("{error:#}")));
    }
    Ok(settings.into_iter().chain([Line::Run(Box::new(run))]).collect())
}

/// What is looked at.
struct Stand<'a> {
    step: &'a Step<'a>,
    subject: &'a dyn Subject,
    site: Site,
    work: &'a Path,
}

impl Stand<'_> {
    fn attempt(&self, steady: &Path, run: &mut Run) -> Result<()> {
        let load = &self.step.question.load;
        let faults = &self.step.scenario.sink;
        let other = self.work.join("accepted-beside");
        std::fs::write(steady, "")?;
        let sink = Sink::open(&format!("0.0.0.0:{}", self.site.next_hop), faults, None, steady)?;
        let aside = (faults.aside_rate > 0.0).then(|| {
            let place = format!("0.0.0.0:{ASIDE_PORT}");
            Sink::open(&place, &Default::default(), Some(faults.aside_rate), &other)
        });
        let aside = aside.transpose()?;
        let _silence = Silence::at(SILENT_PORT)?;
        let mut running = Running::start(self.subject, &self.site, Phase::Serve, None)?;
        running.await_greeting()?;
        let warm = Load { messages: load.warm_up, seconds: 0.0, rate: 0.0, ..load.clone() };
        let mut promised = self.send(&warm, steady)?;
        await_all(&sink).context("before the clock started")?;
        promised += self.fill(&other, run)?;
        std::thread::sleep(Duration::from_secs_f64(load.settle));
        let meter = Meter::begin(Some(&Family::below(&running.pids())), &self.site.queue)?;
        let sent = self.sent(load, steady)?;
        let accepted = number(&sent, "accepted");
        await_all(&sink)?;
        meter.end(run, accepted);
        let queued = self.subject.queued(&self.site)? as f64;
        let came = number(&sink.counts()?, "recipients");
        let came = came + aside.as_ref().map_or(Ok(0.0), came_to)?;
        // What was delivered a moment ago may still be queued: it counts twice, never not at all.
        run.values.insert("unaccounted".into(), (promised + accepted - queued - came).max(0.0));
        run.values.insert("queued_beside".into(), queued);
        judge(run, &sent, &sink.stop()?)
    }

    /// Queues what is to be beside the load; how many messages that are.
    fn fill(&self, other: &Path, run: &mut Run) -> Result<f64> {
        let load = &self.step.question.load;
        if load.beside == NOTHING {
            return Ok(0.0);
        }
        let beside = self.step.scenario.beside.get(&load.beside);
        let mut beside = beside.with_context(|| format!("no [beside.{}]", load.beside))?.clone();
        if load.crowd > 0 {
            beside.messages = load.crowd;
        }
        beside.seconds = FILL_SECONDS_MAX;
        let begun = Instant::now();
        let messages = self.send(&beside, other)?;
        run.values.insert("fill_seconds".into(), begun.elapsed().as_secs_f64());
        run.values.insert("beside_messages".into(), messages);
        Ok(messages)
    }

    fn send(&self, load: &Load, accepted: &Path) -> Result<f64> {
        Ok(number(&self.sent(load, accepted)?, "accepted"))
    }

    fn sent(&self, load: &Load, accepted: &Path) -> Result<Value> {
        let (address, recipient) =
            (self.subject.address(&self.site), self.subject.recipient(&self.site));
        let target = Target {
            address: &address,
            recipient: &recipient,
            without_goodbye: self.subject.is_left_without_goodbye(),
        };
        let sent = generator::send(&target, load, self.step.seed, accepted)?;
        let missed = number(&sent, "not_accepted");
        ensure!(missed == 0.0, "{missed} messages were not accepted: {}", sent["refusals"]);
        Ok(sent)
    }
}

fn came_to(sink: &Sink) -> Result<f64> {
    Ok(number(&sink.counts()?, "recipients"))
}

/// Waits until all that the sink expects have come.
pub fn await_all(sink: &Sink) -> Result<()> {
    let (mut last, mut least) = (Instant::now(), f64::INFINITY);
    loop {
        let lost = number(&sink.counts_and_lacks()?, "lost");
        if lost == 0.0 {
            return Ok(());
        }
        if lost < least {
            (last, least) = (Instant::now(), lost);
        }
        let seconds = STUCK_TIME.as_secs();
        ensure!(last.elapsed() < STUCK_TIME, "{lost} have not come after {seconds} s");
        std::thread::sleep(LOOK_PERIOD);
    }
}

/// What source and sink have counted.
fn judge(run: &mut Run, sent: &Value, counts: &Value) -> Result<()> {
    let delay = &counts["delay_ms"];
    for name in ["mean", "p50", "p99", "max"] {
        run.values.insert(format!("delay_{name}_ms"), number(delay, name));
    }
    run.values.insert("accept_p99_ms".into(), number(&sent["latency_ms"], "p99"));
    for name in ["lost", "duplicates", "damaged"] {
        run.values.insert(name.into(), number(counts, name));
    }
    run.values.insert("messages".into(), number(sent, "accepted"));
    run.values.insert("seconds".into(), number(sent, "seconds"));
    for (from, name) in [(sent, "accept"), (counts, "arrive")] {
        if let Some(text) = from["histograms"][name].as_str() {
            run.histograms.insert(name.into(), text.into());
        }
    }
    let few = run.figure.name.contains("last");
    run.value = Some(number(delay, if few { "max" } else { "p99" }));
    for name in ["lost", "duplicates", "damaged", "unaccounted"] {
        let count = run.values[name];
        if count > 0.0 {
            run.warnings.push(format!("{count} {name}"));
        }
    }
    ensure!(run.value > Some(0.0), "no delay was measured");
    Ok(())
}
