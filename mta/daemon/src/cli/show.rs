//! The answers as text, for people.
//!
//! Must never print a stranger's control characters, or cut a peer's reply in `explain`.

use super::print::{count, harmless};
use link::admin::{
    Acted, Action, Explanation, Gate, HeldBy, Process, Ran, Row, Shown, State, Status, Summary,
    WaitingRecipient,
};
use mail::trace::rfc3339_date;
use mail::{Report, Stage, Timestamp};
use std::fmt::Write;

pub(super) fn summary(summary: &Summary) -> String {
    let mut out = format!(
        "messages    {:>9}\nrecipients  {:>9}\nactive      {:>9}\ndeferred    {:>9}\n\
         held        {:>9}\noldest      {:>9}\nin flight   {:>9}\n",
        summary.messages,
        summary.recipients,
        summary.active,
        summary.deferred,
        summary.held,
        span(summary.oldest_seconds),
        summary.attempts_in_flight
    );
    if !summary.destinations.is_empty() {
        out.push_str("\n  waiting     ready in flight   allowed  destination\n");
    }
    for one in &summary.destinations {
        let failing = match one.failures {
            0 => String::new(),
            failures => format!(" (not reached {failures} times)"),
        };
        let hop = harmless(&one.hop.to_string());
        let _ = writeln!(
            out,
            "{:>9} {:>9} {:>9} {:>9}  {hop}{failing}",
            one.waiting, one.ready, one.in_flight, one.allowed
        );
    }
    out
}

/// Returns one message of a list with its recipients.
pub(super) fn row(row: &Row, now: Timestamp) -> String {
    let mut out = format!(
        "{}  {:>6} ago  {:>7}  {:<8}  from <{}>\n",
        row.message,
        span(age(row.arrived, now)),
        size(row.bytes),
        state_word(row.state),
        harmless(&row.sender)
    );
    for one in &row.waiting {
        let hop = harmless(&one.hop.to_string());
        let _ = write!(out, "    to <{}> via {hop}", harmless(&one.address));
        if let Some(due) = one.due {
            let _ = write!(out, ", next try {}", when(due, now));
        }
        if let Some(last) = &one.last {
            let _ = write!(out, ": {}", harmless(&last.reply.to_string()));
        }
        out.push('\n');
    }
    let more = u64::from(row.recipients).saturating_sub(row.waiting.len() as u64);
    if more > 0 {
        let _ = writeln!(out, "    and {more} more");
    }
    out
}

pub(super) fn shown(shown: &Shown) -> String {
    let envelope = &shown.envelope;
    let client = envelope.origin.client.map_or("here".into(), |address| address.to_string());
    let mut out = format!(
        "{}  {}  arrived {} from {client} ({})\nfrom <{}>\n",
        shown.message,
        size(shown.bytes),
        date(envelope.arrived),
        harmless(&envelope.origin.helo),
        harmless(&envelope.from.sender.to_string())
    );
    for one in &envelope.recipients {
        let _ = writeln!(out, "to   <{}>", harmless(one.address.as_str()));
    }
    out.push('\n');
    for line in String::from_utf8_lossy(&shown.headers).lines() {
        let _ = writeln!(out, "{}", harmless(&line.replace('\t', "    ")));
    }
    out
}

pub(super) fn explanation(explanation: &Explanation, now: Timestamp) -> String {
    let mut out = format!(
        "{} from <{}>, {}, arrived {} ({})\n",
        explanation.message,
        harmless(&explanation.sender),
        size(explanation.bytes),
        date(explanation.arrived),
        when(explanation.arrived, now)
    );
    if let Some(held) = explanation.held {
        let _ = writeln!(out, "  held: {}", held_words(held));
    }
    if let Some(expires) = explanation.expires {
        let _ = writeln!(out, "  given up {} ({})", date(expires), when(expires, now));
    }
    if explanation.priority != 0 {
        let _ = writeln!(out, "  priority {}", explanation.priority);
    }
    for one in &explanation.recipients {
        waiting(&mut out, one, now);
    }
    out
}

fn waiting(out: &mut String, waiting: &WaitingRecipient, now: Timestamp) {
    let hop = harmless(&waiting.hop.to_string());
    let _ = writeln!(out, "  to <{}> via {hop}", harmless(&waiting.address));
    let _ = writeln!(
        out,
        "    waits for: {}, since {} ({})",
        gate_words(&waiting.gate),
        date(waiting.since),
        when(waiting.since, now)
    );
    let next = match waiting.next_try {
        Some(next) => format!("next try {} ({})", date(next), when(next, now)),
        None => "no next try set".into(),
    };
    let _ = writeln!(out, "    {} so far, {next}", count(waiting.attempts.into(), "attempt"));
    if let Some(last) = &waiting.last {
        report(out, last);
    }
    if let Gate::DestinationBackoff { last: Some(last), .. } = &waiting.gate {
        out.push_str("    the destination itself:\n");
        report(out, last);
    }
}

/// Appends a reply in full, line by line.
fn report(out: &mut String, report: &Report) {
    let who = match (report.peer.is_empty(), report.from_peer) {
        (true, _) => "here".into(),
        (false, true) => harmless(&report.peer),
        (false, false) => format!("here, about {}", harmless(&report.peer)),
    };
    let _ = writeln!(out, "    last reply, at {}, from {who}:", stage_words(report.stage));
    let enhanced = report.reply.enhanced.map(|code| format!("{code} ")).unwrap_or_default();
    for line in report.reply.text.split('\n') {
        let _ = writeln!(out, "      {} {enhanced}{}", report.reply.code, harmless(line));
    }
}

