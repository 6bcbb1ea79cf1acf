//! `posthaste-lab depth`: a queue of a million messages and more. What it costs to get there, to ask about it, to open it
//! after a kill, and to get out again.
//!
//! Must never read the queue's files: only the mailer's command line is asked.

mod ask;
mod deep;
mod drain;
mod fill;
mod names;
mod reopen;

use crate::running::Running;
use crate::subject::{Setup, Site, Subject};
use crate::{machine, peers, room};
use anyhow::{Context, Result, ensure};
use deep::Deep;
use names::Names;
use report::record::{self, Better, Factor, Figure, Line, Machine, Run, Settings};
use report::{Abouts, Campaign, table};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// The mailer's port; the network is the room's own.
const PORT: u16 = 2525;
/// The name of the scenario in the file.
const SCENARIO: &str = "deep";

/// The options of `depth`.
#[derive(clap::Args)]
pub struct Options {
    /// Messages to queue; several values are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    queued: Vec<u64>,
    /// Destinations over which they are spread at random, 1 to 1,000,000
    #[arg(long, value_delimiter = ',', default_value = "1,100000")]
    destinations: Vec<u32>,
    /// Runs of each combination, besides those in the file
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// Bytes of each message, header included
    #[arg(long, default_value_t = 1024)]
    bytes: u32,
    /// Concurrent sessions
    #[arg(long, default_value_t = 100)]
    sessions: u32,
    /// How often each question is asked, and the mailer killed; the median counts
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Leave out the queue runs in every order
    #[arg(long)]
    no_orders: bool,
    /// Leave out the drain, which takes longest
    #[arg(long)]
    no_drain: bool,
    /// The file to which each run's JSON line is appended; `posthaste-lab report` reads it
    #[arg(long, default_value = "depth.jsonl")]
    out: PathBuf,
    /// Directory of the queue and the log, on the disk to measure; needs 1.9 KB for a message of 1 KB
    #[arg(long, default_value = "/var/tmp/posthaste-lab-depth")]
    work: PathBuf,
    /// Posthaste's program; the default is the one beside this program
    #[arg(long)]
    posthaste: Option<PathBuf>,
    /// The seed for the destinations
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One combination.
#[derive(Clone, Copy)]
struct Cell {
    queued: u64,
    destinations: u32,
    ordinal: u32,
}

/// State shared by all steps of a run.
struct Bench<'a> {
    options: &'a Options,
    cell: Cell,
    site: &'a Site,
    subject: &'a Deep,
    names: &'a Names,
    /// The file of the tokens of accepted messages.
    accepted: PathBuf,
}

/// Makes the runs, then prints the table of the file.
pub fn run(options: Options) -> Result<()> {
    let most = names::DESTINATIONS_MAX;
    let fits = |count: &u32| (1..=most).contains(count);
    ensure!(options.destinations.iter().all(fits), "1 to {most} destinations");
    ensure!(options.queued.iter().all(|count| *count >= 100), "100 messages at least");
    if !room::is_inside() {
        let end = room::enter(false)?;
        return if end == Some(0) { Ok(()) } else { std::process::exit(end.unwrap_or(130)) };
    }
    std::fs::create_dir_all(&options.work)?;
    let work = options.work.canonicalize()?;
    peers::lock(&work)?;
    let (queue, own) = (work.join("queue"), work.join("own"));
    std::fs::create_dir_all(&queue)?;
    std::fs::create_dir_all(&own)?;
    room::furnish(&own, &queue, None)?;
    let names = Names::serve()?;
    let machine = machine::look(&queue)?;
    for cell in cells(&options) {
        let line = one(&options, &names, &machine, cell)?;
        line.iter().try_for_each(|line| record::append(&options.out, line))?;
    }
    let lines = record::read(&options.out)?;
    print!("{}", table::text(&Campaign::new(&lines, &Abouts::new(), None)?));
    Ok(())
}

fn cells(options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for ordinal in 0..options.runs {
        for &queued in &options.queued {
            for &destinations in &options.destinations {
                cells.push(Cell { queued, destinations, ordinal });
            }
        }
    }
    cells
}

