//! The settings of the machine, made from those of the operator. One process of several has its share of each limit.
//!
//! Must never have a default of its own.

use link::bounds::RECIPIENTS_BYTES_MAX;
use policy::{Caller, ConnectionLimits};
use receive::Listener;
use settings::{Listen, ListenAddress, ProcessConfig, Settings};
use smtp::server::Server;
use std::path::Path;

pub fn gateway(settings: &Settings) -> receive::Settings {
    let processes = u64::from(settings.processes.receive.max(1));
    // The envelope has to fit into a frame, and with a piece of the body into a segment of the log.
    let half_a_segment = settings.spool().segment_bytes as usize / 2;
    receive::Settings {
        session_memory_bytes_max: settings.limits.session_memory_bytes_max / processes,
        recipients_bytes_max: half_a_segment.min(RECIPIENTS_BYTES_MAX),
        commit_timeout: settings.limits.commit_timeout,
    }
}

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