pub(super) fn gate_words(gate: &Gate) -> String {
    match gate {
        Gate::Held(by) => format!("its release ({})", held_words(*by)),
        Gate::InFlight => "the end of an attempt that is being made now".into(),
        Gate::RetryAt(at) => format!("the retry schedule, until {}", date(*at)),
        Gate::DestinationBackoff { until, failures, .. } => format!(
            "the destination, which could not be reached {} in a row; it is probed at {}",
            count((*failures).into(), "time"),
            date(*until)
        ),
        Gate::DestinationConcurrency { in_flight, allowed, connections } => format!(
            "a connection to the destination: {in_flight} in use, {allowed} allowed now, \
             {connections} at most"
        ),
        Gate::RateLimit(at) => format!("the destination's rate limit, until {}", date(*at)),
        Gate::ProcessLimit { attempts_in_flight_max } => {
            format!("one of the {attempts_in_flight_max} attempts that may be made at once")
        }
        Gate::Suspect => "the other messages that were lost with a process: one at a time".into(),
        Gate::FairShare { ready } => {
            format!("its turn among {} for this destination", count((*ready).into(), "message"))
        }
        Gate::Route => "its route, which is carried out now".into(),
    }
}

pub(super) fn held_words(by: HeldBy) -> &'static str {
    match by {
        HeldBy::Policy => "put aside when it arrived",
        HeldBy::Operator => "held by an operator",
        HeldBy::Losses => "held because processes died with it",
        HeldBy::Route => "held by a route",
    }
}

pub(super) fn stage_words(stage: Stage) -> &'static str {
    match stage {
        Stage::Resolve => "resolve",
        Stage::Connect => "connect",
        Stage::Greeting => "greeting",
        Stage::Hello => "EHLO",
        Stage::Mail => "MAIL",
        Stage::Rcpt => "RCPT",
        Stage::Data => "DATA",
        Stage::End => "end of data",
        Stage::Mailbox => "mailbox",
        Stage::Here => "here",
    }
}

/// Returns the words for an action: as a command, and as a result.
pub(super) fn action_words(action: Action) -> (&'static str, &'static str) {
    match action {
        Action::Hold => ("hold", "held"),
        Action::Release => ("release", "released"),
        Action::Retry => ("retry", "to be tried now"),
        Action::Delete => ("delete", "deleted"),
        Action::Priority(_) => ("priority", "given the priority"),
    }
}

pub(super) fn acted(action: Action, acted: &Acted, dry_run: bool) -> String {
    let done = action_words(action).1;
    match dry_run {
        true => format!("would be {done}: {}\n", acted_on(acted)),
        false => format!("{done}: {}\n", acted_on(acted)),
    }
}

/// Formats a result as `3 messages (5 recipients, 12K)`.
pub(super) fn acted_on(acted: &Acted) -> String {
    let recipients = count(acted.recipients, "recipient");
    format!("{} ({recipients}, {})", count(acted.messages, "message"), size(acted.bytes))
}

pub(super) fn ran(order: &str, ran: &Ran) -> String {
    let seconds = |micros: u64| micros as f64 / 1e6;
    format!(
        "order {order}, {}: read {:.6} s, sort {:.6} s, sum {:.6} s; begun in {:.6} s\n",
        count(ran.messages, "message"),
        seconds(ran.read_micros),
        seconds(ran.sort_micros),
        seconds(ran.read_micros + ran.sort_micros),
        seconds(ran.begin_micros)
    )
}

pub(super) fn status(status: &Status) -> String {
    let mut out = format!("posthaste {}\n", harmless(&status.version));
    for trouble in &status.troubles {
        let _ = writeln!(out, "TROUBLE: {}", harmless(trouble));
    }
    out.push_str("process          pid      up  restarts  counters\n");
    for one in &status.processes {
        process(&mut out, one);
    }
    out.push_str("\nstream of queue to       renewals\n");
    for one in &status.streams {
        let name = format!("{} {}", harmless(&one.role), one.number);
        let state = if one.up { "up" } else { "LOST" };
        let line = format!("{name:<10} {state:>9} {:>12}  {}", one.renewals, harmless(&one.loss));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn process(out: &mut String, one: &Process) {
    let counters: Vec<_> =
        one.counters.iter().map(|(name, value)| format!("{}={value}", harmless(name))).collect();
    let line = format!(
        "{:<10} {:>9} {:>7} {:>9}  {}",
        format!("{} {}", harmless(&one.role), one.number),
        one.pid,
        span(one.uptime_seconds),
        one.restarts,
        counters.join(" ")
    );
    let _ = writeln!(out, "{}", line.trim_end());
}

/// Formats a time as `2026-11-21 01:01:01Z`.
fn date(wall: Timestamp) -> String {
    let text = rfc3339_date(wall);
    let (seconds, _) = text.rsplit_once('.').unwrap_or((&text, ""));
    format!("{}Z", seconds.replacen('T', " ", 1))
}

/// Formats a time as `in 12m` or `12m ago`.
fn when(wall: Timestamp, now: Timestamp) -> String {
    if wall > now {
        format!("in {}", span(wall.since(now).as_secs()))
    } else {
        format!("{} ago", span(now.since(wall).as_secs()))
    }
}

fn age(wall: Timestamp, now: Timestamp) -> u64 {
    now.since(wall).as_secs()
}

/// Formats a time span in its two largest units.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Formats a size in bytes, from 10 K on in binary units.
pub(super) fn size(bytes: u64) -> String {
    let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.iter().find(|(unit, _)| bytes >= 10 * unit) {
        Some((unit, letter)) => format!("{}{letter}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// Returns the word for a state, for people and in JSON.
pub(super) fn state_word(state: State) -> &'static str {
    match state {
        State::Active => "active",
        State::Deferred => "deferred",
        State::Held => "held",
    }
}
