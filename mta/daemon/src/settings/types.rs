//! What the settings file says once it has been read: checked, typed, with every default filled in.
//! Must never hold a text that somebody would still have to parse, nor read anything itself.

pub use local::{Deliver, Fill, Piece, Template, Users};

use super::problem::Place;
use mail::Domain;
use policy::Route;
pub use scheduler::Order;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The whole of it. `handed` carries it to each process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Our name in the banner, in EHLO and in Received.
    pub hostname: Domain,
    /// Everything that lives: spool, mail for `./try`, sockets.
    pub state: PathBuf,
    /// Who gets mail for the postmaster.
    pub postmaster: Postmaster,
    /// Where mail comes in; at least one.
    pub listen: Vec<Listen>,
    /// Who may send to anywhere.
    pub relay: Relay,
    /// The mail that stays here.
    pub local: Local,
    /// In the order of the file; the first match wins, none is an MX lookup.
    pub routes: Vec<Route>,
    /// How destinations are treated.
    pub destinations: Destinations,
    /// When mail is tried again.
    pub retry: Retry,
    /// What one client and all of them together may take.
    pub limits: Limits,
    /// How many processes, as whom.
    pub processes: Processes,
    /// The log that keeps the mail.
    pub spool: Spool,
    /// Whom we ask for names.
    pub dns: Dns,
    /// `[bounce]`.
    pub bounce: Bounce,
    /// In what order the queue is worked.
    pub queue: Queue,
    /// What is written about it.
    pub log: Log,
}

/// Who gets mail for the postmaster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Postmaster {
    /// Who.
    pub to: policy::Postmaster,
    /// The setting, or that of `local.users`, which makes one necessary.
    pub origin: Origin,
}

/// Where a setting is written, for problems that are found after the file was read. All are equal: a
/// setting that has only moved is the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The file, as it was named.
    pub file: String,
    /// `None`: the setting is not in the file.
    pub place: Option<Place>,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Origin) -> bool {
        true
    }
}

impl Eq for Origin {}

/// One `[[listen]]`, with the limits of `[limits]` where it has none of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// Where.
    pub address: ListenAddress,
    /// Spoken there.
    pub protocol: Protocol,
    /// Our name there.
    pub hostname: Domain,
    /// Connections at once.
    pub connections: u32,
    /// Connections at once of one client that is not in `relay.from`; see [`policy::Caller`].
    pub connections_per_client: u32,
    /// Bytes of a message.
    pub message_bytes_max: u64,
    /// Recipients of a transaction.
    pub recipients_max: u32,
    /// The same for a client that is not in `relay.from`.
    pub stranger_recipients_max: u32,
    /// What only a Unix socket has.
    pub socket: Socket,
}

/// Who may use a Unix socket to listen at, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Its permissions.
    pub mode: u32,
    /// Its group, by name or number; `None` is that of the mailer.
    pub group: Option<Box<str>>,
    /// Where `group` is set.
    pub group_origin: Origin,
    /// Its clients may send to anywhere.
    pub trusted: bool,
}

/// An address to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// RFC 5321.
    Smtp,
    /// RFC 2033.
    Lmtp,
}

/// `[relay]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// Networks of the clients that may send to anywhere.
    pub from: Vec<ipnet::IpNet>,
    /// What LF without CR means in a message of theirs.
    pub bare_newline: BareNewline,
}

/// LF without CR in a message from `relay.from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BareNewline {
    /// It gets its CR.
    Normalize,
    /// The message is refused.
    Refuse,
}

/// `[local]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Local {
    /// Their mail is delivered here, before any route is asked.
    pub domains: Vec<Domain>,
    /// How.
    pub deliver: Deliver,
    /// Which local parts exist.
    pub users: Users,
}

/// `[destination.default]` and `[destination."name"]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Destinations {
    /// Where no other matches.
    pub default: Destination,
    /// The more special before the more general, as the scheduler takes the first that matches: a
    /// name, then `*.name` by falling length. A name may be a domain, a host, an address, or a next
    /// hop as it is shown, such as `local` or `smtp:127.0.0.1:2600`.
    pub named: Vec<(String, Destination)>,
}

/// How one destination is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// Connections at once.
    pub connections: u32,
    /// Connections before the destination has answered for the first time.
    pub start_connections: u32,
    /// Messages over one connection.
    pub messages_per_connection: u32,
    /// Recipients of one transaction.
    pub recipients_per_message: u32,
    /// Messages in a time; `None` is as fast as it goes.
    pub rate: Option<Rate>,
}

