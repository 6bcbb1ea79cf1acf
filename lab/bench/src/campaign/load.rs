//! One run: a fresh mailer, a load, and everything that can be known about it.
//!
//! Must never count what was sent before the clock started, or call a run good in which a promise was not kept.

use super::generator::{self, Sink, Target};
use super::meter::Meter;
use super::place::Place;
use super::schedule::{LIMIT, Step, TWO_FILES};
use super::{curve, delays, layouts};
use crate::running::Running;
use crate::scenario::{Ends, Load};
use crate::subject::{Boxes, Duty, Phase, Site, Subject};
use crate::watch::trace::Calls;
use crate::watch::{Family, Probe, SlowDisk, Trace, Which, cost, durability, slow};
use anyhow::{Context, Result, bail, ensure};
use report::record::{Absent, Line, Run};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Nothing more has come for so long: it will not come.
const STUCK_TIME: Duration = Duration::from_secs(20);
/// Between two looks at a sink or a mailbox.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// What was sent before the clock started may take so long to come.
const WARM_TIME_MAX: Duration = Duration::from_secs(60);
/// A generator that was busy for more than this share of its time may be what was measured.
const BUSY_SHARE_MAX: f64 = 0.9;
/// By which strace tells of syncs, below the campaign's directory.
const SYNCS_PIPE: &str = "syncs.pipe";
/// Sessions that fill a queue before the clock starts.
const FILLING_SESSIONS: u32 = 50;
/// Messages whose system calls are counted to know what one costs.
const TRACED_MESSAGES: u64 = 500;

/// A run of `measure = "load"`. An error is the laboratory's; what the subject does wrong stands in the line.
pub fn load(place: &Place, step: &Step) -> Result<Vec<Line>> {
    if step.subject == TWO_FILES {
        return layouts::run(place, step);
    }
    let subject = place.subject(&step.subject)?;
    if let Some(line) = absent(step, subject) {
        return Ok(vec![line]);
    }
    let syncs = syncs(place, step, subject)?;
    let site = place.site(step)?;
    let mut run = place.new_run(step, place.version(subject, &site)?);
    run.durability = syncs;
    let mut lines = Vec::new();
    if let Err(error) = attempt(place, step, subject, site, &mut run, &mut lines) {
        (run.value, run.failed) = (None, Some(format!("{error:#}")));
    }
    lines.push(Line::Run(Box::new(run)));
    Ok(lines)
}

/// The line of a subject that cannot do this.
pub fn absent(step: &Step, subject: &dyn Subject) -> Option<Line> {
    let why = subject.refuses(&step.question.setup)?;
    Some(Line::Absent(Absent {
        scenario: step.scenario.name.clone(),
        subject: step.subject.clone(),
        cell: step.question.cell.clone(),
        why,
    }))
}

/// Found out once a campaign for each duty, with a mailer of its own.
pub fn syncs(
    place: &Place,
    step: &Step,
    subject: &dyn Subject,
) -> Result<Option<report::record::Durability>> {
    if is_limit(subject) {
        return Ok(None);
    }
    let look = || {
        let site = place.site(step)?;
        let sink =
            Sink::start(site.next_hop, &Load::default(), &Default::default(), &accepted(place))?;
        subject.configure(&site)?;
        let mut running = Running::start(subject, &site, Phase::Serve, None)?;
        running.await_greeting()?;
        let (address, to) = (subject.address(&site), one_recipient(subject, &site));
        let probe = Probe { address: &address, from: "probe@lab.test", to: &to };
        let found = durability::find(&probe, &Family::below(&running.pids()), &site.queue);
        drop(sink);
        found
    };
    place.durability(subject.name(), step.question.setup.duty, look).map(Some)
}

/// Whether there is no mailer between source and sink.
fn is_limit(subject: &dyn Subject) -> bool {
    subject.name() == LIMIT
}

fn one_recipient(subject: &dyn Subject, site: &Site) -> String {
    subject.recipient(site).replace("{n}", "0").replace("{m}", "0")
}

pub fn accepted(place: &Place) -> PathBuf {
    place.work.join("accepted")
}

/// What is up while a load is on.
struct Stand<'a> {
    step: &'a Step<'a>,
    subject: &'a dyn Subject,
    site: Site,
    sink: Sink,
    boxes: Option<Boxes>,
    accepted: PathBuf,
    /// Recipients that had been served before the clock started.
    before: u64,
}

