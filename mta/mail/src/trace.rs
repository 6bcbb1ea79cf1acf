//! The trace headers that are added before a message, and their dates (RFC 5321 4.4).
//!
//! Must never change the sender's bytes, and never let a peer's text end a header line.

use crate::{Address, MessageId, Origin, Protocol, ReversePath, Timestamp};
use std::fmt::Write;
use std::net::IpAddr;

/// Returns the `Received:` header for a message that has arrived (RFC 5321 4.4, RFC 3848). The caller passes `recipient`
/// only if it is the only one, so that no recipient learns of another.
pub fn received(
    origin: &Origin,
    id: MessageId,
    hostname: &str,
    arrived: Timestamp,
    recipient: Option<&Address>,
) -> Vec<u8> {
    let utf8 = matches!(origin.protocol, Protocol::Utf8Smtp | Protocol::Utf8Lmtp);
    // Written without the formatter, which is slower: each message has this header.
    let mut line = String::with_capacity(RECEIVED_BYTES_USUAL);
    line.push_str("Received: ");
    if origin.protocol != Protocol::Local {
        line.push_str("from ");
        push_atom(&mut line, if origin.helo.is_empty() { "unknown" } else { &origin.helo }, utf8);
        if let Some(client) = origin.client {
            line.push_str(" (");
            push_literal(&mut line, client);
            line.push(')');
        }
        line.push_str("\r\n\t");
    }
    line.push_str("by ");
    push_atom(&mut line, hostname, false);
    line.push_str(" with ");
    line.push_str(protocol_word(origin.protocol));
    let _ = write!(line, " id {id}");
    // Never in UTF-8: this field must not prevent delivery to a next hop that accepts only ASCII.
    let shown =
        recipient.map(Address::as_str).filter(|text| text.is_ascii() && is_shown_whole(text));
    if let Some(text) = shown {
        line.push_str("\r\n\tfor <");
        line.push_str(text);
        line.push('>');
    }
    line.push_str(";\r\n\t");
    push_rfc5322_date(&mut line, arrived);
    line.push_str("\r\n");
    line.into_bytes()
}

/// Capacity that suffices for the header of most messages.
const RECEIVED_BYTES_USUAL: usize = 192;

/// Returns the `Return-Path:` header, which is written once, at final delivery (RFC 5321 4.4).
pub fn return_path(sender: &ReversePath) -> Vec<u8> {
    format!("Return-Path: <{}>\r\n", one_line(&sender.to_string())).into_bytes()
}

/// Returns the `Delivered-To:` header, which is written at final delivery and reveals loops between mailboxes.
pub fn delivered_to(recipient: &Address) -> Vec<u8> {
    format!("Delivered-To: {}\r\n", one_line(recipient.as_str())).into_bytes()
}

/// Returns a date and time in UTC in the format of RFC 5322 3.3. The grammar cannot express years before 1900: the date
/// is then 1 January 1900.
pub fn rfc5322_date(wall: Timestamp) -> String {
    let mut text = String::with_capacity(31);
    push_rfc5322_date(&mut text, wall);
    text
}

fn push_rfc5322_date(text: &mut String, wall: Timestamp) {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let civil = Civil::of(wall.max(YEAR_1900));
    text.push_str(DAYS[civil.weekday as usize]);
    text.push_str(", ");
    push_number(text, u64::from(civil.day), 1);
    text.push(' ');
    text.push_str(MONTHS[civil.month as usize - 1]);
    text.push(' ');
    push_number(text, civil.year.unsigned_abs(), 4);
    for (mark, part) in [(' ', civil.hour), (':', civil.minute), (':', civil.second)] {
        text.push(mark);
        push_number(text, u64::from(part), 2);
    }
    text.push_str(" +0000");
}

/// Returns a date and time in UTC in the format of RFC 3339 with microseconds, for logs and tables.
pub fn rfc3339_date(wall: Timestamp) -> String {
    let Civil { year, month, day, hour, minute, second, micros, .. } = Civil::of(wall);
    let mut text = String::with_capacity(27);
    // Written without the formatter, which is slower: each line of the log has a date.
    match u64::try_from(year) {
        Ok(year) => push_number(&mut text, year, 4),
        Err(_) => text.push_str(&format!("{year:04}")),
    }
    let parts = [('-', month), ('-', day), ('T', hour), (':', minute), (':', second)];
    for (mark, part) in parts {
        text.push(mark);
        push_number(&mut text, u64::from(part), 2);
    }
    text.push('.');
    push_number(&mut text, u64::from(micros), 6);
    text.push('Z');
    text
}

