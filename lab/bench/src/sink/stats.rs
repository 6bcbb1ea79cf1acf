//! The result of a sink, and the comparison of the source's promises with what came.
//!
//! Must never call a message lost that came, however late.

use super::came::Came;
use crate::gauge::{Percentiles, Times, sample_us};
use crate::mark::Token;
use anyhow::{Context, Result, ensure};
use report::record::Minute;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

/// The JSON line of a sink. Every count begins at zero when the sink starts; messages that warm up are in none but
/// `warm_up`, `connections`, `refused` and `dropped`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// Always `sink`.
    pub tool: &'static str,
    /// Connections accepted.
    pub connections: u64,
    /// Transactions answered with 250.
    pub messages: u64,
    /// Recipients of those transactions.
    pub recipients: u64,
    /// Bytes of those messages, dots unstuffed.
    pub bytes: u64,
    /// Marked messages whose bytes were as sent.
    pub whole: u64,
    /// Marked messages whose bytes differed.
    pub damaged: u64,
    /// Messages without a mark.
    pub unmarked: u64,
    /// Different marked messages.
    pub distinct: u64,
    /// Recipients that got a marked message they had already got.
    pub duplicates: u64,
    /// Messages of `--expect` that did not come to as many recipients as were promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Transactions that only warmed up.
    pub warm_up: u64,
    /// Bare CR and bare LF inside DATA.
    pub bare_line_ends: u64,
    /// Commands or messages refused.
    pub refused: u64,
    /// Connections dropped on purpose.
    pub dropped: u64,
    /// The first 250 after data, in nanoseconds of `CLOCK_MONOTONIC`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
    /// The last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ns: Option<u64>,
    /// The time between those two, in seconds.
    pub seconds: f64,
    /// Messages a second over that time.
    pub messages_per_second: f64,
    /// Recipients a second over that time.
    pub recipients_per_second: f64,
    /// From the source's 250 to the sink's, with `--expect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<Percentiles>,
    /// `arrive`: the same as a histogram.
    pub histograms: BTreeMap<&'static str, String>,
    /// Counts over time, from the first 250.
    pub intervals: Vec<Minute>,
    /// Threads that take mail.
    pub threads: usize,
    /// Processor time since the first 250.
    pub cpu_seconds: f64,
    /// Its share of what the threads could have used from the first 250 to the last.
    pub busy_share: f64,
}

impl Stats {
    /// Compares the source's list with what came: fills in what is lost and how long the rest took.
    pub fn expect(&mut self, came: &Came, list: &Path) -> Result<()> {
        let file = std::fs::File::open(list).with_context(|| list.display().to_string())?;
        let again = came.again();
        let in_parts: HashSet<Token> = again.iter().map(|(token, _)| *token).collect();
        let mut moments: HashMap<Token, u64> = HashMap::new(); // of those
        let (mut lost, mut samples, mut arrive) = (0, Vec::new(), Times::default());
        let mut arrived = |accepted_ns: u64, at_ns: u64| {
            // A mailer may hand on what it took before the source has read the 250.
            let time = Duration::from_nanos(at_ns.saturating_sub(accepted_ns));
            samples.push(sample_us(time));
            arrive.record(time);
        };
        for line in std::io::BufReader::new(file).lines() {
            let Promised { token, recipients, accepted_ns } = promised(&line?)?;
            lost += u64::from(came.recipients(token) < recipients);
            let Some(accepted_ns) = accepted_ns else { continue };
            if let Some(at_ns) = came.first_ns(token) {
                arrived(accepted_ns, at_ns);
            }
            if in_parts.contains(&token) {
                moments.insert(token, accepted_ns);
            }
        }
        for (token, at_ns) in again {
            if let Some(accepted_ns) = moments.get(token) {
                arrived(*accepted_ns, *at_ns);
            }
        }
        self.lost = Some(lost);
        if !arrive.is_empty() {
            self.histograms.insert("arrive", arrive.to_base64());
        }
        self.delay_ms = Percentiles::of(samples);
        Ok(())
    }
}

/// One line of the source's `--accepted`.
struct Promised {
    token: Token,
    recipients: u32,
    accepted_ns: Option<u64>,
}

/// `TOKEN RECIPIENTS`, and perhaps `NANOSECONDS`.
fn promised(line: &str) -> Result<Promised> {
    const FORM: &str = "TOKEN RECIPIENTS [NANOSECONDS] is expected";
    let mut words = line.split_ascii_whitespace();
    let token = words.next().context(FORM)?.parse()?;
    let recipients = words.next().context(FORM)?.parse()?;
    let accepted_ns = words.next().map(str::parse).transpose()?;
    ensure!(words.next().is_none(), FORM);
    Ok(Promised { token, recipients, accepted_ns })
}
