//! The queue as `mailq` has printed it for decades, for people and scripts that know it.
//!
//! Must never print a stranger's control characters.

use super::EX_OK;
use super::ask::QueueConnection;
use super::config::Config;
use super::print::{Failure, count, harmless, say};
use super::queue::pages;
use link::admin::{Filter, Row, State};
use mail::Timestamp;
use mail::trace::Civil;
use std::fmt::Write;

const HEADING: &str = "-Queue ID-  --Size-- ----Arrival Time---- -Sender/Recipient-------\n";

pub(super) fn print(config: &Config) -> Result<u8, Failure> {
    let mut queue = QueueConnection::of(config)?;
    let (mut messages, mut bytes) = (0u64, 0u64);
    pages(&mut queue, Filter::default(), None, |row| {
        let heading = if messages == 0 { HEADING } else { "" };
        messages += 1;
        bytes += row.bytes;
        say(&format!("{heading}{}\n", entry(&row)));
    })?;
    say(&match messages {
        0 => "Mail queue is empty\n".into(),
        _ => format!("-- {} Kbytes in {}.\n", bytes.div_ceil(1024), count(messages, "Request")),
    });
    Ok(EX_OK)
}

/// Returns one message. `*` marks an active message, `!` a held one.
fn entry(row: &Row) -> String {
    let mark = match row.state {
        State::Active => '*',
        State::Deferred => ' ',
        State::Held => '!',
    };
    let sender = if row.sender.is_empty() { "MAILER-DAEMON".into() } else { harmless(&row.sender) };
    let mut out =
        format!("{}{mark}{:>8} {}  {sender}\n", row.message, row.bytes, asctime(row.arrived));
    for recipient in &row.waiting {
        if let Some(last) = &recipient.last {
            let _ = writeln!(out, "{:>21}({})", "", harmless(&last.reply.to_string()));
        }
        let _ = writeln!(out, "{:>42}{}", "", harmless(&recipient.address));
    }
    let more = u64::from(row.recipients).saturating_sub(row.waiting.len() as u64);
    if more > 0 {
        let _ = writeln!(out, "{:>42}... and {more} more", "");
    }
    out
}

/// Formats a time as `Sat Nov 21 01:01:01`, in UTC.
fn asctime(wall: Timestamp) -> String {
    let date = mail::trace::rfc5322_date(wall);
    let mut words = date.split([' ', ',']).filter(|word| !word.is_empty());
    let (weekday, _, month) = (words.next(), words.next(), words.next());
    let civil = Civil::of(wall);
    format!(
        "{} {} {:2} {:02}:{:02}:{:02}",
        weekday.unwrap_or(""),
        month.unwrap_or(""),
        civil.day,
        civil.hour,
        civil.minute,
        civil.second
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn a_message_looks_as_it_has_for_decades() {
        let expected = "\
00000000011     4096 Sat Nov 21 01:01:01  ann@sender.example
                     (450 4.2.1 try later and again)
                                          joe@dest.example
                                          ... and 2 more
";
        assert_eq!(entry(&row()), expected);
        let held = Row { state: State::Held, sender: String::new(), ..row() };
        assert!(entry(&held).starts_with("00000000011!    4096 Sat Nov 21 01:01:01  MAILER-D"));
    }
}
