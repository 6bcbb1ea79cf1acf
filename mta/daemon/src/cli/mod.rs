//! The command line: `posthaste run | check | queue | status | spool | settings`, and what the program
//! does when it is called by one of the old names.
//!
//! Must never parse mail, touch the spool of a running daemon, or delete messages that it has not counted.

mod args;
mod ask;
mod called_as;
mod config;
mod json;
mod mailq;
mod print;
mod queue;
mod show;
mod spool;

pub use ask::{ADMIN_SOCKET, Asker};
pub use config::CONFIG_DEFAULT;
pub use spool::SPOOL_DIRECTORY;

use args::{Args, Command, LogAs, SpoolCommand};
use clap::Parser;
use config::Config;
use print::Failure;
use settings::LogFormat;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Functions that the command line calls in other parts of the daemon; `main.rs` names them.
#[derive(Clone, Copy)]
pub struct Wiring {
    /// Runs the master process until it is told to stop: `posthaste run`. Takes the settings file, and the format of the log
    /// if it is not the one in the settings.
    pub run: fn(PathBuf, Option<LogFormat>) -> ExitCode,
    /// Runs a process that master has started: `posthaste role NAME`.
    pub role: fn(&str) -> ExitCode,
}

/// Runs the program with its arguments, the first of which is the name by which it was called.
pub fn main(args: Vec<OsString>, wiring: &Wiring) -> ExitCode {
    let done = match called_as::other_name(&args) {
        Some(name) => called_as::run(name, &args[1..]),
        None => match Args::try_parse_from(args) {
            Ok(args) => match args.command {
                Command::Run { log } => return start(wiring, args.config, log),
                Command::Role { name } => return (wiring.role)(&name),
                command => run(&config::find(args.config), command),
            },
            Err(error) => {
                // `--help` and `--version` end here, too. A closed pipe is no failure.
                let _ = error.print();
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EX_USAGE));
            }
        },
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            crate::log::complain(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}

/// `posthaste run`.
fn start(wiring: &Wiring, config: Option<PathBuf>, log: Option<LogAs>) -> ExitCode {
    let log = log.map(|log| match log {
        LogAs::Text => LogFormat::Text,
        LogAs::Json => LogFormat::Json,
    });
    (wiring.run)(config::find(config).file(), log)
}

/// Runs a command that reports something, and returns its exit code.
fn run(config: &Config, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Check => config::check(config),
        Command::Queue { command } => queue::run(config, command),
        Command::Status { json } => queue::status(config, json),
        Command::Spool { command: SpoolCommand::Check { json } } => spool::run(config, json),
        Command::Settings => {
            print::say(&settings::markdown());
            Ok(EX_OK)
        }
        Command::Run { .. } | Command::Role { .. } => unreachable!("started by `main`"),
    }
}

/// Success.
const EX_OK: u8 = 0;
/// Success, but something is wrong with what was inspected.
const EX_FOUND: u8 = 1;
/// Wrong usage: 2, as clap and most programs have it (sysexits.h has 64).
const EX_USAGE: u8 = 2;
/// The service is unavailable (sysexits.h).
const EX_UNAVAILABLE: u8 = 69;
/// The other side broke the protocol (sysexits.h).
const EX_PROTOCOL: u8 = 76;
/// Permission denied (sysexits.h).
const EX_NOPERM: u8 = 77;
/// The settings are wrong (sysexits.h).
const EX_CONFIG: u8 = 78;

#[cfg(test)]
mod tests;
