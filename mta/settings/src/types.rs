//! The settings once the file has been read: checked, typed, with every default filled in. The types of single tables
//! are made in `table`.
//!
//! Must never hold a text that somebody would still have to parse, nor read anything itself.

pub use local::{Deliver, Fill, Piece, Template, Users};

use super::problem::Place;
use super::table::{
    BounceSettings, DestinationSettings, DnsSettings, LimitSettings, Listen, LocalSettings,
    LogSettings, ProcessSettings, QueueSettings, RelaySettings, RetrySettings, SpoolSettings,
};
use mail::Domain;
use policy::Route;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// All settings. `handed` carries them to each process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of this mailer.
    pub hostname: Domain,
    /// Directory of the spool, the control socket and, by default, the mailboxes.
    pub state: PathBuf,
    /// Mailbox or address that gets the postmaster's mail. If `postmaster` is not set, the place is that of `local.users`,
    /// which makes an existing one necessary.
    pub postmaster: Placed<policy::Postmaster>,
    /// Where mail comes in; at least one.
    pub listen: Vec<Listen>,
    /// Clients that may send mail to any domain.
    pub relay: RelaySettings,
    /// Mail that stays on this host.
    pub local: LocalSettings,
    /// Routes in the order of the file. The first that matches wins; without one, MX records decide.
    pub routes: Vec<Route>,
    /// How much mail each destination gets at once.
    pub destinations: Destinations,
    /// When deferred mail is tried again.
    pub retry: RetrySettings,
    /// What one client, and all clients together, may use.
    pub limits: LimitSettings,
    /// How many processes there are.
    pub processes: ProcessSettings,
    /// The log that keeps queued mail.
    pub spool: SpoolSettings,
    /// Lookups of next hops.
    pub dns: DnsSettings,
    /// Notices to senders.
    pub bounce: BounceSettings,
    /// The order of the queue.
    pub queue: QueueSettings,
    /// What is logged.
    pub log: LogSettings,
}

/// A value and the place where the file sets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub origin: SettingOrigin,
}

/// The place of a setting, for problems that are found after the file was read. All places are equal, so that a setting
/// that only moved within the file has not changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SettingOrigin {
    /// The name of the file, as it was given.
    pub file: String,
    /// The place in the file; `None` if the file does not have the setting.
    pub place: Option<Place>,
}

impl PartialEq for SettingOrigin {
    fn eq(&self, _: &SettingOrigin) -> bool {
        true
    }
}

impl Eq for SettingOrigin {}

/// Permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketMode(pub u32);

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ListenAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// `[destination.default]` and `[destination."name"]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Destinations {
    /// For destinations that no other table names.
    pub default: DestinationSettings,
    /// Names and then patterns, the longest first, because the scheduler takes the first that matches. A name is a
    /// domain, a host, an address, or a next hop as the queue shows it, such as `local` or `smtp:127.0.0.1:2600`.
    pub named: Vec<(String, DestinationSettings)>,
}

/// A number of messages per unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Number of messages; at least one.
    pub count: u32,
    /// The unit of time.
    pub per: Duration,
}
