//! Conversions of the settings into what each process needs.
//!
//! Must never decide anything that the settings do not say.

use crate::jail::{self, Privilege, Role};
use crate::log::Style;
use settings::{ProcessConfig, Settings};
use std::sync::Arc;

/// Attempts that a send process takes at once for each of its connections.
const ATTEMPTS_SLACK: u32 = 2;

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

/// Returns the set-up of a send process.
pub fn send(
    config: &ProcessConfig,
    build: u64,
    incarnation: u64,
    sockets: super::send::Sockets,
    journal: Box<dyn super::send::Journal>,
) -> super::send::Setup {
    let settings = &config.settings;
    let in_flight = settings.queue.attempts_in_flight_max;
    super::send::Setup {
        pool: ::send::Settings {
            build,
            incarnation,
            attempts_max: in_flight.saturating_mul(ATTEMPTS_SLACK),
            connections_max: in_flight as usize,
            idle: std::time::Duration::from_secs(5),
            client: Arc::new(settings.client()),
            rules: Arc::new(settings.rules(&config.environment)),
            limits: settings.attempt_limits(),
        },
        sockets: Arc::new(sockets),
        resolver: crate::resolve::Resolver::new(&crate::resolve::Sources {
            servers: &settings.dns.servers,
            resolv_conf: &config.environment.resolv_conf,
            hosts: &config.environment.hosts,
            timeout: settings.dns.timeout,
        }),
        journal,
    }
}
