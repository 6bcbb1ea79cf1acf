//! The sink: takes mail as fast as it comes and keeps the ledger.
//!
//! Must never write to a disk unless told to, and never refuse or delay unless told to.

mod body;
mod came;
mod fault;
mod ledger;
mod session;
mod stats;

use crate::mark::Token;
use crate::net::{Listener, Place};
use anyhow::{Context, Result};
use fault::{Delay, Drop, Faults, Pace, Refuse};
use ledger::Ledger;
use stats::Stats;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// How long open connections may say goodbye after the last awaited message.
const GOODBYE_TIME: Duration = Duration::from_millis(200);
/// How often `--idle` is looked at, and a file of `--expect` that is not there yet.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// How long the source has to write its file of `--expect` after the last message.
const EXPECT_TIME_MAX: Duration = Duration::from_secs(10);
/// How long accepting rests after it failed (no descriptors left).
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// The options of the sink.
#[derive(clap::Args)]
pub struct Options {
    /// Where to listen: ADDRESS:PORT (0: a free one) or unix:/path; may be given again
    #[arg(long, default_value = "127.0.0.1:2600")]
    listen: Vec<Place>,
    /// Speak LMTP (RFC 2033): a reply for each recipient
    #[arg(long)]
    lmtp: bool,
    /// Threads, each with its own share of the connections
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Refuse: STAGE:CODE[:SHARE]; SHARE is 0..1, N% or a text of the address; may be given again
    #[arg(long)]
    refuse: Vec<Refuse>,
    /// Drop the connection: STAGE[:SHARE]; may be given again
    #[arg(long)]
    drop: Vec<Drop>,
    /// Wait before a reply: [STAGE:]MILLISECONDS[:SHARE], without STAGE before that to the message; may be given again
    #[arg(long)]
    delay: Vec<Delay>,
    /// Take at most this number of messages a second
    #[arg(long)]
    rate: Option<f64>,
    /// Do not offer PIPELINING
    #[arg(long)]
    no_pipelining: bool,
    /// Offer CHUNKING (RFC 3030)
    #[arg(long)]
    chunking: bool,
    /// Do not offer this extension (8BITMIME, SMTPUTF8, DSN, SIZE); may be given again
    #[arg(long)]
    without: Vec<String>,
    /// The limit offered with SIZE and enforced, in bytes
    #[arg(long, default_value_t = 1 << 30)]
    size_max: u64,
    /// Write each message, with its envelope above it, to a file in this directory
    #[arg(long)]
    dump: Option<PathBuf>,
    /// A file of the source's --accepted: count what is lost, and time how long the rest took. At the end the sink waits
    /// ten seconds for it
    #[arg(long)]
    expect: Option<PathBuf>,
    /// Append the JSON line to this file; else it goes to the standard output
    #[arg(long)]
    stats: Option<PathBuf>,
    /// Stop after this many messages
    #[arg(long)]
    until: Option<u64>,
    /// Stop when messages have come for this many recipients
    #[arg(long)]
    until_recipients: Option<u64>,
    /// Stop when for this many seconds no message has come, after the first
    #[arg(long, value_parser = crate::source::seconds)]
    idle: Option<f64>,
    /// Stop after this many seconds
    #[arg(long, value_parser = crate::source::seconds)]
    seconds: Option<f64>,
    /// The length of a row of `intervals`, in seconds
    #[arg(long, default_value = "1", value_parser = crate::source::seconds)]
    every: f64,
}

/// What all sessions share.
struct Shared {
    lmtp: bool,
    size_max: u64,
    dump: Option<PathBuf>,
    until: Option<u64>,
    until_recipients: Option<u64>,
    faults: Faults,
    ehlo: Vec<String>,
    ledger: Mutex<Ledger>,
    complete: Notify,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_complete(&self, ledger: &Ledger) -> bool {
        self.until.is_some_and(|until| ledger.messages() >= until)
            || self.until_recipients.is_some_and(|until| ledger.recipients() >= until)
    }
}

/// Runs until an option, SIGTERM or SIGINT stops it, then prints its JSON line.
pub fn run(options: Options) -> Result<()> {
    crate::net::allow_many_sockets();
    let Options { expect, stats, seconds, idle, listen, threads, .. } = &options;
    let (expect, stats) = (expect.clone(), stats.clone());
    let end = End { seconds: *seconds, idle: *idle };
    let (listen, threads) = (listen.clone(), (*threads).max(1));
    let shared = Arc::new(shared(options)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listeners = open(&listen, threads > 1)?;
        for listener in &listeners {
            eprintln!("posthaste-lab sink listens on {}", listener.place());
        }
        listeners.into_iter().for_each(|listener| accept_all(listener, shared.clone()));
        for _ in 1..threads {
            more_threads(listen.clone(), shared.clone());
        }
        let say_now = |list: bool| {
            let list = expect.as_deref().filter(|path| list && path.exists());
            say(&shared.ledger().stats(list)?, stats.as_deref())
        };
        wait(&shared, &end, say_now).await?;
        if let Some(list) = &expect {
            await_list(list).await;
        }
        let last = shared.ledger().stats(expect.as_deref())?;
        say(&last, stats.as_deref())
    })
}

