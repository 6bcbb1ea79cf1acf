//! A load in progress: the plan that all sessions share, the threads they run on, the clock.
//!
//! Must never count warm-up messages, or start the clock before all of them are answered.

use super::message::Letters;
use super::recipients::Recipients;
use super::session::{self, Worker};
use super::tally::{Frame, Tally};
use super::{Options, table};
use crate::gauge::{Moment, Rows, cpu_time};
use crate::mark::WARM_UP;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A tally that one thread writes and others may read; the lock is held for an instant only.
pub type SharedTally = Mutex<Tally>;

/// What all sessions share.
pub struct Plan {
    /// The options.
    pub options: Options,
    /// The messages.
    pub letters: Letters,
    /// The recipients.
    pub recipients: Recipients,
    next: AtomicU64,
    next_warm_up: AtomicU64,
    stopped: AtomicBool,
    clock: OnceLock<Clock>,
    tallies: Mutex<Vec<Arc<SharedTally>>>,
}

/// The begin of the measurement.
#[derive(Clone, Copy)]
pub struct Clock {
    /// When.
    pub start: Moment,
    cpu: Duration,
}

/// The two parts of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The warm-up, which is not counted.
    WarmUp,
    /// The load that is measured.
    Measured,
}

/// The next message of a session.
pub struct Next {
    /// Its number within the run.
    pub number: u64,
    /// The moment before which it must not begin.
    pub due: Option<Instant>,
}

impl Plan {
    /// Returns the next message to send; `None` if no more may begin.
    pub fn next(&self, part: Part) -> Option<Next> {
        if self.stopped.load(Relaxed) {
            return None;
        }
        if part == Part::WarmUp {
            let number = self.next_warm_up.fetch_add(1, Relaxed);
            let number = (number < self.options.warm_up).then_some(WARM_UP + number);
            return number.map(|number| Next { number, due: None });
        }
        let start = self.clock.get()?.start.at();
        let number = self.next.fetch_add(1, Relaxed);
        let due = |rate: f64| start + Duration::from_secs_f64(number as f64 / rate.max(1e-6));
        let due = self.options.rate.map(due);
        let end = self.options.seconds.map(|seconds| start + Duration::from_secs_f64(seconds));
        let late = end.is_some_and(|end| due.unwrap_or_else(Instant::now) >= end);
        (number < self.options.messages() && !late).then_some(Next { number, due })
    }

    /// Returns the begin of the measurement, once it has begun.
    pub fn clock(&self) -> Option<Clock> {
        self.clock.get().copied()
    }

    /// Returns the counts over time of all threads.
    pub fn rows(&self) -> Rows {
        let mut rows = Rows::new(self.options.every());
        for tally in self.tallies.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            rows.merge(lock(tally).rows());
        }
        rows
    }
}

/// A panic of a session is already reported; the counts remain usable.
pub fn lock(tally: &SharedTally) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running source.
pub struct Load {
    run: u64,
    plan: Arc<Plan>,
    threads: usize,
    workers: Vec<JoinHandle<Result<()>>>,
    table: Option<table::Printer>,
}

/// The result of a run.
pub struct Sent {
    /// The run's name, as in its tokens.
    pub run: u64,
    /// Everything counted.
    pub tally: Tally,
    /// What else its summary needs.
    pub frame: Frame,
}

impl Load {
    /// Begins to send.
    pub fn start(options: Options) -> Result<Load> {
        let run = options.run.unwrap_or_else(random_name);
        let threads = options.threads.clamp(1, options.sessions.max(1));
        let plan = Arc::new(Plan {
            letters: options.letters(run)?,
            recipients: options.recipients()?,
            options,
            next: AtomicU64::new(0),
            next_warm_up: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            clock: OnceLock::new(),
            tallies: Mutex::default(),
        });
        let together = Arc::new(Barrier::new(threads));
        let table = plan.options.table.then(|| table::Printer::start(plan.clone()));
        let workers = (0..threads).map(|thread| {
            let (plan, together) = (plan.clone(), together.clone());
            std::thread::spawn(move || work(&plan, thread, threads, &together))
        });
        let workers = workers.collect();
        Ok(Load { run, plan, threads, workers, table })
    }

    /// Stops beginning messages.
    pub fn stop(&self) {
        self.plan.stopped.store(true, Relaxed);
    }

    /// Waits until each begun message has ended.
    pub fn finish(self) -> Result<Sent> {
        for worker in self.workers {
            worker.join().expect("a session does not panic")?;
        }
        let clock = self.plan.clock().expect("the threads started it");
        let cpu = cpu_time().saturating_sub(clock.cpu);
        if let Some(table) = self.table {
            table.finish();
        }
        let mut tally = Tally::new(clock.start.at(), self.plan.options.every());
        let tallies =
            std::mem::take(&mut *self.plan.tallies.lock().unwrap_or_else(PoisonError::into_inner));
        for one in tallies.into_iter().filter_map(Arc::into_inner) {
            tally.merge(one.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        let frame = Frame { run: self.run, start: clock.start, threads: self.threads, cpu };
        Ok(Sent { run: self.run, tally, frame })
    }
}

/// Runs every `threads`-th session: first the warm-up, then, with all other threads, the load.
fn work(plan: &Arc<Plan>, thread: usize, threads: usize, together: &Barrier) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let sessions = (thread..plan.options.sessions.max(1)).step_by(threads);
    let run = |part, tally: &Arc<SharedTally>| -> Result<()> {
        let Ok(runtime) = &runtime else { return Ok(()) };
        runtime.block_on(async {
            let worker = Arc::new(Worker { plan: plan.clone(), tally: tally.clone() });
            let sessions: Vec<_> = sessions
                .clone()
                .map(|session| tokio::spawn(session::run(worker.clone(), session, part)))
                .collect();
            for session in sessions {
                session.await?;
            }
            Ok(())
        })
    };
    let new_tally = |start| Arc::new(Mutex::new(Tally::new(start, plan.options.every())));
    let mut warm_up = Ok(0);
    if plan.options.warm_up > 0 {
        let tally = new_tally(Instant::now());
        warm_up = run(Part::WarmUp, &tally).map(|()| lock(&tally).promises().len() as u64);
    }
    // An error waits, too: the other threads would wait for this one for ever.
    if together.wait().is_leader() {
        let _ = plan.clock.set(Clock { start: Moment::now(), cpu: cpu_time() });
    }
    together.wait();
    let start = plan.clock().expect("set above by one of the threads").start.at();
    let tally = new_tally(start);
    lock(&tally).warm_up = warm_up?;
    plan.tallies.lock().unwrap_or_else(PoisonError::into_inner).push(tally.clone());
    run(Part::Measured, &tally)?;
    runtime?;
    Ok(())
}

/// Returns a unique name, made of the standard library's random hash keys.
pub fn random_name() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
