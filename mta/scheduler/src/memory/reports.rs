//! The last replies of peers, each stored once and counted, in bounded memory.
//!
//! Must never hold more than `REPORT_BYTES_MAX` of peers' texts.

use super::shards::{Shards, hash_with};
use super::{NONE, Slab};
use mail::{Reply, Report, allocation_bytes};

/// Upper bound on the memory of all reports. Beyond it a new report keeps its stage and codes, and its text is in the log
/// only.
pub(crate) const REPORT_BYTES_MAX: usize = 32 * 1024 * 1024;

const WORDS_LOST: &str = "(the words of this reply are in the log only)";

#[derive(Debug)]
pub(crate) struct Reports {
    entries: Slab<Entry>,
    table: Shards,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Entry {
    uses: u32,
    report: Option<Box<Report>>,
}

impl Reports {
    pub fn new(seed: u64, bytes_max: usize) -> Self {
        Reports { entries: Slab::new(), table: Shards::new(seed), bytes: 0, bytes_max }
    }

    /// Returns the place of a report, and counts one use of it.
    pub fn intern(&mut self, report: &Report) -> u32 {
        if let Some(at) = self.find(report) {
            return at;
        }
        if self.bytes + weight(report) <= self.bytes_max {
            return self.insert(report.clone());
        }
        let short = without_words(report);
        self.find(&short).unwrap_or_else(|| self.insert(short))
    }

    /// Ends one use of a report.
    pub fn release(&mut self, at: u32) {
        if at == NONE {
            return;
        }
        self.entries[at].uses -= 1;
        if self.entries[at].uses == 0 {
            let hash = self.table.hash(self.entries[at].report.as_deref());
            self.table.remove(hash, at);
            let report = self.entries.remove(at).report;
            self.bytes -= report.as_deref().map_or(0, weight);
        }
    }

    pub fn get(&self, at: u32) -> Option<&Report> {
        if at == NONE { None } else { self.entries[at].report.as_deref() }
    }

    fn find(&mut self, report: &Report) -> Option<u32> {
        let hash = self.table.hash(Some(report));
        let entries = &self.entries;
        let at = self.table.find(hash, |at| entries[at].report.as_deref() == Some(report))?;
        self.entries[at].uses += 1;
        Some(at)
    }

    fn insert(&mut self, report: Report) -> u32 {
        self.bytes += weight(&report);
        let hash = self.table.hash(Some(&report));
        let at = self.entries.insert(Entry { uses: 1, report: Some(Box::new(report)) });
        let (entries, seed) = (&self.entries, self.table.seed());
        self.table.insert(hash, at, |at| hash_with(seed, entries[at].report.as_deref()));
        at
    }
}

/// Memory of a report, with its places in the slab and in the table, which may be half empty.
fn weight(report: &Report) -> usize {
    let texts = allocation_bytes(report.reply.text.len()) + allocation_bytes(report.peer.len());
    allocation_bytes(size_of::<Report>()) + texts + 2 * (size_of::<Entry>() + size_of::<u64>())
}

fn without_words(report: &Report) -> Report {
    let reply = Reply { text: WORDS_LOST.into(), ..report.reply.clone() };
    Report { reply, peer: "".into(), ..report.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Stage;

    fn report(text: &str) -> Report {
        let reply = Reply::plain(450, text);
        Report { stage: Stage::Rcpt, reply, peer: "mx".into(), from_peer: true }
    }

    #[test]
    fn past_the_bound_a_reply_loses_its_words_and_the_memory_stays_bounded() {
        let mut reports = Reports::new(1, 2000);
        let all: Vec<u32> =
            (0..1000).map(|n| reports.intern(&report(&format!("try later, {n}")))).collect();
        assert_eq!(reports.get(all[0]).unwrap().reply.text.as_ref(), "try later, 0");
        let last = reports.get(all[999]).unwrap();
        assert_eq!((last.reply.code, last.reply.text.as_ref()), (450, WORDS_LOST));
        assert_eq!(all[998], all[999]);
        assert!(reports.bytes < 2500, "{}", reports.bytes);
        all.into_iter().for_each(|at| reports.release(at));
        assert_eq!(reports.bytes, 0);
    }

    #[test]
    fn a_report_weighs_as_much_as_its_reply_and_the_name_of_its_peer_take() {
        let with_peer = |peer: &str| weight(&Report { peer: peer.into(), ..report("try later") });
        let long = "mx.example.org.".repeat(100);
        assert!(with_peer(&long) >= with_peer("mx") + long.len() - 16);
        assert!(weight(&report(&long)) >= weight(&report("")) + long.len());
        let places = 2 * (size_of::<Entry>() + size_of::<u64>());
        assert!(weight(&report("")) >= size_of::<Report>() + places);
    }

    #[test]
    fn equal_replies_share_one_place() {
        let mut reports = Reports::new(1, 1 << 20);
        let first = reports.intern(&report("a"));
        assert_eq!(reports.intern(&report("a")), first);
        assert_ne!(reports.intern(&report("b")), first);
    }
}
