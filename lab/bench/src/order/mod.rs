//! The question of 2006: how long a queue run takes to read the queue and to sort it in each order, and when it is empty.
//!
//! Must never time a queue that another run has touched: each begins with the archive.

mod archive;
mod fill;
mod interpose;
mod notes;
mod posthaste;
mod sendmail;
mod taker;
mod variant;

use crate::subject::{Duty, Site, Subject};
use anyhow::{Context, Result, bail, ensure};
use archive::Archive;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use variant::Variant;

/// Upper bound on hosts: each is an address of 127.9.0.0/24.
const HOSTS_MAX: u32 = 250;
/// Upper bound on runners: each is a process.
const RUNNERS_MAX: u32 = 100;
/// Time limit of a run.
const RUN_TIME_MAX: Duration = Duration::from_secs(900);

/// The state of the system's caches when the run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// All restored files that fit into memory are cached.
    #[default]
    Warm,
    /// Nothing is cached: the kernel dropped pages, names and inodes of the whole machine.
    Cold,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// Before the first message: nothing is delivered.
    #[default]
    Sorted,
    /// Once the next hop has all messages.
    Empty,
}

/// One run.
pub struct Plan {
    /// The order, by the mailer's own name.
    pub order: String,
    /// Messages in the queue.
    pub messages: u64,
    /// Bytes of each message.
    pub size_bytes: u64,
    /// Queue runners that start at the same time, each for the whole queue.
    pub runners: u32,
    /// Different hosts to which the messages go in turn; 0 and 1: all to one.
    pub hosts: u32,
    /// The state of the caches.
    pub cache: Cache,
    /// The end of the run.
    pub until: Until,
    /// Rest between the restoring and the run.
    pub settle: Duration,
    /// The delay of each connection at the sink, in the form of `--delay`; empty: none.
    pub delay: String,
    /// Whether the sink's side acknowledges each segment at once, instead of when it answers or after 40 ms.
    pub acknowledge_at_once: bool,
    /// The subject's version: an archive of another one is made anew.
    pub version: String,
    /// The directory of the archives.
    pub archives: PathBuf,
    /// The program with source and sink: ours.
    pub lab: PathBuf,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Time to read the queue, in milliseconds; the mean of several processes.
    pub read_ms: f64,
    /// Time to sort it, in the same way.
    pub sort_ms: f64,
    /// The sum of both.
    pub sum_ms: f64,
    /// From the start of the runners until the next hop had everything.
    pub empty_s: Option<f64>,
    /// Messages that were sorted (or, in no order, read) by each.
    pub entries: u64,
    /// The way of measuring each value.
    pub how: BTreeMap<String, String>,
    /// All values, with names that end in their unit.
    pub values: BTreeMap<String, f64>,
    /// Warnings to the reader.
    pub warnings: Vec<String>,
}

/// Returns why this subject does not support this run; `None` if it does.
pub fn refuses(subject: &dyn Subject, plan: &Plan) -> Option<String> {
    let orders = subject.orders();
    if !orders.is_empty() && !orders.contains(&plan.order.as_str()) {
        return Some(format!("it has no order {}", plan.order));
    }
    match subject.name() {
        "sendmail" => None,
        "posthaste" if plan.runners > 1 => Some("one process runs its queue".into()),
        "posthaste" => None,
        _ => Some("its queue runs have no order that can be chosen".into()),
    }
}

/// Restores the queue, lets it settle, runs it once.
pub fn run(site: &Site, subject: &dyn Subject, plan: &Plan) -> Result<Measured> {
    if let Some(why) = refuses(subject, plan) {
        bail!("{}: {why}", subject.name());
    }
    ensure!(plan.hosts <= HOSTS_MAX, "at most {HOSTS_MAX} hosts");
    ensure!(plan.runners <= RUNNERS_MAX, "at most {RUNNERS_MAX} runners");
    let subject = Variant::of(subject, plan.hosts);
    let filling = with_duty(site, subject.filling_duty());
    let archive = Archive::of(&filling, &subject, plan)?;
    archive.restore(&site.queue)?;
    if plan.cache == Cache::Cold {
        std::fs::write("/proc/sys/vm/drop_caches", "3\n").context("dropping the caches")?;
    }
    std::thread::sleep(plan.settle);
    let site = with_duty(site, Duty::Relay);
    let mut measured = match subject.name() {
        "sendmail" => sendmail::run(&site, subject, plan),
        _ => posthaste::run(&site, &subject, plan),
    }?;
    measured.finish(plan);
    Ok(measured)
}

impl Measured {
    fn finish(&mut self, plan: &Plan) {
        self.sum_ms = self.read_ms + self.sort_ms;
        for (name, value) in
            [("read_ms", self.read_ms), ("sort_ms", self.sort_ms), ("sum_ms", self.sum_ms)]
        {
            self.value(name, value);
        }
        self.value("entries", self.entries as f64);
        if let Some(seconds) = self.empty_s {
            self.value("seconds_until_empty", seconds);
        }
        // While several work on it, a runner finds what the others have left.
        if self.entries < plan.messages && plan.runners <= 1 {
            let (found, all) = (self.entries, plan.messages);
            self.warnings.push(format!("the run found {found} of {all} messages"));
        }
        let cache = match plan.cache {
            Cache::Warm => "warm: as restoring the archive has left it",
            Cache::Cold => "cold: dropped before the run",
        };
        self.how.insert("cache".into(), cache.into());
    }

    fn value(&mut self, name: &str, value: f64) {
        self.values.insert(name.into(), value);
    }
}

/// Returns the same site for another duty, with the mailer's default order.
fn with_duty(site: &Site, duty: Duty) -> Site {
    let setup =
        crate::subject::Setup { duty, order: String::new(), runners: 0, ..site.setup.clone() };
    Site {
        queue: site.queue.clone(),
        work: site.work.clone(),
        port: site.port,
        next_hop: site.next_hop,
        posthaste: site.posthaste.clone(),
        mail: site.mail.clone(),
        log: site.log.clone(),
        setup,
    }
}
