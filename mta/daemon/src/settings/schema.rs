//! From a parsed file to `Settings`, table by table. Must never let a value through that cannot work.

use super::forms;
use super::problem::{Place, Problem};
use super::products;
use super::read::{Scope, Source};
use super::types::*;
use super::{System, units};
use mail::Domain;
use toml::de::DeTable;

/// Larger files are no settings.
pub(super) const TEXT_BYTES_MAX: usize = 4 << 20;

/// Addresses to listen at; each is a socket in every receive process, and has a number of 16 bits.
pub(super) const LISTENERS_MAX: usize = 256;

/// All of it, or all that is wrong with it.
pub(super) fn settings(
    bytes: &[u8],
    file: &str,
    system: &System,
) -> Result<Settings, Vec<Problem>> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]);
    let source = Source::new(file, &text);
    if bytes.len() > TEXT_BYTES_MAX {
        source.note(None, "", format!("is larger than {TEXT_BYTES_MAX} bytes"), None);
        return Err(source.into_problems());
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        let at = error.valid_up_to();
        source.note(Some(at..at + 1), "", "is not UTF-8 from here on", None);
    }
    let (document, errors) = DeTable::parse_recoverable(&text);
    for error in &errors {
        source.note(error.span(), "", error.message().trim().replace('\n', ", "), None);
    }
    let settings = checked(&Scope::top(&source, document.get_ref()), system);
    match (settings, source.into_problems()) {
        (Some(settings), problems) if problems.is_empty() => Ok(settings),
        (_, problems) => Err(problems),
    }
}

fn checked(top: &Scope<'_>, system: &System) -> Option<Settings> {
    let hostname = hostname(top, system)?;
    let state = top.text("state", forms::absolute).unwrap_or_else(|| system.state.clone());
    let (limits_table, spool_table) = (top.table("limits"), top.table("spool"));
    let (limits, spool) = (limits(&limits_table), spool(&spool_table));
    products::check((&limits_table, &limits), (&spool_table, &spool));
    let processes_table = top.table("processes");
    let processes = processes(&processes_table);
    products::check_receivers(&processes_table, &processes, &limits);
    let local_table = top.table("local");
    Some(Settings {
        postmaster: postmaster(top, &local_table),
        listen: listeners(top, &hostname, &limits, &spool),
        relay: relay(&top.table("relay")),
        local: local(&local_table, &hostname),
        routes: top.tables("route").iter().filter_map(route).collect(),
        destinations: destinations(top),
        retry: retry(&top.table("retry")),
        processes,
        dns: dns(&top.table("dns")),
        bounce: Bounce { original_bytes_max: top.table("bounce").whole("original_bytes_max", 0) },
        queue: queue(&top.table("queue")),
        log: log(&top.table("log")),
        limits,
        spool,
        hostname,
        state,
    })
}

/// Ours; a name that only stands in until the problem is told, where it cannot be had.
fn hostname(top: &Scope<'_>, system: &System) -> Option<Domain> {
    if let Some(name) = top.text("hostname", forms::host_name) {
        return Some(name);
    }
    let of_system = forms::host_name(&system.hostname);
    if let (Err(_), false) = (&of_system, top.has("hostname")) {
        let what = format!("the system's name `{}` is no domain", system.hostname);
        top.wrong("hostname", what, Some("set `hostname = \"...\"`".into()));
    }
    of_system.or_else(|_| forms::host_name("localhost")).ok()
}

fn postmaster(top: &Scope<'_>, local: &Scope<'_>) -> Postmaster {
    let (table, name) = if top.has("postmaster") { (top, "postmaster") } else { (local, "users") };
    let to = top.text("postmaster", forms::postmaster);
    let to = to.expect("the table of knobs has a good default");
    Postmaster { to, origin: origin(table, name) }
}

fn origin(table: &Scope<'_>, name: &str) -> Origin {
    let source = table.source;
    let place = table.span(name).map(|span| Place::of(source.text, span));
    Origin { file: source.file.into(), place }
}

fn listeners(top: &Scope<'_>, hostname: &Domain, limits: &Limits, spool: &Spool) -> Vec<Listen> {
    let tables = top.tables("listen");
    if tables.is_empty() && !top.has("listen") {
        return vec![listener(&Scope::absent(top, "listen"), hostname, limits)];
    }
    if tables.len() > LISTENERS_MAX {
        let what = format!("{} addresses are more than {LISTENERS_MAX}", tables.len());
        top.wrong("listen", what, None);
    }
    let mut listeners: Vec<Listen> = Vec::new();
    for table in tables.iter().take(LISTENERS_MAX) {
        if !table.has("address") {
            table.wrong("address", "is missing", Some("address = \"127.0.0.1:2525\"".into()));
        }
        let one = listener(table, hostname, limits);
        if listeners.iter().any(|other| other.address == one.address) && table.has("address") {
            table.wrong("address", "is listened at already", None);
        }
        products::check_listener(table, &one, limits, spool);
        listeners.push(one);
    }
    if listeners.is_empty() {
        top.wrong("listen", "needs at least one address", None);
    }
    listeners
}

