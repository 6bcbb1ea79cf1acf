//! Sendmail's queue run, with a library that wraps its `qsort`: the sort makes no system call that a tracer could see.
//!
//! Must never deliver if only reading and sorting are measured: the run ends at its first message's file.

use super::interpose::Library;
use super::notes::{self, Reading};
use super::taker::{self, Taken, Taker};
use super::variant::{Variant, file_of};
use super::{Measured, Plan, Until};
use crate::running::Running;
use crate::subject::{Phase, Site, Subject};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Debian's program.
const PROGRAM: &str = "/usr/libexec/sendmail/sendmail";
/// A message's control file, which a run opens for writing too when it begins the message.
const CONTROL_FILE: &str = "qf";
/// Runs queue runners at the same time, and waits also for those that run in the background. A namespace of
/// processes ends with its first, so that one stays.
const RUNNERS: &str = "\
library=$1 done=$2 runners=$3; shift 3
while [ \"$runners\" -gt 0 ]; do \"$@\" & runners=$((runners - 1)); done
wait
while grep -qsF \"$library\" /proc/[0-9]*/maps; do sleep 0.05; done
: >\"$done\"
exec sleep 1d";
const HOW: &str = "a library before the mailer's opendir, closedir and qsort (LD_PRELOAD), by the monotonic clock";

/// The files of one run.
struct Stage {
    program: PathBuf,
    done: PathBuf,
    library: Library,
}

/// Runs the restored queue once.
pub fn run(site: &Site, subject: Variant, plan: &Plan) -> Result<Measured> {
    let stage = Stage::set(&site.work.join("order"))?;
    let files = subject.configure(site)?;
    let settings = file_of(&files, "cf")?.to_path_buf();
    let taker = match plan.until {
        Until::Sorted => None,
        Until::Empty => Some(Taker::start(site, plan)?),
    };
    let subject = subject.instead(stage.words(plan, &settings));
    let running = Running::start(&subject, site, Phase::Drain, None)?;
    taker::wait_until("the queue run", || stage.done.exists())?;
    drop(running);
    let text = stage.library.notes()?;
    let readings = notes::add_up(&text, &site.queue.canonicalize()?, sorts(&plan.order))?;
    let mut measured = Measured::default();
    add(&mut measured, plan, &readings)?;
    let left = subject.queued(site)?;
    if let Some(taker) = taker {
        ensure!(left == 0, "{left} messages are still queued after the run");
        let began = notes::first_start(&text).context("no runner was started")?;
        emptied(&mut measured, began, &taker.wait()?);
    } else {
        ensure!(left == plan.messages, "{left} messages are queued after a run that delivers none");
    }
    Ok(measured)
}

impl Stage {
    fn set(directory: &Path) -> Result<Stage> {
        let _ = std::fs::remove_dir_all(directory); // of an earlier run
        std::fs::create_dir_all(directory)?;
        let program = directory.join("sendmail");
        // A copy has no set-group-id bit, which would have the linker pass the library over.
        let bytes = std::fs::read(PROGRAM).context(PROGRAM)?;
        std::fs::write(&program, bytes)?;
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(Stage { program, done: directory.join("done"), library: Library::build(directory)? })
    }

    fn words(&self, plan: &Plan, settings: &Path) -> Vec<String> {
        let [library, done, program, settings] =
            [self.library.path(), &self.done, &self.program, settings]
                .map(|path| path.display().to_string());
        let mut words: Vec<String> = ["sh", "-c", RUNNERS, "sh"].map(String::from).into();
        words.extend([library, done, plan.runners.max(1).to_string(), "env".into()]);
        words.extend(self.library.settings(CONTROL_FILE, plan.until == Until::Sorted));
        words.extend([program, "-C".into(), settings]);
        words.extend(["-O".into(), format!("QueueSortOrder={}", plan.order), "-qf".into()]);
        words
    }
}

/// How often it sorts what it has read: by host twice, the second time with the hosts at which a message is being
/// delivered last.
fn sorts(order: &str) -> u32 {
    match order {
        "none" => 0,
        "host" => 2,
        _ => 1,
    }
}

fn add(measured: &mut Measured, plan: &Plan, readings: &[Reading]) -> Result<()> {
    ensure!(!readings.is_empty(), "no runner has read the queue");
    let count = readings.len() as f64;
    let mean = |of: fn(&Reading) -> f64| readings.iter().map(of).sum::<f64>() / count;
    let most = |of: fn(&Reading) -> f64| readings.iter().map(of).fold(0.0, f64::max);
    measured.read_ms = mean(|reading| reading.read_ms);
    measured.sort_ms = mean(|reading| reading.sort_ms);
    // In no order there is no sort to count them.
    let entries = |reading: &Reading| match sorts(&plan.order) {
        0 => reading.messages,
        _ => reading.sorted,
    };
    measured.entries = readings.iter().map(entries).max().unwrap_or(0);
    measured.value("read_ms_max", most(|reading| reading.read_ms));
    measured.value("sort_ms_max", most(|reading| reading.sort_ms));
    measured.value("runners_that_read", count);
    let begins: Vec<f64> = readings.iter().filter_map(|reading| reading.begin_ms).collect();
    if !begins.is_empty() {
        measured.value("begin_ms", begins.iter().sum::<f64>() / begins.len() as f64);
    }
    measured.how.insert("read".into(), format!("from opendir to closedir: {HOW}"));
    measured.how.insert("sort".into(), format!("inside of qsort: {HOW}"));
    Ok(())
}

fn emptied(measured: &mut Measured, began_ns: u64, taken: &Taken) {
    measured.empty_s = Some(taken.last_ns.saturating_sub(began_ns) as f64 / 1e9);
    measured.value("connections", taken.connections);
    measured.value("duplicates", taken.duplicates);
}
