//! Settings of a receive process and of each listener.
//!
//! Must never change while a client uses them: a reload makes new settings.

use link::bounds::RECIPIENTS_BYTES_MAX;
use policy::{Caller, ConnectionLimits};
use smtp::server::Server;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The limits of one receive process.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory of all its sessions together, in bytes.
    pub session_memory_bytes_max: u64,
    /// Encoded recipients of one message, in bytes. At most [`RECIPIENTS_BYTES_MAX`] counts.
    pub recipients_bytes_max: usize,
    /// How long a client waits for the answer of the queue process.
    pub commit_timeout: Duration,
}

impl Settings {
    pub(crate) fn recipients_bytes_max(&self) -> usize {
        self.recipients_bytes_max.min(RECIPIENTS_BYTES_MAX)
    }
}

/// One listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The sessions of clients that may relay.
    pub trusted: Arc<Server>,
    /// The sessions of all other clients.
    pub strangers: Arc<Server>,
    /// How many connections it takes.
    pub limits: ConnectionLimits,
    /// Its address, by which its connections are counted. They stay counted over a reload.
    pub address: Arc<str>,
    /// All its clients may relay.
    pub all_trusted: bool,
    /// All clients without an address are counted as this caller.
    pub socket: Caller,
}

impl Listener {
    pub(crate) fn caller(&self, client: Option<IpAddr>) -> Caller {
        client.map_or_else(|| self.socket.clone(), Caller::from)
    }

    pub(crate) fn server(&self, trusted: bool) -> Arc<Server> {
        if trusted { self.trusted.clone() } else { self.strangers.clone() }
    }
}
