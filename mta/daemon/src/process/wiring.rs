//! The settings as each machine wants them.
//!
//! Must never decide anything that the settings do not say.

use crate::jail::{self, Privilege};
use crate::log::Style;
use crate::settings::{Handed, Settings};
use mail::Address;
use std::sync::Arc;

/// Memory in the queue process for messages that are about to be tried.
const SHELF_BYTES_MAX: usize = 16 << 20;
// A message that queue hands over whole is one that the client takes whole, and that a session of ours hands over whole.
const _: () = assert!(link::send::INLINE_BYTES_MAX == smtp::client::INLINE_BODY_BYTES_MAX);
const _: () = assert!(smtp::server::BODY_CHUNK_BYTES as u64 <= link::send::INLINE_BYTES_MAX);
// What a client asks for at once is what queue may be asked for at once.
const _: () = assert!(smtp::client::BODY_CHUNK_BYTES_MAX <= link::send::CHUNK_BYTES_MAX);
/// Attempts that one sending process takes at once, beyond its connections.
const ATTEMPTS_SLACK: u32 = 2;

/// How this process writes its log.
pub fn log_style(settings: &Settings) -> Style {
    Style::of_stderr(settings.log.format, settings.log.level)
}

/// As what a role runs.
pub fn privilege(role: jail::Role, settings: &Settings) -> Privilege {
    jail::privilege(role, settings.processes.ids_first)
}

/// Ends with master.
pub fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

/// The queue process.
pub fn queue(handed: &Handed) -> queue::Settings {
    let settings = &handed.settings;
    let postmaster = format!("MAILER-DAEMON@{}", settings.hostname);
    queue::Settings {
        hostname: settings.hostname.to_string(),
        postmaster: Address::parse(&postmaster, true).expect("a host name makes a domain"),
        routes: settings.routes(&handed.surroundings),
        scheduler: settings.scheduler(),
        bounce_bytes_max: settings.bounce.original_bytes_max,
        shelf_bytes_max: SHELF_BYTES_MAX,
        credit_bytes: settings.limits.session_memory_bytes_max,
        receivers: u16::try_from(settings.processes.receive).unwrap_or(u16::MAX),
    }
}

/// A sending process.
pub fn send(
    handed: &Handed,
    build: u64,
    life: u64,
    sockets: super::send::Sockets,
    journal: Box<dyn super::send::Journal>,
) -> super::send::Setup {
    let settings = &handed.settings;
    let in_flight = settings.queue.attempts_in_flight_max;
    let ourselves = delivery::Ourselves {
        names: vec![settings.hostname.as_str().into()],
        addresses: settings.own_addresses(&handed.surroundings),
    };
    super::send::Setup {
        build,
        life,
        attempts_max: in_flight.saturating_mul(ATTEMPTS_SLACK),
        connections_max: in_flight as usize,
        idle: std::time::Duration::from_secs(5),
        client: Arc::new(smtp::client::Config {
            helo: settings.hostname.as_str().into(),
            ..smtp::client::Config::default()
        }),
        rules: Arc::new(rules(settings, ourselves)),
        limits: delivery::Limits::default(),
        sockets: Arc::new(sockets),
        resolver: crate::resolve::Resolver::new(&crate::resolve::Sources {
            servers: &settings.dns.servers,
            resolv_conf: &handed.surroundings.resolv_conf,
            hosts: &handed.surroundings.hosts,
            timeout: settings.dns.timeout,
        }),
        journal,
    }
}

fn rules(settings: &Settings, ourselves: delivery::Ourselves) -> delivery::Rules {
    let choice = |used| if used { delivery::Choice::Use } else { delivery::Choice::Refuse };
    delivery::Rules {
        ourselves,
        mx_addresses: choice(settings.dns.mx_addresses),
        mx_nxdomain: choice(settings.dns.mx_nxdomain),
        private_addresses: choice(settings.dns.private_addresses),
        ..delivery::Rules::default()
    }
}
