//! The counts of a source: promises, refusals, latencies, rows over time.
//!
//! Must never call a message accepted that did not get its 250.

use crate::gauge::{Moment, Percentiles, Rows, Times, sample_us};
use crate::mark::Token;
use report::record::Minute;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// How one try to send a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It got its 250.
    Accepted(Accepted),
    /// It was refused by this reply, the first that was no success.
    Refused(u16),
    /// It was sent to the last byte without a reply: its fate is unknown.
    Ambiguous,
    /// The connection failed before the last byte was sent.
    Broken,
}

/// What is known about a message that got its 250.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Recipients that the 250 is for.
    pub recipients: u32,
    /// Recipients that were refused.
    pub refused: u32,
    /// Bytes of the message, dots not stuffed.
    pub bytes: u64,
    /// When its last byte was given to the kernel.
    pub sent: Instant,
    /// When the 250 was read.
    pub at: Instant,
}

/// The moment at which a session begins a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Begun {
    /// With a rate: the moment at which it was due.
    at: Instant,
    /// With a rate: the time for which it was due before a session was free.
    late: Duration,
}

impl Begun {
    /// Begins a message in a session that is free at `now`. `due` is `None` without a rate.
    pub fn new(now: Instant, due: Option<Instant>) -> Begun {
        let at = due.unwrap_or(now);
        Begun { at, late: now.saturating_duration_since(at) }
    }
}

/// One message that got its 250.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Its number within the run.
    pub number: u64,
    /// Recipients that the 250 is for.
    pub recipients: u32,
    /// When the reply was read.
    pub at: Instant,
}

/// The counts of one thread, or of all of them.
pub struct Tally {
    start: Instant,
    /// When the last try ended.
    end: Instant,
    begun: u64,
    late: u64,
    accepted: Vec<Promise>,
    recipients_refused: u64,
    bytes: u64,
    latencies_us: Vec<u32>,
    accept: Times,
    session: Times,
    refused: BTreeMap<u16, u64>,
    ambiguous: u64,
    broken: u64,
    connections: u64,
    /// Warm-up messages that got their 250.
    pub warm_up: u64,
    rows: Rows,
}

/// A run's facts besides its counts.
pub struct Frame {
    /// The name.
    pub run: u64,
    /// The moment at which its clock started.
    pub start: Moment,
    /// Threads that sent.
    pub threads: usize,
    /// Processor time since the start.
    pub cpu: Duration,
}

/// The JSON line of a source.
#[derive(Debug, Serialize)]
pub struct Summary {
    tool: &'static str,
    run: String,
    /// Messages that got 250.
    pub accepted: u64,
    recipients: u64,
    recipients_refused: u64,
    bytes: u64,
    /// Messages begun that never got 250 (after all tries).
    pub not_accepted: u64,
    /// Messages that were due before a session was free for them.
    late: u64,
    refusals: BTreeMap<u16, u64>,
    ambiguous: u64,
    broken: u64,
    connections: u64,
    warm_up: u64,
    start_ns: u64,
    end_ns: u64,
    seconds: f64,
    messages_per_second: f64,
    recipients_per_second: f64,
    /// Times from a message's begin (with a rate: from when it was due) to its 250, including new connections and all
    /// tries.
    latency_ms: Option<Percentiles>,
    histograms: BTreeMap<&'static str, String>,
    intervals: Vec<Minute>,
    threads: usize,
    cpu_seconds: f64,
    busy_share: f64,
}

impl Tally {
    /// Creates an empty tally whose rows count from `start`.
    pub fn new(start: Instant, every: Duration) -> Tally {
        Tally {
            start,
            end: start,
            begun: 0,
            late: 0,
            accepted: Vec::new(),
            recipients_refused: 0,
            bytes: 0,
            latencies_us: Vec::new(),
            accept: Times::default(),
            session: Times::default(),
            refused: BTreeMap::new(),
            ambiguous: 0,
            broken: 0,
            connections: 0,
            warm_up: 0,
            rows: Rows::new(every),
        }
    }

