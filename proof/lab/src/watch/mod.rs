//! Watches a mailer from outside while it works: what it uses, which system calls it makes, when it syncs.
//!
//! Must never need the mailer's help, and never change what it watches but in speed.

mod calls;
mod cpu;
mod family;
mod memory;
pub mod trace;
mod tracer;
pub mod usage;

pub use family::Family;
pub use trace::{Trace, Which};
pub use usage::Usage;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// What the command `watch` is told.
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
    /// Count and total time of each system call over some seconds
    Calls {
        #[command(flatten)]
        span: Span,
        /// Which calls
        #[arg(long, default_value = "all")]
        which: Which,
    },
}

/// Whom, and for how long.
#[derive(Args)]
struct Span {
    /// Processes; all below them are watched, too
    #[arg(required = true)]
    pid: Vec<u32>,
    /// For so many seconds
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
        What::Calls { span, which } => {
            let trace = Trace::attach(&Family::below(&span.pid), which)?;
            std::thread::sleep(Duration::from_secs_f64(span.seconds));
            println!("{}", serde_json::to_string(&trace.finish()?)?);
        }
    }
    Ok(())
}
