//! `posthaste-sim swarm | replay`: many simulations, or one told in full.
//!
//! Must never be needed to run Posthaste.

use clap::{Parser, Subcommand};
use sim::plan::Plan;
use sim::run::{Verdict, run};
use sim::small::small;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Simulates the whole mailer, with everything going wrong.
#[derive(Parser)]
#[command(name = "posthaste-sim")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// One seed after the other; ends at the first failure, made small
    Swarm {
        /// How long
        #[arg(long, default_value_t = 5.0)]
        minutes: f64,
        /// The first seed; by default the number of seconds since 1970 times a million
        #[arg(long)]
        first: Option<u64>,
        /// Upper bound on the number of seeds
        #[arg(long, default_value_t = u64::MAX)]
        seeds: u64,
        /// Threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Runs each seed that is a multiple of this number twice, and compares
        #[arg(long, default_value_t = 50)]
        twice: u64,
        /// Does not make a failure small
        #[arg(long)]
        raw: bool,
    },
    /// One seed, told line by line
    Replay {
        /// The seed
        seed: u64,
        /// The parts that are left of it: `m3,f7`
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Only the verdict
        #[arg(long)]
        quiet: bool,
    },
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Swarm { minutes, first, seeds, threads, twice, raw } => {
            let first = first.unwrap_or_else(by_the_clock);
            let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
            let swarm = Swarm { first, seeds, until, twice, raw, ..Swarm::default() };
            swarm.run(threads)
        }
        Task::Replay { seed, only, quiet } => {
            let plan = match only.is_empty() {
                true => Plan::drawn(seed, &BTreeSet::new()),
                false => Plan::only(seed, &only.into_iter().collect()),
            };
            if !quiet {
                println!("{plan:#?}");
            }
            let verdict = run(plan, !quiet);
            verdict.told.iter().for_each(|line| println!("{line}"));
            println!(
                "{:?}\n{:?}\n{:?} of virtual time",
                verdict.counts, verdict.sums, verdict.time
            );
            verdict.findings.iter().for_each(|finding| println!("{finding:?}"));
            exit(verdict.findings.is_empty())
        }
    }
}

fn exit(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn by_the_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() * 1_000_000)
}

/// Sums over all runs.
#[derive(Default)]
struct Total {
    seeds: AtomicU64,
    promised: AtomicU64,
    delivered: AtomicU64,
    doubled: AtomicU64,
    bounced: AtomicU64,
    cuts: AtomicU64,
    cuts_early: AtomicU64,
    kills: AtomicU64,
    workers_lost: AtomicU64,
    drains: AtomicU64,
    poisons: AtomicU64,
    renewals: AtomicU64,
    opened: AtomicU64,
    events: AtomicU64,
    seconds: AtomicU64,
}

impl Total {
    fn add(&self, verdict: &Verdict) {
        let add = |place: &AtomicU64, value| {
            place.fetch_add(value, Ordering::Relaxed);
        };
        add(&self.seeds, 1);
        add(&self.promised, verdict.sums.promised);
        add(&self.delivered, verdict.sums.delivered);
        add(&self.doubled, verdict.sums.doubled);
        add(&self.bounced, verdict.sums.bounced);
        add(&self.cuts, verdict.counts.cuts);
        add(&self.cuts_early, verdict.counts.cuts_early);
        add(&self.kills, verdict.counts.kills);
        add(&self.workers_lost, verdict.counts.workers_lost);
        add(&self.drains, verdict.counts.drains);
        add(&self.poisons, verdict.counts.poisons);
        add(&self.renewals, verdict.counts.renewals);
        add(&self.opened, verdict.counts.opened);
        add(&self.events, verdict.counts.events);
        add(&self.seconds, verdict.time.as_secs());
    }

    fn line(&self) -> String {
        let get = |place: &AtomicU64| place.load(Ordering::Relaxed);
        format!(
            "{} seeds, {} messages promised, {} recipients delivered, {} doubled where they may be, \
             {} bounced, {} power cuts ({} of them before the spool was open), {} processes killed, \
             {} mailbox workers lost, {} drains, \
             {} streams poisoned, {} begun again, {} spools opened, {} events, {} simulated days",
            get(&self.seeds),
            get(&self.promised),
            get(&self.delivered),
            get(&self.doubled),
            get(&self.bounced),
            get(&self.cuts),
            get(&self.cuts_early),
            get(&self.kills),
            get(&self.workers_lost),
            get(&self.drains),
            get(&self.poisons),
            get(&self.renewals),
            get(&self.opened),
            get(&self.events),
            get(&self.seconds) / 86_400
        )
    }
}

struct Swarm {
    first: u64,
    seeds: u64,
    until: Instant,
    twice: u64,
    raw: bool,
    next: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<u64>>,
    total: Total,
}

impl Default for Swarm {
    fn default() -> Swarm {
        Swarm {
            first: 0,
            seeds: 0,
            until: Instant::now(),
            twice: 0,
            raw: false,
            next: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            total: Total::default(),
        }
    }
}

impl Swarm {
    fn run(&self, threads: usize) -> ExitCode {
        println!("seeds from {}", self.first);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.work());
            }
        });
        println!("{}", self.total.line());
        let failure = *self.failure.lock().expect("no thread panics with the lock");
        let Some(seed) = failure else {
            println!("no check failed");
            return ExitCode::SUCCESS;
        };
        self.tell(seed);
        ExitCode::FAILURE
    }

    fn work(&self) {
        while !self.failed.load(Ordering::Relaxed) && Instant::now() < self.until {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.seeds {
                return;
            }
            let seed = self.first + number;
            let plan = || Plan::drawn(seed, &BTreeSet::new());
            let ran = std::panic::catch_unwind(|| {
                let verdict = run(plan(), false);
                let again =
                    seed.is_multiple_of(self.twice.max(1)).then(|| run(plan(), false).trace);
                let other = again.is_some_and(|trace| trace != verdict.trace);
                if other {
                    println!("seed {seed} went two ways: chance that is not the seed's");
                }
                let well = verdict.findings.is_empty() && !other;
                self.total.add(&verdict);
                well
            });
            let well = ran.unwrap_or(false);
            if !well {
                println!("seed {seed} fails");
            }
            if !well {
                // All seeds below it have been begun and are run to their end: the least counts.
                self.failed.store(true, Ordering::Relaxed);
                let mut failure = self.failure.lock().expect("no thread panics with the lock");
                *failure = Some(failure.map_or(seed, |other| other.min(seed)));
            }
        }
    }

    fn tell(&self, seed: u64) {
        let plan = Plan::drawn(seed, &BTreeSet::new());
        let verdict = std::panic::catch_unwind(|| run(plan.clone(), false));
        let Ok(verdict) = verdict else {
            return println!("seed {seed} panics\n{}", plan.line());
        };
        verdict.findings.iter().for_each(|finding| println!("{finding:?}"));
        let Some(finding) = verdict.findings.first() else { return println!("{}", plan.line()) };
        if self.raw {
            return println!("{}", plan.line());
        }
        let small = small(seed, finding.check);
        println!("made small, {} of {} parts:", small.parts().len(), plan.parts().len());
        println!("{}", small.line());
    }
}
