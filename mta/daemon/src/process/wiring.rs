//! Conversions of the settings into what each process needs.
//!
//! Must never decide anything that the settings do not say.

use crate::jail::{self, Privilege, Role};
use crate::log::Style;
use link::bounds::RECIPIENTS_BYTES_MAX;
use policy::{Caller, ConnectionLimits};
use receive::Listener;
use settings::{Listen, ListenAddress, ProcessConfig, Settings};
use smtp::server::Server;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of attempts that a send process holds for each of its connections.
const ATTEMPTS_SLACK: u32 = 2;
/// Time for which a connection to a next hop is kept without work.
const CONNECTION_IDLE: Duration = Duration::from_secs(5);

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

/// Returns the settings of one receive process. Several processes have equal shares of each limit.
pub fn receive(settings: &Settings) -> receive::Settings {
    let processes = u64::from(settings.processes.receive.max(1));
    // An envelope must fit into a frame, and together with a piece of a body into a segment of the log.
    let half_a_segment = settings.spool().segment_bytes as usize / 2;
    receive::Settings {
        session_memory_bytes_max: settings.limits.session_memory_bytes_max / processes,
        recipients_bytes_max: half_a_segment.min(RECIPIENTS_BYTES_MAX),
        commit_timeout: settings.limits.commit_timeout,
    }
}

/// Returns one listener of a receive process, which has descriptors for `connections_possible` connections.
pub fn listener(config: &ProcessConfig, listen: &Listen, connections_possible: u32) -> Listener {
    let settings = &config.settings;
    let share = |limit: u32| limit.div_ceil(settings.processes.receive.max(1));
    let limits = settings.connections(listen);
    let limits = ConnectionLimits {
        connections_max: share(limits.connections_max).min(connections_possible),
        listener_connections: share(limits.listener_connections),
        connections_per_client: share(limits.connections_per_client),
    };
    let server = |trusted| Server::new(settings.smtp(listen, trusted));
    let (address, path) = match &listen.address {
        ListenAddress::Unix(path) => (format!("unix:{}", path.display()), path.as_path()),
        ListenAddress::Tcp(address) => (address.to_string(), Path::new("")),
    };
    Listener {
        trusted: server(true),
        strangers: server(false),
        limits,
        address: address.into(),
        all_trusted: listen.trusted,
        socket: Caller::Socket(path.into()),
    }
}

/// Returns the setup of a send process.
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
            idle: CONNECTION_IDLE,
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
