//! Posthaste's queue run, which reports how long reading its index and sorting took.
//!
//! Must never have a next hop while the mailer starts: queued mail would be delivered before the run.

use super::taker::{self, Taker};
use super::variant::{Variant, file_of};
use super::{Measured, Plan, Until};
use crate::running::Running;
use crate::subject::{Phase, Site, Subject};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

const HOW: &str =
    "`posthaste queue run --json`: the mailer's own clock around reading its index in memory";

/// Runs the restored queue once.
pub fn run(site: &Site, subject: &Variant, plan: &Plan) -> Result<Measured> {
    let files = subject.configure(site)?;
    let settings = file_of(&files, "toml")?;
    let start = Instant::now();
    let mut running = Running::start(subject, site, Phase::Serve, None)?;
    running.await_greeting()?;
    let opened_ms = start.elapsed().as_secs_f64() * 1e3;
    // Until those that it tried at once have failed.
    std::thread::sleep(plan.settle);
    let taker = match plan.until {
        Until::Sorted => None,
        Until::Empty => Some(Taker::start(site, plan)?),
    };
    let began_ns = taker::monotonic_ns();
    let mut command = Command::new(&site.posthaste);
    command.args(["queue", "run", "--json", "--order", &plan.order, "--config"]).arg(settings);
    let output = command.output().context("posthaste queue run")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "posthaste queue run: {}", error.trim());
    let said: Value = serde_json::from_slice(&output.stdout)?;
    let mut measured = measured(&said, opened_ms)?;
    if let Some(taker) = taker {
        let taken = taker.wait()?;
        measured.empty_s = Some(taken.last_ns.saturating_sub(began_ns) as f64 / 1e9);
        measured.value("connections", taken.connections);
        measured.value("duplicates", taken.duplicates);
    }
    Ok(measured)
}

fn measured(said: &Value, opened_ms: f64) -> Result<Measured> {
    let ms = |name: &str| {
        let seconds = said[name].as_f64().with_context(|| format!("no {name} in {said}"))?;
        anyhow::Ok(seconds * 1e3)
    };
    let mut measured = Measured {
        read_ms: ms("read_seconds")?,
        sort_ms: ms("sort_seconds")?,
        entries: said["messages"].as_u64().context("no count of messages")?,
        ..Measured::default()
    };
    measured.value("begin_ms", ms("begin_seconds")?);
    // Its index was read from the disk then, as Sendmail reads its directory in each run.
    measured.value("start_ms", opened_ms);
    for name in ["read", "sort"] {
        measured.how.insert(name.into(), HOW.into());
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_mailer_says_is_taken_over_in_milliseconds() {
        let said = serde_json::json!({
            "order": "id", "messages": 7, "read_seconds": 0.5, "sort_seconds": 0.25,
            "sum_seconds": 0.75, "begin_seconds": 0.125,
        });
        let measured = measured(&said, 30.0).unwrap();
        assert_eq!((measured.read_ms, measured.sort_ms, measured.entries), (500.0, 250.0, 7));
        assert_eq!((measured.values["begin_ms"], measured.values["start_ms"]), (125.0, 30.0));
        assert!(super::measured(&serde_json::json!({"messages": 7}), 1.0).is_err());
    }
}
