//! Every setting: its name, type, default, range, what it does and why the default is what it is.
//!
//! From this table come the types of the settings, what reads them, and `docs/settings.md`. Must never hold a setting that
//! nothing uses, nor a default that is also set elsewhere.

use super::read::{Scope, Value};
use super::setting::Preset::{As, Is, Otherwise, Required};
use super::setting::Range::{self, Bytes, Count, Flag, Number, OneOf, Text, Time};
use super::setting::{Setting, settings, words};
use super::types::{Deliver, ListenAddress, Placed, Rate, SocketMode};
use local::Users;
use mail::{Domain, NextHop};
use policy::Pattern;
use scheduler::{ORDERS, Order};
use std::net::SocketAddr;
use std::time::Duration;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// The largest setting of recipients in one transaction.
const RECIPIENTS: u64 = 1_000_000;
// A snapshot with more recipients in one message counts as damaged.
const _: () = assert!(RECIPIENTS <= scheduler::RECIPIENTS_MAX as u64);
/// The largest setting of the size of a message: the spool has 32 bits for the length of a body.
const MESSAGE_BYTES: u64 = 4095 * M;
const _: () = assert!(MESSAGE_BYTES <= spool::BODY_BYTES_MAX);

const ORDER_NAMES: [&str; ORDERS.len()] = {
    let mut names = [""; ORDERS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ORDERS[at].0;
        at += 1;
    }
    names
};

/// The settings at the top of the file. Their defaults depend on the system, so `schema` reads them.
const TOP: &[Setting] = &[
    Setting {
        name: "hostname",
        default: Otherwise("the system's host name"),
        range: Text("a domain"),
        what: "Name of this mailer in the SMTP greeting, in EHLO and in Received headers.",
        why: "most systems know their own name",
        example: "mx.example.org",
    },
    Setting {
        name: "state",
        default: Otherwise("/var/lib/posthaste as root, otherwise $XDG_STATE_HOME/posthaste"),
        range: Text("an absolute path"),
        what: "Directory of the spool, the control socket and, by default, the mailboxes.",
        why: "the usual place for state, for root and for other users",
        example: "/srv/posthaste",
    },
    Setting {
        name: "postmaster",
        default: Is("postmaster"),
        range: Text("an account of local.users, or an address"),
        what: "Mailbox or address that gets the mail for postmaster in every local domain and for the host's own name (RFC 5321 4.5.1).",
        why: "with `users = \"system\"`, `posthaste check` insists that somebody gets this mail",
        example: "ann",
    },
];

/// Every setting, in the order of the documentation.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    let tables = [
        TOP,
        Listen::SETTINGS,
        RelaySettings::SETTINGS,
        LocalSettings::SETTINGS,
        RouteSettings::SETTINGS,
        DestinationSettings::SETTINGS,
        RetrySettings::SETTINGS,
        BounceSettings::SETTINGS,
        LimitSettings::SETTINGS,
        ProcessSettings::SETTINGS,
        SpoolSettings::SETTINGS,
        DnsSettings::SETTINGS,
        QueueSettings::SETTINGS,
        LogSettings::SETTINGS,
    ];
    tables.into_iter().flatten()
}

