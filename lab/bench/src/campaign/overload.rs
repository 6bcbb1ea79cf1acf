//! Runs of `measure = "overload"`: normal mail before, while and after there is more than can be done.
//!
//! Must never call a message lost that still moves, or count what was put off as taken.

use super::burden::{Burden, Kind};
use super::fairness::await_all;
use super::generator::{self, Sink, Target};
use super::meter::Meter;
use super::place::Place;
use super::run::{absent, accepted, number, syncs};
use super::schedule::Step;
use crate::layout::disks::{Disks, FileSystem};
use crate::running::Running;
use crate::scenario::Load;
use crate::subject::{Phase, Site, Subject};
use crate::watch::Family;
use anyhow::{Context, Result, ensure};
use report::record::{Line, Minute, Run};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Of the disk that is to be full.
const DISK_BYTES: u64 = 1 << 30;
/// A row of the rates over time, in seconds.
const ROW_SECONDS: f64 = 0.1;
/// Rows of a second.
const SECOND_ROWS: usize = 10;
/// A rate is normal from this share of what was sent on.
const NORMAL_SHARE: f64 = 0.95;
/// The parts of a run.
const PHASES: [&str; 3] = ["before", "during", "after"];

/// One run. An error is the laboratory's; what the subject does wrong stands in the line.
pub fn run(place: &Place, step: &Step) -> Result<Vec<Line>> {
    let subject = place.subject(&step.subject)?;
    if let Some(line) = absent(step, subject) {
        return Ok(vec![line]);
    }
    let kind: Kind = step.question.load.overload.parse()?;
    let durability = syncs(place, step, subject)?;
    let mut site = place.site(step)?;
    let disk = matches!(kind, Kind::Disk(_))
        .then(|| Disks::make(1, DISK_BYTES, FileSystem::Ext4, &site.queue))
        .transpose()?;
    if let Some(disk) = &disk {
        site.queue.clone_from(&disk.places()[0]);
    }
    let mut run = place.new_run(step, place.version(subject, &site)?);
    run.durability = durability;
    let (id, settings) = place.settings(subject.name(), &subject.configure(&site)?)?;
    run.settings = id;
    let stand = Stand { step, subject, site, kind, expected: accepted(place) };
    if let Err(error) = stand.attempt(&mut run) {
        (run.value, run.failed) = (None, Some(format!("{error:#}")));
    }
    drop(disk);
    Ok(settings.into_iter().chain([Line::Run(Box::new(run))]).collect())
}

struct Stand<'a> {
    step: &'a Step<'a>,
    subject: &'a dyn Subject,
    site: Site,
    kind: Kind,
    /// What the sink is to have at the end.
    expected: PathBuf,
}

impl Stand<'_> {
    fn attempt(&self, run: &mut Run) -> Result<()> {
        let load = &self.step.question.load;
        std::fs::write(&self.expected, "")?;
        let place = format!("127.0.0.1:{}", self.site.next_hop);
        let sink = Sink::open(&place, &Default::default(), self.kind.sink_rate(), &self.expected)?;
        let mut running = Running::start(self.subject, &self.site, Phase::Serve, None)?;
        running.await_greeting()?;
        let warm = Load { messages: load.warm_up, seconds: 0.0, rate: 0.0, ..load.clone() };
        self.send("warm-up", 1, &warm)?;
        std::thread::sleep(Duration::from_secs_f64(load.settle));
        let meter = Meter::begin(Some(&Family::below(&running.pids())), &self.site.queue)?;
        let mut sent = vec![self.send(PHASES[0], 2, load)?];
        let address = self.subject.address(&self.site);
        let list = self.list("burden");
        let burden = Burden::begin(self.kind, &address, load.seconds, &self.site.queue, &list)?;
        sent.push(self.send(PHASES[1], 3, load)?);
        let said = burden.end(&sink)?;
        let ended_ns = monotonic_ns();
        sent.push(self.send(PHASES[2], 4, load)?);
        self.write_expected()?;
        await_all(&sink).context("at the end")?;
        run.values.insert("drain_s".into(), (monotonic_ns() - ended_ns) / 1e9);
        meter.end(run, sent.iter().map(|sent| number(sent, "accepted")).sum());
        for (name, sent) in PHASES.iter().zip(&sent) {
            tell_phase(run, name, sent);
        }
        tell_refusals(run, "burden", &said);
        for (name, count) in said.as_object().into_iter().flatten() {
            if let Some(count) = count.as_f64() {
                run.values.insert(format!("burden_{name}"), count);
            }
        }
        judge(run, load, &sent[2], ended_ns, &sink.stop()?)
    }

    fn list(&self, name: &str) -> PathBuf {
        self.expected.with_extension(name)
    }

    /// One part of the normal mail; its promises go to a list of its own.
    fn send(&self, name: &str, seed: u64, load: &Load) -> Result<Value> {
        let (address, recipient) =
            (self.subject.address(&self.site), self.subject.recipient(&self.site));
        let target = Target {
            address: &address,
            recipient: &recipient,
            without_goodbye: self.subject.is_left_without_goodbye(),
        };
        let load = Load { every: ROW_SECONDS, ..load.clone() };
        generator::send(&target, &load, self.step.seed.wrapping_add(seed), &self.list(name))
    }

    /// All promises, in one file.
    fn write_expected(&self) -> Result<()> {
        let mut all = String::new();
        for name in ["warm-up", "burden"].iter().chain(&PHASES) {
            let list = self.list(name);
            all += &std::fs::read_to_string(&list).unwrap_or_default(); // some burdens promise nothing
            let _ = std::fs::remove_file(list); // of the next run it would be
        }
        Ok(std::fs::write(&self.expected, all)?)
    }
}

