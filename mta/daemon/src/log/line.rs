//! The line of one event: `key=value` for people, JSON for machines.
//!
//! Must never let a value contain a line end, a control character, or anything that could be taken for another field,
//! and never exceed `LINE_BYTES_MAX`.

use super::{EventKind, Style};
use mail::Timestamp;
use mail::trace::{push_number, rfc3339_date};
use settings::LogFormat as Format;
use std::fmt::{Display, Write};
use std::time::Duration;

/// A line that is being built.
pub(super) struct LogLine {
    format: Format,
    text: String,
    /// True if a field did not fit. The end of the line says so.
    is_cut: bool,
    /// The offset at which the last field begins.
    last: usize,
    /// The offset of the field that `end_each` adds.
    gap: usize,
}

impl LogLine {
    pub(super) fn start(style: Style, role: &str, kind: EventKind, at: Timestamp) -> LogLine {
        let mut text = String::with_capacity(320);
        if style.journal {
            text.push_str(kind.priority());
        }
        let _ = match style.format {
            Format::Text if style.journal => write!(text, "{role} {}", kind.name()),
            Format::Text => write!(text, "{} {role} {}", rfc3339_date(at), kind.name()),
            Format::Json => write!(
                text,
                "{{\"time\":\"{}\",\"process\":\"{role}\",\"event\":\"{}\"",
                rfc3339_date(at),
                kind.name()
            ),
        };
        LogLine { format: style.format, is_cut: false, last: text.len(), gap: text.len(), text }
    }

    /// Returns the finished line with its end.
    pub(super) fn end(mut self) -> String {
        self.text.push_str(end(self.format, self.is_cut));
        debug_assert!(self.text.len() <= LINE_BYTES_MAX);
        self.text
    }

    /// Returns the finished line with the number of events that it stands for. There is always room for the number.
    pub(super) fn end_repeated(mut self, count: u64) -> String {
        self.text.push_str(repeated(self.format));
        push_number(&mut self.text, count, 1);
        self.end()
    }

    /// Leaves out the next field, which `end_each` adds with a different value to each line.
    pub(super) fn leave_gap(&mut self) {
        self.gap = self.text.len();
    }

    /// Returns the finished lines, one for each value. Lines that are too long lose their last fields.
    pub(super) fn end_each(self, key: &str, values: impl Iterator<Item = String>) -> String {
        let (head, tail) = self.text.split_at(self.gap);
        let shorter = &tail[..self.last.saturating_sub(self.gap)];
        let mut own =
            LogLine { format: self.format, text: String::new(), is_cut: false, last: 0, gap: 0 };
        let mut lines = String::with_capacity(values.size_hint().0 * (self.text.len() + 64));
        for value in values {
            own.text.clear();
            own.is_cut = false;
            own.text(key, &value);
            let room = (LINE_BYTES_MAX - CUT_BYTES).saturating_sub(head.len() + own.text.len());
            let fits = [tail, shorter].into_iter().find(|tail| tail.len() <= room);
            let is_cut = self.is_cut || own.is_cut || fits != Some(tail);
            [head, &own.text, fits.unwrap_or_default(), end(self.format, is_cut)]
                .into_iter()
                .for_each(|part| lines.push_str(part));
        }
        lines
    }

    /// Adds a value of ours that needs no quotes.
    pub(super) fn word(&mut self, key: &str, value: impl Display) {
        self.field(key, |format, out| {
            let _ = match format {
                Format::Text => write!(out, "{value}"),
                Format::Json => write!(out, "\"{value}\""),
            };
        });
    }

    pub(super) fn number(&mut self, key: &str, value: u64) {
        self.field(key, |_, out| push_number(out, value, 1));
    }

    pub(super) fn seconds(&mut self, key: &str, value: Duration) {
        self.field(key, |_, out| seconds(out, value));
    }