fn listener(table: &Scope<'_>, hostname: &Domain, limits: &Limits) -> Listen {
    let count = |name, inherited: u32| table.whole(name, inherited.into()) as u32;
    let address = table.text("address", forms::listen_address);
    let address = address.expect("the table of knobs has a good default");
    Listen {
        socket: socket(table, &address),
        address,
        protocol: table.word("protocol", &[Protocol::Smtp, Protocol::Lmtp]),
        hostname: table.text("hostname", forms::host_name).unwrap_or_else(|| hostname.clone()),
        connections: count("connections", limits.connections),
        connections_per_client: count("connections_per_client", limits.connections_per_client),
        message_bytes_max: table.whole("message_bytes_max", limits.message_bytes_max),
        recipients_max: count("recipients_max", limits.recipients_max),
        stranger_recipients_max: count("stranger_recipients_max", limits.stranger_recipients_max),
    }
}

fn socket(table: &Scope<'_>, address: &ListenAddress) -> Socket {
    if matches!(address, ListenAddress::Tcp(_)) {
        for name in ["mode", "group", "trusted"].into_iter().filter(|name| table.has(name)) {
            let help = (name == "trusted").then(|| "set `relay.from`".into());
            table.wrong(name, "is for a listener at unix:/path only", help);
        }
    }
    Socket {
        mode: table.text("mode", forms::mode).expect("the table of knobs has a good default"),
        group: table.text("group", forms::group),
        group_origin: origin(table, "group"),
        trusted: table.flag("trusted"),
    }
}

fn relay(table: &Scope<'_>) -> Relay {
    Relay {
        from: table.list("from", forms::network),
        bare_newline: table.word("bare_newline", &[BareNewline::Normalize, BareNewline::Refuse]),
    }
}

fn local(table: &Scope<'_>, hostname: &Domain) -> Local {
    let domain = |text: &str| match text {
        "{hostname}" => Ok(hostname.clone()),
        _ => forms::domain(text),
    };
    let local = Local {
        domains: table.list("domains", domain),
        deliver: table
            .text("deliver", forms::deliver)
            .expect("the table of knobs has a good default"),
        users: table.word("users", &[Users::Any, Users::System]),
    };
    let templates: &[Template] = match &local.deliver {
        Deliver::Maildir(one) | Deliver::Mbox(one) => std::slice::from_ref(one),
        Deliver::Pipe(all) => all,
        Deliver::Lmtp(_) => &[],
    };
    let home = templates.iter().any(|template| template.has(&Piece::Home));
    if home && local.users == Users::Any {
        let help = Some("set `users = \"system\"`".into());
        table.wrong("deliver", "{home} is known of the system's accounts only", help);
    }
    local
}

fn route(table: &Scope<'_>) -> Option<policy::Route> {
    for (name, example) in [("domain", "\"*.sink.test\""), ("to", "\"smtp:127.0.0.1:2600\"")] {
        if !table.has(name) {
            table.wrong(name, "is missing", Some(format!("{name} = {example}")));
        }
    }
    let pattern = table.text("domain", forms::pattern);
    let to = table.text("to", forms::next_hop);
    Some(policy::Route { pattern: pattern?, to: to? })
}

fn destinations(top: &Scope<'_>) -> Destinations {
    let mut tables = top.named("destination");
    let first = tables.iter().position(|(name, ..)| *name == "default");
    let default = match first.map(|at| tables.remove(at)) {
        Some((_, _, table)) => destination(&table, None),
        None => destination(&Scope::absent(top, "destination"), None),
    };
    let mut named = Vec::new();
    for (name, span, table) in tables {
        match forms::destination(name) {
            Ok(name) => named.push((name, destination(&table, Some(&default)))),
            Err(what) => top.source.note(Some(span), &format!("destination.{name:?}"), what, None),
        }
    }
    // The scheduler takes the first that matches: names, then the longer `*.name`, then `*`.
    named.sort_by_key(|(name, _)| (name.starts_with('*'), std::cmp::Reverse(name.len())));
    Destinations { default, named }
}

fn destination(table: &Scope<'_>, default: Option<&Destination>) -> Destination {
    let count = |name, inherited: Option<u32>| match inherited {
        Some(inherited) if !table.has(name) => inherited,
        _ => table.count(name),
    };
    let connections = count("connections", default.map(|default| default.connections));
    let start = count("start_connections", default.map(|default| default.start_connections));
    if table.has("start_connections") && start > connections {
        table.wrong("start_connections", format!("is more than connections, {connections}"), None);
    }
    let rate = |text: &str| {
        units::rate(text).ok_or_else(|| "is a rate such as \"600/m\", or \"unlimited\"".to_string())
    };
    Destination {
        connections,
        start_connections: start.min(connections),
        messages_per_connection: count(
            "messages_per_connection",
            default.map(|default| default.messages_per_connection),
        ),
        recipients_per_message: count(
            "recipients_per_message",
            default.map(|default| default.recipients_per_message),
        ),
        rate: match default {
            Some(default) if !table.has("rate") => default.rate,
            _ => table.text("rate", rate).flatten(),
        },
    }
}