    /// Counts a message that begins.
    pub fn begin(&mut self, begun: Begun) {
        self.begun += 1;
        self.late += u64::from(!begun.late.is_zero());
    }

    /// Counts a connection that was made.
    pub fn connected(&mut self, now: Instant) {
        self.connections += 1;
        self.rows.at(now - self.start).connections += 1;
    }

    /// Counts a connection that ended properly after `time`.
    pub fn left(&mut self, time: Duration) {
        self.session.record(time);
    }

    /// Counts a try of message `number`, begun at `begun`, that has ended.
    pub fn count(&mut self, number: u64, ending: &Ending, begun: Begun) {
        let now = match ending {
            Ending::Accepted(accepted) => accepted.at,
            _ => Instant::now(),
        };
        self.end = self.end.max(now);
        let row = self.rows.at(now - self.start);
        match ending {
            Ending::Accepted(accepted) => {
                row.messages += 1;
                row.bytes += accepted.bytes;
                row.errors += u64::from(accepted.refused);
                self.bytes += accepted.bytes;
                self.recipients_refused += u64::from(accepted.refused);
                // What waited for a session would have been answered later by so much: else the slowest would be
                // those of which the fewest are counted.
                self.accept.record(accepted.at - accepted.sent + begun.late);
                self.latencies_us.push(sample_us(accepted.at - begun.at));
                let (recipients, at) = (accepted.recipients, accepted.at);
                self.accepted.push(Promise { number, recipients, at });
                return;
            }
            Ending::Refused(code) => *self.refused.entry(*code).or_default() += 1,
            Ending::Ambiguous => self.ambiguous += 1,
            Ending::Broken => self.broken += 1,
        }
        row.errors += 1;
    }

    /// Adds the counts of another thread since the same start.
    pub fn merge(&mut self, other: Tally) {
        self.end = self.end.max(other.end);
        self.begun += other.begun;
        self.late += other.late;
        append(&mut self.accepted, other.accepted);
        self.recipients_refused += other.recipients_refused;
        self.bytes += other.bytes;
        append(&mut self.latencies_us, other.latencies_us);
        self.accept.merge(&other.accept);
        self.session.merge(&other.session);
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        self.ambiguous += other.ambiguous;
        self.broken += other.broken;
        self.connections += other.connections;
        self.warm_up += other.warm_up;
        self.rows.merge(&other.rows);
    }

    /// The messages that got 250.
    pub fn promises(&self) -> &[Promise] {
        &self.accepted
    }

    /// Messages sent to the last byte whose reply never came.
    pub fn ambiguous(&self) -> u64 {
        self.ambiguous
    }

    /// Counts over time.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Writes `TOKEN RECIPIENTS NANOSECONDS` for each promised message: what a sink's `--expect` reads.
    pub fn write_accepted(&self, frame: &Frame, out: &mut impl Write) -> std::io::Result<()> {
        for Promise { number, recipients, at } in &self.accepted {
            let token = Token { run: frame.run, number: *number };
            writeln!(out, "{token} {recipients} {}", frame.start.ns(*at))?;
        }
        out.flush()
    }

