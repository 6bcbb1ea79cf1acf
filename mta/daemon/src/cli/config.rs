//! Which settings file, and what it says.
//!
//! Must never go on with another file than the one that was named.

use super::print::{Failure, say};
use super::{EX_CONFIG, EX_OK};
use crate::settings::{self, HostEnvironment, Settings};
use std::io::ErrorKind;
use std::path::PathBuf;

/// The settings file where none is named; it need not exist.
pub const CONFIG_DEFAULT: &str = "/etc/posthaste/posthaste.toml";

/// Which file the settings come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub path: PathBuf,
    /// Somebody named it, so it has to exist.
    pub named: bool,
}

impl Config {
    /// A file that can be opened: an empty one where the defaults hold.
    pub fn file(self) -> PathBuf {
        match self.named || self.path.exists() {
            true => self.path,
            false => "/dev/null".into(),
        }
    }

    /// For messages.
    pub fn shown(&self) -> String {
        match self.named || self.path.exists() {
            true => self.path.display().to_string(),
            false => format!("the defaults, since there is no {CONFIG_DEFAULT}"),
        }
    }
}

pub(super) fn find(argument: Option<PathBuf>) -> Config {
    let from_environment = || std::env::var_os("POSTHASTE_CONFIG").filter(|path| !path.is_empty());
    match argument.or_else(|| from_environment().map(PathBuf::from)) {
        Some(path) => Config { path, named: true },
        None => Config { path: CONFIG_DEFAULT.into(), named: false },
    }
}

/// The text of the settings file; empty where there is none and none was named.
fn text(config: &Config) -> Result<Vec<u8>, Failure> {
    match std::fs::read(&config.path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound && !config.named => Ok(Vec::new()),
        Err(error) => Err(Failure::new(EX_CONFIG, format!("{}: {error}", config.path.display()))),
    }
}

/// The settings, or everything that is wrong with them.
pub(super) fn load(config: &Config) -> Result<Settings, Failure> {
    let (text, file) = (text(config)?, config.path.display().to_string());
    settings::load(&text, &file, &crate::process::config::system())
        .map_err(|problems| Failure::new(EX_CONFIG, settings::render(&problems).trim_end()))
}

/// `posthaste check`.
pub(super) fn check(config: &Config) -> Result<u8, Failure> {
    let settings = load(config)?;
    // Who will start the mailer is not known: root can deliver as everybody.
    let environment = HostEnvironment::of(&settings, None);
    let problems = settings.problems_here(&environment, crate::process::master::is_group);
    if !problems.is_empty() {
        return Err(Failure::new(EX_CONFIG, settings::render(&problems).trim_end()));
    }
    say(&format!("{}: good\nstate is in {}\n", config.shown(), settings.state.display()));
    Ok(EX_OK)
}
