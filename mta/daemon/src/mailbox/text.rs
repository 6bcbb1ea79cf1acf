//! Conversions of a message for mailboxes: CRLF to LF, the `From ` line, and `>` before lines that look like one.
//!
//! Must never depend on how the message is cut into pieces.

use mail::{ReversePath, Timestamp};
use memchr::memchr;

/// Converts CRLF to LF, also across the borders of pieces. A CR without LF stays.
#[derive(Debug, Default)]
pub struct ToLf {
    cr_waits: bool,
}

impl ToLf {
    /// Appends `piece` to `out`.
    pub fn push(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        if self.cr_waits && !piece.is_empty() {
            self.cr_waits = false;
            if piece[0] != b'\n' {
                out.push(b'\r');
            }
        }
        while let Some(cr) = memchr(b'\r', piece) {
            out.extend_from_slice(&piece[..cr]);
            match piece.get(cr + 1) {
                Some(b'\n') => {}
                Some(_) => out.push(b'\r'),
                None => self.cr_waits = true,
            }
            piece = &piece[cr + 1..];
        }
        out.extend_from_slice(piece);
    }

    /// Ends the message. Appends a CR at its end, which could have belonged to a CRLF.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.cr_waits) {
            out.push(b'\r');
        }
    }
}

/// Puts one `>` before each line that matches `>*From ` (mboxrd), across the borders of pieces.
#[derive(Debug)]
pub struct QuoteFrom {
    at: At,
    last: u8,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// In the head of a line: the number of `>`, then the number of bytes of `From `. None of them are written yet.
    Head { quotes: usize, matched: usize },
    /// After the head.
    Inside,
}

const FROM: &[u8] = b"From ";

impl Default for QuoteFrom {
    fn default() -> Self {
        QuoteFrom { at: At::Head { quotes: 0, matched: 0 }, last: b'\n' }
    }
}

impl QuoteFrom {
    /// Appends `piece`, whose lines end with LF, to `out`.
    pub fn push(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        if let Some(&last) = piece.last() {
            self.last = last;
        }
        while let Some(&byte) = piece.first() {
            let At::Head { quotes, matched } = self.at else {
                let end = memchr(b'\n', piece).map_or(piece.len(), |lf| lf + 1);
                out.extend_from_slice(&piece[..end]);
                if piece[end - 1] == b'\n' {
                    self.at = At::Head { quotes: 0, matched: 0 };
                }
                piece = &piece[end..];
                continue;
            };
            if byte == b'>' && matched == 0 {
                self.at = At::Head { quotes: quotes + 1, matched };
            } else if byte == FROM[matched] && matched + 1 < FROM.len() {
                self.at = At::Head { quotes, matched: matched + 1 };
            } else if byte == FROM[matched] {
                head(out, quotes + 1, FROM.len());
                self.at = At::Inside;
            } else {
                head(out, quotes, matched);
                self.at = At::Inside;
                continue;
            }
            piece = &piece[1..];
        }
    }

    /// Ends the message. Adds an LF to a last line without one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let At::Head { quotes, matched } = self.at {
            head(out, quotes, matched);
        }
        if self.last != b'\n' {
            out.push(b'\n');
        }
    }
}

fn head(out: &mut Vec<u8>, quotes: usize, matched: usize) {
    out.resize(out.len() + quotes, b'>');
    out.extend_from_slice(&FROM[..matched]);
}

/// Returns `From sender Thu Nov 21 01:02:03 2026`, in UTC, as mail readers expect it.
pub fn from_line(sender: &ReversePath, now: Timestamp) -> String {
    let sender = match sender {
        ReversePath::Null => "MAILER-DAEMON".to_owned(),
        ReversePath::Address(address) => address
            .as_str()
            .chars()
            .map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c })
            .collect(),
    };
    format!("From {sender} {}\n", asctime(now.seconds()))
}

/// Returns a time in the format of asctime(3), in UTC.
fn asctime(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        DAYS[days.rem_euclid(7) as usize],
        MONTHS[month as usize - 1],
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// Returns year, month and day of the proleptic Gregorian calendar, from the number of days since 1970-01-01. Internally,
/// years begin in March, so that the leap day is the last day.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_era = days + 719_468;
    let (era, day) = (from_era.div_euclid(146_097), from_era.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Address;
    use proptest::prelude::*;

    fn lf(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut machine, mut out) = (ToLf::default(), Vec::new());
        pieces.iter().for_each(|piece| machine.push(piece, &mut out));
        machine.finish(&mut out);
        out
    }

    fn quoted(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut machine, mut out) = (QuoteFrom::default(), Vec::new());
        pieces.iter().for_each(|piece| machine.push(piece, &mut out));
        machine.finish(&mut out);
        out
    }

    #[test]
    fn crlf_becomes_lf_and_a_lone_cr_stays() {
        assert_eq!(lf(&[b"a\r\nb\r", b"\nc\rd\r", b"", b"e\r"]), b"a\nb\nc\rd\re\r");
    }

    #[test]
    fn each_line_that_could_be_a_from_line_gets_one_more_quote() {
        let before = b"From a\n>From b\n>>Fro\nFrom\n From c\nxFrom d\n>\nFrom ";
        assert_eq!(
            quoted(&[before]),
            b">From a\n>>From b\n>>Fro\nFrom\n From c\nxFrom d\n>\n>From \n"
        );
        assert_eq!(quoted(&[b"x\n>>Fr"]), b"x\n>>Fr\n");
    }

    #[test]
    fn a_from_line_has_the_date_in_the_form_of_asctime() {
        let sender = ReversePath::Address(Address::parse("\"a b\"@c.test", false).unwrap());
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(
            from_line(&sender, at(951_825_600)),
            "From \"a_b\"@c.test Tue Feb 29 12:00:00 2000\n"
        );
        assert_eq!(
            from_line(&ReversePath::Null, at(1_795_223_045)),
            "From MAILER-DAEMON Sat Nov 21 01:04:05 2026\n"
        );
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_changes_nothing(
            text in prop::collection::vec(prop::sample::select(b">From \r\nx".to_vec()), 0..60),
            cuts in prop::collection::vec(0usize..60, 0..4),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.push(0);
            cuts.push(text.len());
            cuts.sort();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            prop_assert_eq!(lf(&pieces), lf(&[&text]));
            prop_assert_eq!(quoted(&pieces), quoted(&[&text]));
        }

        #[test]
        fn taking_one_quote_away_gives_the_text_back(
            text in prop::collection::vec(prop::sample::select(b">From \nx".to_vec()), 0..60),
        ) {
            let mut text = text;
            text.push(b'\n');
            let stored = quoted(&[&text]);
            let back: Vec<u8> = stored
                .split_inclusive(|b| *b == b'\n')
                .flat_map(|line| {
                    let rest = line.iter().position(|b| *b != b'>').unwrap_or(0);
                    let cut = rest > 0 && line[rest..].starts_with(b"From ");
                    line[usize::from(cut)..].to_vec()
                })
                .collect();
            prop_assert!(!stored.split(|b| *b == b'\n').any(|line| line.starts_with(b"From ")));
            prop_assert_eq!(back, text);
        }
    }
}