settings! {
    /// One `[[listen]]`: an address at which mail comes in.
    pub struct Listen in "listen" {
        /// Address to listen on. `*` means all addresses.
        address: ListenAddress = Is("127.0.0.1:2525"), Text("host:port, [v6]:port, *:port or unix:/path"),
            "an empty file gives a mailer that runs but that no other host can reach", "[::1]:2525";
        /// Protocol that clients speak here.
        protocol: ListenProtocol = Is("smtp"), ListenProtocol::RANGE,
            "mail from other hosts comes by SMTP", "lmtp";
        /// Name of this mailer for clients of this listener.
        hostname: Domain = Is("{hostname}"), Text("a domain; {hostname} is the setting hostname"),
            "one host usually has one name", "mx2.example.org";
        /// Maximum number of simultaneous connections to this listener. Cannot exceed `limits.connections`.
        connections: u32 = As("limits.connections"), Count(1, 1_000_000),
            "one limit for all listeners is enough for most", "50";
        /// Maximum number of simultaneous connections, to all listeners together, for a client of this
        /// listener that is not in `relay.from`.
        connections_per_client: u32 = As("limits.connections_per_client"), Count(1, 1_000_000),
            "one limit for all listeners is enough for most", "5";
        /// Maximum size of a message received here.
        message_bytes_max: u64 = As("limits.message_bytes_max"), Bytes(64 * K, MESSAGE_BYTES),
            "one limit for all listeners is enough for most", "1MB";
        /// Maximum number of recipients in one transaction here.
        recipients_max: u32 = As("limits.recipients_max"), Count(100, RECIPIENTS),
            "one limit for all listeners is enough for most", "200";
        /// Maximum number of recipients in one transaction here for a client that is not in `relay.from`.
        stranger_recipients_max: u32 = As("limits.stranger_recipients_max"), Count(100, RECIPIENTS),
            "one limit for all listeners is enough for most", "100";
        /// Permissions of the socket of a `unix:` listener, which decide who can connect.
        mode: SocketMode = Is("0660"), Text("permissions in octal"),
            "the mailer's user and the socket's group", "0666";
        /// Group of the socket of a `unix:` listener.
        group: Option<Placed<Box<str>>> = Otherwise("the mailer's group"), Text("a group of the system, by name or number"),
            "no other user can connect until an administrator says so", "www-data";
        /// Whether clients of a `unix:` listener may send mail to any domain, like clients in `relay.from`.
        trusted: bool = Is("false"), Flag,
            "permission to connect is not permission to relay", "true";
    }

    /// `[relay]`: clients that may send mail to any domain.
    pub struct RelaySettings in "relay" {
        /// Networks of clients that may send mail to any domain. The limits for each client do not apply to them.
        from: Vec<ipnet::IpNet> = Is(r#"["127.0.0.0/8", "::1"]"#), Text("a list of addresses and networks"),
            "programs on this host send mail; other clients may only send to local domains", r#"["192.0.2.0/24"]"#;
        /// How LF without CR in a message from `relay.from` is handled: `normalize` adds the missing CR
        /// and never takes such a line for the end of the message; `refuse` answers 550. Messages of
        /// other clients are always refused.
        bare_newline: BareNewline = Is("normalize"), BareNewline::RANGE,
            "programs on this host often end lines with LF only; what is sent on always has CRLF", "refuse";
    }

    /// `[local]`: mail that stays on this host.
    pub struct LocalSettings in "local" {
        /// Domains whose mail is delivered here. They take precedence over routes.
        domains: Vec<Domain> = Is(r#"["{hostname}"]"#), Text("a list of domains; {hostname} is the setting hostname"),
            "mail for the host's own name belongs to this host", r#"["local.test"]"#;
        /// Where and in which format mail is delivered.
        deliver: Deliver = Is("maildir:{state}/mail/{user}/"),
            Text("maildir:PATH, mbox:PATH, lmtp:ADDRESS or pipe:COMMAND; with {state} {user} {domain} {home}"),
            "works for every user who can write to the state directory", "mbox:/var/mail/{user}";
        /// Which local parts exist: `any` accepts each one that is safe as a file name, `system` accepts
        /// the system's accounts.
        users: Users = Is("any"), OneOf(&["any", "system"]),
            "mailboxes are created when mail arrives", "system";
    }

    /// One `[[route]]`: where the mail of some domains goes. The first that matches wins; without one, MX
    /// records decide.
    pub struct RouteSettings in "route" {
        /// Domains whose mail takes this route. The first route that matches wins.
        domain: Pattern = Required, Text("name, *.name or *"),
            "a route has no sensible default", "*.sink.test";
        /// Where mail on this route goes.
        to: NextHop = Required, Text("smtp:HOST[:PORT], lmtp:HOST:PORT, lmtp:unix:/path, hold, error:TEXT or discard"),
            "a route has no sensible default", "smtp:127.0.0.1:2600";
    }

    /// `[destination.default]` or `[destination."NAME"]`: how much mail a destination gets at once.
    #[derive(Copy)]
    pub struct DestinationSettings in "destination" {
        /// Maximum number of simultaneous connections to one destination.
        connections: u32 = Is("100"), Count(1, 100_000),
            "keeps at most 100 servers of a large provider busy; the number grows to this limit while the destination answers", "10";
        /// Number of simultaneous connections until the destination has answered for the first time.
        start_connections: u32 = Is("20"), Count(1, 100_000),
            "does not overrun a small server", "5";
        /// Maximum number of messages over one connection.
        messages_per_connection: u32 = Is("100"), Count(1, 1_000_000),
            "saves handshakes, yet lets the destination spread its load over several servers", "1";
        /// Maximum number of recipients in one transaction.
        recipients_per_message: u32 = Is("100"), Count(1, 100_000),
            "RFC 5321 4.5.3.1.8 requires every server to accept 100", "50";
        /// Maximum number of messages per unit of time.
        rate: Option<Rate> = Is("unlimited"), Text("COUNT/s, COUNT/m, COUNT/h, COUNT/d or unlimited"),
            "most destinations do not ask for a limit", "600/m";
    }

    /// `[retry]`: when deferred mail is tried again, and for how long.
    pub struct RetrySettings in "retry" {
        /// Wait after the first failed attempt.
        first: Duration = Is("5m"), Time(1, DAY),
            "long enough for greylisting, short enough for people", "10m";
        /// Factor by which each wait is longer than the previous one.
        factor: f64 = Is("2"), Number(1.0, 100.0),
            "gives about 33 attempts in five days", "1.5";
        /// Longest wait between two attempts.
        longest: Duration = Is("4h"), Time(1, 30 * DAY),
            "RFC 5321 4.5.4.1 suggests two to three hours or a little more", "1h";
        /// Fraction by which a wait is randomly shortened or lengthened.
        jitter: f64 = Is("0.1"), Number(0.0, 1.0),
            "messages that failed together are not all tried again at the same moment", "0.2";
        /// Age at which a message that is still not delivered bounces.
        expire: Duration = Is("5d"), Time(2, 365 * DAY),
            "RFC 5321 4.5.4.1 requires at least four to five days", "2d";
        /// Age at which the sender of a message that is still queued is told so, once. 0 turns the notice off.
        delay_notice: Option<Duration> = Is("4h"), Time(0, 364 * DAY),
            "half a working day", "0";
    }

    /// `[bounce]`: notices to senders.
    pub struct BounceSettings in "bounce" {
        /// Maximum number of bytes of the original message that a bounce returns; the rest is cut off. If
        /// the sender asked for headers only, the body is left out.
        original_bytes_max: u64 = Is("50000"), Bytes(0, M),
            "enough to recognise a message; the value of Postfix (bounce_size_limit)", "200kB";
    }

    /// `[limits]`: what one client, and all clients together, may use.
    pub struct LimitSettings in "limits" {
        /// Maximum size of a message (SIZE, RFC 1870).
        message_bytes_max: u64 = Is("50MiB"), Bytes(64 * K, MESSAGE_BYTES),
            "what large providers accept, with room for headers", "10MB";
        /// Maximum size of a message's header section.
        header_bytes_max: u64 = Is("1MiB"), Bytes(16 * K, G),
            "far more than any honest message has", "100kB";
        /// Maximum number of recipients in one transaction.
        recipients_max: u32 = Is("50000"), Count(100, RECIPIENTS),
            "mailing lists can be sent in one transaction; RFC 5321 4.5.3.1.8 requires at least 100", "1000";
        /// Maximum number of recipients in one transaction of a client that is not in `relay.from`.
        /// `recipients_max` applies as well.
        stranger_recipients_max: u32 = Is("1000"), Count(100, RECIPIENTS),
            "the value of Postfix; one message of a stranger can cause this many deliveries and notices", "100";
        /// Maximum number of simultaneous connections to all listeners. Clients that are not in
        /// `relay.from` get at most three quarters of them.
        connections: u32 = Is("20000"), Count(1, 1_000_000),
            "10,000 idle connections do not keep other clients out", "1000";
        /// Maximum number of simultaneous connections of one client that is not in `relay.from`. A client
        /// is an IPv4 address, an IPv6 /64 network, or all clients of a `unix:` listener that is not
        /// trusted.
        connections_per_client: u32 = Is("100"), Count(1, 1_000_000),
            "one stranger does not keep other clients out", "20";
        /// Memory of all receive processes for sessions: recipients, bodies, and what waits for the queue
        /// process. Above it, new connections get 421; MAIL, RCPT, DATA and bodies get 452 4.3.1. Clients
        /// that are not in `relay.from` get at most three quarters of it together, and one eighth for
        /// each IPv4 address or IPv6 /64 network.
        session_memory_bytes_max: u64 = Is("256MiB"), Bytes(M, T),
            "20,000 sessions of 12 KiB, the least that a session is counted with", "512MiB";
        /// Number of Received headers at which a message is refused because it loops.
        hops_max: u32 = Is("50"), Count(2, 1000),
            "RFC 5321 6.3 asks for at least 100 or a good reason: 50 is five times the longest path seen in practice", "100";
        /// Time within which a client must complete a command line, and must read the replies to it.
        command_timeout: Duration = Is("5m"), Time(1, DAY),
            "RFC 5321 4.5.3.2.7 requires at least 5 minutes", "1m";
        /// Maximum time without a byte inside a message.
        data_timeout: Duration = Is("5m"), Time(1, DAY),
            "RFC 5321 4.5.3.2.5 lets a client wait 3 minutes for each block", "3m";
        /// Average number of bytes per second at which a message must arrive once `data_timeout` has passed.
        data_bytes_per_second_min: u64 = Is("500"), Bytes(0, G),
            "the speed of a modem; slower clients are attackers", "1000";
        /// Maximum time from MAIL to the end of its transaction, and maximum time that a connection may
        /// spend outside of transactions between two messages. The mailer's own time does not count.
        transaction_time_max: Duration = Is("4h"), Time(60, 7 * DAY),
            "50 MB at 30 kbit/s", "1h";
        /// Time within which a completely received message must be on the disk. After it, the connection
        /// is closed without a reply. New mail gets 451 once half of it has passed.
        commit_timeout: Duration = Is("1m"), Time(2, HOUR),
            "RFC 5321 4.5.3.2.6 lets a client wait 10 minutes; a disk that needs one minute is broken", "30s";
        /// Number of wrong commands since the last message at which a session is ended with 421.
        bad_commands_max: u32 = Is("20"), Count(1, 100_000),
            "more than any honest client makes", "5";
        /// Number of refused commands and bodies since the last message, such as RCPT for an unknown
        /// mailbox, after which each further one counts as a wrong command. Applies to clients that are
        /// not in `relay.from`.
        refusals_max: u32 = Is("100"), Count(0, 1_000_000),
            "mailing lists contain dead addresses; Postfix counts from the first", "20";
        /// Number of commands without effect since the last message, such as NOOP, after which each
        /// further one counts as a wrong command.
        idle_commands_max: u32 = Is("100"), Count(1, 1_000_000),
            "some clients keep a connection alive with NOOP", "10";
    }

    /// `[processes]`: how many processes there are, and as which users they run.
    pub struct ProcessSettings in "processes" {
        /// Number of processes that receive mail. 0 chooses by the number of cores.
        receive: u32 = Is("0"), Count(0, 64),
            "one for two cores is enough", "2";
        /// Number of processes that send mail to next hops. 0 chooses by the number of cores.
        send: u32 = Is("0"), Count(0, 64),
            "one for two cores is enough", "4";
        /// First of the numeric user ids that are used for roles without an account named posthaste-ROLE.
        ids_first: u32 = Is("60800"), Count(1000, 4_000_000_000),
            "neither Debian nor systemd assigns 60706 to 61183", "70000";
    }

    /// `[spool]`: the log that keeps queued mail.
    pub struct SpoolSettings in "spool" {
        /// Size of a log segment. Must be a multiple of 4096.
        segment_bytes: u32 = Is("64MiB"), Bytes(M, G),
            "large enough that new segments are rare, small enough that segments become empty", "16MiB";
        /// Maximum number of simultaneous commits.
        commits_in_flight: u32 = Is("2"), Count(1, 64),
            "1 is always correct; 2 keep a disk busy while the next commit is written, and on a fast disk the queue process makes up to 2 one after the other itself", "1";
        /// Maximum number of bytes that one commit collects. Cannot exceed a quarter of a segment.
        batch_bytes_max: u32 = Is("2MiB"), Bytes(64 * K, 256 * M),
            "hundreds of messages, and a few milliseconds of writing", "1MiB";
        /// Disk space that is kept for outcomes and deletions.
        reserve_bytes: u64 = Is("64MiB"), Bytes(M, T),
            "a queue on a full disk can still be emptied", "128MiB";
        /// Free disk space below which no mail is accepted.
        keep_free_bytes: u64 = Is("64MiB"), Bytes(0, 1024 * T),
            "other programs use the same disk", "1GB";
        /// Bytes of log after which a snapshot of the index is taken, or three times the size of the last
        /// snapshot if that is more.
        snapshot_log_bytes: u64 = Is("128MiB"), Bytes(M, T),
            "limits how much log is read when the mailer starts", "64MiB";
    }

    /// `[dns]`: lookups of next hops.
    pub struct DnsSettings in "dns" {
        /// DNS servers. An empty list means those of resolv.conf.
        servers: Vec<SocketAddr> = Is("[]"), Text("a list of addresses, with or without a port"),
            "the system knows its DNS servers", r#"["127.0.0.1:5353"]"#;
        /// Time that one server has for one answer.
        timeout: Duration = Is("5s"), Time(1, 300),
            "the value of resolv.conf(5)", "2s";
        /// What happens with an MX record that contains an address instead of a host name: `use` takes
        /// the address, `refuse` ignores the record.
        mx_addresses: DnsChoice = Is("use"), DnsChoice::RANGE,
            "like Postfix; mail of a domain without another server would bounce", "refuse";
        /// What happens if the MX lookup says that a domain does not exist: `use` asks for the domain's
        /// own address, `refuse` bounces its mail.
        mx_nxdomain: DnsChoice = Is("use"), DnsChoice::RANGE,
            "like Postfix; some load balancers answer this for names that have an address", "refuse";
        /// What happens with private and link-local addresses that the DNS gives for a domain. Routes may
        /// go to any address. The host's own addresses are never used, and address literals of other
        /// hosts are refused unless a route matches.
        private_addresses: DnsChoice = Is("use"), DnsChoice::RANGE,
            "the servers of one's own domains may have private addresses; refuse them if all mail goes to strangers", "refuse";
    }

    /// `[queue]`: in which order, and how much of the queue is worked on at once.
    pub struct QueueSettings in "queue" {
        /// Order in which queued messages are tried.
        order: Order = Is("fair"), OneOf(&ORDER_NAMES),
            "no sender and no destination delays the others", "arrival";
        /// Maximum number of simultaneous attempts to all destinations.
        attempts_in_flight_max: u32 = Is("1000"), Count(1, 100_000),
            "ten destinations with all their connections", "200";
        /// Size from which messages wait behind smaller ones. They still get a share of the attempts.
        bulk_bytes_min: u64 = Is("256KiB"), Bytes(K, MESSAGE_BYTES),
            "letters go before parcels", "1MiB";
        /// Number of successive attempts of a message that ended with the death of the sending process at
        /// which the message is held.
        losses_max: u8 = Is("5"), Count(1, 100),
            "one message that crashes the sending process does not stop all others", "3";
    }

    /// `[log]`: what is logged.
    pub struct LogSettings in "log" {
        /// Format of the log: `text` for people, `json` for programs.
        format: LogFormat = Is("text"), LogFormat::RANGE,
            "people read it first", "json";
        /// How much is logged. Each level includes the ones before it.
        level: LogLevel = Is("info"), LogLevel::RANGE,
            "shows the path of every message", "warn";
    }
}

words! {
    /// What a listener speaks.
    pub enum ListenProtocol {
        /// RFC 5321.
        Smtp = "smtp",
        /// RFC 2033.
        Lmtp = "lmtp",
    }

    /// How LF without CR in a message from `relay.from` is handled.
    pub enum BareNewline {
        /// The line gets its CR.
        Normalize = "normalize",
        /// The message is refused.
        Refuse = "refuse",
    }

    /// What happens with something that the DNS should not say.
    pub enum DnsChoice {
        /// It is used.
        Use = "use",
        /// It is ignored.
        Refuse = "refuse",
    }

    /// The format of the log.
    pub enum LogFormat {
        /// Lines for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }

    /// How much is logged. Each level includes the ones before it.
    #[derive(PartialOrd, Ord)]
    pub enum LogLevel {
        /// Nothing.
        None = "none",
        /// What an administrator must look at.
        Error = "error",
        /// What an administrator should look at.
        Warn = "warn",
        /// The path of every message.
        Info = "info",
        /// Every conversation.
        Debug = "debug",
    }
}
