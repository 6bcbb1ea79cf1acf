//! The source: sends marked messages over many sessions at once and times each.
//!
//! Must never be slower than what it measures: no message is built whole, no lock is on the way.

mod message;
mod session;
mod tally;

use crate::net::Place;
use anyhow::{Context, Result};
use message::Template;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tally::Tally;

pub use tally::Promise;

/// What the source is told on its command line.
#[derive(clap::Args)]
pub struct Options {
    /// The mailer: ADDRESS:PORT or unix:/path
    target: Place,
    /// Speak LMTP (RFC 2033)
    #[arg(long)]
    lmtp: bool,
    /// Sessions at once
    #[arg(short, long, default_value_t = 1)]
    sessions: usize,
    /// Messages in all
    #[arg(short, long, default_value_t = 1)]
    messages: u64,
    /// Messages over one connection; 0: as many as there are
    #[arg(short = 'd', long, default_value_t = 1)]
    per_connection: u64,
    /// Recipients of each message
    #[arg(short, long, default_value_t = 1)]
    recipients: u32,
    /// Bytes of each message, header included
    #[arg(short = 'l', long, default_value_t = 4096)]
    size: usize,
    /// MAIL FROM
    #[arg(short, long, default_value = "source@lab.test")]
    from: String,
    /// RCPT TO; {n} is the recipient's number in its message, {m} the message's
    #[arg(short, long, default_value = "user{n}@sink.test")]
    to: String,
    /// Send by BDAT in one chunk (RFC 3030) instead of DATA
    #[arg(long)]
    bdat: bool,
    /// Send MAIL, RCPT and DATA together (RFC 2920)
    #[arg(short, long)]
    pipelining: bool,
    /// Messages a second over all sessions; else each session sends as fast as it is answered
    #[arg(long)]
    rate: Option<f64>,
    /// Try a message that got no 250 again for this many seconds
    #[arg(long, default_value_t = 0)]
    retry: u64,
    /// Close after QUIT without waiting for 221
    #[arg(long)]
    no_wait_for_quit: bool,
    /// Give up on a reply after this many seconds
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// The argument of EHLO
    #[arg(long, default_value = "lab.test")]
    hello: String,
    /// Connect from this address; given several times, sessions take turns
    #[arg(long)]
    source_address: Vec<IpAddr>,
    /// Threads, each with its share of the sessions
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The run's name, 16 hexadecimal digits; else drawn at random
    #[arg(long, value_parser = |text: &str| u64::from_str_radix(text, 16))]
    run: Option<u64>,
    /// Write the token and the recipients of each message that got 250 to this file
    #[arg(long)]
    accepted: Option<PathBuf>,
}

/// What all sessions share.
struct Plan {
    options: Options,
    template: Template,
    next: AtomicU64,
    stopped: AtomicBool,
    start: Instant,
}

impl Plan {
    /// The number of the next message to send, and when it is due.
    fn next(&self) -> Option<(u64, Option<Instant>)> {
        if self.stopped.load(Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Relaxed);
        let due = |rate: f64| self.start + Duration::from_secs_f64(number as f64 / rate.max(1e-6));
        (number < self.options.messages).then(|| (number, self.options.rate.map(due)))
    }
}

/// Sends everything, then says its JSON line. An error where not every message got its 250.
pub fn run(options: Options) -> Result<()> {
    let accepted = options.accepted.clone();
    let messages = options.messages;
    let Sent { run, tally, time } = Load::start(options).finish()?;
    if let Some(path) = accepted {
        let file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
        tally.write_accepted(run, &mut std::io::BufWriter::new(file))?;
    }
    let summary = tally.summary(run, messages, time);
    println!("{}", serde_json::to_string(&summary)?);
    anyhow::ensure!(
        summary.not_accepted == 0,
        "{} of {messages} messages were not accepted",
        summary.not_accepted
    );
    Ok(())
}

/// A run of the source under way.
pub struct Load {
    run: u64,
    plan: Arc<Plan>,
    workers: Vec<JoinHandle<Result<Tally>>>,
}

/// What a run has come to.
pub struct Sent {
    /// The run's name, as in its tokens.
    pub run: u64,
    /// Everything counted.
    pub tally: Tally,
    /// From the start to the last reply.
    pub time: Duration,
}

impl Load {
    /// Begins to send.
    pub fn start(options: Options) -> Load {
        let run = options.run.unwrap_or_else(random_name);
        let template = Template::new(run, &options.from, options.size);
        let threads = options.threads.clamp(1, options.sessions.max(1));
        let plan = Arc::new(Plan {
            options,
            template,
            next: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            start: Instant::now(),
        });
        let workers = (0..threads).map(|thread| {
            let plan = plan.clone();
            std::thread::spawn(move || worker(&plan, thread, threads))
        });
        let workers = workers.collect();
        Load { run, plan, workers }
    }

    /// No message is begun any more.
    pub fn stop(&self) {
        self.plan.stopped.store(true, Relaxed);
    }

    /// Waits until each message that was begun has its ending.
    pub fn finish(self) -> Result<Sent> {
        let mut tally = Tally::default();
        for worker in self.workers {
            tally.merge(worker.join().expect("a session does not panic")?);
        }
        Ok(Sent { run: self.run, tally, time: self.plan.start.elapsed() })
    }
}

/// Runs every `threads`-th session.
fn worker(plan: &Arc<Plan>, thread: usize, threads: usize) -> Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let sessions: Vec<_> = (thread..plan.options.sessions.max(1))
            .step_by(threads)
            .map(|session| tokio::spawn(session::run(plan.clone(), session)))
            .collect();
        let mut tally = Tally::default();
        for session in sessions {
            tally.merge(session.await?);
        }
        Ok(tally)
    })
}

/// A name that no other run has: the standard library's random hash keys.
pub fn random_name() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