/// How a run ended.
struct End {
    /// In nanoseconds of the monotonic clock.
    at_ns: f64,
    /// Of what was accepted; less than 1 where the run was cut.
    served_share: f64,
}

fn attempt(
    place: &Place,
    step: &Step,
    subject: &dyn Subject,
    site: Site,
    run: &mut Run,
    lines: &mut Vec<Line>,
) -> Result<()> {
    let disks = layouts::disks(&site)?;
    layouts::tell(&disks, run);
    let files = subject.configure(&site)?;
    let (id, settings) = place.settings(subject.name(), &files)?;
    run.settings = id;
    lines.extend(settings);
    let load = &step.question.load;
    let accepted = accepted(place);
    std::fs::write(&accepted, "")?;
    let sink = Sink::start(site.next_hop, load, &step.scenario.sink, &accepted)?;
    let slow_disk = slow_disk(place, &site, subject)?;
    let before = slow_disk.as_ref().map(SlowDisk::starter).unwrap_or_default();
    let mut running = Running::start_by(subject, &site, Phase::Serve, &before)?;
    running.await_greeting()?;
    let boxes = matches!(site.setup.duty, Duty::Mbox | Duty::Maildir).then(|| Boxes::new(&site));
    let mut stand = Stand { step, subject, site, sink, boxes, accepted, before: 0 };
    stand.warm_up()?;
    let pids = running.pids();
    let family = Family::below(&pids).without(slow::tracer(&pids));
    ensure!(
        !(step.scenario.trace || step.scenario.cost) || slow_disk.is_none(),
        "a mailer whose syncs are counted cannot be traced a second time"
    );
    let traced_costs = step.scenario.cost.then(|| stand.traced_costs(&family)).transpose()?;
    rustix::fs::sync();
    std::thread::sleep(Duration::from_secs_f64(load.settle));
    let traced = step.scenario.trace.then(|| Trace::attach(&family, Which::All)).transpose()?;
    let sink_before = stand.sink.counts()?;
    let plain = step.scenario.cost.then(|| cost::Plain::begin(&family));
    let meter = Meter::begin((!is_limit(subject)).then_some(&family), &stand.site.queue)?;
    let from = slow::now();
    let sent = stand.send(load, step.seed)?;
    let end = stand.end(&sent)?;
    let to = slow::now();
    let calls = traced.map(Trace::finish).transpose()?;
    let plain = plain.map(|plain| plain.end().sums().each(number(&sent, "accepted")));
    meter.end(run, number(&sent, "accepted"));
    if slow_disk.is_some() {
        run.warnings.extend(slow::way_around(&family.pids(), &stand.site.queue));
    }
    drop(running);
    drop(disks);
    stand.judge(run, &sent, &sink_before, end)?;
    if let Some(disk) = slow_disk {
        keep_syncs(run, disk, (from, to))?;
    }
    calls.into_iter().for_each(|calls| keep_calls(run, calls));
    if let Some((plain, traced)) = plain.zip(traced_costs) {
        keep_costs(run, cost::together(plain, traced));
    }
    Ok(())
}

/// The number of system calls of all processes becomes the run's result; values are named `PROCESS: NAME`.
fn keep_costs(run: &mut Run, costs: Vec<cost::Cost>) {
    let all = costs.iter().find(|cost| cost.role == cost::ALL);
    run.value = all.and_then(|all| all.each.get("system_calls").copied());
    run.how.insert("costs".into(), cost::how(TRACED_MESSAGES));
    for cost in costs {
        let name = |name: &str| format!("{}{}{name}", cost.role, cost::BETWEEN);
        run.values.extend(cost.each.iter().map(|(each, value)| (name(each), *value)));
    }
}

/// Where the setup asks for one.
fn slow_disk(place: &Place, site: &Site, subject: &dyn Subject) -> Result<Option<SlowDisk>> {
    let setup = &site.setup;
    if is_limit(subject) || !(setup.count_syncs || setup.sync_delay_ms > 0.0) {
        return Ok(None);
    }
    let pipe = place.work.join(SYNCS_PIPE);
    let _ = std::fs::remove_file(&pipe); // of a run that was killed
    SlowDisk::new(&pipe, setup.sync_delay_ms).map(Some)
}

