//! What source, sink and watch counted during a load, as the values of its run.
//!
//! Must never keep a rate of a run that took no time, or hide what a reader must know: that stands among the warnings.

use super::measure::{Stand, keep_faults, number, warn_of};
use super::{curve, delays};
use crate::scenario::{Ends, Load};
use crate::watch::trace::Calls;
use crate::watch::{SlowDisk, cost};
use anyhow::{Result, ensure};
use report::record::Run;
use serde_json::Value;

/// A generator that is busy for more than this share of its time may be what was measured.
const BUSY_SHARE_MAX: f64 = 0.9;

/// How a load ended.
pub struct Ended {
    /// When, in nanoseconds of the monotonic clock.
    pub at_ns: f64,
    /// The share of the accepted mail that was delivered; less than 1 if the run was cut short.
    pub served_share: f64,
}

/// Keeps what source and sink have counted: `(sent, sink_before, sink_after)`. `has_ledger`: the sink got all the mail.
pub fn judge(
    run: &mut Run,
    stand: &Stand,
    (sent, sink_before, counts): (&Value, &Value, &Value),
    ended: &Ended,
    has_ledger: bool,
) -> Result<()> {
    let load = stand.load();
    let seconds = (ended.at_ns - number(sent, "start_ns")) / 1e9;
    ensure!(seconds > 0.0, "the run took no time");
    let by_recipients = run.figure.unit.starts_with("recipients");
    let served =
        ended.served_share * number(sent, if by_recipients { "recipients" } else { "accepted" });
    let is_delay = run.figure.unit == "ms";
    let rate = served / seconds;
    run.value = Some(if is_delay { number(&counts["delay_ms"], "p90") } else { rate });
    keep_load(run, load, (sent, sink_before, counts), seconds);
    run.values.insert("served_share".into(), ended.served_share);
    if ended.served_share < 1.0 {
        let (percent, longest) = (ended.served_share * 100.0, load.longest);
        run.warnings.push(format!("cut after {longest} s, when {percent:.0} % had come"));
    } else if load.ends == Ends::Delivered && has_ledger {
        keep_faults(run, counts);
    }
    curve::write(run, load, sent, counts, &stand.accepted())?;
    delays::keep(run)?;
    if load.ends == Ends::Delivered && load.messages == 1 {
        let last_s = run.values.get("arrive_max_ms").map(|ms| ms / 1e3);
        let after = last_s.map_or(rate, |seconds| served / seconds);
        run.values.insert("per_second_after_250".into(), after);
    }
    warn(run);
    Ok(())
}

fn keep_load(
    run: &mut Run,
    load: &Load,
    (sent, sink_before, counts): (&Value, &Value, &Value),
    seconds: f64,
) {
    let mut value = |name: &str, value: f64| run.values.insert(name.into(), value);
    let (messages, refused) = (number(sent, "accepted"), number(sent, "not_accepted"));
    value("seconds", seconds);
    value("messages", messages);
    value("recipients", number(sent, "recipients"));
    value("not_accepted", refused);
    value("source_busy_share", number(sent, "busy_share"));
    let sink_cpu_s = number(counts, "cpu_seconds") - number(sink_before, "cpu_seconds");
    value("sink_busy_share", sink_cpu_s.max(0.0) / seconds);
    value("connections", number(sent, "connections"));
    if load.rate > 0.0 {
        value("offered_per_second", load.rate);
        value("late_share", number(sent, "late") / (messages + refused));
    }
}

/// Warns of generators that were too busy, and of promises that were not kept.
fn warn(run: &mut Run) {
    for name in ["source", "sink"] {
        let share = run.values.get(&format!("{name}_busy_share")).copied().unwrap_or(0.0);
        if share > BUSY_SHARE_MAX && run.subject != super::schedule::LIMIT {
            let percent = share * 100.0;
            run.warnings.push(format!(
                "the {name} was busy {percent:.0} % of its time: the subject may be faster than this"
            ));
        }
    }
    warn_of(run, &["lost", "duplicates", "damaged", "not_accepted"]);
}

/// Makes the number of system calls of all processes the run's result; values are named `PROCESS: NAME`.
pub fn keep_costs(run: &mut Run, costs: &[cost::Cost]) {
    let all = costs.iter().find(|cost| cost.role == cost::ALL);
    run.value = all.and_then(|all| all.each.get("system_calls").copied());
    for cost in costs {
        let name = |name: &str| format!("{}{}{name}", cost.role, cost::BETWEEN);
        run.values.extend(cost.each.iter().map(|(each, value)| (name(each), *value)));
    }
}

/// Keeps the syncs between two moments.
pub fn keep_syncs(run: &mut Run, disk: SlowDisk, (from, to): (f64, f64)) -> Result<()> {
    run.how.insert("syncs".into(), disk.how());
    let seen = disk.finish()?;
    let messages = run.values["messages"].max(1.0);
    run.values.insert("syncs_per_message".into(), seen.syncs(from, to) as f64 / messages);
    run.warnings.extend(seen.fault());
    Ok(())
}

/// Makes the table of calls the run's result: how many there were for each message.
pub fn keep_calls(run: &mut Run, calls: Calls) {
    let messages = run.values["messages"].max(1.0);
    let each = |count: u64| count as f64 / messages;
    run.value = Some(each(calls.rows.iter().map(|row| row.count).sum()));
    for (name, count) in [
        ("syncs_per_message", calls.syncs),
        ("files_created_per_message", calls.files_created),
        ("files_renamed_per_message", calls.files_renamed),
        ("files_unlinked_per_message", calls.files_unlinked),
    ] {
        run.values.insert(name.into(), each(count));
    }
    run.calls = calls.rows;
    run.how.insert("calls".into(), calls.how);
}
