//! What a source has counted: promises, refusals, latencies.
//!
//! Must never call a message accepted that did not get its 250.

use crate::mark::Token;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// How one try to send a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// 250 for the message, and for this many recipients.
    Accepted(u32),
    /// The first reply that stood in the way.
    Refused(u16),
    /// Sent to the last byte, no reply: nobody knows.
    Ambiguous,
    /// The connection failed before the last byte was sent.
    Broken,
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

/// The counts of one session, or of all of them.
#[derive(Default)]
pub struct Tally {
    accepted: Vec<Promise>,
    latencies_us: Vec<u32>,
    refused: BTreeMap<u16, u64>,
    ambiguous: u64,
    broken: u64,
    /// Connections opened.
    pub connections: u64,
}

/// Milliseconds.
#[derive(Debug, Serialize)]
pub struct Latency {
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// The JSON line of a source.
#[derive(Debug, Serialize)]
pub struct Summary {
    tool: &'static str,
    run: String,
    /// Messages that got 250.
    pub accepted: u64,
    recipients: u64,
    /// Messages that never got 250 (after all tries).
    pub not_accepted: u64,
    refusals: BTreeMap<u16, u64>,
    ambiguous: u64,
    broken: u64,
    connections: u64,
    seconds: f64,
    messages_per_second: f64,
    latency_ms: Option<Latency>,
}

impl Tally {
    /// One try has ended after `latency`.
    pub fn count(&mut self, number: u64, ending: &Ending, latency: Duration) {
        match ending {
            Ending::Accepted(recipients) => {
                let promise = Promise { number, recipients: *recipients, at: Instant::now() };
                self.accepted.push(promise);
                self.latencies_us.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
            }
            Ending::Refused(code) => *self.refused.entry(*code).or_default() += 1,
            Ending::Ambiguous => self.ambiguous += 1,
            Ending::Broken => self.broken += 1,
        }
    }

    /// Takes over what another session counted.
    pub fn merge(&mut self, other: Tally) {
        self.accepted.extend(other.accepted);
        self.latencies_us.extend(other.latencies_us);
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        self.ambiguous += other.ambiguous;
        self.broken += other.broken;
        self.connections += other.connections;
    }

    /// The messages that got 250.
    pub fn promises(&self) -> &[Promise] {
        &self.accepted
    }

    /// Messages sent to the last byte whose reply never came.
    pub fn ambiguous(&self) -> u64 {
        self.ambiguous
    }

    /// Writes `TOKEN RECIPIENTS` for each promised message: what a sink's `--expect` reads.
    pub fn write_accepted(&self, run: u64, out: &mut impl Write) -> std::io::Result<()> {
        for Promise { number, recipients, .. } in &self.accepted {
            writeln!(out, "{} {recipients}", Token { run, number: *number })?;
        }
        out.flush()
    }

    /// The JSON line; `messages` were to be sent, in `time`.
    pub fn summary(mut self, run: u64, messages: u64, time: Duration) -> Summary {
        let accepted = self.accepted.len() as u64;
        self.latencies_us.sort_unstable();
        Summary {
            tool: "source",
            run: format!("{run:016x}"),
            accepted,
            recipients: self.accepted.iter().map(|promise| u64::from(promise.recipients)).sum(),
            not_accepted: messages.saturating_sub(accepted),
            refusals: self.refused,
            ambiguous: self.ambiguous,
            broken: self.broken,
            connections: self.connections,
            seconds: time.as_secs_f64(),
            messages_per_second: accepted as f64 / time.as_secs_f64().max(1e-6),
            latency_ms: latency(&self.latencies_us),
        }
    }
}

/// Exact percentiles (nearest rank) of sorted samples.
fn latency(sorted_us: &[u32]) -> Option<Latency> {
    let last = sorted_us.len().checked_sub(1)?;
    let ms = |us: u32| f64::from(us) / 1000.0;
    let rank = |part: f64| {
        let rank = (part * sorted_us.len() as f64).ceil() as usize;
        ms(sorted_us[rank.saturating_sub(1).min(last)])
    };
    let sum: f64 = sorted_us.iter().map(|us| ms(*us)).sum();
    Some(Latency {
        min: ms(sorted_us[0]),
        mean: sum / sorted_us.len() as f64,
        p50: rank(0.5),
        p90: rank(0.9),
        p99: rank(0.99),
        p999: rank(0.999),
        max: ms(sorted_us[last]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let samples: Vec<u32> = (1..=1000).map(|ms| ms * 1000).collect();
        let latency = latency(&samples).unwrap();
        assert_eq!((latency.min, latency.p50, latency.p90), (1.0, 500.0, 900.0));
        assert_eq!((latency.p99, latency.p999, latency.max), (990.0, 999.0, 1000.0));
        assert_eq!(latency.mean, 500.5);
    }

    #[test]
    fn only_a_promise_counts_as_accepted() {
        let mut tally = Tally::default();
        let endings =
            [Ending::Accepted(2), Ending::Refused(451), Ending::Ambiguous, Ending::Broken];
        for (number, ending) in endings.iter().enumerate() {
            tally.count(number as u64, ending, Duration::from_millis(1));
        }
        let mut file = Vec::new();
        tally.write_accepted(5, &mut file).unwrap();
        assert_eq!(file, b"0000000000000005-0 2\n");
        let summary = tally.summary(5, 4, Duration::from_secs(1));
        assert_eq!((summary.accepted, summary.not_accepted, summary.recipients), (1, 3, 2));
    }
}