/// The syncs between two moments.
fn keep_syncs(run: &mut Run, disk: SlowDisk, (from, to): (f64, f64)) -> Result<()> {
    run.how.insert("syncs".into(), disk.how());
    let seen = disk.finish()?;
    let messages = run.values["messages"].max(1.0);
    run.values.insert("syncs_per_message".into(), seen.syncs(from, to) as f64 / messages);
    run.warnings.extend(seen.fault());
    Ok(())
}

/// The table of calls becomes the run's result: how many there were for each message.
fn keep_calls(run: &mut Run, calls: Calls) {
    let messages = run.values["messages"].max(1.0);
    let each = |count: u64| count as f64 / messages;
    run.value = Some(each(calls.rows.iter().map(|row| row.count).sum()));
    for (name, count) in [
        ("syncs_per_message", calls.syncs),
        ("files_created_per_message", calls.files_created),
        ("files_renamed_per_message", calls.files_renamed),
        ("files_unlinked_per_message", calls.files_unlinked),
    ] {
        run.values.insert(name.into(), each(count));
    }
    run.calls = calls.rows;
    run.how.insert("calls".into(), calls.how);
}

impl Stand<'_> {
    fn send(&self, load: &Load, seed: u64) -> Result<Value> {
        let address = self.subject.address(&self.site);
        let recipient = self.subject.recipient(&self.site);
        let target = Target {
            address: &address,
            recipient: &recipient,
            without_goodbye: self.subject.is_left_without_goodbye(),
        };
        let sent = generator::send(&target, &self.fair(load), seed, &self.accepted)?;
        ensure!(number(&sent, "accepted") > 0.0, "nothing was accepted: {sent}");
        Ok(sent)
    }

    /// To the sink itself go the transactions that a mailer would make of the load.
    fn fair(&self, load: &Load) -> Load {
        let mut load = load.clone();
        let at_once = self.site.setup.recipients_per_transaction.max(1);
        if is_limit(self.subject) && load.recipients > at_once {
            load.messages =
                (load.messages.max(1) * u64::from(load.recipients)).div_ceil(u64::from(at_once));
            (load.recipients, load.per_connection) = (at_once, 0);
            load.sessions = load.sessions.max(20).min(load.messages as u32);
        }
        load
    }

    /// Sends what is not measured and waits until it is gone.
    fn warm_up(&mut self) -> Result<()> {
        let load = &self.step.question.load;
        if load.source != crate::scenario::Tool::Lab || load.sink != crate::scenario::Tool::Lab {
            return Ok(());
        }
        let queued = Load {
            sessions: FILLING_SESSIONS,
            per_connection: 0,
            messages: load.queued,
            seconds: 0.0,
            ..load.clone()
        };
        let warm =
            Load { messages: load.warm_up, recipients: 1, seconds: 0.0, rate: 0.0, ..load.clone() };
        for load in [queued, warm].iter().filter(|load| load.messages > 0) {
            let sent = self.send(load, !self.step.seed)?;
            self.before += number(&sent, "recipients") as u64;
        }
        if load.ends == Ends::Delivered {
            self.await_all(self.before, WARM_TIME_MAX, f64::INFINITY)
                .context("before the clock started")?;
        }
        Ok(())
    }

    /// Counts the system calls of a short load. What it delivers has been served before the clock starts.
    fn traced_costs(&mut self, family: &Family) -> Result<Vec<cost::Cost>> {
        let load = &self.step.question.load;
        let load = Load { messages: TRACED_MESSAGES, seconds: 0.0, ..load.clone() };
        let traced = cost::Traced::attach(family)?;
        let sent = self.send(&load, self.step.seed.rotate_left(1))?;
        let recipients = number(&sent, "recipients") as u64;
        if load.ends == Ends::Delivered {
            self.await_all(self.before + recipients, WARM_TIME_MAX, f64::INFINITY)?;
        }
        self.before += recipients;
        Ok(traced.finish()?.each(number(&sent, "accepted")))
    }

    /// Waits for the run's end.
    fn end(&mut self, sent: &Value) -> Result<End> {
        let all = number(sent, "recipients");
        let load = &self.step.question.load;
        if load.ends == Ends::Accepted || is_limit(self.subject) {
            return Ok(End { at_ns: number(sent, "end_ns"), served_share: 1.0 });
        }
        let longest_ns = number(sent, "start_ns") + load.longest * 1e9;
        let mut end = self.await_all(self.before + all as u64, STUCK_TIME, longest_ns)?;
        if self.boxes.is_none() && end.served_share >= 1.0 {
            end.at_ns = number(&self.sink.counts()?, "last_ns");
        }
        Ok(end)
    }

    /// Waits until so many recipients are served, or until `longest_ns`.
    fn await_all(&mut self, all: u64, stuck_time: Duration, longest_ns: f64) -> Result<End> {
        let wanted = (all - self.before).max(1) as f64;
        let (mut last, mut seen) = (Instant::now(), 0);
        loop {
            let now = match &mut self.boxes {
                Some(boxes) => boxes.count()?,
                None => number(&self.sink.counts()?, "recipients") as u64,
            };
            let at_ns = monotonic_ns();
            if now >= all {
                return Ok(End { at_ns, served_share: 1.0 });
            }
            if at_ns > longest_ns && now > self.before {
                return Ok(End { at_ns, served_share: (now - self.before) as f64 / wanted });
            }
            if now != seen {
                (last, seen) = (Instant::now(), now);
            }
            if last.elapsed() >= stuck_time {
                bail!(
                    "{now} of {all} had come when nothing more came for {} s",
                    stuck_time.as_secs()
                );
            }
            std::thread::sleep(LOOK_PERIOD);
        }
    }

    /// Everything that source and sink have counted.
    fn judge(self, run: &mut Run, sent: &Value, sink_before: &Value, end: End) -> Result<()> {
        let load = &self.step.question.load;
        let counts = self.sink.stop()?;
        let seconds = (end.at_ns - number(sent, "start_ns")) / 1e9;
        let (messages, recipients) = (number(sent, "accepted"), number(sent, "recipients"));
        ensure!(seconds > 0.0, "the run took no time");
        let served = if run.figure.unit.starts_with("recipients") { recipients } else { messages };
        let rate = served * end.served_share / seconds;
        let is_delay = run.figure.unit == "ms";
        run.value = Some(if is_delay { number(&counts["delay_ms"], "p90") } else { rate });
        let mut value = |name: &str, value: f64| run.values.insert(name.into(), value);
        value("served_share", end.served_share);
        value("seconds", seconds);
        value("messages", messages);
        value("recipients", recipients);
        value("not_accepted", number(sent, "not_accepted"));
        value("source_busy_share", number(sent, "busy_share"));
        let sink_cpu_s = number(&counts, "cpu_seconds") - number(sink_before, "cpu_seconds");
        value("sink_busy_share", sink_cpu_s.max(0.0) / seconds);
        value("connections", number(sent, "connections"));
        if load.rate > 0.0 {
            value("offered_per_second", load.rate);
            value("late_share", number(sent, "late") / (messages + number(sent, "not_accepted")));
        }
        if end.served_share < 1.0 {
            let percent = end.served_share * 100.0;
            let longest = load.longest;
            run.warnings.push(format!("cut after {longest} s, when {percent:.0} % had come"));
        } else if load.ends == Ends::Delivered && self.boxes.is_none() {
            for name in ["lost", "duplicates", "damaged"] {
                value(name, number(&counts, name));
            }
        }
        for name in ["messages", "seconds", "not_accepted"] {
            ensure!(run.values[name].is_finite(), "{name} is no number");
        }
        curve::write(run, load, sent, &counts, &self.accepted)?;
        delays::keep(run)?;
        if load.ends == Ends::Delivered && load.messages == 1 {
            let last_s = run.values.get("arrive_max_ms").map(|ms| ms / 1e3);
            let after = last_s.map_or(rate, |seconds| served * end.served_share / seconds);
            run.values.insert("per_second_after_250".into(), after);
        }
        warn(run);
        Ok(())
    }
}

/// What a reader has to know.
fn warn(run: &mut Run) {
    let of = |name: &str| run.values.get(name).copied().unwrap_or(0.0);
    let mut warnings = Vec::new();
    for name in ["source", "sink"] {
        let share = of(&format!("{name}_busy_share"));
        if share > BUSY_SHARE_MAX && run.subject != "limit" {
            let percent = share * 100.0;
            warnings.push(format!(
                "the {name} was busy {percent:.0} % of its time: the subject may be faster than this"
            ));
        }
    }
    for name in ["lost", "duplicates", "damaged", "not_accepted"] {
        if of(name) > 0.0 {
            warnings.push(format!("{} {}", of(name), name.replace('_', " ")));
        }
    }
    run.warnings.extend(warnings);
}

fn monotonic_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// A number of a tool's JSON; 0 where there is none.
pub fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or(0.0)
}