    /// The JSON line.
    pub fn summary(self, frame: &Frame) -> Summary {
        let accepted = self.accepted.len() as u64;
        let recipients = self.accepted.iter().map(|promise| u64::from(promise.recipients)).sum();
        let time = self.end - self.start;
        let per_second = |count: u64| count as f64 / time.as_secs_f64().max(1e-6);
        let histograms = [("accept", &self.accept), ("session", &self.session)];
        let known = histograms.into_iter().filter(|(_, times)| !times.is_empty());
        Summary {
            tool: "source",
            run: format!("{:016x}", frame.run),
            accepted,
            recipients,
            recipients_refused: self.recipients_refused,
            bytes: self.bytes,
            not_accepted: self.begun.saturating_sub(accepted),
            late: self.late,
            refusals: self.refused,
            ambiguous: self.ambiguous,
            broken: self.broken,
            connections: self.connections,
            warm_up: self.warm_up,
            start_ns: frame.start.ns(self.start),
            end_ns: frame.start.ns(self.end),
            seconds: time.as_secs_f64(),
            messages_per_second: per_second(accepted),
            recipients_per_second: per_second(recipients),
            latency_ms: Percentiles::of(self.latencies_us),
            histograms: known.map(|(name, times)| (name, times.to_base64())).collect(),
            intervals: self.rows.into_rows(time),
            threads: frame.threads,
            cpu_seconds: frame.cpu.as_secs_f64(),
            busy_share: crate::gauge::busy_share(frame.cpu, frame.threads, time),
        }
    }
}

/// Appends without a copy if there was nothing before: the lists are long.
fn append<T>(to: &mut Vec<T>, mut from: Vec<T>) {
    if to.is_empty() {
        *to = from;
    } else {
        to.append(&mut from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_promise_counts_as_accepted() {
        let start = Moment::now();
        let after = |ms| start.at() + Duration::from_millis(ms);
        let mut tally = Tally::new(start.at(), Duration::from_secs(1));
        let (sent, at) = (after(2), after(5));
        let accepted = Accepted { recipients: 2, refused: 1, bytes: 100, sent, at };
        let endings =
            [Ending::Accepted(accepted), Ending::Refused(451), Ending::Ambiguous, Ending::Broken];
        for (number, ending) in endings.iter().enumerate() {
            let begun = Begun::new(after(1), None);
            tally.begin(begun);
            tally.count(number as u64, ending, begun);
        }
        let frame = Frame { run: 5, start, threads: 1, cpu: Duration::from_millis(1) };
        let mut file = Vec::new();
        tally.write_accepted(&frame, &mut file).unwrap();
        let expected = format!("0000000000000005-0 2 {}\n", start.ns(at));
        assert_eq!(String::from_utf8(file).unwrap(), expected);
        let summary = tally.summary(&frame);
        assert_eq!((summary.accepted, summary.not_accepted, summary.recipients), (1, 3, 2));
        assert_eq!((summary.recipients_refused, summary.bytes), (1, 100));
        assert_eq!(summary.latency_ms.unwrap().max, 4.0);
        let row = summary.intervals[0];
        assert_eq!((row.messages, row.bytes, row.errors), (1, 100, 4));
        assert!(summary.histograms.contains_key("accept"));
        assert!(!summary.histograms.contains_key("session"));
        assert_eq!(summary.late, 0);
    }

    #[test]
    fn what_a_message_waited_for_a_free_session_is_part_of_its_delay() {
        let start = Moment::now();
        let after = |ms| start.at() + Duration::from_millis(ms);
        let mut tally = Tally::new(start.at(), Duration::from_secs(1));
        // Due at 1, taken up at 41, sent at 42, answered at 45; and one that was taken up before it was due.
        for (number, taken, due) in [(0, 41, 1), (1, 30, 40)] {
            let begun = Begun::new(after(taken), Some(after(due)));
            let (sent, at) = (after(42), after(45));
            tally.begin(begun);
            let accepted = Accepted { recipients: 1, refused: 0, bytes: 1, sent, at };
            tally.count(number, &Ending::Accepted(accepted), begun);
        }
        assert_eq!(tally.accept.between_ms(2.9, 3.1), 1, "3 ms from the end of data");
        assert_eq!(tally.accept.between_ms(42.9, 43.1), 1, "and 40 ms before that");
        let frame = Frame { run: 5, start, threads: 1, cpu: Duration::ZERO };
        let summary = tally.summary(&frame);
        assert_eq!((summary.late, summary.latency_ms.unwrap().max), (1, 44.0));
    }
}
