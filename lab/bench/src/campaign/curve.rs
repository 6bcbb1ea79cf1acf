//! The curves of a run: histograms, rates over time, and what one more message costs as the queue grows.
//!
//! Must never keep more points than a figure can show.

use super::schedule::LIMIT;
use crate::scenario::{Ends, Load};
use anyhow::Result;
use report::record::{Minute, Run};
use serde_json::Value;
use std::path::Path;

/// Points of a curve over the queue's length.
const POINTS_MAX: usize = 200;
/// A histogram of a source or sink, and its name in the record.
const HISTOGRAMS: [(&str, &str); 2] = [("accept", "accept"), ("arrive", "arrive")];

/// Takes the curves from the counts of source and sink; `accepted` is the source's list of promises.
pub fn write(
    run: &mut Run,
    load: &Load,
    sent: &Value,
    counts: &Value,
    accepted: &Path,
) -> Result<()> {
    for (name, kept) in HISTOGRAMS {
        // Without a mailer the sink's 250 is the source's.
        if name == "arrive" && run.subject == LIMIT {
            continue;
        }
        let found = [sent, counts].iter().find_map(|value| value["histograms"][name].as_str());
        if let Some(text) = found {
            run.histograms.insert(kept.into(), text.into());
        }
    }
    let minutes: Vec<Minute> =
        serde_json::from_value(sent["intervals"].clone()).unwrap_or_default();
    run.series.insert("accepted_per_second over seconds".into(), rates(&minutes));
    if load.ends == Ends::Delivered {
        let minutes: Vec<Minute> =
            serde_json::from_value(counts["intervals"].clone()).unwrap_or_default();
        run.series.insert("delivered_per_second over seconds".into(), rates(&minutes));
    }
    if load.every > 0.0 {
        run.minutes = minutes;
    }
    if run.cell.contains_key("directories") || run.cell.contains_key("queued") {
        let points = costs(&std::fs::read_to_string(accepted)?, load.queued as f64);
        run.series.insert("create_us over queued".into(), points);
    }
    run.series.retain(|_, points| points.len() > 1);
    Ok(())
}

/// Returns the rates over time. The last row is left out if it is too short to be a rate.
fn rates(minutes: &[Minute]) -> Vec<(f64, f64)> {
    let mut before = 0.0;
    let minutes = match minutes {
        [.., one, last] if last.seconds - one.seconds < minutes[0].seconds / 2.0 => {
            &minutes[..minutes.len() - 1]
        }
        all => all,
    };
    let rate = |minute: &Minute| {
        let time = minute.seconds - before;
        before = minute.seconds;
        (minute.seconds, minute.messages as f64 / time.max(1e-3))
    };
    minutes.iter().map(rate).collect()
}

/// Returns the microseconds that each message took, over the number queued before it. Lines are `TOKEN RECIPIENTS
/// NANOSECONDS`.
fn costs(accepted: &str, queued: f64) -> Vec<(f64, f64)> {
    let mut times: Vec<f64> =
        accepted.lines().filter_map(|line| line.split(' ').nth(2)?.parse().ok()).collect();
    times.sort_by(f64::total_cmp);
    let bin = times.len().div_ceil(POINTS_MAX).max(2);
    let cost = |(number, times): (usize, &[f64])| {
        let us = (times[times.len() - 1] - times[0]) / 1000.0 / (times.len() - 1).max(1) as f64;
        (queued + (number * bin + times.len() / 2) as f64, us)
    };
    times.chunks(bin).filter(|times| times.len() > 1).enumerate().map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_slows_down_shows_in_the_cost_of_a_message() {
        let mut at = 0;
        let lines: Vec<String> = (0..1000)
            .map(|number| {
                at += 1000 * (100 + number);
                format!("0000000000000001-{number} 1 {at}")
            })
            .collect();
        let points = costs(&lines.join("\n"), 50.0);
        assert_eq!(points.len(), 200);
        assert!(points[0].0 < 55.0 && points[199].0 > 1040.0, "{points:?}");
        assert!((points[0].1 - 102.5).abs() < 2.0 && points[199].1 > 1090.0, "{points:?}");
    }

    #[test]
    fn a_rate_is_of_its_own_interval() {
        let minute =
            |seconds, messages| Minute { seconds, messages, bytes: 0, errors: 0, connections: 0 };
        let points = rates(&[minute(0.5, 100), minute(1.0, 300)]);
        assert_eq!(points, [(0.5, 200.0), (1.0, 600.0)]);
        assert_eq!(rates(&[minute(0.5, 100), minute(1.0, 300), minute(1.01, 3)]), points);
    }
}
