//! Writes the end of each attempt into the log: one line for each recipient, with what a
//! postmaster looks for.
//!
//! Must never block.

use super::Ended;
use crate::log::{EventKind, Log};
use mail::{Enhanced, Outcome, Report};

/// Writes the end of an attempt.
pub fn write(log: &Log, ended: &Ended<'_>) {
    let attempt = ended.attempt;
    let times = &ended.times;
    let delays = [
        (EventKind::Schedule, attempt.times.due.since(attempt.times.arrived)),
        (EventKind::Route, times.begun.wall.since(attempt.times.due)),
        (EventKind::Attempt, times.ended.monotonic.since(times.begun.monotonic)),
    ];
    let ends: Vec<_> = ended.recipients.iter().zip(ended.outcomes).collect();
    for group in ends.chunk_by(|(_, one), (_, next)| one == next) {
        let outcome = group[0].1;
        let report = outcome.report();
        let (status, class) = match outcome {
            Outcome::Delivered { .. } => ("delivered", 2),
            Outcome::Deferred(_) => ("deferred", 4),
            Outcome::Failed(_) => ("failed", 5),
        };
        let event = log
            .event(EventKind::Attempt)
            .id(attempt.message)
            .from(&attempt.from.sender)
            .to_each()
            .relay(relay(report))
            .bytes(attempt.body.bytes)
            .delay(times.ended.wall.since(attempt.times.arrived))
            .delays(&delays)
            .dsn(report.reply.enhanced.unwrap_or(Enhanced(class, 0, 0)))
            .status(status)
            .reply(&report.reply);
        // Our own words must not pass for the peer's.
        let event = if report.from_peer { event } else { event.text("reply_by", "us") };
        event.emit_to(group.iter().map(|(recipient, _)| &recipient.address));
    }
}

fn relay(report: &Report) -> &str {
    if report.peer.is_empty() { "none" } else { &report.peer }
}
