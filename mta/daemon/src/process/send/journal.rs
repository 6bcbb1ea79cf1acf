//! Log events of the send process: one line for each recipient of an attempt that has ended.
//!
//! Must never block.

use crate::log::{EventKind, Log};
use mail::{Enhanced, Outcome, Report};
use send::EndedAttempt;

/// Writes the end of an attempt.
pub fn write(log: &Log, ended: &EndedAttempt) {
    let EndedAttempt { attempt, message, outcomes, begun, ended } = ended;
    let times = &attempt.times;
    let delays = [
        (EventKind::Schedule, times.due.since(times.arrived)),
        (EventKind::Route, begun.wall.since(times.due)),
        (EventKind::Attempt, ended.monotonic.since(begun.monotonic)),
    ];
    let ends: Vec<_> = message.recipients.iter().zip(outcomes).collect();
    for group in ends.chunk_by(|(_, (_, one)), (_, (_, next))| one == next) {
        let (_, (_, outcome)) = group[0];
        let report = outcome.report();
        let (status, class) = match outcome {
            Outcome::Delivered { .. } => ("delivered", 2),
            Outcome::Deferred(_) => ("deferred", 4),
            Outcome::Failed(_) => ("failed", 5),
        };
        let event = log
            .event(EventKind::Attempt)
            .id(attempt.message)
            .from(&message.from.sender)
            .to_each()
            .relay(relay(report))
            .bytes(attempt.body.bytes)
            .delay(ended.wall.since(times.arrived))
            .delays(&delays)
            .dsn(report.reply.enhanced.unwrap_or(Enhanced(class, 0, 0)))
            .status(status)
            .reply(&report.reply);
        // Marks a text of our own, which must not be mistaken for the peer's.
        let event = if report.from_peer { event } else { event.text("reply_by", "us") };
        event.emit_to(group.iter().map(|(recipient, _)| &recipient.address));
    }
}

fn relay(report: &Report) -> &str {
    if report.peer.is_empty() { "none" } else { &report.peer }
}
