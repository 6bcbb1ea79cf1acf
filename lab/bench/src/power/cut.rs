//! One power cut: a load, the cut, the replay of the journal, the mailer's restart, and the counts.
//!
//! Must never call a message lost while the mailer still delivers, or promised because it was sent.

use super::DEAD_DISK_TIME;
use super::cell::{Cell, Entrant, NextHop, Plan};
use super::image::{Image, Syncs};
use super::line::Line;
use crate::mark::Token;
use crate::room;
use crate::running::{Running, having_loaded, library};
use crate::sink::{self, Sink};
use crate::source::{self, Load, Promise};
use crate::subject::{Phase, Site, Versions};
use anyhow::{Result, ensure};
use clap::Parser;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The file name of libeatmydata, and the directories that may have it.
const EATMYDATA: &str = "libeatmydata.so";
const EATMYDATA_PATHS: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libeatmydata.so", "/usr/lib/aarch64-linux-gnu/libeatmydata.so"];
/// Time for which the source waits for a reply.
const REPLY_SECONDS_MAX: &str = "10";
/// Time without a delivery, with an empty queue, after which everything has come.
const QUIET_TIME: Duration = Duration::from_millis(700);
/// Time without a delivery, with a queue that is not empty, after which the mailer is stuck.
const STUCK_TIME: Duration = Duration::from_secs(20);
/// Time limit of a drain.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(240);
/// Time after which the mailer is told again to try everything.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);
/// Time between two looks at the drain.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// The files below `work` that only live as long as a cut: the image, and how it was before the last start.
pub const IMAGES: [&str; 2] = ["cut.img", "before.img"];

/// What all cuts of a campaign share.
pub struct Campaign {
    /// Ports, programs and directories.
    pub site: Site,
    /// Versions of the unpacked packages.
    pub versions: Versions,
    /// The directory in which images that lost mail are kept.
    pub kept: PathBuf,
    /// Whether images of mailers that are known to lose mail are kept as well.
    pub keeps_all: bool,
}

#[derive(Parser)]
struct SourceLine {
    #[command(flatten)]
    options: source::Options,
}

#[derive(Parser)]
struct SinkLine {
    #[command(flatten)]
    options: sink::Options,
}

/// The state after the cut, with the file system unmounted.
struct Dark {
    /// The moment of the cut.
    at: Instant,
    cut_after: Duration,
    run: u64,
    /// Promises read before the cut.
    promises: Vec<Promise>,
    /// Promises read after the cut.
    late: Vec<Promise>,
    ambiguous: u64,
    at_stake: u64,
    preloaded: Option<usize>,
    /// Recipients that the mailer said may come twice.
    allowed: Option<u64>,
}

impl Campaign {
    /// Makes one cut. An error is the laboratory's; the mailer's faults are in the line.
    pub fn cut(&self, cell: Cell, seed: u64) -> Result<Line> {
        let plan = Plan::for_hop(seed, cell.next_hop);
        let subject = cell.subject.mailer().subject();
        let syncs = if cell.subject == Entrant::Control { Syncs::Ignored } else { Syncs::Kept };
        let mut image = Image::fresh(&self.site.work, IMAGES[0], cell.fs, syncs)?;
        let mut line = self.new_line(cell, seed, &plan)?;
        let mut sink = match cell.next_hop {
            NextHop::Up | NextHop::UpAfter => Some(self.open_sink(plan.hop_delay_ms)?),
            NextHop::Down => None,
        };
        let dark = self.serve_and_cut(cell, &plan, &mut image, sink.as_ref())?;
        if let Some(after) = plan.second_cut_after {
            sink = Some(sink.map_or_else(|| self.open_sink(0), Ok)?);
            self.cut_again(cell, after, &mut image)?;
        }
        let copy = self.site.work.join(IMAGES[1]);
        let keeps = self.keeps_all || !cell.subject.is_known_to_lose();
        if keeps {
            image.copy(&copy)?;
        }
        image.mount_again()?;
        let sink = sink.map_or_else(|| self.open_sink(0), Ok)?;
        let begun = Instant::now();
        let mut running = Running::start(subject, &self.site, Phase::Drain, None)?;
        match running.await_greeting() {
            Ok(()) => {
                let (last, left) = self.drain(cell, &sink)?;
                (line.drain_ms, line.left) = (millis(last.saturating_duration_since(begun)), left);
            }
            Err(error) => line.failed = Some(format!("{error:#}")),
        }
        drop(running);
        judge(&mut line, &dark, &sink)?;
        image.unmount()?;
        if keeps && line.is_bad() {
            self.keep(&copy, &line, &dark, &sink)?;
        }
        let _ = std::fs::remove_file(copy); // it may have been moved away, or never made
        Ok(line)
    }

