//! The workers: at most one for each delivery user. A worker is started when there is mail, kept for a while
//! when idle, and the number of workers is bounded.
//!
//! Must never lose a batch: it is returned when its worker ends.
//!
//! This process itself is the worker of [`DeliveryUser::ThisProcess`]. It is not counted, and its thread is
//! never ended.

use crate::LocalLimits;
use crate::place::DeliveryUser;
use crate::waiting::DeliveryBatch;
use mail::Instant;
use std::collections::{BTreeMap, HashMap};

/// The number of a worker. No two workers of a process have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(u64);

/// All workers.
#[derive(Debug)]
pub(crate) struct Workers<M> {
    limits: LocalLimits,
    workers: BTreeMap<WorkerId, KnownWorker<M>>,
    by_user: HashMap<DeliveryUser, WorkerId>,
    last_id: u64,
}

#[derive(Debug)]
struct KnownWorker<M> {
    user: DeliveryUser,
    state: State<M>,
}

/// The state of a worker.
#[derive(Debug)]
enum State<M> {
    ExpectBatch { since: Instant },
    ExpectOutcomes { batch: DeliveryBatch<M>, since: Instant },
}

/// How a delivery user gets a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerRoom {
    /// The delivery user has a worker.
    Has(WorkerId),
    /// A worker can be started.
    Free,
    /// A worker can be started after this idle one has ended.
    After(WorkerId),
    /// All workers are busy.
    None,
}

/// A worker that has ended.
pub(crate) struct EndedWorker<M> {
    /// The user of the worker.
    pub user: DeliveryUser,
    /// The batch of the worker.
    pub batch: Option<DeliveryBatch<M>>,
}

impl<M> Workers<M> {
    /// Creates an empty table.
    pub fn new(limits: LocalLimits) -> Workers<M> {
        Workers { limits, workers: BTreeMap::new(), by_user: HashMap::new(), last_id: 0 }
    }

    /// Returns how this delivery user, whose batch is due, gets a worker.
    pub fn room_for(&self, user: &DeliveryUser) -> WorkerRoom {
        if let Some(worker) = self.by_user.get(user) {
            return WorkerRoom::Has(*worker);
        }
        if *user == DeliveryUser::ThisProcess || self.workers.len() < self.limits.workers_max.max(1)
        {
            return WorkerRoom::Free;
        }
        let idle = self.workers.iter().filter_map(|(id, worker)| match worker.state {
            State::ExpectBatch { since } if worker.may_end() => Some((since, *id)),
            _ => None,
        });
        idle.min().map_or(WorkerRoom::None, |(_, id)| WorkerRoom::After(id))
    }

    /// Adds a worker for this delivery user, which has none. This is the inverse of [`Workers::end`].
    pub fn start(&mut self, user: DeliveryUser, now: Instant) -> WorkerId {
        self.last_id += 1;
        let id = WorkerId(self.last_id);
        self.by_user.insert(user.clone(), id);
        self.workers.insert(id, KnownWorker { user, state: State::ExpectBatch { since: now } });
        id
    }

    /// Records that a worker got a batch.
    pub fn give(&mut self, id: WorkerId, batch: DeliveryBatch<M>, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.state = State::ExpectOutcomes { batch, since: now };
        }
    }

    /// Records an answer with this number of outcomes. Returns the user and the batch, or `None` if the worker
    /// has no such batch.
    pub fn take_batch(
        &mut self,
        id: WorkerId,
        outcomes: usize,
        now: Instant,
    ) -> Option<(DeliveryUser, DeliveryBatch<M>)> {
        let worker = self.workers.get_mut(&id)?;
        let State::ExpectOutcomes { batch, .. } = &worker.state else { return None };
        let batch = (batch.len() == outcomes).then(|| batch.clone())?;
        worker.state = State::ExpectBatch { since: now };
        Some((worker.user.clone(), batch))
    }

    /// True if the worker has not ended.
    pub fn knows(&self, id: WorkerId) -> bool {
        self.workers.contains_key(&id)
    }

    /// Removes a worker. Returns `None` if it was removed before.
    pub fn end(&mut self, id: WorkerId) -> Option<EndedWorker<M>> {
        let KnownWorker { user, state } = self.workers.remove(&id)?;
        self.by_user.remove(&user);
        let batch = match state {
            State::ExpectBatch { .. } => None,
            State::ExpectOutcomes { batch, .. } => Some(batch),
        };
        Some(EndedWorker { user, batch })
    }

    /// Returns the first worker that was idle for too long or had its batch for too long.
    pub fn overdue(&self, now: Instant) -> Option<WorkerId> {
        self.next_end().filter(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// Returns when the next worker is overdue.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.next_end().map(|(at, _)| at)
    }

    fn next_end(&self) -> Option<(Instant, WorkerId)> {
        let ends =
            self.workers.iter().filter(|(_, worker)| worker.may_end()).map(|(id, worker)| {
                let at = match worker.state {
                    State::ExpectBatch { since } => since + self.limits.worker_idle_max,
                    State::ExpectOutcomes { since, .. } => since + self.limits.batch_time_max,
                };
                (at, *id)
            });
        ends.min()
    }
}

impl<M> KnownWorker<M> {
    fn may_end(&self) -> bool {
        self.user != DeliveryUser::ThisProcess
    }
}