/// Appends a number in decimal with leading zeros up to `digits_min` digits.
pub fn push_number(out: &mut String, mut number: u64, digits_min: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 {
        at -= 1;
        digits[at] += (number % 10) as u8;
        number /= 10;
    }
    at = at.min(digits.len().saturating_sub(digits_min));
    out.extend(digits[at..].iter().map(|digit| char::from(*digit)));
}

/// A moment in the Gregorian calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year. Year 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// The day of the week. 0 is Monday.
    pub weekday: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59: wall-clock time has no leap seconds.
    pub second: u8,
    /// 0 to 999,999.
    pub micros: u32,
}

impl Civil {
    /// Converts a wall-clock time. The result is correct for every `Timestamp`, including times before 1970.
    pub fn of(wall: Timestamp) -> Civil {
        let (day_number, second) =
            (wall.seconds().div_euclid(86_400), wall.seconds().rem_euclid(86_400));
        let (year, month, day) = date_of(day_number);
        Civil {
            year,
            month,
            day,
            // 1970-01-01 was a Thursday.
            weekday: (day_number + 3).rem_euclid(7) as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
            micros: wall.micros().rem_euclid(1_000_000) as u32,
        }
    }
}

/// Returns year, month and day of a day that is counted from 1970-01-01. Internally, years begin in March, so that the
/// leap day is the last day of its year, and 400 years are an era of 146,097 days.
fn date_of(day_number: i64) -> (i64, u8, u8) {
    let from_march_0000 = day_number + 719_468;
    let era = from_march_0000.div_euclid(146_097);
    let day_of_era = from_march_0000.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month as u8, day as u8)
}

const YEAR_1900: Timestamp = Timestamp::from_micros(-2_208_988_800_000_000);

/// Appends an address literal (RFC 5321 4.1.3).
fn push_literal(out: &mut String, address: IpAddr) {
    out.push('[');
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            for (nth, octet) in v4.octets().into_iter().enumerate() {
                if nth > 0 {
                    out.push('.');
                }
                push_number(out, u64::from(octet), 1);
            }
        }
        IpAddr::V6(v6) => {
            let _ = write!(out, "IPv6:{v6}");
        }
    }
    out.push(']');
}

/// Returns the word after `with` (RFC 3848, RFC 6531 4.3).
fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Smtp => "SMTP",
        Protocol::Esmtp => "ESMTP",
        Protocol::Lmtp => "LMTP",
        Protocol::Utf8Smtp => "UTF8SMTP",
        Protocol::Utf8Lmtp => "UTF8LMTP",
        Protocol::Local => "local",
    }
}

/// Appends a host name as one word. A character that could start a comment, a clause or a line becomes `?`.
fn push_atom(out: &mut String, text: &str, utf8: bool) {
    let keep = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, '.' | '-' | '_' | ':' | '[' | ']')
            || (utf8 && !c.is_ascii() && printable(c))
    };
    out.extend(text.chars().take(NAME_CHARS_MAX).map(|c| if keep(c) { c } else { '?' }));
}

/// Returns whether an address can be shown unchanged. A changed address would be a different address.
fn is_shown_whole(text: &str) -> bool {
    text.len() <= ADDRESS_BYTES_MAX && text.chars().all(printable)
}

fn one_line(text: &str) -> String {
    text.chars().take(ADDRESS_BYTES_MAX).map(|c| if printable(c) { c } else { '?' }).collect()
}

fn printable(c: char) -> bool {
    !c.is_control() && c != '\u{2028}' && c != '\u{2029}'
}

/// Upper bound in characters on a name (RFC 5321 4.5.3.1.2).
const NAME_CHARS_MAX: usize = 255;
/// Upper bound in bytes on an address: local part, `@`, domain (RFC 5321 4.5.3.1).
const ADDRESS_BYTES_MAX: usize = 64 + 1 + 255;

#[cfg(test)]
mod tests {
    use super::*;

    const NOVEMBER: Timestamp = Timestamp::from_micros(1_795_222_861_000_042);

