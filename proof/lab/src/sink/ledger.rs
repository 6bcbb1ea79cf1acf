//! What a sink has taken: counts, and each marked message by name, to find doubled and lost ones.
//!
//! Must never count a message that was not answered with 250.

use crate::mark::{Finding, Token};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

/// The JSON line of a sink. Every count begins at zero when the sink starts.
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
    /// Bare CR and bare LF inside DATA.
    pub bare_line_ends: u64,
    /// Commands or messages refused.
    pub refused: u64,
    /// Connections dropped on purpose.
    pub dropped: u64,
    /// From the first 250 after data to the last.
    pub seconds: f64,
    /// Messages a second over that time.
    pub messages_per_second: f64,
}

/// One accepted message.
pub struct Taken<'a> {
    /// What the mark told.
    pub finding: Finding,
    /// Bytes, dots unstuffed.
    pub bytes: u64,
    /// Bare line ends inside DATA.
    pub bare: u64,
    /// Who got it.
    pub recipients: &'a [String],
}

/// Counts and names.
#[derive(Default)]
pub struct Ledger {
    stats: Stats,
    /// Distinct recipients each marked message has come to.
    deliveries: HashMap<Token, u32>,
    /// Hashes of (token, recipient): which delivery has been seen.
    seen: HashSet<u64>,
    span: Option<(Instant, Instant)>,
}

impl Ledger {
    /// A connection was accepted.
    pub fn connected(&mut self) {
        self.stats.connections += 1;
    }

    /// Something was refused.
    pub fn refused(&mut self) {
        self.stats.refused += 1;
    }

    /// A connection was dropped on purpose.
    pub fn dropped(&mut self) {
        self.stats.dropped += 1;
    }

    /// A message was accepted at `now`.
    pub fn take(&mut self, taken: &Taken<'_>, now: Instant) {
        let stats = &mut self.stats;
        stats.messages += 1;
        stats.recipients += taken.recipients.len() as u64;
        stats.bytes += taken.bytes;
        stats.bare_line_ends += taken.bare;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        let token = match taken.finding {
            Finding::Unmarked => {
                stats.unmarked += 1;
                return;
            }
            Finding::Damaged(token) => {
                stats.damaged += 1;
                token
            }
            Finding::Whole(token) => {
                stats.whole += 1;
                token
            }
        };
        for recipient in taken.recipients {
            if self.seen.insert(name(token, recipient)) {
                *self.deliveries.entry(token).or_default() += 1;
            } else {
                self.stats.duplicates += 1;
            }
        }
    }

    /// Transactions accepted so far.
    pub fn messages(&self) -> u64 {
        self.stats.messages
    }

    /// Different recipients that a marked message has come to.
    pub fn came(&self, token: Token) -> u32 {
        self.deliveries.get(&token).copied().unwrap_or(0)
    }

    /// The counts; with `expect`, a file of the source's `--accepted`, also what is lost.
    pub fn stats(&self, expect: Option<&Path>) -> Result<Stats> {
        let mut stats = self.stats.clone();
        stats.tool = "sink";
        stats.distinct = self.deliveries.len() as u64;
        if let Some((first, last)) = self.span {
            stats.seconds = (last - first).as_secs_f64();
            stats.messages_per_second = stats.messages as f64 / stats.seconds.max(1e-6);
        }
        stats.lost = expect.map(|path| self.lost(path)).transpose()?;
        Ok(stats)
    }

    /// Lines are `TOKEN RECIPIENTS`.
    fn lost(&self, expect: &Path) -> Result<u64> {
        let file = std::fs::File::open(expect).with_context(|| expect.display().to_string())?;
        let mut lost = 0;
        for line in std::io::BufReader::new(file).lines() {
            let line = line?;
            let (token, promised) = line.split_once(' ').context("TOKEN RECIPIENTS is expected")?;
            let came = self.came(token.parse()?);
            lost += u64::from(came < promised.trim().parse()?);
        }
        Ok(lost)
    }
}

/// 64 bits name one delivery: among a million, two alike are as likely as 1 in 37 million.
fn name(token: Token, recipient: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (token, recipient).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(ledger: &mut Ledger, number: u64, recipients: &[&str]) {
        let recipients: Vec<String> = recipients.iter().map(|text| text.to_string()).collect();
        let finding = Finding::Whole(Token { run: 1, number });
        let taken = Taken { finding, bytes: 10, bare: 0, recipients: &recipients };
        ledger.take(&taken, Instant::now());
    }

    #[test]
    fn the_second_copy_for_a_recipient_is_a_duplicate_and_another_recipient_is_not() {
        let mut ledger = Ledger::default();
        take(&mut ledger, 1, &["a", "b"]);
        take(&mut ledger, 1, &["c"]);
        take(&mut ledger, 2, &["a"]);
        assert_eq!(ledger.stats(None).unwrap().duplicates, 0);
        take(&mut ledger, 1, &["b"]);
        let stats = ledger.stats(None).unwrap();
        assert_eq!((stats.duplicates, stats.distinct, stats.messages), (1, 2, 4));
    }

    #[test]
    fn a_promised_message_that_did_not_come_to_all_its_recipients_is_lost() {
        let mut ledger = Ledger::default();
        take(&mut ledger, 1, &["a", "b"]);
        take(&mut ledger, 2, &["a"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let [one, two, three] = [1, 2, 3].map(|number| Token { run: 1, number });
        std::fs::write(file.path(), format!("{one} 2\n{two} 2\n{three} 1\n")).unwrap();
        assert_eq!(ledger.stats(Some(file.path())).unwrap().lost, Some(2));
    }
}
