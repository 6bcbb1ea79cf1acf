//! The settings: one table with an entry for each, the reading and checking of the settings file, and the settings of each
//! machine made from them. [`load`] reports all problems of a file at once.
//!
//! Must never read a file, the environment or a clock: the text and the facts about the host are arguments.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod convert;
mod forms;
pub mod host;
mod page;
pub mod postfix;
mod problem;
mod products;
mod read;
mod schema;
pub mod setting;
pub mod table;

#[cfg(test)]
mod tests;
pub mod types;
mod units;

pub use host::{HostEnvironment, ProcessConfig, UserAccount};

pub use page::markdown;
pub use problem::{Problem, render};
pub use products::receivers_max;
pub use table::*;
pub use types::*;

use std::path::{Path, PathBuf};

/// A longer file is refused.
pub const TEXT_BYTES_MAX: usize = schema::TEXT_BYTES_MAX;

/// What defaults depend on, and no settings file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The system's name for itself.
    pub hostname: String,
    /// Where state lives unless the file says otherwise; see `state_default`.
    pub state: PathBuf,
}

/// Where state lives by default: `/var/lib/posthaste` as root, else below `$XDG_STATE_HOME`, else
/// below `~/.local/state`, as the XDG Base Directory Specification has it.
pub fn state_default(root: bool, xdg_state_home: Option<&Path>, home: Option<&Path>) -> PathBuf {
    if root {
        return "/var/lib/posthaste".into();
    }
    let absolute = |path: &&Path| path.is_absolute();
    match (xdg_state_home.filter(absolute), home.filter(absolute)) {
        (Some(state), _) => state.join("posthaste"),
        (None, Some(home)) => home.join(".local/state/posthaste"),
        (None, None) => "/var/lib/posthaste".into(),
    }
}

/// Reads and checks a whole settings file. `file` is its name, for the problems.
pub fn load(text: &[u8], file: &str, system: &System) -> Result<Settings, Vec<Problem>> {
    schema::settings(text, file, system)
}
