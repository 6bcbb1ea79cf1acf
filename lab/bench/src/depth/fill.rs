//! Fills the queue in steps, and measures the cost of a message in each.
//!
//! Must never send faster than it is answered: each session waits for its 250.

use super::{Bench, names};
use crate::machine;
use crate::running::Running;
use crate::watch::usage::Used;
use crate::watch::{Family, Usage};
use anyhow::{Context, Result, ensure};
use report::record::Run;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where a step ends, in hundredths of the whole: the first ones are short, to see where it begins.
const MARKS: [u64; 21] =
    [1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 100];
/// The steps that are compared: from 5 to 25 hundredths, and the last 20. The first one pays for the start.
const SHALLOW: std::ops::Range<usize> = 2..6;
const DEEP: std::ops::Range<usize> = 17..21;
/// Time within which work in progress must end and memory must be stable.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// Time of one look at the memory.
const LOOK_TIME: Duration = Duration::from_millis(500);

/// One step.
struct Step {
    /// Messages queued at the step's end.
    queued: u64,
    messages: u64,
    seconds: f64,
    cpu_s: f64,
    pss_mib: f64,
}

/// See the module.
pub fn fill(bench: &Bench, running: &Running, run: &mut Run) -> Result<()> {
    std::fs::write(&bench.accepted, "")?;
    let family = Family::below(&running.pids());
    let device = machine::device_under(&bench.site.queue)?;
    let empty = settled(&family);
    let (mut steps, mut queued) = (Vec::new(), 0);
    for (number, mark) in MARKS.into_iter().enumerate() {
        let end = bench.cell.queued * mark / 100;
        let usage = Usage::begin(&family, device);
        let sent = send(bench, end - queued, run.seed * 1000 + number as u64)?;
        let used = usage.end();
        queued = end;
        steps.push(step(queued, &sent, &used)?);
    }
    std::thread::sleep(SETTLE_TIME);
    write(run, &steps);
    run.values.insert("memory_empty_mib".into(), empty);
    run.values.insert("memory_mib".into(), settled(&family));
    Ok(())
}

fn settled(family: &Family) -> f64 {
    let usage = Usage::begin(family, None);
    std::thread::sleep(LOOK_TIME);
    usage.end().peak_pss_mib.unwrap_or_default()
}

fn step(queued: u64, sent: &Value, used: &Used) -> Result<Step> {
    Ok(Step {
        queued,
        messages: sent["accepted"].as_u64().context("the source counts")?,
        seconds: sent["seconds"].as_f64().context("the source has a clock")?,
        cpu_s: used.cpu_user_s + used.cpu_system_s,
        pss_mib: used.peak_pss_mib.unwrap_or_default(),
    })
}

fn write(run: &mut Run, steps: &[Step]) {
    let sum = |of: fn(&Step) -> f64, steps: &[Step]| steps.iter().map(of).sum::<f64>();
    let each = |steps: &[Step]| {
        let messages = sum(|step| step.messages as f64, steps).max(1.0);
        (sum(|step| step.cpu_s, steps) * 1e6 / messages, sum(|step| step.seconds, steps) / messages)
    };
    let ((cpu_us, seconds), shallow, deep) =
        (each(steps), each(&steps[SHALLOW]), each(&steps[DEEP]));
    run.value = Some(1.0 / seconds.max(1e-9));
    let peak = steps.iter().map(|step| step.pss_mib).fold(0.0, f64::max);
    for (name, value) in [
        ("cpu_ms_per_message", cpu_us / 1000.0),
        ("peak_memory_mib", peak),
        ("cpu_deep_to_shallow", deep.0 / shallow.0.max(1e-9)),
        ("time_deep_to_shallow", deep.1 / shallow.1.max(1e-12)),
    ] {
        run.values.insert(name.into(), value);
    }
    let series = |of: fn(&Step) -> f64| {
        let point = |step: &Step| (step.queued as f64 - step.messages as f64 / 2.0, of(step));
        steps.iter().map(point).collect()
    };
    let rate = series(|step| step.messages as f64 / step.seconds.max(1e-9));
    let cpu = series(|step| step.cpu_s * 1e6 / step.messages.max(1) as f64);
    run.series.insert("accepted_per_second over queued".into(), rate);
    run.series.insert("cpu_us over queued".into(), cpu);
    run.series.insert("memory_mib over queued".into(), series(|step| step.pss_mib));
}

/// Sends messages and appends their tokens to the file.
fn send(bench: &Bench, messages: u64, seed: u64) -> Result<Value> {
    let step = bench.accepted.with_extension("step");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("source").arg(format!("127.0.0.1:{}", bench.site.port));
    command.args(["--per-connection", "0", "--pipelining", "--to", names::RECIPIENT]);
    for (name, value) in [
        ("--messages", messages),
        ("--sessions", u64::from(bench.options.sessions)),
        ("--sizes", u64::from(bench.options.bytes)),
        ("--spread", u64::from(bench.cell.destinations)),
        ("--seed", seed),
    ] {
        command.args([name, &value.to_string()]);
    }
    command.arg("--accepted").arg(&step).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("the source cannot be started")?;
    let sent: Value = serde_json::from_slice(&output.stdout).context("the source's line")?;
    ensure!(output.status.success(), "not all of {messages} messages were accepted");
    let mut all = std::fs::OpenOptions::new().append(true).open(&bench.accepted)?;
    std::io::copy(&mut std::fs::File::open(&step)?, &mut all)?;
    all.flush()?;
    Ok(sent)
}
