//! The newest durable results of each sending process, so that a result that is repeated over a new stream counts
//! once.
//!
//! Must never grow beyond its bound.

use std::collections::{HashSet, VecDeque};

/// Upper bound on the durable results of one process that are remembered. A process repeats only results of which it
/// has not been told, and a lost stream loses only the last frames.
pub(super) const SETTLED_KEPT: usize = 4096;

/// The newest durable results of a process.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// The attempts, in the order in which their results became durable.
    pub(super) row: VecDeque<u64>,
    /// The attempts in `row`, while the process names its attempts over a new stream.
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

    /// Returns true if the result of this attempt is among them. The cost does not depend on their number.
    pub(super) fn has(&mut self, attempt: u64) -> bool {
        self.names.get_or_insert_with(|| self.row.iter().copied().collect()).contains(&attempt)
    }
}
