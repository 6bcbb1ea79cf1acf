//! The settings of the receive machine. One process of several has its share of each limit.
//!
//! Must never decide anything: what a file can say is decided in `schema`, what follows from it in the machine.

use crate::{BareNewline, Listen, ListenAddress, ListenProtocol, Settings};
use link::bounds::RECIPIENTS_BYTES_MAX;
use policy::{Caller, ConnectionLimits};
use receive::Listener;
use smtp::framing::BareLf;
use smtp::server::Server;
use std::path::Path;

/// Refusals of a client in `relay.from` before each counts as wrong: as many as a transaction may have
/// recipients at the most, so that no list of it is ever cut off.
const TRUSTED_REFUSALS_MAX: u32 = 1_000_000;

/// Recipients of one LMTP transaction: the session holds a reply for each of them until the end of the data.
const LMTP_RECIPIENTS_MAX: u32 = 1_000;

/// Bytes of one command line with its CRLF. RFC 5321 4.5.3.1.4 and the extensions need about 1,600.
const COMMAND_BYTES_MAX: usize = 2_048;

/// Bytes of replies that wait to be written to one client; above it the session reads nothing more.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a body that a session hands over at once. A body of this size or less crosses in one piece from the client
/// to the queue process and from there to the next hop, so the three crates must agree.
const BODY_CHUNK_BYTES: usize = link::send::INLINE_BYTES_MAX as usize;
const _: () = assert!(link::send::INLINE_BYTES_MAX == smtp::client::INLINE_BODY_BYTES_MAX);

impl Settings {
    /// Returns the settings of one receive process.
    pub fn gateway(&self) -> receive::Settings {
        let processes = u64::from(self.processes.receive.max(1));
        // The envelope has to fit into a frame, and with a piece of the body into a segment of the log.
        let half_a_segment = self.spool().segment_bytes as usize / 2;
        receive::Settings {
            session_memory_bytes_max: self.limits.session_memory_bytes_max / processes,
            recipients_bytes_max: half_a_segment.min(RECIPIENTS_BYTES_MAX),
            commit_timeout: self.limits.commit_timeout,
        }
    }

    /// Returns what one receive process knows of a listener. `connections_possible` is the maximum that its descriptors
    /// allow.
    pub fn listener(&self, listen: &Listen, connections_possible: u32) -> Listener {
        let share = |limit: u32| limit.div_ceil(self.processes.receive.max(1));
        let limits = self.connections(listen);
        let limits = ConnectionLimits {
            connections_max: share(limits.connections_max).min(connections_possible),
            listener_connections: share(limits.listener_connections),
            connections_per_client: share(limits.connections_per_client),
        };
        let server = |trusted| Server::new(self.smtp(listen, trusted));
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

    /// Returns the settings of a session of this listener. `trusted` means that its client is in `relay.from`.
    pub fn smtp(&self, listen: &Listen, trusted: bool) -> smtp::server::Settings {
        let limits = &self.limits;
        let (recipients_max, refusals_max) = match trusted {
            true => (listen.recipients_max, TRUSTED_REFUSALS_MAX),
            false => {
                let recipients_max = listen.recipients_max.min(listen.stranger_recipients_max);
                (recipients_max, limits.refusals_max)
            }
        };
        let bare_lf = match self.relay.bare_newline {
            BareNewline::Normalize if trusted => BareLf::Normalize,
            _ => BareLf::Refuse,
        };
        smtp::server::Settings {
            bare_lf,
            lmtp: listen.protocol == ListenProtocol::Lmtp,
            message_bytes_max: listen.message_bytes_max,
            header_bytes_max: limits.header_bytes_max,
            hops_max: limits.hops_max,
            recipients_max,
            bad_commands_max: limits.bad_commands_max,
            idle_commands_max: limits.idle_commands_max,
            refusals_max,
            command_timeout: limits.command_timeout,
            data_timeout: limits.data_timeout,
            data_bytes_per_second_min: limits.data_bytes_per_second_min,
            transaction_time_max: limits.transaction_time_max,
            hostname: listen.hostname.clone(),
            line_bytes_max: None,
            lmtp_recipients_max: LMTP_RECIPIENTS_MAX,
            mails_max: None,
            command_bytes_max: COMMAND_BYTES_MAX,
            body_chunk_bytes: BODY_CHUNK_BYTES,
            output_bytes_max: OUTPUT_BYTES_MAX,
        }
    }

    /// Returns the connections that this listener takes, over all receive processes.
    fn connections(&self, listen: &Listen) -> ConnectionLimits {
        ConnectionLimits {
            connections_max: self.limits.connections,
            listener_connections: listen.connections,
            connections_per_client: listen.connections_per_client,
        }
    }
}
