//! What was tried, how much will be tried, and the name of a broken check.
//!
//! Must never count what was not tried.

use std::fmt;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// Random subsets at a step where there are too many for all.
    pub random: u64,
    /// One subset in this number is cut once more, at a random step of its start.
    pub again_every: u64,
    /// One subset in this number is cut once more at each of the first steps of its start.
    pub thorough_every: u64,
    /// One subset in this number is drained.
    pub drained_every: u64,
    /// Nothing but this step, and there all of it: to see a broken check again.
    pub only: Option<u64>,
}

impl Depth {
    /// For every change: a minute of one core in all.
    pub const QUICK: Depth = Depth {
        random: 1_000,
        again_every: 4,
        thorough_every: 500,
        drained_every: 2_000,
        only: None,
    };
    /// For the night.
    pub const FULL: Depth = Depth {
        random: 10_000,
        again_every: 1,
        thorough_every: 50,
        drained_every: 200,
        only: None,
    };

    /// One step of the workload, with everything.
    pub fn only(step: u64) -> Depth {
        Depth { thorough_every: 1, drained_every: 1, only: Some(step), ..Depth::QUICK }
    }
}

/// What was tried.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Steps of the workload at which the power went.
    pub cuts: u64,
    /// Of these, those where every subset of what was pending was tried.
    pub cuts_with_every_subset: u64,
    /// Subsets tried at them.
    pub subsets: u64,
    /// Cuts in the first steps of a start, each with one subset.
    pub cuts_again: u64,
    /// Kills of the queue process alone.
    pub kills: u64,
    /// Cuts in the first steps of the start after a kill.
    pub cuts_after_kills: u64,
    /// Starts that were judged.
    pub starts: u64,
    /// Queues that were drained to the end.
    pub drained: u64,
    /// What the workload reached.
    pub reached: Reached,
}

/// What the workload reached, the incarnations of the queue process together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names are those of the spool's and the queue's figures
pub struct Reached {
    pub messages: usize,
    pub delivered: usize,
    pub deferred: usize,
    pub noticed: usize,
    pub deleted: usize,
    pub held: usize,
    pub bulk: usize,
    pub commits: u64,
    pub snapshots: u64,
    pub recycled: u64,
    pub copied_forward: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { cuts, cuts_with_every_subset: every, subsets, cuts_again, .. } = self;
        let Tally { kills, cuts_after_kills, starts, drained, reached, .. } = self;
        write!(
            f,
            "{cuts} cuts ({every} with every subset), {subsets} subsets, {cuts_again} cut again \
             while starting, {kills} kills with {cuts_after_kills} cuts after, {starts} starts \
             judged, {drained} drained; {reached:?}"
        )
    }
}

/// A broken check, and where: seed, commits in flight, step and subset name it for good.
#[derive(Clone, Debug)]
pub struct Broken {
    pub(super) seed: u64,
    pub(super) commits: usize,
    pub(super) step: u64,
    pub(super) subset: Option<u64>,
    pub(super) what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { seed, commits, step, subset, what } = self;
        write!(f, "seed {seed}, {commits} commits in flight, step {step}")?;
        if let Some(subset) = subset {
            write!(f, ", subset {subset}")?;
        }
        write!(f, ": {what}")
    }
}
