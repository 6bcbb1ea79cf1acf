//! The settings of the send machine.
//!
//! Must never decide anything: what a file can say is decided in `schema`, what follows from it in the machine.

use crate::{DnsChoice, HostEnvironment, Settings};
use std::sync::Arc;
use std::time::Duration;

/// Attempts that a sending process takes at once for each connection that it may have.
const ATTEMPTS_PER_CONNECTION: u32 = 2;

/// How long a connection without work is kept for the next message to its next hop.
const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(5);

// What a client session asks for at once is what the queue process may be asked for at once.
const _: () = assert!(smtp::client::BODY_CHUNK_BYTES_MAX <= link::send::CHUNK_BYTES_MAX);

/// How long one attempt waits for a next hop at each step: the least that RFC 5321 4.5.3.2 asks for, and at most an hour
/// for one message.
const NEXT_HOP_TIMEOUTS: smtp::client::Timeouts = smtp::client::Timeouts {
    greeting: minutes(5),
    hello: minutes(5),
    mail: minutes(5),
    rcpt: minutes(5),
    data: minutes(2),
    block: minutes(3),
    end: minutes(10),
    total: minutes(60),
};

/// The port of next hops that an MX lookup finds.
const SMTP_PORT: u16 = 25;

/// What one attempt may try before its recipients are deferred.
pub(super) const ATTEMPT_LIMITS: delivery::Limits = delivery::Limits {
    addresses_max: 5,
    connect: Duration::from_secs(30),
    resolve: Duration::from_secs(60),
};

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

impl Settings {
    /// Returns the settings of the connection pool of a sending process. `build` names the program and `incarnation` this
    /// run of the process.
    pub fn pool(
        &self,
        environment: &HostEnvironment,
        build: u64,
        incarnation: u64,
    ) -> send::Settings {
        let in_flight = self.queue.attempts_in_flight_max;
        send::Settings {
            build,
            incarnation,
            attempts_max: in_flight.saturating_mul(ATTEMPTS_PER_CONNECTION),
            connections_max: in_flight as usize,
            idle: CONNECTION_IDLE_MAX,
            client: Arc::new(self.client()),
            rules: Arc::new(self.rules(environment)),
            limits: ATTEMPT_LIMITS,
        }
    }

    /// Returns the settings of every SMTP and LMTP session with a next hop.
    pub(super) fn client(&self) -> smtp::client::Settings {
        smtp::client::Settings {
            helo: self.hostname.as_str().into(),
            timeouts: NEXT_HOP_TIMEOUTS,
            chunking: true,
        }
    }

    /// Returns the rules for mail that goes where the DNS says.
    pub(super) fn rules(&self, environment: &HostEnvironment) -> delivery::Rules {
        let choice = |choice| match choice {
            DnsChoice::Use => delivery::Choice::Use,
            DnsChoice::Refuse => delivery::Choice::Refuse,
        };
        delivery::Rules {
            port: SMTP_PORT,
            ourselves: delivery::Ourselves {
                names: vec![self.hostname.as_str().into()],
                addresses: self.own_addresses(environment),
            },
            loopback_is_ourselves: true,
            mx_addresses: choice(self.dns.mx_addresses),
            mx_nxdomain: choice(self.dns.mx_nxdomain),
            private_addresses: choice(self.dns.private_addresses),
        }
    }
}
