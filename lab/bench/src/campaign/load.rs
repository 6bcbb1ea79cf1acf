//! Runs of `measure = "load"`: a load, and everything that can be known about it.
//!
//! Must never count what was sent before the clock started, or call a run good in which a promise was not kept.

use super::generator::Sink;
use super::layouts;
use super::measure::{Measure, Stand, is_limit, monotonic_ns, number};
use super::meter::Meter;
use super::place::Place;
use super::result::{Ended, judge, keep_calls, keep_costs, keep_syncs};
use super::schedule::Step;
use crate::layout::disks::Disks;
use crate::scenario::{Ends, Load, Tool};
use crate::subject::{Boxes, Duty, Site};
use crate::watch::{Family, SlowDisk, Trace, Which, cost, slow};
use anyhow::{Context, Result, bail, ensure};
use report::record::Run;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Time without progress after which what is missing is given up.
const STUCK_TIME: Duration = Duration::from_secs(20);
/// Time between two looks at a sink or a mailbox.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Time in which the mail sent before the clock starts must arrive.
const WARM_TIME_MAX: Duration = Duration::from_secs(60);
/// The pipe through which strace reports syncs, below the campaign's directory.
const SYNCS_PIPE: &str = "syncs.pipe";
/// Sessions that fill a queue before the clock starts.
const FILLING_SESSIONS: u32 = 50;
/// Messages whose system calls are counted to know what one costs.
const TRACED_MESSAGES: u64 = 500;

/// The measurement, with the disks that it has made for the run.
pub struct Loading(Vec<Disks>);

impl Measure for Loading {
    fn plan(_: &Place, _: &Step, site: &mut Site) -> Result<Loading> {
        layouts::disks(site).map(Loading)
    }

    fn run(self, stand: &Stand, run: &mut Run) -> Result<()> {
        layouts::tell(&self.0, run);
        let accepted = stand.accepted();
        std::fs::write(&accepted, "")?;
        let faults = &stand.step.scenario.sink;
        let sink = Sink::start(stand.site.next_hop, stand.load(), faults, &accepted)?;
        let slow_disk = slow_disk(stand)?;
        let running =
            stand.start(&slow_disk.as_ref().map(SlowDisk::starter).unwrap_or_default())?;
        let in_boxes = matches!(stand.site.setup.duty, Duty::Mbox | Duty::Maildir);
        let boxes = in_boxes.then(|| Boxes::new(&stand.site));
        let mut service = Service { stand, sink, boxes, before: 0 };
        service.warm_up()?;
        let pids = running.pids();
        let family = Family::below(&pids).without(slow::tracer(&pids));
        let (measured, slow_disk) = service.measure(&family, slow_disk, run)?;
        drop(running);
        drop(self.0);
        service.finish(run, measured, slow_disk)
    }
}

/// Sink and mailboxes while a load is on.
struct Service<'a> {
    stand: &'a Stand<'a>,
    sink: Sink,
    boxes: Option<Boxes>,
    /// Recipients that had been served before the clock started.
    before: u64,
}

/// What the load left to be judged.
struct Measured {
    sent: Value,
    sink_before: Value,
    ended: Ended,
    /// The moments between which syncs count, by the clock of strace.
    span: (f64, f64),
    calls: Option<crate::watch::trace::Calls>,
    costs: Option<Vec<cost::Cost>>,
}

