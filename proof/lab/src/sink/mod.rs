//! The sink: takes mail as fast as it comes and keeps the ledger.
//!
//! Must never write to a disk unless told to, and never refuse or delay unless told to.

mod fault;
mod ledger;
mod session;

use crate::mark::Token;
use crate::net::{Listener, Place};
use anyhow::{Context, Result};
use fault::{Delay, Drop, Faults, Refuse};
use ledger::{Ledger, Stats};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// How long open connections may say goodbye after the last awaited message.
const GOODBYE_TIME: Duration = Duration::from_millis(200);
/// How long accepting rests after it failed (no descriptors left).
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// What the sink is told on its command line.
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
    /// Wait before a reply: [STAGE:]MILLISECONDS, without STAGE before that to the message
    #[arg(long)]
    delay: Vec<Delay>,
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
    /// A file of the source's --accepted: count what is lost
    #[arg(long)]
    expect: Option<PathBuf>,
    /// Append the JSON line to this file; else it goes to the standard output
    #[arg(long)]
    stats: Option<PathBuf>,
    /// Stop after this many messages
    #[arg(long)]
    until: Option<u64>,
    /// Stop after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
}

/// What all sessions share.
struct Shared {
    lmtp: bool,
    size_max: u64,
    dump: Option<PathBuf>,
    until: Option<u64>,
    faults: Faults,
    ehlo: Vec<String>,
    ledger: Mutex<Ledger>,
    complete: Notify,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until `--until`, `--seconds`, SIGTERM or SIGINT; then says its JSON line.
pub fn run(options: Options) -> Result<()> {
    let Options { expect, stats, seconds, listen, threads, .. } = &options;
    let (expect, stats, seconds) = (expect.clone(), stats.clone(), *seconds);
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
        let say = || say(&shared.ledger().stats(expect.as_deref())?, stats.as_deref());
        wait(&shared, seconds, say).await?;
        say()
    })
}

/// A sink on a thread of its own, for a scenario that looks at it while it runs.
pub struct Sink {
    shared: Arc<Shared>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Its ports are open when this returns.
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

    /// Transactions taken so far.
    pub fn messages(&self) -> u64 {
        self.shared.ledger().messages()
    }

    /// From now on it answers without delay.
    pub fn hurry(&self) {
        self.shared.faults.hurried.store(true, Relaxed);
    }

    /// For each token, how many different recipients it has come to.
    pub fn came(&self, tokens: impl Iterator<Item = Token>) -> Vec<u32> {
        let ledger = self.shared.ledger();
        tokens.map(|token| ledger.came(token)).collect()
    }

    /// The counts so far.
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
    Ok(Shared {
        ehlo: extensions(&options),
        lmtp: options.lmtp,
        size_max: options.size_max,
        dump: options.dump,
        until: options.until,
        faults: Faults {
            refuse: options.refuse,
            drop: options.drop,
            delay: options.delay,
            hurried: false.into(),
        },
        ledger: Mutex::new(Ledger::default()),
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

/// One more thread with a runtime and sockets of its own; Unix sockets stay with the first.
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

/// Returns when the sink is to stop; says the counts at each SIGUSR1.
async fn wait(shared: &Shared, seconds: Option<u64>, say: impl Fn() -> Result<()>) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut usr1 = signal(SignalKind::user_defined1())?;
    let end = async {
        match seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(end);
    loop {
        tokio::select! {
            _ = shared.complete.notified() => {
                tokio::time::sleep(GOODBYE_TIME).await;
                return Ok(());
            }
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = &mut end => return Ok(()),
            _ = usr1.recv() => say()?,
        }
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
