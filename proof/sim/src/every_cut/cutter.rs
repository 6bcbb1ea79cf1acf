//! Runs the workload once and cuts every copy of the disk that it leaves behind.
//!
//! Must never let a copy go untried.

use super::Settings;
use super::ledger::{Answer, Deletion, Ledger, Sent};
use super::machine::Machine;
use super::recovered::{Recovered, State, recover};
use super::subsets::Subsets;
use super::tally::{Depth, Tally};
use super::tap::Tap;
use super::work::{self, Plan};
use link::admin::Action;
use mail::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use world::sim::{Clock, Disk, PowerCutFate, Rng};
use world::{Clock as _, Rng as _};

/// Steps of a start at which the power goes again.
const WAKING_STEPS_MAX: usize = 12;
/// Virtual time in which everything must drain once the next hops take everything.
const DRAIN_MAX: Duration = Duration::from_secs(3600);
/// Rounds of a drain; each does one thing.
const DRAIN_ROUNDS_MAX: u32 = 100_000;
/// When the workload begins.
const BEGIN: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// Step, subset, and what is broken.
pub type Failure = (u64, Option<u64>, String);

/// What is known outside when the power goes.
struct Outside<'a> {
    ledger: &'a Ledger,
    clock: &'a Clock,
}

/// See the module.
pub struct Cutter {
    seed: u64,
    depth: Depth,
    settings: Settings,
    /// What was tried so far.
    pub tally: Tally,
}

impl Cutter {
    /// `seed` decides everything.
    pub fn new(seed: u64, depth: Depth, settings: Settings) -> Cutter {
        Cutter { seed, depth, settings, tally: Tally::default() }
    }

    /// The whole of it.
    pub fn run(&mut self, plan: &Plan) -> Result<(), Failure> {
        let (clock, settings) = (Clock::starting(BEGIN), self.settings.clone());
        let (disk, lies) = (Disk::new(self.seed), plan.ignores_syncs);
        let began = Machine::start(disk, settings, self.seed, clock, lies);
        let mut machine = began.map_err(|what| (0, None, what))?;
        for nth in 1..=plan.acts {
            let acted = work::act(&mut machine, plan, nth);
            self.cuts(&mut machine, acted)?;
            for _ in 0..2 + machine.chance.below(8) {
                let stepped = machine.step();
                self.cuts(&mut machine, stepped)?;
            }
        }
        for _ in 0..DRAIN_ROUNDS_MAX {
            let stepped = machine.step();
            let moved = self.cuts(&mut machine, stepped)?;
            if !moved && (machine.is_idle() || !machine.wait()) {
                break;
            }
        }
        self.reached(&machine);
        Ok(())
    }

    fn reached(&mut self, machine: &Machine) {
        let reached = &mut self.tally.reached;
        let now = machine.usage();
        for usage in machine.past.iter().chain([&now]) {
            reached.commits += usage.commits;
            reached.snapshots += usage.snapshots;
            reached.recycled += usage.recycled;
            reached.copied_forward += usage.copied_forward;
        }
        let sent = || machine.ledger.sent.values();
        let messages = |wanted: fn(&Sent) -> bool| sent().filter(|sent| wanted(sent)).count();
        reached.messages = messages(|sent| matches!(sent.answer, Answer::Promised(_)));
        reached.deleted = messages(|sent| sent.deletion == Deletion::Sure);
        reached.held = messages(|sent| sent.hold.sure);
        reached.bulk = messages(|sent| sent.body.len() > 12 << 10);
        let recipients = || sent().flat_map(|sent| &sent.recipients);
        reached.delivered = recipients().filter(|one| one.delivered > 0).count();
        reached.deferred = recipients().filter(|one| one.deferred > 0).count();
        reached.noticed = recipients().filter(|one| one.noticed).count();
    }

    /// Cuts each copy of the disk that was made since the last time.
    fn cuts<T>(&mut self, machine: &mut Machine, done: Result<T, String>) -> Result<T, Failure> {
        let done = done.map_err(|what| (self.tally.cuts, None, what))?;
        if let Some((copies, ledger)) = machine.starting.take() {
            let outside = Outside { ledger: &ledger, clock: &machine.clock };
            self.cut_all(copies, &outside)?;
        }
        let outside = Outside { ledger: &machine.ledger, clock: &machine.clock };
        self.cut_all(machine.tap.take(), &outside)?;
        Ok(done)
    }

    fn cut_all(&mut self, copies: Vec<Disk>, outside: &Outside<'_>) -> Result<(), Failure> {
        for copy in copies {
            self.tally.cuts += 1;
            let step = self.tally.cuts;
            if self.depth.only.is_some_and(|only| only != step) {
                continue;
            }
            self.cut(&copy, outside)?;
            let said = |what| (step, None, format!("after a kill: {what}"));
            self.kill(&copy, outside).map_err(said)?;
        }
        Ok(())
    }

    /// The power goes at this step: tries the subsets.
    fn cut(&mut self, copy: &Disk, outside: &Outside<'_>) -> Result<(), Failure> {
        let step = self.tally.cuts;
        let subsets = Subsets::of(copy.pending(), self.depth.random);
        self.tally.cuts_with_every_subset += u64::from(subsets.is_every());
        for nth in 0..subsets.count() {
            let mut chance = Rng::seeded(self.seed ^ step << 20 ^ nth << 40);
            self.tally.subsets += 1;
            let fates = subsets.nth(nth, self.seed ^ step);
            let tried = self.subset(copy, &fates, outside, &mut chance);
            tried.map_err(|what| (step, Some(nth), what))?;
        }
        Ok(())
    }

