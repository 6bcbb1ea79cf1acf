//! The newest durable results of each sending process.
//!
//! Must never grow beyond its bound: a process keeps only the results of which it has not been told.

use std::collections::{HashSet, VecDeque};

/// Durable results of one process that are remembered, so that it can name them over a new stream and
/// nothing is counted twice. It keeps only those of which it has not been told, and a lost stream has
/// swallowed only what was said over it last.
pub(super) const SETTLED_KEPT: usize = 4096;

/// The newest durable results of a process.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// In the order in which they became durable.
    pub(super) row: VecDeque<u64>,
    /// The same to be searched, from when the process first names an attempt over a new stream until
    /// it has named all.
    pub(super) names: Option<HashSet<u64>>,
}

impl Settled {
    pub(super) fn add(&mut self, attempts: &[u64]) {
        self.row.extend(attempts);
        self.row.drain(..self.row.len().saturating_sub(SETTLED_KEPT));
        if let Some(names) = &mut self.names {
            names.extend(attempts);
        }
    }

    /// Whether this one is among them. It costs the same however many there are.
    pub(super) fn has(&mut self, attempt: u64) -> bool {
        self.names.get_or_insert_with(|| self.row.iter().copied().collect()).contains(&attempt)
    }
}
