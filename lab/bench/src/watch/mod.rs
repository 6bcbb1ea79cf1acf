//! Watches a mailer from outside while it works: what it uses, which system calls it makes, when it syncs.
//!
//! Must never need the mailer's help, and never change what it watches but in speed.

mod calls;
pub mod cost;
mod cpu;
pub mod durability;
mod family;
mod memory;
mod moments;
mod probe;
pub mod slow;
pub mod trace;
mod tracer;
pub mod usage;

pub use family::Family;
pub use probe::Probe;
pub use slow::SlowDisk;
pub use trace::{Trace, Which};
pub use usage::Usage;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// The options of `watch`.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// CPU time, memory and disk over some seconds
    Usage {
        #[command(flatten)]
        span: Span,
        /// A directory on the disk whose flushes count
        #[arg(long)]
        queue: Option<PathBuf>,
    },
    /// Whether it syncs its queue before it says 250: sends it some messages and looks
    Durability {
        /// The mailer: ADDRESS:PORT
        address: String,
        /// Its processes; their descendants are watched, too
        #[arg(required = true)]
        pid: Vec<u32>,
        /// Its queue; syncs elsewhere do not count
        #[arg(long)]
        queue: PathBuf,
        /// MAIL FROM
        #[arg(long, default_value = "source@lab.test")]
        from: String,
        /// RCPT TO; {n} and {m} as the source has them
        #[arg(long, default_value = "user{n}@sink.test")]
        to: String,
    },
    /// What its work costs, process by process: first without a tracer, then as long again with one
    Cost {
        #[command(flatten)]
        span: Span,
        /// Messages that pass in that time: figures are for each of them
        #[arg(long, default_value_t = 1.0)]
        messages: f64,
    },
    /// Count and total time of each system call over some seconds
    Calls {
        #[command(flatten)]
        span: Span,
        /// Which calls
        #[arg(long, default_value = "all")]
        which: Which,
    },
}

/// The processes to watch, and for how long.
#[derive(Args)]
struct Span {
    /// Processes; their descendants are watched, too
    #[arg(required = true)]
    pid: Vec<u32>,
    /// Seconds to watch
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

/// Watches, and prints one JSON line.
pub fn run(options: Options) -> Result<()> {
    match options.what {
        What::Usage { span, queue } => {
            let device = queue.map(|queue| crate::machine::device_under(&queue)).transpose()?;
            let usage = Usage::begin(&Family::below(&span.pid), device.flatten());
            std::thread::sleep(Duration::from_secs_f64(span.seconds));
            println!("{}", serde_json::to_string(&usage.end())?);
        }
        What::Durability { address, pid, queue, from, to } => {
            let probe = Probe { address: &address, from: &from, to: &to };
            let found = durability::find(&probe, &Family::below(&pid), &queue)?;
            println!("{}", serde_json::to_string(&found)?);
        }
        What::Cost { span, messages } => {
            let family = Family::below(&span.pid);
            let plain = cost::Plain::begin(&family);
            std::thread::sleep(Duration::from_secs_f64(span.seconds));
            let plain = plain.end().sums().each(messages);
            let traced = cost::Traced::attach(&family)?;
            std::thread::sleep(Duration::from_secs_f64(span.seconds));
            let costs = cost::together(plain, traced.finish()?.each(messages));
            println!("{}", serde_json::to_string(&costs)?);
        }
        What::Calls { span, which } => {
            let trace = Trace::attach(&Family::below(&span.pid), which)?;
            std::thread::sleep(Duration::from_secs_f64(span.seconds));
            println!("{}", serde_json::to_string(&trace.finish()?)?);
        }
    }
    Ok(())
}