    fn origin(client: Option<&str>, helo: &str, protocol: Protocol) -> Origin {
        Origin { client: client.map(|ip| ip.parse().unwrap()), helo: helo.into(), protocol }
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn received_says_who_by_how_and_when() {
        let rcpt = Address::parse("joe@local.test", false).unwrap();
        let from = origin(Some("192.0.2.7"), "client.example", Protocol::Esmtp);
        let line = text(received(&from, MessageId(33), "mx.example.org", NOVEMBER, Some(&rcpt)));
        assert_eq!(
            line,
            "Received: from client.example ([192.0.2.7])\r\n\
             \tby mx.example.org with ESMTP id 00000000011\r\n\
             \tfor <joe@local.test>;\r\n\
             \tSat, 21 Nov 2026 01:01:01 +0000\r\n"
        );
        let from = origin(Some("2001:db8::1"), "[IPv6:2001:db8::1]", Protocol::Lmtp);
        let line = text(received(&from, MessageId(0), "mx", NOVEMBER, None));
        assert!(line.starts_with(
            "Received: from [IPv6:2001:db8::1] ([IPv6:2001:db8::1])\r\n\tby mx with LMTP id "
        ));
        assert!(!line.contains("for <"));
        let ours =
            text(received(&origin(None, "", Protocol::Local), MessageId(0), "mx", NOVEMBER, None));
        assert!(ours.starts_with("Received: by mx with local id 00000000000;\r\n"));
    }

    #[test]
    fn a_hostile_helo_stays_inside_its_word() {
        let from = origin(Some("192.0.2.7"), "a b\r\nEvil: (x", Protocol::Smtp);
        let line = text(received(&from, MessageId(0), "mx", NOVEMBER, None));
        assert!(line.starts_with("Received: from a?b??Evil:??x ([192.0.2.7])\r\n\tby "));
        assert_eq!(line.matches("\r\n").count(), 3);
    }

    #[test]
    fn return_path_and_delivered_to_are_one_line_each() {
        assert_eq!(return_path(&ReversePath::Null), b"Return-Path: <>\r\n");
        let joe = Address::parse("joe@local.test", false).unwrap();
        assert_eq!(
            return_path(&ReversePath::Address(joe.clone())),
            b"Return-Path: <joe@local.test>\r\n"
        );
        assert_eq!(delivered_to(&joe), b"Delivered-To: joe@local.test\r\n");
    }

    #[test]
    fn n113_dates_are_right_from_before_1970_to_9999_and_never_panic() {
        let cases = [
            (0, "Thu, 1 Jan 1970 00:00:00 +0000"),
            (-1, "Wed, 31 Dec 1969 23:59:59 +0000"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 +0000"),
            (1_483_228_799, "Sat, 31 Dec 2016 23:59:59 +0000"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 +0000"),
            (4_107_542_400, "Mon, 1 Mar 2100 00:00:00 +0000"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 +0000"),
            (-2_208_988_801, "Mon, 1 Jan 1900 00:00:00 +0000"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(rfc5322_date(Timestamp::from_micros(seconds * 1_000_000)), expected);
        }
        for micros in [i64::MIN, i64::MAX, -1] {
            rfc5322_date(Timestamp::from_micros(micros));
            rfc3339_date(Timestamp::from_micros(micros));
        }
        assert_eq!(rfc3339_date(Timestamp::from_micros(-1)), "1969-12-31T23:59:59.999999Z");
        let first = Timestamp::from_micros(-62_167_219_200_000_000);
        assert_eq!(rfc3339_date(first), "0000-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339_date(NOVEMBER), "2026-11-21T01:01:01.000042Z");
    }

    #[test]
    fn a_number_has_zeros_in_front_up_to_its_width_and_none_beyond() {
        let cases = [(0, 1, "0"), (0, 0, ""), (7, 3, "007"), (1234, 3, "1234"), (10, 2, "10")];
        for (number, digits_min, expected) in cases {
            let mut text = String::new();
            push_number(&mut text, number, digits_min);
            assert_eq!(text, expected);
        }
        let mut text = String::new();
        push_number(&mut text, u64::MAX, 1);
        assert_eq!(text, u64::MAX.to_string());
    }

    #[test]
    fn n113_every_day_from_1969_to_9999_follows_the_one_before() {
        let mut before = Civil::of(Timestamp::from_micros(-86_400_000_000));
        for day in 0..2_932_897i64 {
            let civil = Civil::of(Timestamp::from_micros(day * 86_400_000_000));
            assert_eq!(civil.weekday, (before.weekday + 1) % 7);
            if civil.day == 1 {
                let leap =
                    before.year % 4 == 0 && (before.year % 100 != 0 || before.year % 400 == 0);
                let last = match before.month {
                    2 => 28 + u8::from(leap),
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                assert_eq!(before.day, last);
                assert_eq!(civil.month, before.month % 12 + 1);
            } else {
                assert_eq!(
                    (civil.year, civil.month, civil.day),
                    (before.year, before.month, before.day + 1)
                );
            }
            before = civil;
        }
        assert_eq!((before.year, before.month, before.day), (9999, 12, 31));
    }
}