    fn subset(
        &mut self,
        copy: &Disk,
        fates: &[PowerCutFate],
        outside: &Outside<'_>,
        chance: &mut Rng,
    ) -> Result<(), String> {
        let disk = copy.forked(0);
        disk.power_on_with(fates);
        let first = self.start(&disk, outside)?;
        if chance.below(self.depth.drained_every) == 0 {
            self.drain(&disk, outside)?;
        }
        let steps = if chance.below(self.depth.thorough_every) == 0 {
            0..WAKING_STEPS_MAX
        } else if chance.below(self.depth.again_every) == 0 {
            let one = chance.below(WAKING_STEPS_MAX as u64) as usize;
            one..one + 1
        } else {
            return Ok(());
        };
        let state = first.state();
        for again in wake(&disk, first, outside.clock, steps.end).into_iter().skip(steps.start) {
            self.tally.cuts_again += 1;
            let tried = self.again(&again, &state, outside, chance);
            tried.map_err(|what| format!("cut again while it started: {what}"))?;
        }
        Ok(())
    }

    /// The power goes in a start; what is found must be what that start found.
    fn again(
        &mut self,
        copy: &Disk,
        state: &State,
        outside: &Outside<'_>,
        chance: &mut Rng,
    ) -> Result<(), String> {
        let disk = copy.forked(0);
        let subsets = Subsets::of(copy.pending(), u64::MAX);
        let nth = chance.below(subsets.count());
        disk.power_on_with(&subsets.nth(nth, nth));
        let found = self.start(&disk, outside)?.state();
        match found == *state {
            true => Ok(()),
            false => Err(format!("once: {state:?}, twice: {found:?}")),
        }
    }

    fn start(&mut self, disk: &Disk, outside: &Outside<'_>) -> Result<Recovered, String> {
        self.tally.starts += 1;
        let found = recover(disk, &self.settings, 0xfeed, outside.clock.now())?;
        outside.ledger.judge(&found)?;
        Ok(found)
    }

    /// The queue process alone is killed here, and the power goes in the start after.
    fn kill(&mut self, copy: &Disk, outside: &Outside<'_>) -> Result<(), String> {
        self.tally.kills += 1;
        self.tally.starts += 1;
        let tap = Tap::new(copy.forked(0));
        let found = recover(&tap, &self.settings, 0xdead, outside.clock.now())?;
        outside.ledger.judge(&found)?;
        let state = found.state();
        let mut copies = tap.take();
        // While it reads, a cut may still take what it reads; after that it must not.
        let reading = copies.len();
        copies.extend(wake(tap.disk(), found, outside.clock, WAKING_STEPS_MAX));
        let mut chance = Rng::seeded(self.seed ^ self.tally.cuts << 21);
        for (nth, again) in copies.iter().enumerate() {
            self.tally.cuts_after_kills += 1;
            if nth < reading {
                let disk = again.forked(chance.u64());
                disk.power_on();
                self.start(&disk, outside)?;
            } else {
                self.again(again, &state, outside, &mut chance)?;
            }
        }
        Ok(())
    }

    /// Goes on from here until nothing is left to do.
    fn drain(&mut self, disk: &Disk, outside: &Outside<'_>) -> Result<(), String> {
        self.tally.drained += 1;
        let incarnation = 0xd_0000;
        let (mut ledger, tap) = (outside.ledger.clone(), Arc::new(Tap::new(disk.forked(0))));
        let clock = Clock::starting(outside.clock.now().wall);
        let found = recover(&*tap, &self.settings, incarnation, clock.now())?;
        ledger.adopt(&found);
        ledger.forget_unanswered(&found);
        let held = found.messages.iter().filter(|(_, message)| message.held.is_some());
        let held = held.map(|(id, message)| (message.stored.transaction, *id));
        let held: Vec<_> = held.collect();
        let settings = self.settings.clone();
        let mut drained = Machine::resume(tap, settings, ledger, found, incarnation, clock);
        drained.takes_all = true;
        for (of, message) in held {
            drained.act_on(of, message, Action::Release)?;
        }
        let until = drained.clock.now().monotonic + DRAIN_MAX;
        for _ in 0..DRAIN_ROUNDS_MAX {
            let moved = drained.step()?;
            drained.tap.take();
            if !moved && drained.messages() == 0 && drained.is_idle() {
                return drained.ledger.judge_end();
            }
            if drained.clock.now().monotonic > until || !moved && !drained.wait() {
                break;
            }
        }
        Err(format!("{} messages do not drain", drained.messages()))
    }
}

/// Lets a start run on with nobody connected; the disk from before each of its first steps.
fn wake(disk: &Disk, found: Recovered, clock: &Clock, steps: usize) -> Vec<Disk> {
    let tap = Tap::new(disk.clone());
    let Recovered { mut spool, scheduler, .. } = found;
    let (now, mut copies) = (clock.now(), Vec::new());
    while copies.len() < steps {
        match spool.poll(now) {
            Some(spool::Output::Io(io)) => {
                spool.handle(spool::execute(&tap, io), now);
                copies.extend(tap.take());
            }
            Some(spool::Output::SnapshotWanted(slice)) => {
                let blob = |id: &mail::MessageId| Some((*id, scheduler.export(*id, now)?));
                let blobs = slice.messages.iter().filter_map(blob).collect();
                spool.snapshot_slice(slice, blobs);
            }
            Some(_) => {}
            None => break,
        }
    }
    copies.truncate(steps);
    copies
}