/// So many in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many; at least one.
    pub count: u32,
    /// In this time.
    pub per: Duration,
}

/// `[retry]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// After the first failure.
    pub first: Duration,
    /// Each wait is the previous one times this factor.
    pub factor: f64,
    /// No wait is longer.
    pub longest: Duration,
    /// Share of a wait by which chance makes it shorter or longer.
    pub jitter: f64,
    /// A message this old is bounced.
    pub expire: Duration,
    /// A sender hears of a delay after this; `None` is never.
    pub delay_notice: Option<Duration>,
}

/// `[limits]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of a message.
    pub message_bytes_max: u64,
    /// Recipients of a transaction.
    pub recipients_max: u32,
    /// The same for a client that is not in `relay.from`.
    pub stranger_recipients_max: u32,
    /// Connections at once, over all listeners.
    pub connections: u32,
    /// Connections at once of one client that is not in `relay.from`; see [`policy::Caller`].
    pub connections_per_client: u32,
    /// Memory of all sessions together.
    pub session_memory_bytes_max: u64,
    /// Received headers before mail is held to be in a loop (RFC 5321 6.3).
    pub hops_max: u32,
    /// Bytes of a message's header section.
    pub header_bytes_max: u64,
    /// Until a whole command line is there (RFC 5321 4.5.3.2.7).
    pub command_timeout: Duration,
    /// Silence inside a message (RFC 5321 4.5.3.2.5).
    pub data_timeout: Duration,
    /// Bytes a second that a message must come with on the average.
    pub data_bytes_per_second_min: u64,
    /// A transaction from MAIL to its end, and a connection without a message; our own time does not count.
    pub transaction_time_max: Duration,
    /// Until a message that has come whole must be on the disk.
    pub commit_timeout: Duration,
    /// Commands that are wrong before the session is ended with 421.
    pub junk_commands_max: u32,
    /// Refused commands and bodies of a stranger before each counts as wrong.
    pub refusals_max: u32,
    /// Commands that do nothing, such as NOOP, before each counts as wrong.
    pub idle_commands_max: u32,
}

/// `[processes]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// Receive processes; 0 is by cores.
    pub receive: u32,
    /// Send processes; 0 is by cores.
    pub send: u32,
    /// First of the numeric ids used where there is no account `posthaste-ROLE`.
    pub ids_first: u32,
}

/// `[spool]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spool {
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Commits in flight at once.
    pub commits_in_flight: u32,
    /// Bytes that one commit gathers at most.
    pub batch_bytes_max: u64,
    /// Kept free on the disk for outcomes and deletions.
    pub reserve_bytes: u64,
    /// Below so much free space on the disk no mail is taken.
    pub keep_free_bytes: u64,
    /// Log written between two snapshots.
    pub snapshot_bytes: u64,
}

/// `[dns]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Asked instead of those in resolv.conf, if there are any.
    pub servers: Vec<SocketAddr>,
    /// For one answer of one server.
    pub timeout: Duration,
    /// MX records that hold an address are used.
    pub mx_addresses: bool,
    /// The address of a domain is asked for although its MX lookup said NXDOMAIN.
    pub mx_nxdomain: bool,
    /// Private and link-local addresses in MX records and literals are used.
    pub private_addresses: bool,
}

/// `[bounce]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounce {
    /// Bytes of the original that a bounce returns.
    pub original_bytes_max: u64,
}

/// `[queue]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// What goes first.
    pub order: Order,
    /// Attempts at once, over all destinations.
    pub attempts_in_flight_max: u32,
    /// Messages from this size on wait behind smaller ones, but not for ever.
    pub bulk_bytes_min: u64,
    /// Attempts in a row that ended with the death of the sending process before the message is
    /// held.
    pub losses_max: u32,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// For people or for machines.
    pub format: LogFormat,
    /// How much.
    pub level: LogLevel,
}

/// For whom the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogFormat {
    /// People.
    Text,
    /// Machines: one JSON object a line.
    Json,
}

/// How much is logged; each holds those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogLevel {
    /// Nothing at all.
    None,
    /// What somebody must look after.
    Error,
    /// What somebody should look at.
    Warn,
    /// The way of each message.
    Info,
    /// Each conversation.
    Debug,
}