impl Service<'_> {
    /// Watches a load from its start to its end.
    fn measure(
        &mut self,
        family: &Family,
        slow_disk: Option<SlowDisk>,
        run: &mut Run,
    ) -> Result<(Measured, Option<SlowDisk>)> {
        let Stand { step, subject, site, .. } = self.stand;
        let (trace, cost) = (step.scenario.trace, step.scenario.cost);
        ensure!(
            !(trace || cost) || slow_disk.is_none(),
            "a mailer whose syncs are counted cannot be traced a second time"
        );
        let traced_costs = cost.then(|| self.traced_costs(family)).transpose()?;
        rustix::fs::sync();
        self.stand.settle();
        let traced = trace.then(|| Trace::attach(family, Which::All)).transpose()?;
        let sink_before = self.sink.counts()?;
        let plain = cost.then(|| cost::Plain::begin(family));
        let meter = Meter::begin((!is_limit(*subject)).then_some(family), &site.queue)?;
        let from = slow::now();
        let sent = self.send(self.stand.load(), step.seed)?;
        let ended = self.end(&sent)?;
        let span = (from, slow::now());
        let calls = traced.map(Trace::finish).transpose()?;
        let messages = number(&sent, "accepted");
        let plain = plain.map(|plain| plain.end().sums().each(messages));
        let costs = plain.zip(traced_costs).map(|(plain, traced)| cost::together(plain, traced));
        meter.end(run, messages);
        if slow_disk.is_some() {
            run.warnings.extend(slow::way_around(&family.pids(), &site.queue));
        }
        Ok((Measured { sent, sink_before, ended, span, calls, costs }, slow_disk))
    }

    /// Writes the results into the run, after the mailer has ended.
    fn finish(self, run: &mut Run, measured: Measured, slow_disk: Option<SlowDisk>) -> Result<()> {
        let Measured { sent, sink_before, ended, span, calls, costs } = measured;
        let has_ledger = self.boxes.is_none();
        let counts = self.sink.stop()?;
        judge(run, self.stand, (&sent, &sink_before, &counts), &ended, has_ledger)?;
        if let Some(disk) = slow_disk {
            keep_syncs(run, disk, span)?;
        }
        calls.into_iter().for_each(|calls| keep_calls(run, calls));
        if let Some(costs) = costs {
            run.how.insert("costs".into(), cost::how(TRACED_MESSAGES));
            keep_costs(run, &costs);
        }
        Ok(())
    }

    fn send(&self, load: &Load, seed: u64) -> Result<Value> {
        let sent = self.stand.send(&self.fair(load), seed, &self.stand.accepted())?;
        ensure!(number(&sent, "accepted") > 0.0, "nothing was accepted: {sent}");
        Ok(sent)
    }

    /// Returns the load that the sink itself gets: the transactions that a mailer would make of it.
    fn fair(&self, load: &Load) -> Load {
        let mut load = load.clone();
        let at_once = self.stand.site.setup.recipients_per_transaction.max(1);
        if is_limit(self.stand.subject) && load.recipients > at_once {
            load.messages =
                (load.messages.max(1) * u64::from(load.recipients)).div_ceil(u64::from(at_once));
            (load.recipients, load.per_connection) = (at_once, 0);
            load.sessions = load.sessions.max(20).min(load.messages as u32);
        }
        load
    }

    /// Sends the mail that is not measured, and waits until it has been delivered.
    fn warm_up(&mut self) -> Result<()> {
        let load = self.stand.load();
        if load.source != Tool::Lab || load.sink != Tool::Lab {
            return Ok(());
        }
        let queued = Load {
            sessions: FILLING_SESSIONS,
            per_connection: 0,
            messages: load.queued,
            seconds: 0.0,
            ..load.clone()
        };
        let warm = Load { recipients: 1, ..self.stand.warm_up() };
        for load in [queued, warm].iter().filter(|load| load.messages > 0) {
            let sent = self.send(load, !self.stand.step.seed)?;
            self.before += number(&sent, "recipients") as u64;
        }
        if load.ends == Ends::Delivered {
            self.await_all(self.before, WARM_TIME_MAX, f64::INFINITY)
                .context("before the clock started")?;
        }
        Ok(())
    }

    /// Counts the system calls of a short load. Its mail has been delivered before the clock starts.
    fn traced_costs(&mut self, family: &Family) -> Result<Vec<cost::Cost>> {
        let load = self.stand.load();
        let load = Load { messages: TRACED_MESSAGES, seconds: 0.0, ..load.clone() };
        let traced = cost::Traced::attach(family)?;
        let sent = self.send(&load, self.stand.step.seed.rotate_left(1))?;
        let recipients = number(&sent, "recipients") as u64;
        if load.ends == Ends::Delivered {
            self.await_all(self.before + recipients, WARM_TIME_MAX, f64::INFINITY)?;
        }
        self.before += recipients;
        Ok(traced.finish()?.each(number(&sent, "accepted")))
    }

    /// Waits for the run's end.
    fn end(&mut self, sent: &Value) -> Result<Ended> {
        let all = number(sent, "recipients");
        let load = self.stand.load();
        if load.ends == Ends::Accepted || is_limit(self.stand.subject) {
            return Ok(Ended { at_ns: number(sent, "end_ns"), served_share: 1.0 });
        }
        let longest_ns = number(sent, "start_ns") + load.longest * 1e9;
        let mut ended = self.await_all(self.before + all as u64, STUCK_TIME, longest_ns)?;
        if self.boxes.is_none() && ended.served_share >= 1.0 {
            ended.at_ns = number(&self.sink.counts()?, "last_ns");
        }
        Ok(ended)
    }

    /// Waits until `all` recipients are served, or until `longest_ns`.
    fn await_all(&mut self, all: u64, stuck_time: Duration, longest_ns: f64) -> Result<Ended> {
        let wanted = (all - self.before).max(1) as f64;
        let (mut last, mut seen) = (Instant::now(), 0);
        loop {
            let now = match &mut self.boxes {
                Some(boxes) => boxes.count()?,
                None => number(&self.sink.counts()?, "recipients") as u64,
            };
            let at_ns = monotonic_ns();
            if now >= all {
                return Ok(Ended { at_ns, served_share: 1.0 });
            }
            if at_ns > longest_ns && now > self.before {
                return Ok(Ended { at_ns, served_share: (now - self.before) as f64 / wanted });
            }
            if now != seen {
                (last, seen) = (Instant::now(), now);
            }
            if last.elapsed() >= stuck_time {
                let seconds = stuck_time.as_secs();
                bail!("{now} of {all} had come when nothing more came for {seconds} s");
            }
            std::thread::sleep(LOOK_PERIOD);
        }
    }
}

/// Returns a disk whose syncs are counted or delayed, if the setup asks for one.
fn slow_disk(stand: &Stand) -> Result<Option<SlowDisk>> {
    let setup = &stand.site.setup;
    if is_limit(stand.subject) || !(setup.count_syncs || setup.sync_delay_ms > 0.0) {
        return Ok(None);
    }
    let pipe = stand.place.work.join(SYNCS_PIPE);
    let _ = std::fs::remove_file(&pipe); // a run that was killed has left it
    SlowDisk::new(&pipe, setup.sync_delay_ms).map(Some)
}
