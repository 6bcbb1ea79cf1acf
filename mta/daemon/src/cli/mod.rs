//! The command line: `posthaste run | check | queue | status | spool | knobs`, and what the program
//! does when it is called by one of the old names.
//!
//! Must never parse mail, touch the spool of a running daemon, or delete anything uncounted.

mod args;
mod ask;
mod called_as;
mod config;
mod json;
mod mailq;
mod print;
mod queue;
mod show;
mod wired;

pub use ask::{ADMIN_SOCKET, Asker};
pub use config::{CONFIG_DEFAULT, settings_text};
pub use wired::{RunOptions, SpoolCheck, Wiring};

use args::{Args, Command, SpoolCommand};
use clap::Parser;
use print::Failure;
use std::ffi::OsString;
use std::process::ExitCode;

/// The whole program, by its arguments with the name it was called by first.
pub fn main(args: Vec<OsString>, wiring: &Wiring) -> ExitCode {
    let done = match called_as::other_name(&args) {
        Some(name) => called_as::run(wiring, name, &args[1..]),
        None => match Args::try_parse_from(args) {
            Ok(args) => run(wiring, args),
            Err(error) => {
                // Also `--help` and `--version` come this way; a closed pipe is no failure.
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

/// One command; its exit code.
fn run(wiring: &Wiring, args: Args) -> Result<u8, Failure> {
    let config = config::find(args.config);
    match args.command {
        Command::Run { log } => wired::run(wiring, &config, log),
        Command::Check => config::check(wiring, &config),
        Command::Queue { command } => queue::run(wiring, &config, command),
        Command::Status { json } => queue::status(wiring, &config, json),
        Command::Spool { command: SpoolCommand::Check { json } } => {
            wired::spool_check(wiring, &config, json)
        }
        Command::Knobs => wired::knobs(wiring),
        Command::Role { name } => wired::role(wiring, &name),
    }
}

/// Done.
const EX_OK: u8 = 0;
/// Done, and something is wrong with what was looked at.
const EX_FOUND: u8 = 1;
/// The command line makes no sense (sysexits.h has 64; this is clap's and most people's).
const EX_USAGE: u8 = 2;
/// The service is not there (sysexits.h).
const EX_UNAVAILABLE: u8 = 69;
/// The other side answered what it never should (sysexits.h).
const EX_PROTOCOL: u8 = 76;
/// Not allowed (sysexits.h).
const EX_NOPERM: u8 = 77;
/// The settings are wrong (sysexits.h).
const EX_CONFIG: u8 = 78;

#[cfg(test)]
mod tests;
