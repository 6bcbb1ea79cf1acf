//! What all ways of measuring share: a fresh subject, its settings and its class, and the line of a run.
//!
//! Must never call a fault of the laboratory the subject's: only what happens once the subject is being configured
//! stands in the line.

use super::generator::{self, Sink, Target};
use super::place::Place;
use super::schedule::{LIMIT, Step};
use crate::running::Running;
use crate::scenario::Load;
use crate::subject::{Phase, Site, Subject};
use crate::watch::{Family, Probe, durability};
use anyhow::{Result, ensure};
use report::record::{Absent, Durability, Line, Run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time without progress after which what is missing is given up.
const STUCK_TIME: Duration = Duration::from_secs(30);
/// Time between two looks at a sink.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Counts of a sink of which each is a broken promise.
const FAULTS: [&str; 3] = ["lost", "duplicates", "damaged"];

/// One way of measuring: a scenario names it (`measure = "load"`).
pub trait Measure: Sized {
    /// Whether a run's line says when the subject syncs.
    const HAS_CLASS: bool = true;

    /// Prepares what must exist before the subject is configured. May change the site.
    fn plan(place: &Place, step: &Step, site: &mut Site) -> Result<Self>;

    /// Returns why the subject cannot be measured like this.
    fn refuses(&self, _: &dyn Subject) -> Option<String> {
        None
    }

    /// Measures, and writes the results into the run. An error is the subject's.
    fn run(self, stand: &Stand, run: &mut Run) -> Result<()>;
}

/// A subject that is configured for one run.
pub struct Stand<'a> {
    pub place: &'a Place,
    pub step: &'a Step<'a>,
    pub subject: &'a dyn Subject,
    pub site: Site,
}

/// Makes one run in this way. An error is the laboratory's; the subject's are in the lines.
pub fn lines<M: Measure>(place: &Place, step: &Step) -> Result<Vec<Line>> {
    let subject = place.subject(&step.subject)?;
    if let Some(why) = subject.refuses(&step.question.setup) {
        return Ok(vec![absent(step, why)]);
    }
    let durability = if M::HAS_CLASS { class(place, step, subject)? } else { None };
    let mut site = place.site(step)?;
    let measure = M::plan(place, step, &mut site)?;
    if let Some(why) = measure.refuses(subject) {
        return Ok(vec![absent(step, why)]);
    }
    let mut run = place.new_run(step, place.version(subject, &site)?);
    run.durability = durability;
    let stand = Stand { place, step, subject, site };
    let mut lines = Vec::new();
    if let Err(error) = stand.measure(measure, &mut run, &mut lines) {
        (run.value, run.failed) = (None, Some(format!("{error:#}")));
    }
    lines.push(Line::Run(Box::new(run)));
    Ok(lines)
}

fn absent(step: &Step, why: String) -> Line {
    Line::Absent(Absent {
        scenario: step.scenario.name.clone(),
        subject: step.subject.clone(),
        cell: step.question.cell.clone(),
        why,
    })
}

/// Finds out when a subject syncs: once in a campaign for each duty, with a mailer of its own.
fn class(place: &Place, step: &Step, subject: &dyn Subject) -> Result<Option<Durability>> {
    if is_limit(subject) {
        return Ok(None);
    }
    let look = || {
        let site = place.site(step)?;
        let stand = Stand { place, step, subject, site };
        let next_hop = stand.site.next_hop;
        let sink = Sink::start(next_hop, &Load::default(), &Default::default(), &stand.accepted())?;
        subject.configure(&stand.site)?;
        let running = stand.start(&[])?;
        let address = subject.address(&stand.site);
        let to = subject.recipient(&stand.site).replace("{n}", "0").replace("{m}", "0");
        let probe = Probe { address: &address, from: "probe@lab.test", to: &to };
        let found = durability::find(&probe, &Family::below(&running.pids()), &stand.site.queue);
        drop(sink);
        found
    };
    place.durability(subject.name(), step.question.setup.duty, look).map(Some)
}

/// Whether there is no mailer between source and sink.
pub fn is_limit(subject: &dyn Subject) -> bool {
    subject.name() == LIMIT
}

impl Stand<'_> {
    fn measure(&self, measure: impl Measure, run: &mut Run, lines: &mut Vec<Line>) -> Result<()> {
        let files = self.subject.configure(&self.site)?;
        let (id, settings) = self.place.settings(self.subject.name(), &files)?;
        run.settings = id;
        lines.extend(settings);
        measure.run(self, run)
    }

    /// The load that the step asks for.
    pub fn load(&self) -> &Load {
        &self.step.question.load
    }

    /// The file of the tokens that the mailer has promised to deliver.
    pub fn accepted(&self) -> PathBuf {
        self.place.work.join("accepted")
    }

    /// Starts the subject, by the program and arguments `before` if there are any, and waits for its greeting.
    pub fn start(&self, before: &[String]) -> Result<Running> {
        let mut running = Running::start_by(self.subject, &self.site, Phase::Serve, before)?;
        running.await_greeting()?;
        Ok(running)
    }

    /// Sends a load to the subject; returns what the source has counted.
    pub fn send(&self, load: &Load, seed: u64, accepted: &Path) -> Result<Value> {
        let address = self.subject.address(&self.site);
        let target = Target {
            address: &address,
            recipient: &self.subject.recipient(&self.site),
            without_goodbye: self.subject.is_left_without_goodbye(),
        };
        generator::send(&target, load, seed, accepted)
    }

    /// The load's messages that are sent before the clock starts.
    pub fn warm_up(&self) -> Load {
        let load = self.load();
        Load { messages: load.warm_up, seconds: 0.0, rate: 0.0, ..load.clone() }
    }

    /// Rests between the warm-up and the load.
    pub fn settle(&self) {
        std::thread::sleep(Duration::from_secs_f64(self.load().settle));
    }
}

/// Waits until all that the sink expects has come.
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

/// Keeps the promises that the sink saw broken.
pub fn keep_faults(run: &mut Run, counts: &Value) {
    for name in FAULTS {
        run.values.insert(name.into(), number(counts, name));
    }
}

/// Warns of each of these values that is not 0.
pub fn warn_of(run: &mut Run, names: &[&str]) {
    for name in names {
        let count = run.values.get(*name).copied().unwrap_or(0.0);
        if count > 0.0 {
            run.warnings.push(format!("{count} {}", name.replace('_', " ")));
        }
    }
}

/// Returns a number of a tool's JSON; 0 if it has none of this name.
pub fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or(0.0)
}

/// Nanoseconds of the monotonic clock, which the source reads as well.
pub fn monotonic_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
