//! How the cost of each station grows with what a stranger, a peer or an administrator chooses: one row for each pair.
//!
//! Must never count work whose size is not the row's own, nor what plays the rest of the world.

mod intake;
mod list;
mod queued;
mod replayed;
mod sent;

use crate::meter::{Count, Meter, Part};
use mail::{
    Address, Change, Enhanced, Envelope, MailFrom, MessageId, Notify, Origin, Outcome, Protocol,
    Recipient, Reply, Report, ReversePath, Stage, Timestamp,
};

/// One path and what grows on it.
pub struct Row {
    /// The path, a dash, and what grows.
    pub name: &'static str,
    /// In a line.
    pub what: &'static str,
    /// Counted at a quarter of it, at it, and at four times as many.
    pub n: usize,
    /// Why the row may grow as n log n; empty: it may not.
    pub sorts: &'static str,
    /// Why a run at one is taken off; empty: it is not.
    pub fixed: &'static str,
    /// Carries that many.
    pub run: fn(usize) -> Count,
}

const fn row(name: &'static str, what: &'static str, n: usize, run: fn(usize) -> Count) -> Row {
    Row { name, what, n, sorts: "", fixed: "", run }
}

/// An opening reads whole segments, which are as large as the longest message needs.
const fn recovery(
    name: &'static str,
    what: &'static str,
    n: usize,
    run: fn(usize) -> Count,
) -> Row {
    Row { fixed: "reads whole segments", ..row(name, what, n, run) }
}

/// All, in the order of a message's path.
pub const ROWS: &[Row] = &[
    row("receive-recipients", "RCPT commands, pipelined", 4_000, intake::recipients),
    row("receive-fields", "fields of the header", 4_000, intake::fields),
    row("receive-chunks", "BDAT commands", 4_000, intake::chunks),
    row("receive-connections", "connections with a message each", 400, intake::connections),
    row("commit-recipients", "recipients of a message", 4_000, intake::commit_recipients),
    row("commit-messages", "messages in one commit", 400, intake::commit_messages),
    row("commit-destinations", "recipients with a destination each", 4_000, queued::destinations),
    recovery("recover-delivered", "recipients that have their mail", 4_000, replayed::delivered),
    recovery("recover-deferred", "recipients with a reply each", 4_000, replayed::deferred),
    recovery("recover-retired", "recipients of a message that has ended", 4_000, replayed::retired),
    recovery("recover-messages", "messages with a destination each", 4_000, replayed::messages),
    row("recover-attempts", "attempts that an earlier queue process gave", 4_000, list::adopted),
    row("snapshot-replies", "recipients with a reply each", 4_000, list::saved_replies),
    row(
        "snapshot-destinations",
        "recipients with a destination each",
        4_000,
        list::saved_destinations,
    ),
    row("snapshot-messages", "messages", 4_000, list::saved_messages),
    row("restore-destinations", "recipients with a destination each", 4_000, list::restored),
    row("attempts-recipients", "recipients of a message, 100 an attempt", 4_000, list::attempts),
    row(
        "send-recipients",
        "recipients of a transaction with a reply each",
        4_000,
        sent::recipients,
    ),
    row("send-domains", "recipients of a transaction with a domain each", 4_000, sent::domains),
    row("outcome-replies", "recipients of an attempt with a reply each", 1_000, queued::outcome),
    row("outcome-destinations", "destinations that take mail", 4_000, list::outcomes),
    row(
        "expire-replies",
        "recipients given up with a reply each, and the notices",
        1_000,
        queued::expire,
    ),
    row("expire-messages", "messages given up", 1_000, list::expired),
    row("admin-list", "messages, page by page", 4_000, queued::list),
    row("admin-ids", "messages named by their ids", 2_000, queued::ids),
    row("admin-summary", "destinations", 4_000, queued::summary),
    row("admin-hold", "messages held", 4_000, queued::hold),
    row("admin-explain", "recipients of a message, page by page", 8_000, queued::explain),
];

/// Counts a piece of work.
fn counted<T>(work: impl FnOnce() -> T) -> (Count, T) {
    let mut meter = Meter::new(Part::Reference);
    meter.start();
    let done = meter.run(Part::Reference, work);
    meter.passed(1);
    (meter.count(), done)
}

fn address(text: &str) -> Address {
    Address::parse(text, false).expect("an address")
}

/// A message to this number of recipients at one destination, or with a destination each.
fn envelope(recipients: usize, destinations: bool) -> Envelope {
    let one = |at: usize| {
        let domain = if destinations { format!("d{at}.test") } else { "list.test".into() };
        let address = address(&format!("user{at}@{domain}"));
        Recipient { address, notify: Notify::DEFAULT, orcpt: None }
    };
    Envelope {
        from: MailFrom::new(ReversePath::Address(address("owner@customer.example"))),
        origin: Origin { client: None, helo: "c.example".into(), protocol: Protocol::Esmtp },
        arrived: Timestamp::from_micros(1_795_253_400_000_000),
        recipients: (0..recipients).map(one).collect(),
    }
}

/// All recipients once, neighbours far from each other.
fn scattered(n: usize) -> impl Iterator<Item = u32> {
    (0..n).map(move |at| ((at * 7_919) % n) as u32)
}

/// What the peer said of this recipient and of no other.
fn report(at: u32) -> Report {
    let reply = Reply::new(450, Enhanced(4, 2, 1), format!("try again later, id {at:08x}"));
    Report { stage: Stage::Rcpt, reply, peer: "mx.list.test[192.0.2.1]:25".into(), from_peer: true }
}

fn deferred(at: u32) -> (u32, Outcome) {
    (at, Outcome::Deferred(report(at)))
}

fn due(message: MessageId, at: u32) -> Change {
    let due = Timestamp::from_micros(1_795_254_000_000_000);
    Change::Due { message, recipients: vec![at], due, attempts: 1, report: report(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_carries_as_many_as_it_says_and_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            let count = (row.run)(row.n / 8);
            assert!(count.messages > 0 && count.allocations > 0, "{}: {count}", row.name);
        }
    }
}
