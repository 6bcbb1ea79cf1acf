//! What every process takes from the settings: how it logs, and the user that it runs as.
//!
//! Must never decide anything that the settings do not say.

use crate::jail::{self, Privilege, Role};
use crate::log::Style;
use settings::Settings;

/// Returns how this process writes its log.
pub fn log_style(settings: &Settings) -> Style {
    Style::of_stderr(settings.log.format, settings.log.level)
}

/// Returns the user that a role runs as.
pub fn privilege(role: Role, settings: &Settings) -> Privilege {
    jail::privilege(role, settings.processes.ids_first)
}

/// Returns the process id of master. A child ends when master does.
pub fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}
