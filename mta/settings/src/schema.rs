//! Makes `Settings` of a parsed file, and checks what settings mean together.
//!
//! Must never let values through that cannot work.

use super::problem::Problem;
use super::read::{Scope, Source};
use super::table::*;
use super::types::{
    Deliver, Destinations, ListenAddress, Piece, Placed, Settings, Template, Users,
};
use super::{System, forms, products, units};
use mail::Domain;
use toml::de::DeTable;

/// Maximum size of a settings file.
pub(super) const TEXT_BYTES_MAX: usize = 4 << 20;

/// Maximum number of listeners. Each is a socket in every receive process, and has a number of 16 bits.
pub(super) const LISTENERS_MAX: usize = 256;

/// Returns all settings, or all problems.
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

/// All tables but `[[route]]` have a default for each of their settings.
const HAS_DEFAULTS: &str = "the table of settings has a good default";

fn checked(top: &Scope<'_>, system: &System) -> Option<Settings> {
    let hostname = hostname(top, system)?;
    top.source.hostname.get_or_init(|| hostname.clone());
    let state = top.text("state", forms::absolute);
    let (limits_table, spool_table) = (top.table("limits"), top.table("spool"));
    let (limits, spool) = (LimitSettings::read(&limits_table)?, spool(&spool_table)?);
    products::check((&limits_table, &limits), (&spool_table, &spool));
    Some(Settings {
        postmaster: postmaster(top),
        listen: listeners(top, &limits, &spool),
        relay: RelaySettings::read(&top.table("relay"))?,
        local: local(&top.table("local"))?,
        routes: top.tables("route").iter().filter_map(route).collect(),
        destinations: destinations(top),
        retry: retry(&top.table("retry"))?,
        processes: processes(&top.table("processes"), &limits)?,
        dns: DnsSettings::read(&top.table("dns"))?,
        bounce: BounceSettings::read(&top.table("bounce"))?,
        queue: QueueSettings::read(&top.table("queue"))?,
        log: LogSettings::read(&top.table("log"))?,
        limits,
        spool,
        hostname,
        state: state.unwrap_or_else(|| system.state.clone()),
    })
}

/// Returns the name of this mailer. If there is none, `localhost` stands in until the problem is reported.
fn hostname(top: &Scope<'_>, system: &System) -> Option<Domain> {
    if let Some(name) = top.text("hostname", forms::host_name) {
        return Some(name);
    }
    let of_system = forms::host_name(&system.hostname);
    if let (Err(_), false) = (&of_system, top.has("hostname")) {
        let what = format!("the system's name `{}` is not a domain", system.hostname);
        top.wrong("hostname", what, Some("set `hostname = \"...\"`".into()));
    }
    of_system.or_else(|_| forms::host_name("localhost")).ok()
}

fn postmaster(top: &Scope<'_>) -> Placed<policy::Postmaster> {
    let value = top.text("postmaster", forms::postmaster).expect(HAS_DEFAULTS);
    let origin = match top.has("postmaster") {
        true => top.origin("postmaster"),
        false => top.table("local").origin("users"),
    };
    Placed { value, origin }
}

fn listeners(top: &Scope<'_>, limits: &LimitSettings, spool: &SpoolSettings) -> Vec<Listen> {
    let tables = top.tables("listen");
    if tables.is_empty() && !top.has("listen") {
        return Listen::read(&top.absent("listen")).into_iter().collect();
    }
    if tables.len() > LISTENERS_MAX {
        let what = format!("{} listeners are more than {LISTENERS_MAX}", tables.len());
        top.wrong("listen", what, None);
    }
    let mut listeners: Vec<Listen> = Vec::new();
    for table in tables.iter().take(LISTENERS_MAX) {
        if !table.has("address") {
            let help = "write address = \"127.0.0.1:2525\"";
            table.wrong("address", "is missing", Some(help.into()));
        }
        let one = listener(table);
        if listeners.iter().any(|other| other.address == one.address) && table.has("address") {
            table.wrong("address", "is the address of another listener, too", None);
        }
        products::check_listener(table, &one, limits, spool);
        listeners.push(one);
    }
    if listeners.is_empty() {
        top.wrong("listen", "needs at least one address", None);
    }
    listeners
}

fn listener(table: &Scope<'_>) -> Listen {
    let listen = Listen::read(table).expect(HAS_DEFAULTS);
    if matches!(listen.address, ListenAddress::Tcp(_)) {
        for name in ["mode", "group", "trusted"].into_iter().filter(|name| table.has(name)) {
            let help = (name == "trusted").then(|| "set `relay.from` instead".into());
            table.wrong(name, "is only for a listener at unix:/path", help);
        }
    }
    listen
}

