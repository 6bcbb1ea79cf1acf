//! Sizes, times and rates as people write them. Must never round, wrap or guess.

use super::types::Rate;
use std::time::Duration;

const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1000),
    ("kB", 1000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const TIMES: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

/// `"50MB"`, `"64 KiB"`, `"4096"`.
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text.trim())?;
    let size = match unit.trim() {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.checked_mul(size)
}

/// `"5m"`, `"1h30m"`, `"90s"`, `"0"`: the units from the longer to the shorter, each once.
pub fn time(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(0);
    }
    let (mut total, mut allowed) = (0u64, &TIMES[..]);
    while !rest.is_empty() {
        let (number, after) = split(rest)?;
        let at = allowed.iter().position(|(name, _)| after.starts_with(name))?;
        total = total.checked_add(number.checked_mul(allowed[at].1)?)?;
        rest = after[1..].trim_start();
        allowed = &allowed[at + 1..];
    }
    (!text.trim().is_empty()).then_some(total)
}

/// `"600/m"`, or `"unlimited"`.
pub fn rate(text: &str) -> Option<Option<Rate>> {
    if text == "unlimited" {
        return Some(None);
    }
    let (count, unit) = text.split_once('/')?;
    let (_, seconds) = TIMES.iter().find(|(name, _)| *name == unit.trim())?;
    let count = count.trim().parse().ok().filter(|count| *count > 0)?;
    Some(Some(Rate { count, per: Duration::from_secs(*seconds) }))
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// The largest unit that it is a whole number of.
pub fn show_bytes(bytes: u64) -> String {
    let exact = |(_, size): &&(&str, u64)| bytes != 0 && bytes.is_multiple_of(*size);
    let (name, size) = SIZES.iter().rev().find(exact).copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / size)
}

/// The largest unit that it is a whole number of.
pub fn show_time(seconds: u64) -> String {
    let exact =
        |(name, size): &&(&str, u64)| *name != "w" && seconds != 0 && seconds.is_multiple_of(*size);
    match TIMES.iter().find(exact) {
        Some((name, size)) => format!("{}{name}", seconds / size),
        None => seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_people_mean() {
        for (text, expected) in [
            ("50MB", Some(50_000_000)),
            ("64 KiB", Some(65_536)),
            ("4096", Some(4096)),
            ("0", Some(0)),
            ("", None),
            ("MB", None),
            ("-1", None),
            ("1.5MB", None),
            ("5mb", None),
            ("99999999999GiB", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn times_are_what_people_mean() {
        for (text, expected) in [
            ("5m", Some(300)),
            ("1h30m", Some(5400)),
            ("1h 30m", Some(5400)),
            ("5d", Some(432_000)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            ("5 minutes", None),
            ("30m1h", None),
            ("1m1m", None),
            ("99999999999999999999d", None),
            ("9999999999999999999d", None),
        ] {
            assert_eq!(time(text), expected, "{text}");
        }
    }

    #[test]
    fn rates_are_a_count_in_a_time() {
        let of = |count, seconds| Some(Some(Rate { count, per: Duration::from_secs(seconds) }));
        assert_eq!(rate("600/m"), of(600, 60));
        assert_eq!(rate("1 / d"), of(1, 86_400));
        assert_eq!(rate("unlimited"), Some(None));
        for wrong in ["0/m", "600", "/m", "600/x", "600/minute", "-1/s", ""] {
            assert_eq!(rate(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for value in [0, 1, 1000, 1024, 1 << 20, 50_000_000, 1 << 40, 4097] {
            assert_eq!(bytes(&show_bytes(value)), Some(value));
        }
        for value in [0, 1, 59, 60, 3600, 5400, 86_400, 604_800] {
            assert_eq!(time(&show_time(value)), Some(value));
        }
    }
}
