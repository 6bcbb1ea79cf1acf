//! The network comes back: the queue is delivered to a sink, which tells whole, lost and duplicate messages apart.
//!
//! Must never count a message that did not come.

use super::{Bench, ask, names};
use crate::campaign::generator::Sink;
use crate::machine;
use crate::running::Running;
use crate::scenario::{Load, Sink as Faults};
use crate::subject::Subject;
use crate::watch::{Family, Usage};
use anyhow::{Context, Result, ensure};
use report::record::{Minute, Run};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Time between two looks at the sink.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Nothing more has come for so long: what was being tried when the network came back waits for the schedule, and is told to
/// go at once.
const STILL_TIME: Duration = Duration::from_secs(8);
/// So often.
const PUSHES_MAX: u32 = 5;

/// See the module.
pub fn drain(bench: &Bench, running: &Running, run: &mut Run) -> Result<()> {
    let faults = Faults::default();
    let sink =
        Sink::listen("0.0.0.0", names::SMTP_PORT, &Load::default(), &faults, &bench.accepted)?;
    let device = machine::device_under(&bench.site.queue)?;
    let usage = Usage::begin(&Family::below(&running.pids()), device);
    bench.names.silence(false);
    let start = Instant::now();
    let pushes = await_all(bench, &sink)?;
    let seconds = start.elapsed().as_secs_f64();
    let used = usage.end();
    let left = bench.subject.queued(bench.site)?;
    let counts = sink.stop()?;
    let number = |name: &str| counts[name].as_f64().with_context(|| format!("no {name}"));
    let came = number("recipients")?;
    for (name, value) in [
        ("drain_s", seconds),
        ("delivered_per_second", number("messages_per_second")?),
        ("drain_cpu_ms_per_message", (used.cpu_user_s + used.cpu_system_s) * 1e3 / came.max(1.0)),
        ("drain_peak_memory_mib", used.peak_pss_mib.unwrap_or_default()),
        ("drain_pushes", f64::from(pushes)),
        ("sink_busy_share", number("busy_share")?),
        ("sink_connections", number("connections")?),
        ("lost", number("lost")?),
        ("duplicates", number("duplicates")?),
        ("damaged", number("damaged")?),
        ("left", left as f64),
    ] {
        run.values.insert(name.into(), value);
    }
    run.series.insert("delivered_per_second over seconds".into(), rates(&counts));
    let wrong = ["lost", "duplicates", "damaged", "left"];
    for name in wrong.into_iter().filter(|name| run.values[*name] > 0.0) {
        run.warnings.push(format!("{name}: {}", run.values[name]));
    }
    Ok(())
}

/// Waits until all has come. Returns how often the mailer had to be told to deliver.
fn await_all(bench: &Bench, sink: &Sink) -> Result<u32> {
    let (mut seen, mut last, mut pushes) = (0, Instant::now(), 0);
    push(bench)?;
    loop {
        let now = sink.counts()?["recipients"].as_u64().context("the sink counts")?;
        if now >= bench.cell.queued {
            return Ok(pushes);
        }
        if now != seen {
            (seen, last) = (now, Instant::now());
        }
        if last.elapsed() >= STILL_TIME {
            pushes += 1;
            ensure!(pushes <= PUSHES_MAX, "{now} of {} had come, then nothing", bench.cell.queued);
            push(bench)?;
            last = Instant::now();
        }
        std::thread::sleep(LOOK_PERIOD);
    }
}

fn push(bench: &Bench) -> Result<()> {
    let flush = bench.subject.flush(bench.site).context("it can be told to go")?;
    ask::said(flush).map(drop)
}

fn rates(counts: &Value) -> Vec<(f64, f64)> {
    let rows: Vec<Minute> = serde_json::from_value(counts["intervals"].clone()).unwrap_or_default();
    let mut before = 0.0;
    let rate = |row: &Minute| {
        let time: f64 = row.seconds - before;
        before = row.seconds;
        (row.seconds, row.messages as f64 / time.max(1e-3))
    };
    rows.iter().map(rate).collect()
}