fn local(table: &Scope<'_>) -> Option<LocalSettings> {
    let local = LocalSettings::read(table)?;
    let templates: &[Template] = match &local.deliver {
        Deliver::Maildir(one) | Deliver::Mbox(one) => std::slice::from_ref(one),
        Deliver::Pipe(all) => all,
        Deliver::Lmtp(_) => &[],
    };
    let home = templates.iter().any(|template| template.has(&Piece::Home));
    if home && local.users == Users::Any {
        let help = Some("set `users = \"system\"`".into());
        table.wrong("deliver", "needs accounts of the system, because of {home}", help);
    }
    Some(local)
}

fn route(table: &Scope<'_>) -> Option<policy::Route> {
    let RouteSettings { domain, to } = RouteSettings::read(table)?;
    Some(policy::Route { pattern: domain, to })
}

fn destinations(top: &Scope<'_>) -> Destinations {
    let mut tables = top.named("destination");
    let at = tables.iter().position(|(name, ..)| *name == "default");
    let default_table = match at.map(|at| tables.remove(at)) {
        Some((_, _, table)) => table,
        None => top.absent("destination"),
    };
    let mut named = Vec::new();
    for (name, span, table) in tables {
        match forms::destination(name) {
            Ok(name) => named.push((name, destination(&table.over(&default_table)))),
            Err(what) => top.source.note(Some(span), &format!("destination.{name:?}"), what, None),
        }
    }
    // The scheduler takes the first that matches: names, then the longer `*.name`, then `*`.
    named.sort_by_key(|(name, _)| (name.starts_with('*'), std::cmp::Reverse(name.len())));
    Destinations { default: destination(&default_table), named }
}

fn destination(table: &Scope<'_>) -> DestinationSettings {
    let destination = DestinationSettings::read(table).expect(HAS_DEFAULTS);
    let DestinationSettings { connections, start_connections, .. } = destination;
    if table.has("start_connections") && start_connections > connections {
        table.wrong("start_connections", format!("is more than connections, {connections}"), None);
    }
    DestinationSettings { start_connections: start_connections.min(connections), ..destination }
}

fn retry(table: &Scope<'_>) -> Option<RetrySettings> {
    let retry = RetrySettings::read(table)?;
    let RetrySettings { first, longest, expire, delay_notice, .. } = retry;
    let shown = |time: std::time::Duration| units::show_time(time.as_secs());
    if first > longest {
        let name = if table.has("first") { "first" } else { "longest" };
        let [first, longest] = [first, longest].map(shown);
        let what = format!("the first wait, {first}, is longer than the longest, {longest}");
        table.wrong(name, what, None);
    }
    if first >= expire {
        let name = if table.has("expire") { "expire" } else { "first" };
        let [first, expire] = [first, expire].map(shown);
        let what = format!(
            "a message would expire after {expire}, before it is tried again after {first}"
        );
        table.wrong(name, what, None);
    }
    if let Some(notice) = delay_notice.filter(|notice| *notice >= expire)
        && table.has("delay_notice")
    {
        let [expire, notice] = [expire, notice].map(shown);
        let what = format!(
            "a message would expire after {expire}, before its sender is told of a delay after {notice}"
        );
        table.wrong("delay_notice", what, None);
    }
    Some(retry)
}

fn processes(table: &Scope<'_>, limits: &LimitSettings) -> Option<ProcessSettings> {
    let processes = ProcessSettings::read(table)?;
    products::check_receivers(table, &processes, limits);
    Some(processes)
}

/// Size of a block, in which a segment is written (`docs/spool-format.md`).
const BLOCK_BYTES: u32 = 4096;

fn spool(table: &Scope<'_>) -> Option<SpoolSettings> {
    let spool = SpoolSettings::read(table)?;
    if !spool.segment_bytes.is_multiple_of(BLOCK_BYTES) {
        table.wrong("segment_bytes", format!("is not a multiple of {BLOCK_BYTES}"), None);
    }
    if spool.batch_bytes_max > spool.segment_bytes / 4 {
        let [batch, segment, quarter] =
            [spool.batch_bytes_max, spool.segment_bytes, spool.segment_bytes / 4]
                .map(|bytes| units::show_bytes(bytes.into()));
        let name = if table.has("batch_bytes_max") { "batch_bytes_max" } else { "segment_bytes" };
        let what = format!(
            "a batch can have at most a quarter of a segment: batch_bytes_max {batch} is more than segment_bytes {segment} / 4 = {quarter}"
        );
        let help =
            Some(format!("with this segment_bytes, batch_bytes_max can be at most \"{quarter}\""));
        table.wrong(name, what, help);
    }
    Some(spool)
}
