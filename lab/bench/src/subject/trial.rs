//! `posthaste-lab try-subject`: starts each mailer in each duty, sends it a few messages, and says where they went.
//!
//! Must never be taken for a measurement: it shows that a subject does what it is asked, not how fast.

use super::{Boxes, Duty, Logging, Phase, Setup, Site, Subject, Versions};
use crate::running::Running;
use crate::sink::{self, Sink};
use crate::source::{self, Load};
use crate::{peers, room};
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The mailer's port in the room's own network.
const PORT: u16 = 2525;
/// The port of the next hop.
const NEXT_HOP_PORT: u16 = 2600;
/// Time within which all messages must be delivered.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(20);
/// Time in which a held message must not move.
const HOLD_TIME: Duration = Duration::from_millis(300);
/// Time between two looks.
const LOOK_PERIOD: Duration = Duration::from_millis(5);

/// The options of `try-subject`.
#[derive(clap::Args)]
pub struct Options {
    /// Names of subjects; the default is all
    names: Vec<String>,
    /// Duties to try; may be repeated; the default is all
    #[arg(long, value_enum, value_delimiter = ',')]
    duty: Vec<Duty>,
    /// Messages
    #[arg(short, long, default_value_t = 20)]
    messages: u64,
    /// Concurrent sessions
    #[arg(short, long, default_value_t = 5)]
    sessions: u64,
    /// Recipients of each message
    #[arg(short, long, default_value_t = 1)]
    recipients: u64,
    /// Recipients that may share a transaction to the next hop
    #[arg(long, default_value_t = 100)]
    share: u32,
    /// Queue directories
    #[arg(long, default_value_t = 0)]
    directories: u32,
    /// What is logged
    #[arg(long, value_enum, default_value_t)]
    logging: Logging,
    /// The order of a queue run
    #[arg(long, default_value = "")]
    order: String,
    /// Queue runners
    #[arg(long, default_value_t = 0)]
    runners: u32,
    /// More subjects, described in this file
    #[arg(long)]
    subjects: Option<PathBuf>,
    /// Queues and logs of the last trial
    #[arg(long, default_value = "/var/tmp/posthaste-lab-trial")]
    work: PathBuf,
    /// Debian's packages, unpacked; fetched if they are not there
    #[arg(long, default_value = "/var/tmp/posthaste-lab/peers")]
    peers: PathBuf,
    /// Posthaste's program; without it the one beside this program
    #[arg(long)]
    posthaste: Option<PathBuf>,
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

/// Tries the subjects. Fails if a duty failed that the subject had not refused.
pub fn run(options: Options) -> Result<()> {
    let subjects = subjects(&options)?;
    let machines_network = subjects.iter().any(|subject| subject.needs_machines_network());
    let fetched = subjects.iter().any(|subject| subject.is_fetched());
    if !room::is_inside() {
        if fetched {
            peers::fetch(&options.peers)?;
        }
        let end = room::enter(machines_network)?;
        std::process::exit(end.unwrap_or(130));
    }
    std::fs::create_dir_all(&options.work)?;
    let work = options.work.canonicalize()?;
    room::furnish(&work, &work.join("queue"), fetched.then_some(options.peers.as_path()))?;
    let versions = if fetched {
        Versions::read(&options.peers.join("versions"))?
    } else {
        Versions::default()
    };
    let mut failed = 0;
    for subject in &subjects {
        for duty in duties(&options) {
            let site = site(&options, &work, duty)?;
            let version = subject.version(&site, &versions)?;
            let outcome = match subject.refuses(&site.setup) {
                Some(why) => format!("refused: {why}"),
                None => attempt(&**subject, &site, &options).unwrap_or_else(|error| {
                    failed += 1;
                    format!("FAILED: {error:#}")
                }),
            };
            println!("{:<11} {version:<20} {:<8} {outcome}", subject.name(), format!("{duty:?}"));
        }
    }
    ensure!(failed == 0, "{failed} of the trials failed");
    Ok(())
}

fn duties(options: &Options) -> Vec<Duty> {
    let all = vec![Duty::Hold, Duty::Relay, Duty::Mbox, Duty::Maildir];
    if options.duty.is_empty() { all } else { options.duty.clone() }
}

fn subjects(options: &Options) -> Result<Vec<Box<dyn Subject>>> {
    let mut all = super::builtin();
    if let Some(path) = &options.subjects {
        all.extend(super::load(path)?);
    }
    let named = |name: &&String| all.iter().all(|subject| subject.name() != name.as_str());
    if let Some(name) = options.names.iter().find(named) {
        bail!("there is no subject {name}");
    }
    let names = &options.names;
    all.retain(|subject| names.is_empty() || names.iter().any(|name| name == subject.name()));
    Ok(all)
}

fn site(options: &Options, work: &Path, duty: Duty) -> Result<Site> {
    let setup = Setup {
        duty,
        recipients_per_transaction: options.share,
        directories: options.directories,
        logging: options.logging,
        order: options.order.clone(),
        runners: options.runners,
        ..Setup::default()
    };
    let beside = std::env::current_exe()?.with_file_name("posthaste");
    let queue = work.join("queue");
    let [mail, log] = ["mail", "log"].map(|name| queue.join(name));
    let posthaste = options.posthaste.clone().unwrap_or(beside);
    let (port, next_hop, work) = (PORT, NEXT_HOP_PORT, work.to_path_buf());
    Ok(Site { queue, work, port, next_hop, posthaste, mail, log, setup })
}

fn attempt(subject: &dyn Subject, site: &Site, options: &Options) -> Result<String> {
    if site.queue.exists() {
        std::fs::remove_dir_all(&site.queue)?;
    }
    for path in [&site.queue, &site.mail, &site.log] {
        std::fs::create_dir_all(path)?;
    }
    let place = format!("127.0.0.1:{}", site.next_hop);
    let sink = Sink::start(SinkLine::try_parse_from(["sink", "--listen", &place])?.options)?;
    let begun = Instant::now();
    let mut running = Running::start(subject, site, Phase::Serve, None)?;
    running.await_greeting()?;
    let greeted = begun.elapsed().as_millis();
    let mut boxes = Boxes::new(site);
    let begun = Instant::now();
    let sent = Load::start(source(subject, site, options)?)?.finish()?;
    let promised = sent.tally.promises().len() as u64;
    if promised != options.messages {
        bail!("{promised} of {} were taken", options.messages);
    }
    let wanted = promised * options.recipients;
    match site.setup.duty {
        // No mailer between: what it takes has arrived.
        Duty::Hold if subject.address(site) == place => {
            await_all("at the sink", wanted, || Ok(sink.stats()?.recipients))?;
        }
        Duty::Hold => hold(subject, site, &sink, &running, promised)?,
        Duty::Relay => {
            await_all("at the sink", wanted, || Ok(sink.stats()?.recipients))?;
            await_all("still queued", 0, || subject.queued(site))?;
        }
        Duty::Discard => await_all("still queued", 0, || subject.queued(site))?,
        Duty::Mbox | Duty::Maildir => await_all("in the box", wanted, || boxes.count())?,
    }
    let took = begun.elapsed().as_millis();
    let processes = running.pids().len();
    let log_bytes = bytes_below(&site.log);
    running.kill()?;
    let transactions = sink.messages();
    Ok(format!(
        "greets after {greeted} ms, {promised} done in {took} ms, {transactions} transactions at the sink, \
         {processes} processes, {log_bytes} bytes of log"
    ))
}

/// Checks that nothing is delivered while mail is held, and everything once it is released.
fn hold(
    subject: &dyn Subject,
    site: &Site,
    sink: &Sink,
    running: &Running,
    promised: u64,
) -> Result<()> {
    std::thread::sleep(HOLD_TIME);
    let (queued, moved) = (subject.queued(site)?, sink.messages());
    ensure!(queued == promised && moved == 0, "{queued} are held, {moved} went on");
    let Some(flush) = subject.flush(site) else { return Ok(()) };
    let mut flush = running.inside(flush)?;
    let output = flush.stdin(Stdio::null()).output().context("flush")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{flush:?}: {error}");
    await_all("let go", promised, || Ok(sink.messages()))
}

/// Sums up the sizes of the files below a directory.
fn bytes_below(path: &Path) -> u64 {
    let bytes = std::cell::Cell::new(0);
    super::files(path, 0, &|_, about| {
        bytes.set(bytes.get() + about.len());
        true
    });
    bytes.get()
}

fn await_all(what: &str, wanted: u64, mut count: impl FnMut() -> Result<u64>) -> Result<()> {
    let end = Instant::now() + ARRIVAL_TIME_MAX;
    loop {
        let there = count()?;
        if there == wanted {
            return Ok(());
        }
        let seconds = ARRIVAL_TIME_MAX.as_secs();
        ensure!(Instant::now() < end, "{what}: {there}, not {wanted}, after {seconds} s");
        std::thread::sleep(LOOK_PERIOD);
    }
}

fn source(subject: &dyn Subject, site: &Site, options: &Options) -> Result<source::Options> {
    let (target, recipient) = (subject.address(site), subject.recipient(site));
    let [messages, sessions, recipients] =
        [options.messages, options.sessions, options.recipients].map(|number| number.to_string());
    let words = ["source", &target, "-s", &sessions, "-m", &messages, "-r", &recipients];
    let more = ["-t", &recipient, "--timeout", "20", "--retry", "20"];
    let quits = subject.is_left_without_goodbye().then_some("--no-wait-for-quit");
    Ok(SourceLine::try_parse_from(words.iter().chain(&more).copied().chain(quits))?.options)
}
