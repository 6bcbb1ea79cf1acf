//! What the command line starts but does not do itself: the settings' parser, the daemon, the
//! spool's check. `main.rs` names the functions, so that the command line can be tested alone.
//!
//! Must never decide anything.

use super::args::LogAs;
use super::config::{self, Config};
use super::print::{Failure, say};
use super::{EX_FOUND, EX_OK, EX_UNAVAILABLE};
use crate::settings::{LogFormat, Problem, Settings};
use std::path::{Path, PathBuf};

/// The functions behind the commands.
#[derive(Clone, Copy)]
pub struct Wiring {
    /// Parses and checks a settings file: its text, and its name for messages.
    pub load: fn(text: &str, file: &str) -> Result<Settings, Vec<Problem>>,
    /// `posthaste run`: the master process; returns when it has ended.
    pub run: fn(&RunOptions) -> Result<(), String>,
    /// `posthaste role NAME`: a process of the master's.
    pub role: fn(name: &str) -> Result<(), String>,
    /// `posthaste spool check`: hands over each finding as a line (JSON if so asked); whether the
    /// spool is sound.
    pub spool_check: SpoolCheck,
    /// `posthaste knobs`: every setting as Markdown.
    pub knobs: fn() -> String,
}

/// Checks the spool of these settings; the flag asks for JSON.
pub type SpoolCheck = fn(&Settings, bool, &mut dyn FnMut(&str)) -> Result<bool, String>;

/// What `posthaste run` was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The settings file.
    pub config: PathBuf,
    /// Somebody named it, so it has to exist; else the defaults hold where it does not.
    pub config_named: bool,
    /// `--log`, over what the settings say.
    pub log: Option<LogFormat>,
}

pub(super) fn run(wiring: &Wiring, config: &Config, log: Option<LogAs>) -> Result<u8, Failure> {
    // A bad file is told here, at once, and with the code that service managers know.
    config::load(wiring, config)?;
    let log = log.map(|log| match log {
        LogAs::Text => LogFormat::Text,
        LogAs::Json => LogFormat::Json,
    });
    let options = RunOptions { config: config.path.clone(), config_named: config.named, log };
    (wiring.run)(&options).map_err(unavailable)?;
    Ok(EX_OK)
}

pub(super) fn role(wiring: &Wiring, name: &str) -> Result<u8, Failure> {
    (wiring.role)(name).map_err(unavailable)?;
    Ok(EX_OK)
}

pub(super) fn spool_check(wiring: &Wiring, config: &Config, json: bool) -> Result<u8, Failure> {
    let settings = config::load(wiring, config)?;
    let sound = (wiring.spool_check)(&settings, json, &mut |line| say(&format!("{line}\n")))
        .map_err(|why| unavailable(format!("{}: {why}", Path::new(&settings.state).display())))?;
    Ok(if sound { EX_OK } else { EX_FOUND })
}

pub(super) fn knobs(wiring: &Wiring) -> Result<u8, Failure> {
    say(&(wiring.knobs)());
    Ok(EX_OK)
}

fn unavailable(why: String) -> Failure {
    Failure::new(EX_UNAVAILABLE, why)
}