fn retry(table: &Scope<'_>) -> Retry {
    let notice = table.time("delay_notice");
    let retry = Retry {
        first: table.time("first"),
        factor: table.decimal("factor"),
        longest: table.time("longest"),
        jitter: table.decimal("jitter"),
        expire: table.time("expire"),
        delay_notice: (!notice.is_zero()).then_some(notice),
    };
    if retry.first > retry.longest {
        let name = if table.has("first") { "first" } else { "longest" };
        let [first, longest] = [retry.first, retry.longest].map(shown);
        let what = format!("the first wait, {first}, is longer than the longest, {longest}");
        table.wrong(name, what, None);
    }
    if retry.first >= retry.expire {
        let name = if table.has("expire") { "expire" } else { "first" };
        let [first, expire] = [retry.first, retry.expire].map(shown);
        let what = format!(
            "a message would expire after {expire}, before it is tried again after {first}"
        );
        table.wrong(name, what, None);
    }
    if table.has("delay_notice") && notice >= retry.expire {
        let [expire, notice] = [retry.expire, notice].map(shown);
        let what = format!(
            "a message would expire after {expire}, before anybody hears of a delay after {notice}"
        );
        table.wrong("delay_notice", what, None);
    }
    retry
}

fn shown(time: std::time::Duration) -> String {
    units::show_time(time.as_secs())
}

fn limits(table: &Scope<'_>) -> Limits {
    Limits {
        message_bytes_max: table.whole("message_bytes_max", 0),
        header_bytes_max: table.whole("header_bytes_max", 0),
        recipients_max: table.count("recipients_max"),
        stranger_recipients_max: table.count("stranger_recipients_max"),
        connections: table.count("connections"),
        connections_per_client: table.count("connections_per_client"),
        session_memory_bytes_max: table.whole("session_memory_bytes_max", 0),
        hops_max: table.count("hops_max"),
        command_timeout: table.time("command_timeout"),
        data_timeout: table.time("data_timeout"),
        data_bytes_per_second_min: table.whole("data_bytes_per_second_min", 0),
        transaction_time_max: table.time("transaction_time_max"),
        commit_timeout: table.time("commit_timeout"),
        junk_commands_max: table.count("junk_commands_max"),
        refusals_max: table.count("refusals_max"),
        idle_commands_max: table.count("idle_commands_max"),
    }
}

fn processes(table: &Scope<'_>) -> Processes {
    Processes {
        receive: table.count("receive"),
        send: table.count("send"),
        ids_first: table.count("ids_first"),
    }
}

/// A segment is written in blocks of this (`docs/spool-format.md`).
const BLOCK_BYTES: u64 = 4096;

fn spool(table: &Scope<'_>) -> Spool {
    let spool = Spool {
        segment_bytes: table.whole("segment_bytes", 0),
        commits_in_flight: table.count("commits_in_flight"),
        batch_bytes_max: table.whole("batch_bytes_max", 0),
        reserve_bytes: table.whole("reserve_bytes", 0),
        keep_free_bytes: table.whole("keep_free_bytes", 0),
        snapshot_bytes: table.whole("snapshot_bytes", 0),
    };
    if !spool.segment_bytes.is_multiple_of(BLOCK_BYTES) {
        table.wrong("segment_bytes", format!("is not a multiple of {BLOCK_BYTES}"), None);
    }
    if spool.batch_bytes_max > spool.segment_bytes / 4 {
        let [batch, segment, quarter] =
            [spool.batch_bytes_max, spool.segment_bytes, spool.segment_bytes / 4]
                .map(units::show_bytes);
        let name = if table.has("batch_bytes_max") { "batch_bytes_max" } else { "segment_bytes" };
        let what = format!(
            "a batch may be a quarter of a segment at most: batch_bytes_max {batch} is more than segment_bytes {segment} / 4 = {quarter}"
        );
        let help = Some(format!("batch_bytes_max = \"{quarter}\" is the most for it"));
        table.wrong(name, what, help);
    }
    spool
}

fn dns(table: &Scope<'_>) -> Dns {
    // The words of the three: use, refuse.
    let uses = |name| table.word(name, &[true, false]);
    Dns {
        servers: table.list("servers", forms::dns_server),
        timeout: table.time("timeout"),
        mx_addresses: uses("mx_addresses"),
        mx_nxdomain: uses("mx_nxdomain"),
        private_addresses: uses("private_addresses"),
    }
}

fn queue(table: &Scope<'_>) -> Queue {
    let orders = [
        Order::Fair,
        Order::Priority,
        Order::Arrival,
        Order::Destination,
        Order::Modified,
        Order::Id,
        Order::Random,
        Order::None,
    ];
    Queue {
        order: table.word("order", &orders),
        attempts_in_flight_max: table.count("attempts_in_flight_max"),
        bulk_bytes_min: table.whole("bulk_bytes_min", 0),
        losses_max: table.count("losses_max"),
    }
}

fn log(table: &Scope<'_>) -> Log {
    let levels = [LogLevel::None, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];
    Log {
        format: table.word("format", &[LogFormat::Text, LogFormat::Json]),
        level: table.word("level", &levels),
    }
}
