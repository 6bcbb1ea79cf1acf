//! The ledger of a sink: counts, rows over time, and each marked message.
//!
//! Must never count a message that was not answered with 250, or one that only warmed up.

use super::came::Came;
use super::stats::Stats;
use crate::gauge::{Moment, Rows, busy_share, cpu_time};
use crate::mark::{Finding, Token};
use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};

/// One accepted message.
pub struct Taken<'a> {
    /// The verdict of the mark.
    pub finding: Finding,
    /// Bytes, dots unstuffed.
    pub bytes: u64,
    /// Bare line ends inside DATA.
    pub bare: u64,
    /// The recipients.
    pub recipients: &'a [String],
}

/// Counts, and the marked messages.
pub struct Ledger {
    stats: Stats,
    came: Came,
    rows: Rows,
    opened: Moment,
    /// Connections since the last message that only warmed up, before the first that counts.
    connections_before: u64,
    counted: Option<Counted>,
}

/// Counts from the first message that is no warm-up.
#[derive(Clone, Copy)]
struct Counted {
    first: Instant,
    last: Instant,
    /// Processor time at the first.
    cpu: Duration,
}

impl Ledger {
    /// Creates a ledger with rows of this length, for this number of threads.
    pub fn new(every: Duration, threads: usize) -> Ledger {
        Ledger {
            stats: Stats { tool: "sink", threads, ..Stats::default() },
            came: Came::default(),
            rows: Rows::new(every),
            opened: Moment::now(),
            connections_before: 0,
            counted: None,
        }
    }

    /// Counts an accepted connection.
    pub fn connected(&mut self) {
        self.stats.connections += 1;
        match self.counted {
            Some(counted) => self.rows.at(counted.first.elapsed()).connections += 1,
            None => self.connections_before += 1,
        }
    }

    /// Counts a refusal.
    pub fn refused(&mut self) {
        self.stats.refused += 1;
        self.error();
    }

    /// Counts a connection that was dropped on purpose.
    pub fn dropped(&mut self) {
        self.stats.dropped += 1;
        self.error();
    }

    fn error(&mut self) {
        let since = self.counted.map_or(Duration::ZERO, |counted| counted.first.elapsed());
        self.rows.at(since).errors += 1;
    }

    /// Counts a message that was accepted at `now`.
    pub fn take(&mut self, taken: &Taken<'_>, now: Instant) {
        let stats = &mut self.stats;
        let token = match taken.finding {
            Finding::Whole(token) | Finding::Damaged(token) => Some(token),
            Finding::Unmarked => None,
        };
        if token.is_some_and(|token| token.is_warm_up()) {
            stats.warm_up += 1;
            self.connections_before = 0;
            return;
        }
        stats.messages += 1;
        stats.recipients += taken.recipients.len() as u64;
        stats.bytes += taken.bytes;
        stats.bare_line_ends += taken.bare;
        match taken.finding {
            Finding::Whole(_) => stats.whole += 1,
            Finding::Damaged(_) => stats.damaged += 1,
            Finding::Unmarked => stats.unmarked += 1,
        }
        if let Some(token) = token {
            let at_ns = self.opened.ns(now);
            self.stats.duplicates += self.came.take(token, taken.recipients, at_ns);
        }
        self.count_row(taken.bytes, now);
    }

    fn count_row(&mut self, bytes: u64, now: Instant) {
        let counted = self.counted.get_or_insert_with(|| {
            self.rows.at(Duration::ZERO).connections += self.connections_before;
            Counted { first: now, last: now, cpu: cpu_time() }
        });
        counted.last = counted.last.max(now);
        let row = self.rows.at(now.saturating_duration_since(counted.first));
        row.messages += 1;
        row.bytes += bytes;
    }

    /// Returns the number of accepted transactions.
    pub fn messages(&self) -> u64 {
        self.stats.messages
    }

    /// Returns the number of their recipients.
    pub fn recipients(&self) -> u64 {
        self.stats.recipients
    }

    /// Returns when the last message was accepted.
    pub fn last(&self) -> Option<Instant> {
        self.counted.map(|counted| counted.last)
    }

    /// Returns the number of different recipients of a marked message.
    pub fn came(&self, token: Token) -> u32 {
        self.came.recipients(token)
    }

