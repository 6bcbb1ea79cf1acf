//! Cuts the power at every step that a small workload makes the disk take, tries every combination
//! of what may survive there (or very many), starts again from each, and judges what is found.
//!
//! The workload runs once: a `Tap` keeps a copy of the disk from before each step, and each
//! copy is cut as often as wanted. From each cut
//!
//! 1. the queue is started, as the daemon starts it, and `Ledger::judge` judges it;
//! 2. of some, the start is let run on, and the power goes again at one of its first steps, chosen
//!    by chance, with a random subset of what is pending then; what is found is judged again and
//!    must be the same;
//! 3. of fewer, the power goes again at each of those steps;
//! 4. of the fewest, everything is drained: each recipient has ended, and nothing twice that was
//!    recorded.
//!
//! Besides, at each step, the queue process alone is killed and started again, and the power goes
//! at each of the first steps of that start: what the kernel had cached is pending then.
//!
//! Must never call a step tried that was not.

mod cutter;
mod ledger;
mod machine;
mod recovered;
mod subsets;
mod tally;
mod tap;
mod work;

pub use tally::{Broken, Depth, Reached, Tally};
pub use work::Plan;

use cutter::Cutter;
use mail::{Address, Domain, NextHop};
use std::collections::HashSet;
use std::time::Duration;

/// What the mailer is told.
#[derive(Clone, Debug)]
struct Settings {
    spool: spool::Settings,
    queue: queue::Settings,
}

/// Runs the workload and cuts it at every step.
pub fn every_cut(
    seed: u64,
    commits: usize,
    plan: &Plan,
    depth: &Depth,
) -> Result<Tally, Box<Broken>> {
    let mut cutter = Cutter::new(seed, *depth, settings(commits));
    match cutter.run(plan) {
        Ok(()) => Ok(cutter.tally),
        Err((step, subset, what)) => Err(Box::new(Broken { seed, commits, step, subset, what })),
    }
}

/// Small numbers, so that a short workload fills, recycles, copies forward and snapshots.
fn settings(commits_in_flight: usize) -> Settings {
    let spool = spool::Settings {
        segment_bytes: 64 << 10,
        batch_bytes_max: 16 << 10,
        commits_in_flight,
        reserve_bytes: 32 << 10,
        keep_free_bytes: 0,
        bulk_body_bytes_min: 12 << 10,
        chunk_bytes_max: 4 << 10,
        snapshot_log_bytes: 40 << 10,
        snapshot_log_factor: 1,
        snapshot_slice_messages: 4,
        staged_bytes_max: 8 << 20,
        spares: 1,
        zero_slice_bytes: 64 << 10,
        copy_forward_divisor: 2,
        recent_transactions_max: 10_000,
        ..spool::Settings::for_tests()
    };
    let domain = |text: &str| Domain::parse(text).expect("a name of a machine");
    let retry =
        scheduler::Retry { first: Duration::from_millis(60), ..scheduler::Retry::for_tests() };
    let scheduler = scheduler::Settings { retry, ..scheduler::Settings::for_tests() };
    let own = HashSet::from([domain("here.test")]);
    let routes = policy::Routes::new(own, NextHop::Local, domain("mx.here.test"), vec![], false);
    let queue = queue::Settings {
        hostname: "mx.here.test".into(),
        postmaster: Address::parse("postmaster@here.test", false).expect("an address"),
        routes,
        scheduler,
        original_bytes_max: 2_000,
        message_cache_bytes_max: 4_000,
        credit_bytes: 1 << 20,
        receivers: 1,
    };
    Settings { spool, queue }
}
