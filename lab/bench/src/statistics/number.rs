//! Numbers as C's printf writes them under `%g`.
//!
//! Must never print a digit that `%g` would not: scripts compare such lines.

/// Writes `value` with this number of significant digits, without trailing zeros, as C's `%g` does.
pub fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let digits = digits.max(1);
    // Rounding comes first: 9.9999999e5 with six digits is 1e+06.
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("`e` is in the format");
    let exponent: i32 = exponent.parse().expect("the exponent of a float is a small number");
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_string()
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::general;

    #[test]
    fn numbers_are_written_as_printf_writes_them() {
        for (value, digits, text) in [
            (0.0, 6, "0"),
            (-0.0, 6, "-0"),
            (1.0, 8, "1"),
            (100.0, 6, "100"),
            (1234567.0, 6, "1.23457e+06"),
            (999_999.9, 6, "1e+06"),
            (0.0001, 6, "0.0001"),
            (0.000_099_999_99, 6, "0.0001"),
            (0.000_012_345, 6, "1.2345e-05"),
            (-2.5e-300, 8, "-2.5e-300"),
            (238.047_614_284_761_66, 8, "238.04761"),
            (f64::INFINITY, 6, "inf"),
            (f64::NAN, 6, "nan"),
        ] {
            assert_eq!(general(value, digits), text, "{value}");
        }
    }
}
