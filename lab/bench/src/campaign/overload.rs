//! Runs of `measure = "overload"`: normal mail before, during and after more load than the mailer can take.
//!
//! Must never call a message lost that is still on its way, or count a message as accepted that was deferred.

use super::burden::{Burden, Kind};
use super::generator::Sink;
use super::measure::{Measure, Stand, await_all, keep_faults, monotonic_ns, number, warn_of};
use super::meter::Meter;
use super::place::Place;
use super::schedule::Step;
use crate::layout::disks::{Disks, FileSystem};
use crate::scenario::Load;
use crate::subject::Site;
use crate::watch::Family;
use anyhow::{Context, Result, ensure};
use report::record::{Minute, Run};
use serde_json::Value;
use std::path::Path;

/// Size of the disk that is filled.
const DISK_BYTES: u64 = 1 << 30;
/// A row of the rates over time, in seconds.
const ROW_SECONDS: f64 = 0.1;
/// Rows of a second.
const SECOND_ROWS: usize = 10;
/// A rate is normal if it is at least this share of what was sent.
const NORMAL_SHARE: f64 = 0.95;
/// The parts of a run.
const PHASES: [&str; 3] = ["before", "during", "after"];

/// The measurement.
pub struct Overload {
    kind: Kind,
    /// The queue's own disk, if the overload is a full disk. It ends with the run.
    _disk: Option<Disks>,
}

impl Measure for Overload {
    fn plan(_: &Place, step: &Step, site: &mut Site) -> Result<Overload> {
        let kind: Kind = step.question.load.overload.parse()?;
        let disk = matches!(kind, Kind::Disk(_))
            .then(|| Disks::make(1, DISK_BYTES, FileSystem::Ext4, &site.queue))
            .transpose()?;
        if let Some(disk) = &disk {
            site.queue.clone_from(&disk.places()[0]);
        }
        Ok(Overload { kind, _disk: disk })
    }

    fn run(self, stand: &Stand, run: &mut Run) -> Result<()> {
        let (load, expected) = (stand.load(), stand.accepted());
        std::fs::write(&expected, "")?;
        let place = format!("127.0.0.1:{}", stand.site.next_hop);
        let sink = Sink::open(&place, &Default::default(), self.kind.sink_rate(), &expected)?;
        let running = stand.start(&[])?;
        send(stand, "warm-up", 1, &stand.warm_up())?;
        stand.settle();
        let meter = Meter::begin(Some(&Family::below(&running.pids())), &stand.site.queue)?;
        let mut sent = vec![send(stand, PHASES[0], 2, load)?];
        let address = stand.subject.address(&stand.site);
        let list = expected.with_extension("burden");
        let burden = Burden::begin(self.kind, &address, load.seconds, &stand.site.queue, &list)?;
        sent.push(send(stand, PHASES[1], 3, load)?);
        let said = burden.end(&sink)?;
        let ended_ns = monotonic_ns();
        sent.push(send(stand, PHASES[2], 4, load)?);
        gather(&expected)?;
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
}

/// Sends one part of the normal mail; its promises are listed in a file of its own.
fn send(stand: &Stand, name: &str, seed: u64, load: &Load) -> Result<Value> {
    let load = Load { every: ROW_SECONDS, ..load.clone() };
    let list = stand.accepted().with_extension(name);
    stand.send(&load, stand.step.seed.wrapping_add(seed), &list)
}

/// Gathers the promises of all parts in the file that the sink reads.
fn gather(expected: &Path) -> Result<()> {
    let mut all = String::new();
    for name in ["warm-up", "burden"].iter().chain(&PHASES) {
        let list = expected.with_extension(name);
        all += &std::fs::read_to_string(&list).unwrap_or_default(); // some burdens promise nothing
        let _ = std::fs::remove_file(list); // the next run must not find it
    }
    Ok(std::fs::write(expected, all)?)
}

/// Keeps rate and delay of one part, and what was deferred.
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

/// Keeps refusals by reply codes.
fn tell_refusals(run: &mut Run, who: &str, said: &Value) {
    for name in ["refusals", "refused"] {
        for (code, count) in said[name].as_object().into_iter().flatten() {
            let count = count.as_f64().unwrap_or(0.0);
            run.values.insert(format!("{who}_refused_{code}"), count);
        }
    }
}

fn judge(run: &mut Run, load: &Load, after: &Value, ended_ns: f64, counts: &Value) -> Result<()> {
    keep_faults(run, counts);
    warn_of(run, &["lost", "duplicates", "damaged"]);
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

/// Returns the row at which the first second with a normal rate begins.
fn first_normal_second(rows: &[f64], rate: f64) -> Option<usize> {
    let normal = |rows: &[f64]| rows.iter().sum::<f64>() >= rate * NORMAL_SHARE;
    rows.windows(SECOND_ROWS).position(normal)
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