    /// Runs the load and the cut, up to the unmounted file system.
    fn serve_and_cut(
        &self,
        cell: Cell,
        plan: &Plan,
        image: &mut Image,
        sink: Option<&Sink>,
    ) -> Result<Dark> {
        let preload = match cell.subject {
            Entrant::PostfixEatmydata => Some(library(&EATMYDATA_PATHS)?),
            _ => None,
        };
        let subject = cell.subject.mailer().subject();
        let _ = std::fs::remove_file(self.site.work.join("mailer.log"));
        let mut running = Running::start(subject, &self.site, Phase::Serve, preload.as_deref())?;
        running.await_greeting()?;
        image.settle()?; // the cut is to find a mailer in service, not one being set up
        let begun = Instant::now();
        let load = Load::start(self.source(plan)?)?;
        std::thread::sleep(plan.cut_after);
        let preloaded = preload.as_ref().map(|_| having_loaded(EATMYDATA));
        let cut_after = begun.elapsed();
        let at = Instant::now();
        image.cut()?;
        if cell.next_hop == NextHop::UpAfter {
            std::thread::sleep(DEAD_DISK_TIME);
        }
        running.kill()?;
        load.stop();
        sink.inspect(|sink| sink.hurry());
        let sent = load.finish()?;
        image.unmount()?;
        ensure!(!sent.tally.promises().is_empty(), "nothing was promised before the cut");
        ensure!(preloaded != Some(0), "{EATMYDATA} is in no process's memory: no control");
        let of_all = sent.tally.promises().iter().copied();
        let (promises, late): (Vec<_>, Vec<_>) = of_all.partition(|one| one.at < at);
        let at_stake = sink.map_or(promises.len(), |sink| missing(sink, sent.run, &promises).len());
        Ok(Dark {
            at,
            cut_after,
            run: sent.run,
            at_stake: at_stake as u64,
            ambiguous: sent.tally.ambiguous(),
            allowed: allowed(&self.site.work.join("mailer.log")),
            promises,
            late,
            preloaded,
        })
    }

    /// Starts the mailer and cuts the power once more.
    fn cut_again(&self, cell: Cell, after: Duration, image: &mut Image) -> Result<()> {
        image.mount_again()?;
        let subject = cell.subject.mailer().subject();
        let mut running = Running::start(subject, &self.site, Phase::Drain, None)?;
        std::thread::sleep(after);
        image.cut()?;
        running.kill()?;
        image.unmount()
    }

    /// Waits until everything has come or nothing is delivered any more. Returns when the last message came, and what
    /// is left.
    fn drain(&self, cell: Cell, sink: &Sink) -> Result<(Instant, u64)> {
        let subject = cell.subject.mailer().subject();
        let begun = Instant::now();
        let (mut last, mut seen) = (begun, sink.messages());
        let mut flushed: Option<Instant> = None;
        let mut left = u64::MAX;
        loop {
            let messages = sink.messages();
            if messages != seen {
                (last, seen) = (Instant::now(), messages);
            }
            let quiet = last.elapsed();
            if quiet >= QUIET_TIME {
                // A mailer that does not answer now may do so later.
                left = subject.queued(&self.site).unwrap_or(u64::MAX);
                if left == 0 || quiet >= STUCK_TIME {
                    break;
                }
            }
            if begun.elapsed() >= DRAIN_TIME_MAX {
                break;
            }
            if flushed.is_none_or(|at| at.elapsed() >= FLUSH_PERIOD) {
                if let Some(mut flush) = subject.flush(&self.site) {
                    let _ = flush.stdin(Stdio::null()).output(); // tried again in a second
                }
                flushed = Some(Instant::now());
            }
            std::thread::sleep(LOOK_PERIOD);
        }
        Ok((last, left))
    }

