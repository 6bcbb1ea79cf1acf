//! What waits for each lane, and what each attempt still waits for.
//! Must never keep an attempt's result back once its last recipient has an outcome.
//!
//! Group delivery without a timer: while a lane is busy with one batch, the next one gathers.

use super::target::{Lane, Place};
use crate::mailbox::Message;
use link::send::{Attempt, Result as AttemptResult};
use mail::{Address, MessageId, Outcome, Wall};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Deliveries of one batch: as many as are synced together.
pub const BATCH_ITEMS_MAX: usize = crate::mailbox::SLICE_FILES_MAX;

/// One message for one recipient.
#[derive(Clone, Debug)]
pub struct Item {
    /// Of this attempt.
    pub attempt: u64,
    /// The recipient's index in the envelope.
    pub index: u32,
    /// The recipient.
    pub recipient: Address,
    /// What.
    pub message: Arc<Message>,
    /// Where.
    pub place: Place,
}

/// What is delivered together.
pub type Batch = Vec<Item>;

/// All that waits.
#[derive(Debug, Default)]
pub struct Gather {
    lanes: HashMap<Lane, Waiting>,
    attempts: HashMap<u64, Open>,
}

/// An attempt some of whose recipients have no outcome yet.
#[derive(Debug)]
struct Open {
    result: AttemptResult,
    missing: usize,
    times: Times,
}

/// What the log tells of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The message came to this host.
    pub arrived: Wall,
    /// The attempt became due.
    pub due: Wall,
    /// Queue gave it to us.
    pub taken: Wall,
}

#[derive(Debug, Default)]
struct Waiting {
    items: VecDeque<Item>,
    busy: bool,
}

impl Gather {
    /// An attempt has come at `taken`; each of its recipients will get an outcome.
    pub fn begin(&mut self, attempt: &Attempt, taken: Wall) {
        let missing = attempt.recipients.len();
        let Attempt { id, message, times: link::send::Times { arrived, due }, .. } = *attempt;
        let outcomes = Vec::with_capacity(missing);
        let result = AttemptResult { attempt: id, message, outcomes };
        let times = Times { arrived, due, taken };
        self.attempts.insert(id, Open { result, missing, times });
    }

    /// What the log tells of an attempt.
    pub fn times(&self, attempt: u64) -> Option<(MessageId, Times)> {
        self.attempts.get(&attempt).map(|open| (open.result.message, open.times))
    }

    /// One recipient waits for its lane.
    pub fn push(&mut self, lane: Lane, item: Item) {
        self.lanes.entry(lane).or_default().items.push_back(item);
    }

    /// Lanes that are free and have something to do.
    pub fn ready(&self) -> Vec<Lane> {
        let ready = self.lanes.iter().filter(|(_, w)| !w.busy && !w.items.is_empty());
        ready.map(|(lane, _)| lane.clone()).collect()
    }

    /// Takes what waits for a lane, which is busy from now on.
    pub fn take(&mut self, lane: &Lane) -> Batch {
        let Some(waiting) = self.lanes.get_mut(lane) else { return Batch::new() };
        waiting.busy = true;
        let count = waiting.items.len().min(BATCH_ITEMS_MAX);
        waiting.items.drain(..count).collect()
    }

    /// The lane is free again; inverse of `take`.
    pub fn free(&mut self, lane: &Lane) {
        let Some(waiting) = self.lanes.get_mut(lane) else { return };
        waiting.busy = false;
        if waiting.items.is_empty() {
            self.lanes.remove(lane);
        }
    }

    /// Whether a batch is under way somewhere.
    pub fn is_busy(&self) -> bool {
        self.lanes.values().any(|waiting| waiting.busy)
    }

    /// One recipient has its outcome; with the last one comes the attempt's result.
    pub fn outcome(&mut self, attempt: u64, index: u32, outcome: Outcome) -> Option<AttemptResult> {
        let open = self.attempts.get_mut(&attempt)?;
        open.result.outcomes.push((index, outcome));
        open.missing = open.missing.saturating_sub(1);
        match open.missing {
            0 => self.attempts.remove(&attempt).map(|open| open.result),
            _ => None,
        }
    }
}
