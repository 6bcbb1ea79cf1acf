//! The normal distribution with mean 0 and standard deviation 1.
//!
//! Must never take a small tail as 1 minus a large one.

use std::f64::consts::TAU;

/// Terms of a series or fraction, by far enough.
const TERMS_MAX: usize = 500;

/// Beyond this the fraction converges faster than the series.
const TAIL_FROM: f64 = 2.5;

/// The probability of a value above `x`.
pub fn upper_tail(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - upper_tail(-x);
    }
    if x < TAIL_FROM { 0.5 - density(x) * from_zero(x) } else { density(x) / mills(x) }
}

/// The value below which lies the share `p`, between 0 and 1.
pub fn quantile(p: f64) -> f64 {
    if p > 0.5 { upper_quantile(1.0 - p) } else { -upper_quantile(p) }
}

/// The value above which lies the share `tail`, at most one half.
pub fn upper_quantile(tail: f64) -> f64 {
    if tail <= 0.0 {
        return f64::INFINITY;
    }
    // Abramowitz and Stegun 26.2.23 to start with, then Halley's steps.
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    (0..3).fold(t - above / below, |x, _| {
        let step = (upper_tail(x) - tail) / density(x);
        x + step / (1.0 - 0.5 * x * step)
    })
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / TAU.sqrt()
}

/// x + x³/3 + x⁵/15 + …
fn from_zero(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for step in 1..TERMS_MAX {
        term *= x * x / (2 * step + 1) as f64;
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum
}

/// x + 1/(x + 2/(x + 3/(x + …)))
fn mills(x: f64) -> f64 {
    (1..TERMS_MAX).rev().fold(x, |fraction, step| x + step as f64 / fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_and_quantiles_are_those_of_the_tables() {
        for (x, tail) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457),
            (1.959_963_984_540_054, 0.025),
            (2.575_829_303_548_901, 0.005),
            (3.090_232_306_167_814, 0.001),
            (6.0, 9.865_876_450_376_98e-10),
        ] {
            assert!((upper_tail(x) / tail - 1.0).abs() < 1e-12, "{x}");
            assert!((upper_quantile(tail) - x).abs() < 1e-12, "{x}");
            assert!(
                (quantile(tail) + x).abs() < 1e-12 && (upper_tail(-x) + tail - 1.0).abs() < 1e-12,
                "{x}"
            );
        }
    }
}
