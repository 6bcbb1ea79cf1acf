//! Numbers as words: as many digits as mean something, thousands told apart, times in the unit that fits.
//!
//! Must never round away a difference that the same table calls proven: three digits at least.

/// For a table: three digits or all before the point, with commas between thousands.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".into();
    }
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e15).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = |size: f64| (2.0 - size.log10().floor()).max(0.0);
    // What is rounded up to the next power of ten has one digit less.
    let shift = 10f64.powf(digits(size));
    let rounded = (size * shift).round() / shift;
    thousands(&format!("{value:.*}", digits(rounded) as usize))
}

/// For a factor: as it was set.
pub fn exact(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        thousands(&format!("{value:.0}"))
    } else {
        format!("{value}")
    }
}

/// For an axis: as short as it can be.
pub fn tick(value: f64) -> String {
    let size = value.abs();
    match size {
        1e9.. => format!("{}e9", trim(value / 1e9)),
        1e6.. => format!("{} M", trim(value / 1e6)),
        1.0.. => thousands(&trim(value)),
        0.0 => "0".into(),
        1e-4.. => trim(value),
        _ => format!("{value:e}"),
    }
}

/// Microseconds for a table: three digits, and the unit that fits.
pub fn delay_us(value: f64) -> String {
    let (value, unit) = in_unit(value);
    format!("{} {unit}", number(value))
}

fn in_unit(us: f64) -> (f64, &'static str) {
    match us.abs() {
        1e6.. => (us / 1e6, "s"),
        1e3.. => (us / 1e3, "ms"),
        _ => (us, "µs"),
    }
}

/// Microseconds for an axis, as short as they can be.
pub fn time_us(value: f64) -> String {
    let (value, unit) = in_unit(value);
    let digits =
        if value.abs() >= 100.0 || value == 0.0 { 0 } else { usize::from(value.abs() < 10.0) + 1 };
    let text = thousands(&trim_text(&format!("{value:.digits$}")));
    format!("{text} {unit}")
}

fn trim(value: f64) -> String {
    trim_text(&format!("{value:.6}"))
}

fn trim_text(text: &str) -> String {
    if !text.contains('.') {
        return text.into();
    }
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn thousands(text: &str) -> String {
    let (whole, rest) =
        text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    rest.map_or(out.clone(), |rest| format!("{out}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_never_lose_those_before_the_point() {
        let said: Vec<String> =
            [0.0, 12345.6, 999.6, 47.11, 1.0, -0.5, 0.0123, 0.000_004, 9.999, 99.96]
                .map(number)
                .into();
        assert_eq!(
            said,
            ["0", "12,346", "1,000", "47.1", "1.00", "-0.500", "0.0123", "4.00e-6", "10.0", "100"]
        );
    }

    #[test]
    fn ticks_are_short_and_times_have_their_unit() {
        let ticks: Vec<String> = [0.0, 0.25, 1.5, 2000.0, 1e6, 2.5e6, 1e-7].map(tick).into();
        assert_eq!(ticks, ["0", "0.25", "1.5", "2,000", "1 M", "2.5 M", "1e-7"]);
        let times: Vec<String> = [0.0, 7.0, 450.0, 1500.0, 25_000.0, 2e6].map(time_us).into();
        assert_eq!(times, ["0 µs", "7 µs", "450 µs", "1.5 ms", "25 ms", "2 s"]);
    }
}
