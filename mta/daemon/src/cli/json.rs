//! The answers as JSON, for programs. Times are RFC 3339 in UTC, ids are in their usual form.
//!
//! Must never lose a field that an earlier version had: tools rely on the names.

use super::show::{action_words, gate_words, held_words, stage_words, state_word};
use link::admin::{
    Acted, Action, Explanation, Gate, Ran, Row, Shown, Status, StreamStatus, Summary,
    WaitingRecipient,
};
use mail::trace::rfc3339_date;
use mail::{Report, Timestamp};
use serde_json::{Value, json};

/// Returns a value as one line.
pub(super) fn line(value: &Value) -> String {
    format!("{value}\n")
}

pub(super) fn summary(summary: &Summary) -> Value {
    let destinations: Vec<_> = summary
        .destinations
        .iter()
        .map(|one| {
            json!({
                "destination": one.hop.to_string(), "waiting": one.waiting, "ready": one.ready,
                "in_flight": one.in_flight, "allowed": one.allowed, "failures": one.failures,
            })
        })
        .collect();
    json!({
        "messages": summary.messages, "recipients": summary.recipients, "active": summary.active,
        "deferred": summary.deferred, "held": summary.held,
        "oldest_seconds": summary.oldest_seconds,
        "attempts_in_flight": summary.attempts_in_flight,
        "destinations_backing_off": summary.destinations_backing_off,
        "destinations": destinations,
    })
}

pub(super) fn row(row: &Row) -> Value {
    let waiting: Vec<_> = row
        .waiting
        .iter()
        .map(|one| {
            json!({
                "address": one.address, "next_hop": one.hop.to_string(),
                "due": one.due.map(time), "last": one.last.as_ref().map(report),
            })
        })
        .collect();
    json!({
        "id": row.message.to_string(), "sender": row.sender, "arrived": time(row.arrived),
        "bytes": row.bytes, "priority": row.priority, "state": state_word(row.state),
        "recipients": row.recipients, "waiting": waiting,
    })
}

pub(super) fn shown(shown: &Shown) -> Value {
    let envelope = &shown.envelope;
    let recipients: Vec<_> = envelope
        .recipients
        .iter()
        .map(|one| {
            json!({
                "address": one.address.as_str(), "notify": one.notify.parameter(),
                "orcpt": one.orcpt,
            })
        })
        .collect();
    json!({
        "id": shown.message.to_string(), "bytes": shown.bytes,
        "sender": envelope.from.sender.to_string(), "envid": envelope.from.envid,
        "smtputf8": envelope.from.smtputf8, "client": envelope.origin.client,
        "helo": envelope.origin.helo, "arrived": time(envelope.arrived),
        "recipients": recipients, "headers": String::from_utf8_lossy(&shown.headers),
    })
}

pub(super) fn explanation(explanation: &Explanation) -> Value {
    json!({
        "id": explanation.message.to_string(), "sender": explanation.sender,
        "arrived": time(explanation.arrived), "bytes": explanation.bytes,
        "priority": explanation.priority, "held": explanation.held.map(held_words),
        "expires": explanation.expires.map(time),
        "stations": [{ "station": "receive", "at": time(explanation.arrived) }],
        "recipients": explanation.recipients.iter().map(waiting).collect::<Vec<_>>(),
    })
}

fn waiting(waiting: &WaitingRecipient) -> Value {
    json!({
        "address": waiting.address, "next_hop": waiting.hop.to_string(),
        "gate": gate_name(&waiting.gate), "waits_for": gate_words(&waiting.gate),
        "since": time(waiting.since), "attempts": waiting.attempts,
        "next_try": waiting.next_try.map(time), "last": waiting.last.as_ref().map(report),
    })
}

/// Returns the name of a gate for programs; `gate_words` is for people.
fn gate_name(gate: &Gate) -> &'static str {
    match gate {
        Gate::Held(_) => "held",
        Gate::InFlight => "in_flight",
        Gate::RetryAt(_) => "retry",
        Gate::DestinationBackoff { .. } => "destination_backoff",
        Gate::DestinationConcurrency { .. } => "destination_concurrency",
        Gate::RateLimit(_) => "rate_limit",
        Gate::ProcessLimit { .. } => "process_limit",
        Gate::Suspect => "suspect",
        Gate::FairShare { .. } => "fair_share",
        Gate::Route => "route",
    }
}

fn report(report: &Report) -> Value {
    json!({
        "stage": stage_words(report.stage), "code": report.reply.code,
        "enhanced": report.reply.enhanced.map(|code| code.to_string()),
        "text": report.reply.text, "peer": report.peer, "from_peer": report.from_peer,
    })
}

pub(super) fn acted(action: Action, acted: &Acted, dry_run: bool) -> Value {
    json!({
        "action": action_words(action).0, "dry_run": dry_run, "messages": acted.messages,
        "recipients": acted.recipients, "bytes": acted.bytes,
    })
}

pub(super) fn ran(order: &str, ran: &Ran) -> Value {
    let seconds = |micros: u64| micros as f64 / 1e6;
    json!({
        "order": order, "messages": ran.messages, "read_seconds": seconds(ran.read_micros),
        "sort_seconds": seconds(ran.sort_micros),
        "sum_seconds": seconds(ran.read_micros + ran.sort_micros),
        "begin_seconds": seconds(ran.begin_micros),
    })
}

pub(super) fn status(status: &Status) -> Value {
    let processes: Vec<_> = status
        .processes
        .iter()
        .map(|one| {
            let counters: serde_json::Map<String, Value> =
                one.counters.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
            json!({
                "role": one.role, "number": one.number, "pid": one.pid,
                "uptime_seconds": one.uptime_seconds, "restarts": one.restarts,
                "counters": counters,
            })
        })
        .collect();
    let stream = |one: &StreamStatus| {
        json!({
            "role": one.role, "number": one.number, "up": one.up, "renewals": one.renewals,
            "loss": one.loss,
        })
    };
    let streams: Vec<_> = status.streams.iter().map(stream).collect();
    json!({
        "version": status.version, "troubles": status.troubles, "processes": processes,
        "streams": streams,
    })
}

fn time(wall: Timestamp) -> String {
    rfc3339_date(wall)
}