    pub(super) fn delays(&mut self, delays: &[(EventKind, Duration)]) {
        self.field("delays", |format, out| {
            out.push_str(if format == Format::Json { "{" } else { "" });
            for (at, (kind, delay)) in delays.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                let mark = if format == Format::Json { "\"" } else { "" };
                [comma, mark, kind.name(), mark, ":"]
                    .into_iter()
                    .for_each(|part| out.push_str(part));
                seconds(out, *delay);
            }
            out.push_str(if format == Format::Json { "}" } else { "" });
        });
    }

    /// Adds a text that may come from a stranger. It is escaped and bounded.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        let is_cut = value.len() > VALUE_BYTES_MAX;
        let value = &value[..value.floor_char_boundary(VALUE_BYTES_MAX)];
        self.is_cut |= is_cut;
        self.field(key, |format, out| match format {
            Format::Text if is_bare(value) => out.push_str(value),
            Format::Text => quote(out, value, |out, c| {
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }),
            Format::Json => quote(out, value, |out, c| {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }),
        });
    }

    fn field(&mut self, key: &str, add: impl FnOnce(Format, &mut String)) {
        let before = self.text.len();
        let (before_key, after_key) = match self.format {
            Format::Text => (" ", "="),
            Format::Json => (",\"", "\":"),
        };
        [before_key, key, after_key].into_iter().for_each(|part| self.text.push_str(part));
        add(self.format, &mut self.text);
        if self.text.len() > LINE_BYTES_MAX - CUT_BYTES {
            self.text.truncate(before);
            self.is_cut = true;
        } else {
            self.last = before;
        }
    }
}

/// What ends a line, and says that something has had no room in it.
fn end(format: Format, is_cut: bool) -> &'static str {
    match (format, is_cut) {
        (Format::Text, false) => "\n",
        (Format::Text, true) => " cut=yes\n",
        (Format::Json, false) => "}\n",
        (Format::Json, true) => ",\"cut\":true}\n",
    }
}

/// Returns the text before the number in a line that stands for many events. No value can end like this, because a value
/// with a space or a quote is quoted.
fn repeated(format: Format) -> &'static str {
    match format {
        Format::Text => " repeated=",
        Format::Json => ",\"repeated\":",
    }
}

/// Returns how many events these finished lines stand for.
pub(super) fn events(lines: &[u8]) -> u64 {
    let ends =
        [(Format::Text, false), (Format::Text, true), (Format::Json, false), (Format::Json, true)];
    let one = |line: &[u8]| {
        let count = ends.iter().find_map(|(format, is_cut)| {
            let rest = line.strip_suffix(end(*format, *is_cut).as_bytes())?;
            let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            let (rest, digits) = rest.split_at(rest.len() - digits);
            rest.strip_suffix(repeated(*format).as_bytes())?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        });
        count.unwrap_or(1)
    };
    lines.split_inclusive(|byte| *byte == b'\n').map(one).sum()
}

/// Appends seconds with milliseconds.
fn seconds(out: &mut String, value: Duration) {
    push_number(out, value.as_secs(), 1);
    out.push('.');
    push_number(out, u64::from(value.subsec_millis()), 3);
}

/// Returns whether a value needs no quotes in a text line.
fn is_bare(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
}

/// Appends the value in quotes. Letters and digits of all scripts stay. Other characters that are not printable ASCII are
/// escaped, because they could hide text, change its direction or end the line.
fn quote(out: &mut String, value: &str, escape: impl Fn(&mut String, char)) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            ' '..='~' => out.push(c),
            _ if !c.is_ascii() && c.is_alphanumeric() => out.push(c),
            _ => escape(out, c),
        }
    }
    out.push('"');
}

/// Upper bound in bytes on a line. Pipes do not mix writes of up to 4,096 bytes with those of other processes (POSIX:
/// `PIPE_BUF`, which is 4,096 on Linux).
pub(super) const LINE_BYTES_MAX: usize = 4_000;
/// Upper bound in bytes on a text value, before escaping.
pub(super) const VALUE_BYTES_MAX: usize = 1_000;
/// Room for the words that say that something is missing, and for a number of repetitions.
const CUT_BYTES: usize = 16 + 32;
const _: () = assert!(LINE_BYTES_MAX <= 4_096);
