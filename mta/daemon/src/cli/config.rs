//! The settings file: which one, and what it says.
//!
//! Must never use another file than the one that was named.

use super::print::{Failure, say};
use super::{EX_CONFIG, EX_OK};
use settings::Settings;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The settings file if none is named; it need not exist.
pub const CONFIG_DEFAULT: &str = "/etc/posthaste/posthaste.toml";

/// The file that the settings come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub path: PathBuf,
    /// The file was named, so it must exist.
    pub named: bool,
}

impl Config {
    /// Path of a file that can be opened: an empty one if the defaults apply.
    pub fn file(self) -> PathBuf {
        match self.named || self.path.exists() {
            true => self.path,
            false => "/dev/null".into(),
        }
    }

    /// Returns the name of the file, for messages.
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

/// Returns the text of the settings file; empty if there is none and none was named.
fn text(config: &Config) -> Result<Vec<u8>, Failure> {
    match std::fs::read(&config.path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound && !config.named => Ok(Vec::new()),
        Err(error) => Err(Failure::new(EX_CONFIG, format!("{}: {error}", config.path.display()))),
    }
}

/// Returns the settings, or everything that is wrong with them.
pub(super) fn load(config: &Config) -> Result<Settings, Failure> {
    let (text, file) = (text(config)?, config.path.display().to_string());
    settings::load(&text, &file, &crate::process::config::system())
        .map_err(|problems| Failure::new(EX_CONFIG, settings::render(&problems).trim_end()))
}

/// `posthaste check`.
pub(super) fn check(config: &Config) -> Result<u8, Failure> {
    let settings = load(config)?;
    // It is unknown which user will start the mailer. Root can deliver as every user.
    let environment = crate::host::environment(&settings, None);
    let problems = settings.problems_here(&environment, crate::process::master::is_group);
    if !problems.is_empty() {
        return Err(Failure::new(EX_CONFIG, settings::render(&problems).trim_end()));
    }
    say(&format!("{}: good\nstate is in {}\n", config.shown(), settings.state.display()));
    Ok(EX_OK)
}
