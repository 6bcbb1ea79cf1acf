//! Every knob: name, default, range, why. Reading a file goes by this table and `docs/knobs.md` is
//! written from it. Must never hold a knob that nothing reads, nor a default that is set elsewhere.

use Range::{Bytes, Count, Flag, Number, OneOf, Text, Time};

/// One knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knob {
    /// As in the file; tables and their entries are joined by a dot.
    pub name: &'static str,
    /// As one would write it in the file; empty where there is none, or where it is that of
    /// `[limits]`, or of the machine.
    pub default: &'static str,
    /// What it may be.
    pub range: Range,
    /// What it does, in a line.
    pub what: &'static str,
    /// Why the default is what it is.
    pub why: &'static str,
    /// Another good value than the default.
    pub example: &'static str,
}

/// What a knob may be, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// A whole number.
    Count(u64, u64),
    /// A number of bytes, `"50MB"`, or as a whole number.
    Bytes(u64, u64),
    /// Seconds, as `"5m"`, `"1h30m"`.
    Time(u64, u64),
    /// A number.
    Number(f64, f64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A text of this form.
    Text(&'static str),
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// Of one transaction.
const RECIPIENTS: u64 = 1_000_000;
// A snapshot with more in one message is held to be damaged.
const _: () = assert!(RECIPIENTS <= scheduler::RECIPIENTS_MAX as u64);

macro_rules! knobs {
    ($($name:literal = $default:literal, $range:expr, $what:literal, $why:literal, $example:literal;)*) => {
        &[$(Knob { name: $name, default: $default, range: $range, what: $what, why: $why, example: $example }),*]
    };
}

/// A place in the spool has 32 bits for the length of a body.
const _: () = assert!(4095 * M <= spool::BODY_BYTES_MAX);

/// All of them, in the order of the documentation.
pub const KNOBS: &[Knob] = knobs! {
    "hostname" = "", Text("a domain"), "our name in the banner, in EHLO and in Received",
        "the system's name", "\"mx.example.org\"";
    "state" = "", Text("an absolute path"), "where everything lives: spool, mail for `./try`, sockets",
        "/var/lib/posthaste as root, else $XDG_STATE_HOME/posthaste", "\"/srv/posthaste\"";

    "postmaster" = "\"postmaster\"", Text("an account of local.users, or an address"), "who gets mail for postmaster, in all our domains and for the machine's own name (RFC 5321 4.5.1)",
        "the mailbox of that name; where local.users is system, `check` wants somebody who exists", "\"ann\"";

    "listen.address" = "\"127.0.0.1:2525\"", Text("host:port, [v6]:port, *:port or unix:/path"), "where mail comes in",
        "an empty file runs and is no server for the world", "\"[::1]:2525\"";
    "listen.protocol" = "\"smtp\"", OneOf(&["smtp", "lmtp"]), "what is spoken there",
        "the world speaks SMTP", "\"lmtp\"";
    "listen.hostname" = "", Text("a domain"), "our name there", "as hostname", "\"mx2.example.org\"";
    "listen.connections" = "", Count(1, 1_000_000), "connections at once, here; never more than limits.connections", "as limits.connections", "50";
    "listen.connections_per_client" = "", Count(1, 1_000_000), "connections at once, over all listeners, of one stranger who comes here", "as limits.connections_per_client", "5";
    "listen.message_bytes_max" = "", Bytes(64 * K, 4095 * M), "size of a message, here", "as limits.message_bytes_max", "\"1MB\"";
    "listen.recipients_max" = "", Count(100, RECIPIENTS), "recipients of a transaction, here", "as limits.recipients_max", "200";
    "listen.stranger_recipients_max" = "", Count(100, RECIPIENTS), "recipients of a transaction of a client that is not in relay.from, here", "as limits.stranger_recipients_max", "100";

    "listen.mode" = "\"0660\"", Text("permissions in octal"), "of a unix: listener's socket: who may connect", "its owner and its group", "\"0666\"";
    "listen.group" = "", Text("a group of the system, by name or number"), "of a unix: listener's socket", "the group of the mailer", "\"www-data\"";
    "listen.trusted" = "false", Flag, "whether clients of a unix: listener may send to anywhere, as those of relay.from", "who may connect is one question, who may relay another", "true";

    "relay.from" = "[\"127.0.0.0/8\", \"::1\"]", Text("a list of addresses and networks"), "who may send to anywhere, free of the limits for each client",
        "programs of this machine send mail; everybody else only to our own domains", "[\"192.0.2.0/24\"]";

    "relay.bare_newline" = "\"normalize\"", OneOf(&["normalize", "refuse"]), "LF without CR in a message from relay.from: gets its CR and is never a part of the message's end, or the message is refused with 550, as it always is from everybody else",
        "programs of this machine send what their language has for a line end; what goes on has CRLF only", "\"refuse\"";

    "local.domains" = "[\"{hostname}\"]", Text("a list of domains; {hostname} is ours"), "their mail is delivered here, before any route is asked",
        "mail to the machine's own name belongs to it", "[\"local.test\"]";
    "local.deliver" = "\"maildir:{state}/mail/{user}/\"", Text("maildir:PATH, mbox:PATH, lmtp:ADDRESS or pipe:COMMAND; with {state} {user} {domain} {home}"), "where and in which form",
        "works for everybody who can write to the state directory", "\"mbox:/var/mail/{user}\"";
    "local.users" = "\"any\"", OneOf(&["any", "system"]), "which local parts exist: each that is safe as a file name, or the system's accounts",
        "boxes are made when mail comes", "\"system\"";

    "route.domain" = "", Text("name, *.name or *"), "for the mail of which domains; the first match wins", "has to be said", "\"*.sink.test\"";
    "route.to" = "", Text("smtp:HOST[:PORT], lmtp:HOST:PORT, lmtp:unix:/path, hold, error:TEXT or discard"), "where it goes", "has to be said", "\"smtp:127.0.0.1:2600\"";

    "destination.connections" = "100", Count(1, 100_000), "connections at once to one destination",
        "no more than 100 hosts of a large receiver are busy with us; it grows to that as the destination answers", "10";
    "destination.start_connections" = "20", Count(1, 100_000), "connections before the destination has answered for the first time",
        "a small server is not run over", "5";
    "destination.messages_per_connection" = "100", Count(1, 1_000_000), "messages over one connection",
        "spares the handshake, and gives the other side a chance to spread its load", "1";
    "destination.recipients_per_message" = "100", Count(1, 100_000), "recipients of one transaction",
        "RFC 5321 4.5.3.1.8 has every server take 100", "50";
    "destination.rate" = "\"unlimited\"", Text("COUNT/s, COUNT/m, COUNT/h, COUNT/d or unlimited"), "messages in a time",
        "most destinations have no such wish", "\"600/m\"";

    "retry.first" = "\"5m\"", Time(1, DAY), "wait after the first failure",
        "long enough for greylisting, short enough for people", "\"10m\"";
    "retry.factor" = "2", Number(1.0, 100.0), "each wait is the previous one times this factor",
        "five days take about 33 attempts", "1.5";
    "retry.longest" = "\"4h\"", Time(1, 30 * DAY), "no wait is longer", "RFC 5321 4.5.4.1: two or three hours, or a little more", "\"1h\"";
    "retry.jitter" = "0.1", Number(0.0, 1.0), "share of a wait by which chance makes it shorter or longer", "those that failed together are not tried together", "0.2";
    "retry.expire" = "\"5d\"", Time(2, 365 * DAY), "a message this old is bounced", "RFC 5321 4.5.4.1: at least four to five days", "\"2d\"";
    "retry.delay_notice" = "\"4h\"", Time(0, 364 * DAY), "a sender hears of a delay after this; 0 is never", "half a working day", "\"0\"";

    "bounce.original_bytes_max" = "50000", Bytes(0, M), "bytes of the original that a bounce returns, unless its sender asked for the headers only; the rest is cut",
        "people recognise their mail; as in Postfix (bounce_size_limit)", "\"200kB\"";

    "limits.message_bytes_max" = "\"50MiB\"", Bytes(64 * K, 4095 * M), "size of a message (SIZE of RFC 1870)",
        "what the large providers take, with room for headers", "\"10MB\"";
    "limits.header_bytes_max" = "\"1MiB\"", Bytes(16 * K, G), "size of a message's header section", "far above all that is honest", "\"100kB\"";
    "limits.recipients_max" = "50000", Count(100, RECIPIENTS), "recipients of a transaction",
        "lists are sent in one piece; RFC 5321 4.5.3.1.8 wants at least 100", "1000";
    "limits.stranger_recipients_max" = "1000", Count(100, RECIPIENTS), "recipients of a transaction of a client that is not in relay.from; never more than recipients_max",
        "what Postfix takes; a stranger's one message may make that many deliveries and notices", "100";
    "limits.connections" = "20000", Count(1, 1_000_000), "connections at once, over all listeners; clients that are not in relay.from have three quarters of them", "10,000 idle ones do not keep others out", "1000";
    "limits.connections_per_client" = "100", Count(1, 1_000_000), "connections at once of one client that is not in relay.from; of IPv6, of its /64; of a unix: listener that is not trusted, of all its clients", "one stranger does not keep others out", "20";
    "limits.session_memory_bytes_max" = "\"256MiB\"", Bytes(M, 1 << 40), "memory of the receive processes for all sessions, with recipients, bodies and what waits for queue; above it new connections (421), MAIL, RCPT, DATA and bodies (452 4.3.1) are put off. Clients that are not in relay.from have three quarters of it together, and one eighth for each IPv4 address or IPv6 /64",
        "20,000 sessions with 12 KiB each, which is the least that a session is counted with", "\"512MiB\"";
    "limits.hops_max" = "50", Count(2, 1000), "Received headers before mail is held to be in a loop", "RFC 5321 6.3 wants at least 100 or a good reason: 50 hops are five times the longest way seen", "100";
    "limits.command_timeout" = "\"5m\"", Time(1, DAY), "until a whole command line is there", "RFC 5321 4.5.3.2.7: at least 5 minutes", "\"1m\"";
    "limits.data_timeout" = "\"5m\"", Time(1, DAY), "silence inside a message", "RFC 5321 4.5.3.2.5 has the client wait 3 minutes for each block", "\"3m\"";
    "limits.data_bytes_per_second_min" = "500", Bytes(0, G), "bytes a second that a message must come with, on the average after data_timeout", "a modem's pace; slower is an attack", "1000";
    "limits.transaction_time_max" = "\"4h\"", Time(60, 7 * DAY), "a transaction from MAIL to its end, and a connection without a message; our own time does not count", "50 MB at 30 kbit/s", "\"1h\"";
    "limits.commit_timeout" = "\"1m\"", Time(2, HOUR), "until a message that has come whole must be on the disk: then its connection is closed without a reply; from half of it on new mail gets 451", "RFC 5321 4.5.3.2.6 has the client wait 10 minutes; a disk that takes one is broken", "\"30s\"";
    "limits.junk_commands_max" = "20", Count(1, 100_000), "wrong commands since the last message before the session is ended with 421", "more than any honest client makes", "5";
    "limits.refusals_max" = "100", Count(0, 1_000_000), "commands and bodies of a stranger that are refused, such as RCPT of an unknown mailbox, since its last message, before each counts as wrong",
        "a list has dead addresses; Postfix counts from the first", "20";
    "limits.idle_commands_max" = "100", Count(1, 1_000_000), "commands that do nothing, such as NOOP, since the last message, before each counts as wrong", "clients that keep a connection alive", "10";

    "processes.receive" = "0", Count(0, 64), "processes that converse with those who send us mail; 0 is by cores", "one for two cores is enough", "2";
    "processes.send" = "0", Count(0, 64), "processes that send mail to next hops; 0 is by cores", "one for two cores is enough", "4";
    "processes.ids_first" = "60800", Count(1000, 4_000_000_000), "first of the numeric user ids used where there is no account posthaste-ROLE", "Debian and systemd leave 60706 to 61183 to nobody", "70000";

    "spool.segment_bytes" = "\"64MiB\"", Bytes(M, G), "size of a log segment; a multiple of 4096", "long enough that changing segments is rare, short enough to be emptied", "\"16MiB\"";
    "spool.commits_in_flight" = "2", Count(1, 64), "commits at once", "one is always right; two keep a disk busy while the next is written; while a disk is quick, up to two are made one after the other by the process itself", "1";
    "spool.batch_bytes_max" = "\"2MiB\"", Bytes(64 * K, 256 * M), "bytes that one commit gathers; at most a quarter of a segment", "hundreds of messages, and a few milliseconds of writing", "\"1MiB\"";
    "spool.reserve_bytes" = "\"64MiB\"", Bytes(M, 1 << 40), "kept on the disk for outcomes and deletions", "a full disk can still be drained", "\"128MiB\"";
    "spool.keep_free_bytes" = "\"64MiB\"", Bytes(0, 1 << 50), "below so much free space on the disk no mail is taken", "others live on that disk too", "\"1GB\"";
    "spool.snapshot_bytes" = "\"128MiB\"", Bytes(M, 1 << 40), "log written between two snapshots of the index, or three times what the last one took", "so much is read at most when the queue is opened", "\"64MiB\"";

    "dns.servers" = "[]", Text("a list of addresses, with or without a port"), "asked instead of those of resolv.conf", "the machine knows", "[\"127.0.0.1:5353\"]";
    "dns.timeout" = "\"5s\"", Time(1, 300), "for one answer of one server", "what resolv.conf(5) has", "\"2s\"";

    "dns.mx_addresses" = "\"use\"", OneOf(&["use", "refuse"]), "MX records that hold an address where a host's name belongs: the address is used, or the record is passed over",
        "Postfix uses them; without a better server the mail would bounce", "\"refuse\"";
    "dns.mx_nxdomain" = "\"use\"", OneOf(&["use", "refuse"]), "a domain that does not exist by the answer about its MX: its own address is asked for, or its mail bounces",
        "some load balancers deny a name that has an address; Postfix asks", "\"refuse\"";
    "dns.private_addresses" = "\"use\"", OneOf(&["use", "refuse"]), "private and link-local addresses that the DNS gives for a domain; routes go anywhere, addresses of this host are never used, and address literals that are not ours are refused without a route",
        "a domain of one's own may have a private server; where everyone outside is a stranger, refuse", "\"refuse\"";

    "queue.order" = "\"fair\"", OneOf(&["fair", "priority", "arrival", "destination", "modified", "id", "random", "none"]), "what goes first", "no sender and no destination keeps others waiting", "\"arrival\"";
    "queue.attempts_in_flight_max" = "1000", Count(1, 100_000), "attempts at once, over all destinations", "ten destinations at their full width", "200";
    "queue.bulk_bytes_min" = "\"256KiB\"", Bytes(K, 4095 * M), "messages from this size on wait behind smaller ones, but not for ever", "letters before parcels", "\"1MiB\"";
    "queue.losses_max" = "5", Count(1, 100), "attempts in a row that ended with the death of the sending process before the message is held", "one poisonous message does not stop the others", "3";

    "log.format" = "\"text\"", OneOf(&["text", "json"]), "for people or for machines", "people first", "\"json\"";
    "log.level" = "\"info\"", OneOf(&["none", "error", "warn", "info", "debug"]), "how much", "the way of each message", "\"warn\"";
};

/// The knob of this name.
pub fn knob(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

/// The names in the table `table`, whose own name is empty for the top of the file: knobs, and at
/// the top tables as well.
pub fn names_in(table: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = KNOBS
        .iter()
        .filter_map(|knob| match knob.name.split_once('.') {
            None => table.is_empty().then_some(knob.name),
            Some((head, _)) if table.is_empty() => Some(head),
            Some((head, name)) => (head == table).then_some(name),
        })
        .collect();
    names.dedup();
    names
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use super::units::{show_bytes, show_time};
        match self {
            Count(low, high) => write!(f, "{low} to {high}"),
            Bytes(low, high) => write!(f, "{} to {}", show_bytes(*low), show_bytes(*high)),
            Time(low, high) => write!(f, "{} to {}", show_time(*low), show_time(*high)),
            Number(low, high) => write!(f, "{low} to {high}"),
            Flag => f.write_str("true or false"),
            OneOf(words) => f.write_str(&words.join(", ")),
            Text(form) => f.write_str(form),
        }
    }
}

impl Range {
    /// What is counted.
    pub const fn unit(&self) -> &'static str {
        match self {
            Count(..) | Number(..) => "number",
            Bytes(..) => "bytes",
            Time(..) => "time",
            Flag | OneOf(_) => "word",
            Text(_) => "text",
        }
    }
}

/// `docs/knobs.md`.
pub fn markdown() -> String {
    let mut text = String::from(HEAD);
    let mut table = None;
    for knob in KNOBS {
        let (head, name) = knob.name.split_once('.').unwrap_or(("", knob.name));
        if table.replace(head) != Some(head) {
            let title = match head {
                "" => "Top of the file".to_string(),
                "listen" | "route" => format!("`[[{head}]]`"),
                "destination" => "`[destination.default]` and `[destination.\"NAME\"]`".to_string(),
                _ => format!("`[{head}]`"),
            };
            text += &format!("\n## {title}\n\n{COLUMNS}");
        }
        let default = match knob.default {
            "" => knob.why.to_string(),
            default => format!("`{default}`"),
        };
        let Knob { range, what, why, .. } = knob;
        text +=
            &format!("| `{name}` | {default} | {range} | {} | {what} | {why} |\n", range.unit());
    }
    text
}

const HEAD: &str = "\
# The knobs

Written by `cargo xtask knobs` from `mta/daemon/src/settings/knobs.rs`; change that file, not this one.

Bytes are `\"64KiB\"`, `\"50MB\"`, `\"1GiB\"` or a whole number; times are `\"90s\"`, `\"5m\"`, `\"1h30m\"`, `\"5d\"`. A file may
leave out everything. Unknown names and values out of range are errors; `posthaste check` shows all of them.
A name of `[destination.\"NAME\"]` is a recipient's domain, `*.domain`, or a next hop as the queue shows it, such
as `local` or `smtp:127.0.0.1:2600`; what it leaves out is as in `[destination.default]`.
";
const COLUMNS: &str = "| name | default | range | unit | what it does | why this default |\n|---|---|---|---|---|---|\n";