    /// The counts; with `expect`, a file of the source's `--accepted`, also what is lost and how long the rest took.
    pub fn stats(&self, expect: Option<&Path>) -> Result<Stats> {
        let mut stats = self.stats.clone();
        stats.distinct = self.came.distinct();
        if let Some(Counted { first, last, cpu }) = self.counted {
            let time = last - first;
            stats.first_ns = Some(self.opened.ns(first));
            stats.last_ns = Some(self.opened.ns(last));
            stats.seconds = time.as_secs_f64();
            stats.messages_per_second = stats.messages as f64 / stats.seconds.max(1e-6);
            stats.recipients_per_second = stats.recipients as f64 / stats.seconds.max(1e-6);
            stats.intervals = self.rows.clone().into_rows(time);
            let cpu = cpu_time().saturating_sub(cpu);
            stats.cpu_seconds = cpu.as_secs_f64();
            stats.busy_share = busy_share(cpu, stats.threads, time);
        }
        if let Some(list) = expect {
            stats.expect(&self.came, list)?;
        }
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::WARM_UP;

    fn ledger() -> Ledger {
        Ledger::new(Duration::from_secs(1), 1)
    }

    fn take_at(ledger: &mut Ledger, number: u64, recipients: &[&str], at: Instant) {
        let recipients: Vec<String> = recipients.iter().map(|text| text.to_string()).collect();
        let finding = Finding::Whole(Token { run: 1, number });
        let taken = Taken { finding, bytes: 10, bare: 0, recipients: &recipients };
        ledger.take(&taken, at);
    }

    fn take(ledger: &mut Ledger, number: u64, recipients: &[&str]) {
        take_at(ledger, number, recipients, Instant::now());
    }

    #[test]
    fn the_second_copy_for_a_recipient_is_a_duplicate_and_another_recipient_is_not() {
        let mut ledger = ledger();
        take(&mut ledger, 1, &["a", "b"]);
        take(&mut ledger, 1, &["c"]);
        take(&mut ledger, 2, &["a"]);
        assert_eq!(ledger.stats(None).unwrap().duplicates, 0);
        take(&mut ledger, 1, &["b"]);
        take(&mut ledger, 1, &["a"]);
        let stats = ledger.stats(None).unwrap();
        assert_eq!((stats.duplicates, stats.distinct, stats.messages), (2, 2, 5));
        assert_eq!(ledger.came(Token { run: 1, number: 1 }), 3);
    }

    #[test]
    fn a_promised_message_that_did_not_come_to_all_its_recipients_is_lost() {
        let mut ledger = ledger();
        take(&mut ledger, 1, &["a", "b"]);
        take(&mut ledger, 2, &["a"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let [one, two, three] = [1, 2, 3].map(|number| Token { run: 1, number });
        std::fs::write(file.path(), format!("{one} 2\n{two} 2 77\n{three} 1\n")).unwrap();
        assert_eq!(ledger.stats(Some(file.path())).unwrap().lost, Some(2));
        std::fs::write(file.path(), format!("{one} 2 3 4\n")).unwrap();
        assert!(ledger.stats(Some(file.path())).is_err());
    }

    #[test]
    fn each_transaction_is_timed_from_the_moment_its_message_was_accepted() {
        let mut ledger = ledger();
        let start = Moment::now();
        let after = |ms| start.at() + Duration::from_millis(ms);
        take_at(&mut ledger, 1, &["a"], after(30));
        take_at(&mut ledger, 1, &["b"], after(50));
        take_at(&mut ledger, 2, &["a"], after(15));
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = [(1, 10), (2, 20)].map(|(number, ms)| {
            format!("{} 1 {}\n", Token { run: 1, number }, start.ns(after(ms)))
        });
        std::fs::write(file.path(), lines.concat()).unwrap();
        let stats = ledger.stats(Some(file.path())).unwrap();
        let delay = stats.delay_ms.unwrap();
        // Message 2 came before the source had read its 250: that is no time at all.
        for (got, expected) in [(delay.min, 0.0), (delay.p50, 20.0), (delay.max, 40.0)] {
            assert!((got - expected).abs() < 0.01, "{delay:?}");
        }
        assert!(stats.histograms.contains_key("arrive"));
        let seconds = (stats.last_ns.unwrap() - stats.first_ns.unwrap()) as f64 / 1e9;
        assert!((seconds - stats.seconds).abs() < 1e-6, "{seconds} {}", stats.seconds);
    }

    #[test]
    fn what_warms_up_is_in_no_count_but_its_own() {
        let mut ledger = ledger();
        ledger.connected();
        take(&mut ledger, WARM_UP, &["a"]);
        ledger.connected();
        take(&mut ledger, 0, &["a"]);
        let stats = ledger.stats(None).unwrap();
        assert_eq!((stats.warm_up, stats.messages, stats.distinct), (1, 1, 1));
        assert_eq!((stats.recipients, stats.bytes, stats.duplicates), (1, 10, 0));
        assert_eq!((stats.intervals[0].messages, stats.intervals[0].connections), (1, 1));
    }
}
