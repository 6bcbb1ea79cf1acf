//! Which settings file, and what it says.
//!
//! Must never go on with another file than the one that was named.

use super::print::{Failure, say};
use super::{EX_CONFIG, EX_OK, Wiring};
use crate::settings::Settings;
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
pub(super) fn text(config: &Config) -> Result<String, Failure> {
    match std::fs::read_to_string(&config.path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound && !config.named => Ok(String::new()),
        Err(error) => Err(Failure::new(EX_CONFIG, format!("{}: {error}", config.path.display()))),
    }
}

/// The settings, or everything that is wrong with them.
pub(super) fn load(wiring: &Wiring, config: &Config) -> Result<Settings, Failure> {
    (wiring.load)(&text(config)?, &config.path.display().to_string())
        .map_err(|problems| Failure::new(EX_CONFIG, crate::settings::render(&problems).trim_end()))
}

/// The text of the settings file that `posthaste run` was given; empty where the defaults hold.
pub fn settings_text(options: &super::RunOptions) -> Result<String, String> {
    let config = Config { path: options.config.clone(), named: options.config_named };
    text(&config).map_err(|failure| failure.text)
}

/// `posthaste check`.
pub(super) fn check(wiring: &Wiring, config: &Config) -> Result<u8, Failure> {
    let settings = load(wiring, config)?;
    say(&format!("{}: good\nstate is in {}\n", config.shown(), settings.state.display()));
    Ok(EX_OK)
}