    fn new_line(&self, cell: Cell, seed: u64, plan: &Plan) -> Result<Line> {
        let subject = cell.subject.mailer().subject();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Line {
            time: time.as_secs(),
            cell,
            seed,
            cut_ms: 0,
            sessions: plan.sessions,
            recipients: plan.recipients,
            message_bytes: plan.message_bytes,
            second_cut_ms: plan.second_cut_after.map(millis),
            hop_delay_ms: if cell.next_hop.is_up() { plan.hop_delay_ms } else { 0 },
            promised: 0,
            late: 0,
            at_stake: 0,
            ambiguous: 0,
            lost: 0,
            lost_late: 0,
            doubled: 0,
            allowed: None,
            damaged: 0,
            left: 0,
            drain_ms: 0,
            lost_age_ms: None,
            preloaded: None,
            failed: None,
            version: subject.version(&self.site, &self.versions)?,
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
            lab: env!("CARGO_PKG_VERSION").into(),
        })
    }

    fn source(&self, plan: &Plan) -> Result<source::Options> {
        let target = format!("127.0.0.1:{}", self.site.port);
        let [sessions, per_connection, recipients, bytes] =
            [plan.sessions, plan.per_connection, plan.recipients, plan.message_bytes]
                .map(|number| number.to_string());
        let messages = u64::MAX.to_string();
        let words = ["source", &target, "-s", &sessions, "-d", &per_connection, "-r", &recipients];
        let more = ["-l", &bytes, "-m", &messages, "--timeout", REPLY_SECONDS_MAX];
        let line = words.iter().chain(&more).chain(&["--no-wait-for-quit"]);
        Ok(SourceLine::try_parse_from(line)?.options)
    }

    fn open_sink(&self, delay_ms: u64) -> Result<Sink> {
        let delay = delay_ms.to_string();
        let place = format!("127.0.0.1:{}", self.site.next_hop);
        Sink::start(
            SinkLine::try_parse_from(["sink", "--listen", &place, "--delay", &delay])?.options,
        )
    }

    /// Keeps the image as it was right after the cut, the mailer's log and the tokens of what is missing.
    fn keep(&self, copy: &std::path::Path, line: &Line, dark: &Dark, sink: &Sink) -> Result<()> {
        let name = format!(
            "{:?}-{:?}-{:?}-{}",
            line.cell.subject, line.cell.fs, line.cell.next_hop, line.seed
        );
        let place = self.kept.join(name.to_lowercase());
        std::fs::create_dir_all(&place)?;
        let [from, to] = [copy, &place.join("cut.img")].map(|path| path.display().to_string());
        room::run("mv", [&from, &to])?;
        std::fs::copy(self.site.work.join("mailer.log"), place.join("mailer.log"))?;
        let text = missing(sink, dark.run, &dark.promises).into_iter().map(|(one, came)| {
            let token = Token { run: dark.run, number: one.number };
            let age = millis(dark.at.saturating_duration_since(one.at));
            format!("{token} {came}/{} promised {age} ms before the cut\n", one.recipients)
        });
        std::fs::write(place.join("missing"), text.collect::<String>())?;
        eprintln!("kept in {}", place.display());
        Ok(())
    }
}

/// Returns the messages that have not come to all their recipients, and to how many they have.
fn missing(sink: &Sink, run: u64, promises: &[Promise]) -> Vec<(Promise, u32)> {
    let tokens = promises.iter().map(|promise| Token { run, number: promise.number });
    let came = promises.iter().copied().zip(sink.came(tokens));
    came.filter(|(one, came)| *came < one.recipients).collect()
}

/// What the mailer's log says when writes begin to fail: the recipients that are with its sending processes, and those
/// whose outcome is not synced. Only ours says so.
fn allowed(log: &std::path::Path) -> Option<u64> {
    let log = String::from_utf8_lossy(&std::fs::read(log).ok()?).into_owned();
    let (_, said) = log.split_once("writes fail: ")?;
    let said = said.split([';', '\n']).next()?;
    Some(said.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Counts what was promised, lost, duplicated and damaged.
fn judge(line: &mut Line, dark: &Dark, sink: &Sink) -> Result<()> {
    let stats = sink.stats()?;
    let missed = missing(sink, dark.run, &dark.promises);
    let age = |one: &Promise| millis(dark.at.saturating_duration_since(one.at));
    let ages: Vec<u64> = missed.iter().map(|(one, _)| age(one)).collect();
    line.cut_ms = millis(dark.cut_after);
    line.promised = dark.promises.len() as u64;
    line.late = dark.late.len() as u64;
    line.lost_late = missing(sink, dark.run, &dark.late).len() as u64;
    line.at_stake = dark.at_stake;
    line.ambiguous = dark.ambiguous;
    line.preloaded = dark.preloaded;
    line.lost = ages.len() as u64;
    line.lost_age_ms = ages.iter().min().copied().zip(ages.iter().max().copied());
    line.doubled = stats.duplicates;
    line.allowed = dark.allowed.filter(|_| line.cell.next_hop == NextHop::UpAfter);
    line.damaged = stats.damaged;
    Ok(())
}
