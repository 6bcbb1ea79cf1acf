//! A failing plan made small: parts are taken away as long as the same check fails.
//!
//! Must never call a plan smaller that fails in another way.

use crate::ledger::Check;
use crate::plan::Plan;
use crate::run::run;
use std::collections::BTreeSet;

/// Runs spent on one failure at most.
const RUNS_MAX: usize = 600;

/// Whether a plan of this seed without these parts fails this check.
fn fails(seed: u64, without: &BTreeSet<String>, check: Check) -> bool {
    let verdict = run(Plan::drawn(seed, without), false);
    verdict.findings.iter().any(|finding| finding.check == check)
}

/// The smallest plan that was found: halves first, then ever smaller parts.
pub fn small(seed: u64, check: Check) -> Plan {
    let mut without = BTreeSet::new();
    let mut runs = 0;
    let mut size = Plan::drawn(seed, &without).parts().len().div_ceil(2);
    while size > 0 && runs < RUNS_MAX {
        let mut shrunk = false;
        let parts = Plan::drawn(seed, &without).parts();
        for piece in parts.chunks(size) {
            let mut tried = without.clone();
            tried.extend(piece.iter().cloned());
            runs += 1;
            if runs < RUNS_MAX && fails(seed, &tried, check) {
                without = tried;
                shrunk = true;
            }
        }
        if !shrunk {
            size /= 2;
        }
    }
    Plan::drawn(seed, &without)
}