/// A sink on a thread of its own, whose counts can be read while it runs.
pub struct Sink {
    shared: Arc<Shared>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Starts a sink; its ports are open when this returns.
    pub fn start(options: Options) -> Result<Sink> {
        let places = options.listen.clone();
        let shared = Arc::new(shared(options)?);
        let stop = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listeners = runtime.block_on(async { open(&places, false) })?;
        let thread = {
            let (shared, stop) = (shared.clone(), stop.clone());
            std::thread::spawn(move || {
                runtime.block_on(async {
                    listeners.into_iter().for_each(|one| accept_all(one, shared.clone()));
                    stop.notified().await;
                });
            })
        };
        Ok(Sink { shared, stop, thread: Some(thread) })
    }

    /// Returns the transactions accepted so far.
    pub fn messages(&self) -> u64 {
        self.shared.ledger().messages()
    }

    /// Ends the delays.
    pub fn hurry(&self) {
        self.shared.faults.hurried.store(true, Relaxed);
    }

    /// Returns the number of different recipients of each token.
    pub fn came(&self, tokens: impl Iterator<Item = Token>) -> Vec<u32> {
        let ledger = self.shared.ledger();
        tokens.map(|token| ledger.came(token)).collect()
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> Result<Stats> {
        self.shared.ledger().stats(None)
    }
}

impl std::ops::Drop for Sink {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has been printed
        }
    }
}

fn shared(options: Options) -> Result<Shared> {
    if let Some(dump) = &options.dump {
        std::fs::create_dir_all(dump).with_context(|| dump.display().to_string())?;
    }
    let ledger = Ledger::new(Duration::from_secs_f64(options.every), options.threads.max(1));
    Ok(Shared {
        ehlo: extensions(&options),
        lmtp: options.lmtp,
        size_max: options.size_max,
        dump: options.dump,
        until: options.until,
        until_recipients: options.until_recipients,
        faults: Faults {
            refuse: options.refuse,
            drop: options.drop,
            delay: options.delay,
            pace: options.rate.map(Pace::new),
            hurried: false.into(),
        },
        ledger: Mutex::new(ledger),
        complete: Notify::new(),
    })
}

fn extensions(options: &Options) -> Vec<String> {
    let size = format!("SIZE {}", options.size_max);
    let mut offered = vec!["8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES", size.as_str()];
    if !options.no_pipelining {
        offered.push("PIPELINING");
    }
    if options.chunking {
        offered.push("CHUNKING");
    }
    let left_out = |line: &str| {
        let word = line.split(' ').next().unwrap_or(line);
        options.without.iter().any(|without| without.eq_ignore_ascii_case(word))
    };
    offered.into_iter().filter(|line| !left_out(line)).map(String::from).collect()
}

fn open(places: &[Place], shared: bool) -> Result<Vec<Listener>> {
    places.iter().map(|place| place.listen(shared)).collect()
}

/// Starts one more thread with a runtime and sockets of its own; Unix sockets stay with the first thread.
fn more_threads(places: Vec<Place>, shared: Arc<Shared>) {
    std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let tcp: Vec<Place> =
                places.into_iter().filter(|place| matches!(place, Place::Tcp(_))).collect();
            for listener in open(&tcp, true)? {
                accept_all(listener, shared.clone());
            }
            std::future::pending().await
        })
    });
}

fn accept_all(listener: Listener, shared: Arc<Shared>) {
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    let shared = shared.clone();
                    tokio::spawn(async move { session::serve(stream, &shared).await });
                }
                Err(_) => tokio::time::sleep(ACCEPT_REST).await,
            }
        }
    });
}

/// The time limits of a sink, in seconds.
struct End {
    seconds: Option<f64>,
    idle: Option<f64>,
}

/// Returns when the sink is to stop; says the counts at each SIGUSR1, at SIGUSR2 with what `--expect` lacks; delays
/// nothing any more after SIGHUP.
async fn wait(shared: &Shared, end: &End, say: impl Fn(bool) -> Result<()>) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut usr1 = signal(SignalKind::user_defined1())?;
    let mut usr2 = signal(SignalKind::user_defined2())?;
    let mut hup = signal(SignalKind::hangup())?;
    let time_is_over = async {
        match end.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
            None => std::future::pending().await,
        }
    };
    let idle = idle(shared, end.idle);
    tokio::pin!(time_is_over, idle);
    loop {
        tokio::select! {
            _ = shared.complete.notified() => {
                tokio::time::sleep(GOODBYE_TIME).await;
                return Ok(());
            }
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = &mut time_is_over => return Ok(()),
            _ = &mut idle => return Ok(()),
            _ = usr1.recv() => say(false)?,
            _ = usr2.recv() => say(true)?,
            _ = hup.recv() => shared.faults.hurried.store(true, Relaxed),
        }
    }
}

/// Returns when no message has come for this time, after the first.
async fn idle(shared: &Shared, seconds: Option<f64>) {
    let Some(seconds) = seconds else { return std::future::pending().await };
    let idle = Duration::from_secs_f64(seconds);
    loop {
        tokio::time::sleep(LOOK_PERIOD).await;
        let last = shared.ledger().last();
        if last.is_some_and(|last| last.elapsed() >= idle) {
            return;
        }
    }
}

/// Waits for the source's list, which may be written after the last message came.
async fn await_list(list: &Path) {
    let end = tokio::time::Instant::now() + EXPECT_TIME_MAX;
    while !list.exists() && tokio::time::Instant::now() < end {
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

fn say(stats: &Stats, to: Option<&std::path::Path>) -> Result<()> {
    let line = serde_json::to_string(stats)? + "\n";
    match to {
        None => std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes())?,
        Some(path) => {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
            std::io::Write::write_all(&mut file, line.as_bytes())?;
        }
    }
    Ok(())
}