/// Makes one run; returns its line and that of its settings.
fn one(options: &Options, names: &Names, machine: &Machine, cell: Cell) -> Result<[Line; 2]> {
    let site = site(options)?;
    let subject = Deep::new();
    names.silence(true);
    let files = subject.configure(&site)?;
    let settings = settings(&files)?;
    let mut run = new_run(options, cell, machine, &settings.id);
    run.version = subject.version(&site, &Default::default())?;
    let accepted = options.work.join("accepted");
    let bench = Bench { options, cell, site: &site, subject: &subject, names, accepted };
    if let Err(error) = bench.measure(&mut run) {
        (run.value, run.failed) = (None, Some(format!("{error:#}")));
        eprintln!("failed: {error:#}");
    }
    crate::campaign::empty(&site.queue)?;
    Ok([Line::Settings(settings), Line::Run(Box::new(run))])
}

impl Bench<'_> {
    /// Runs all steps in the only possible order.
    fn measure(&self, run: &mut Run) -> Result<()> {
        let mut running = self.start()?;
        self.say("filling");
        fill::fill(self, &running, run)?;
        self.say("asking");
        ask::ask(self, run)?;
        self.say("killing and opening");
        reopen::reopen(self, &mut running, run)?;
        if !self.options.no_drain {
            self.say("draining");
            drain::drain(self, &running, run)?;
        }
        Ok(())
    }

    fn start(&self) -> Result<Running> {
        let phase = crate::subject::Phase::Serve;
        let mut running = Running::start(self.subject, self.site, phase, None)?;
        running.await_greeting()?;
        Ok(running)
    }

    fn say(&self, what: &str) {
        let Cell { queued, destinations, .. } = self.cell;
        eprintln!("{queued} messages, {destinations} destinations: {what}");
    }
}

/// Creates an empty site.
fn site(options: &Options) -> Result<Site> {
    let work = options.work.canonicalize()?;
    let [queue, mail, log] = ["queue", "mail", "log"].map(|name| work.join(name));
    for path in [&queue, &mail, &log] {
        crate::campaign::empty(path)?;
    }
    Ok(Site {
        queue,
        work: work.join("own"),
        port: PORT,
        next_hop: names::SMTP_PORT,
        posthaste: peers::posthaste(options.posthaste.as_deref())?,
        mail,
        log,
        setup: Setup::default(),
    })
}

fn settings(files: &[PathBuf]) -> Result<Settings> {
    let file = files.first().context("no settings")?;
    let text = std::fs::read_to_string(file)?;
    let hash = Sha256::digest(format!("{SCENARIO} {text}"));
    let id = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let files = BTreeMap::from([("posthaste.toml".to_string(), text)]);
    Ok(Settings { id, subject: "posthaste".into(), files })
}

fn new_run(options: &Options, cell: Cell, machine: &Machine, settings: &str) -> Run {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = |value: f64| Factor::Number(value);
    Run {
        time: time.as_secs(),
        scenario: SCENARIO.into(),
        subject: "posthaste".into(),
        version: String::new(),
        cell: BTreeMap::from([
            ("queued".into(), number(cell.queued as f64)),
            ("destinations".into(), number(f64::from(cell.destinations))),
        ]),
        ordinal: cell.ordinal,
        seed: options.seed + u64::from(cell.ordinal),
        figure: Figure {
            name: "accepted".into(),
            unit: "messages/s".into(),
            better: Better::Higher,
        },
        value: None,
        values: BTreeMap::new(),
        histograms: BTreeMap::new(),
        samples: BTreeMap::new(),
        series: BTreeMap::new(),
        calls: Vec::new(),
        minutes: Vec::new(),
        durability: None,
        how: BTreeMap::new(),
        warnings: Vec::new(),
        failed: None,
        settings: settings.into(),
        machine: Machine { load: machine::load(), ..machine.clone() },
        lab: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Returns the median of an odd number of values.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