/// Rate and delay of one part, and what was put off.
fn tell_phase(run: &mut Run, phase: &str, sent: &Value) {
    let (accepted, seconds) = (number(sent, "accepted"), number(sent, "seconds"));
    let mut value = |name: &str, value: f64| run.values.insert(format!("{phase}_{name}"), value);
    value("messages", accepted);
    value("rate", accepted / seconds.max(1e-3));
    value("put_off", number(sent, "not_accepted"));
    for name in ["mean", "p50", "p99", "max"] {
        let delay = &sent["latency_ms"][name];
        delay.as_f64().map(|delay| value(&format!("{name}_ms"), delay));
    }
    for name in ["ambiguous", "broken"] {
        value(name, number(sent, name));
    }
    tell_refusals(run, phase, sent);
    let minutes: Vec<Minute> =
        serde_json::from_value(sent["intervals"].clone()).unwrap_or_default();
    let points = minutes.iter().map(|row| (row.seconds, row.messages as f64 / ROW_SECONDS));
    run.series.insert(format!("accepted_per_second {phase} over seconds"), points.collect());
}

/// By reply codes.
fn tell_refusals(run: &mut Run, who: &str, said: &Value) {
    for name in ["refusals", "refused"] {
        for (code, count) in said[name].as_object().into_iter().flatten() {
            let count = count.as_f64().unwrap_or(0.0);
            run.values.insert(format!("{who}_refused_{code}"), count);
        }
    }
}

fn judge(run: &mut Run, load: &Load, after: &Value, ended_ns: f64, counts: &Value) -> Result<()> {
    for name in ["lost", "duplicates", "damaged"] {
        let count = number(counts, name);
        run.values.insert(name.into(), count);
        if count > 0.0 {
            run.warnings.push(format!("{count} {name}"));
        }
    }
    let minutes: Vec<Minute> =
        serde_json::from_value(after["intervals"].clone()).unwrap_or_default();
    let counts: Vec<f64> = minutes.iter().map(|row| row.messages as f64).collect();
    let since = (number(after, "start_ns") - ended_ns) / 1e9;
    let first = first_normal_second(&counts, load.rate);
    match first {
        Some(row) => run.value = Some(since.max(0.0) + row as f64 * ROW_SECONDS),
        None => {
            run.warnings.push("the normal rate did not come back while it was looked at".into())
        }
    }
    ensure!(first.is_some(), "the rate was never normal again: {counts:?} in rows of 0.1 s");
    Ok(())
}

/// The row with which the first second begins in which as many were taken as are sent.
fn first_normal_second(rows: &[f64], rate: f64) -> Option<usize> {
    let normal = |rows: &[f64]| rows.iter().sum::<f64>() >= rate * NORMAL_SHARE;
    rows.windows(SECOND_ROWS).position(normal)
}

fn monotonic_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_rate_is_back_with_the_first_whole_second_that_has_it() {
        let mut rows = vec![0.0; 5];
        rows.extend(vec![20.0; 20]);
        assert_eq!(first_normal_second(&rows, 200.0), Some(5));
        assert_eq!(first_normal_second(&rows[..12], 200.0), None);
        rows[0] = 100.0; // what had waited
        assert_eq!(first_normal_second(&rows, 200.0), Some(0));
    }
}
