//! The source: sends marked messages over many sessions at once and times each.
//!
//! Must never be slower than what it measures: no message is built whole, no lock is contended.

mod draw;
mod load;
mod message;
mod recipients;
mod session;
mod sizes;
mod table;
mod tally;
mod wire;

use crate::net::Place;
use anyhow::{Context, Result};
use message::Letters;
use recipients::{Recipients, Template};
use sizes::Sizes;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tally::{Frame, Tally};

pub use load::{Load, Sent, random_name};
pub use tally::Promise;

/// The options of the source.
#[derive(clap::Args)]
pub struct Options {
    /// The mailer: ADDRESS:PORT or unix:/path
    target: Place,
    /// Speak LMTP (RFC 2033)
    #[arg(long)]
    lmtp: bool,
    /// Concurrent sessions
    #[arg(short, long, default_value_t = 1)]
    sessions: usize,
    /// Number of messages; the default is one, or with --seconds as many as there is time for
    #[arg(short, long)]
    messages: Option<u64>,
    /// Begin no message after this many seconds
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Number of messages to send first, without counting them; the clock starts when all are answered
    #[arg(long, default_value_t = 0)]
    warm_up: u64,
    /// Messages over one connection; 0: all of them
    #[arg(short = 'd', long, default_value_t = 1)]
    per_connection: u64,
    /// Recipients of each message
    #[arg(short, long, default_value_t = 1)]
    recipients: u32,
    /// Bytes of each message, header included: 4096, or 1k:50,4k:30,100k:20 (with weights), or
    /// lognormal:MEDIAN:SIGMA[:MAX]
    #[arg(short = 'l', long, alias = "size", default_value = "4096")]
    sizes: Sizes,
    /// Send the files of this directory instead, each one message
    #[arg(long, conflicts_with = "sizes")]
    messages_from: Option<PathBuf>,
    /// Choose among those files at random, not in the order of their names
    #[arg(long, requires = "messages_from")]
    at_random: bool,
    /// The seed for sizes, files and recipients
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// MAIL FROM
    #[arg(short, long, default_value = "source@lab.test")]
    from: String,
    /// RCPT TO: TEMPLATE[:WEIGHT], given several times one is drawn for each recipient; {n} is the recipient's number in
    /// its message, {m} the message's, {r} drawn below --spread, {d} counts through --spread
    #[arg(short, long, default_value = "user{n}@sink.test")]
    to: Vec<Template>,
    /// The number of values of {r} and {d}
    #[arg(long, default_value_t = 1)]
    spread: u64,
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
    /// Connect from this address; may be repeated, sessions then take turns
    #[arg(long)]
    source_address: Vec<IpAddr>,
    /// Threads, each with its share of the sessions
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The run's name, 16 hexadecimal digits; else drawn at random
    #[arg(long, value_parser = |text: &str| u64::from_str_radix(text, 16))]
    run: Option<u64>,
    /// Write token, recipients and the moment of its 250 for each accepted message to this file, when all is done
    #[arg(long)]
    accepted: Option<PathBuf>,
    /// The length of a row of `intervals`, in seconds
    #[arg(long, default_value = "1", value_parser = seconds)]
    every: f64,
    /// Print the rows on the standard error as they come
    #[arg(long)]
    table: bool,
}

/// Parses a number of seconds that can be added to a clock's time.
pub fn seconds(text: &str) -> Result<f64> {
    let seconds: f64 = text.parse()?;
    anyhow::ensure!(seconds > 0.0 && seconds <= 1e9, "a number of seconds above 0 is expected");
    Ok(seconds)
}

impl Options {
    /// Begins no more messages.
    fn messages(&self) -> u64 {
        self.messages.unwrap_or(if self.seconds.is_some() { u64::MAX } else { 1 })
    }

    fn every(&self) -> Duration {
        Duration::from_secs_f64(self.every)
    }

    fn letters(&self, run: u64) -> Result<Letters> {
        match &self.messages_from {
            Some(directory) => Letters::real(run, self.seed, directory, self.at_random),
            None => Ok(Letters::made(run, self.seed, &self.from, self.sizes.clone())),
        }
    }

    fn recipients(&self) -> Result<Recipients> {
        Recipients::new(&self.to, self.recipients, self.spread, self.seed)
    }
}

/// Sends everything, then prints the JSON line. Fails if a message did not get its 250.
pub fn run(options: Options) -> Result<()> {
    crate::net::allow_many_sockets();
    let accepted = options.accepted.clone();
    let Sent { tally, frame, .. } = Load::start(options)?.finish()?;
    if let Some(path) = accepted {
        write_accepted(&tally, &frame, &path)?;
    }
    let summary = tally.summary(&frame);
    println!("{}", serde_json::to_string(&summary)?);
    let (missed, begun) = (summary.not_accepted, summary.accepted + summary.not_accepted);
    anyhow::ensure!(missed == 0, "{missed} of {begun} messages were not accepted");
    Ok(())
}

/// Creates the file only when it is complete, because a sink may wait for it.
fn write_accepted(tally: &Tally, frame: &Frame, path: &Path) -> Result<()> {
    if path.exists() && !path.is_file() {
        let file = std::fs::File::options().write(true).open(path)?; // a pipe, or the terminal
        return Ok(tally.write_accepted(frame, &mut std::io::BufWriter::new(file))?);
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let file = std::fs::File::create(&unfinished).with_context(|| path.display().to_string())?;
    tally.write_accepted(frame, &mut std::io::BufWriter::new(file))?;
    std::fs::rename(unfinished, path).with_context(|| path.display().to_string())
}
