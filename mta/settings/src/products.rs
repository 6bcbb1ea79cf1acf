//! Checks what combinations of settings may use together, if no counter limits it while the mailer runs.
//!
//! Must never refuse a product that a counter does limit: a client learns of that limit when it is reached
//! (`docs/bounds.md`).

use super::read::Scope;
use super::table::{LimitSettings, Listen, ProcessSettings, SpoolSettings};
use super::units::show_bytes;

/// Minimum number of bytes that an open connection is counted with against `limits.session_memory_bytes_max`.
const SESSION_BYTES_MIN: u64 = receive::SESSION_BYTES_MIN as u64;

/// Minimum memory with which a receive process can accept a message.
const RECEIVE_BYTES_MIN: u64 = receive::MESSAGE_BYTES_MIN as u64;

/// Minimum number of bytes of a recipient in the record of its message: `a@b`, its domain, its DSN parameters.
const RECIPIENT_BYTES_MIN: u64 = 8;

/// What a segment contains besides the longest record: its header, and the frame of a batch.
const SEGMENT_BYTES_BESIDES: u64 = 3 * 4096;

/// Checks `[limits]` and `[spool]` against each other.
pub(super) fn check(limits: (&Scope<'_>, &LimitSettings), spool: (&Scope<'_>, &SpoolSettings)) {
    let (table, limits) = limits;
    sessions(table, limits.connections, limits.session_memory_bytes_max);
    let at = if table.has("recipients_max") {
        (table, "recipients_max")
    } else {
        (spool.0, "segment_bytes")
    };
    envelope(at, limits.recipients_max, spool.1.segment_bytes.into());
}

/// Checks that the share of memory of each receive process is enough for a message. With the default, 0, master starts at
/// most `receivers_max` processes.
pub(super) fn check_receivers(
    table: &Scope<'_>,
    processes: &ProcessSettings,
    limits: &LimitSettings,
) {
    let (count, memory_bytes) = (processes.receive, limits.session_memory_bytes_max);
    let bytes = u64::from(count) * RECEIVE_BYTES_MIN;
    if bytes <= memory_bytes {
        return;
    }
    let [each, all, most] = [RECEIVE_BYTES_MIN, bytes, memory_bytes].map(|bytes| bytes >> 10);
    let what = format!(
        "{count} processes x {each}KiB, the minimum for one message, = {all}KiB: more than session_memory_bytes_max, {most}KiB"
    );
    let help = format!("receive can be at most {}", receivers_max(memory_bytes));
    table.wrong("receive", what, Some(help));
}

/// Returns the number of receive processes that can each take a message within this memory, at least 1.
pub fn receivers_max(memory_bytes: u64) -> u32 {
    u32::try_from(memory_bytes / RECEIVE_BYTES_MIN).unwrap_or(u32::MAX).max(1)
}

/// Checks what a listener sets itself.
pub(super) fn check_listener(
    table: &Scope<'_>,
    listen: &Listen,
    limits: &LimitSettings,
    spool: &SpoolSettings,
) {
    let (here, all) = (listen.connections, limits.connections);
    if here > all {
        let what = format!(
            "{here} connections here: more than limits.connections, {all}, which all listeners share"
        );
        let help = format!("connections can be at most {all}, unless limits.connections is raised");
        table.wrong("connections", what, Some(help));
    }
    if table.has("recipients_max") {
        envelope((table, "recipients_max"), listen.recipients_max, spool.segment_bytes.into());
    }
}

/// Checks that there is memory for every connection: one without could never be served.
fn sessions(table: &Scope<'_>, connections: u32, memory_bytes: u64) {
    let bytes = u64::from(connections) * SESSION_BYTES_MIN;
    if bytes <= memory_bytes {
        return;
    }
    let name = if table.has("connections") { "connections" } else { "session_memory_bytes_max" };
    let [each, all, most] = [SESSION_BYTES_MIN, bytes, memory_bytes].map(|bytes| bytes >> 10);
    let what = format!(
        "{connections} connections x {each}KiB, the minimum for each, = {all}KiB: more than session_memory_bytes_max, {most}KiB"
    );
    let help = format!("connections can be at most {}", memory_bytes / SESSION_BYTES_MIN);
    table.wrong(name, what, Some(help));
}

/// Checks that the record of a message with that number of the shortest recipients fits in one segment.
fn envelope((table, name): (&Scope<'_>, &str), recipients: u32, segment_bytes: u64) {
    let room = segment_bytes.saturating_sub(SEGMENT_BYTES_BESIDES);
    let bytes = u64::from(recipients) * RECIPIENT_BYTES_MIN;
    if bytes <= room {
        return;
    }
    let what = format!(
        "{recipients} recipients x {RECIPIENT_BYTES_MIN} bytes, the minimum for each, = {bytes} bytes: more than the {room} bytes that a record can have in a segment of {}",
        show_bytes(segment_bytes)
    );
    let help = format!("recipients_max can be at most {}", room / RECIPIENT_BYTES_MIN);
    table.wrong(name, what, Some(help));
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, Notify, Recipient};

    #[test]
    fn no_recipient_takes_less_than_is_reckoned_with() {
        let address = Address::parse("a@b", false).unwrap();
        let recipient = Recipient { address, notify: Notify::DEFAULT, orcpt: None };
        let bytes = postcard::to_stdvec(&recipient).unwrap().len() as u64;
        assert!((RECIPIENT_BYTES_MIN..2 * RECIPIENT_BYTES_MIN).contains(&bytes), "{bytes}");
    }
}
