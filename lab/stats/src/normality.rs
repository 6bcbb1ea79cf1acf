//! Whether samples look normal: the test of Shapiro and Wilk, by Royston's approximation of 1995 (AS R94).
//!
//! Must never be read as a proof that they are: a small set hardly ever fails.

use crate::normal;
use crate::summary::Summary;

/// Fewer samples fit any line.
const NORMALITY_SAMPLES_MIN: usize = 3;

/// Royston's formulas were fitted up to here.
const NORMALITY_SAMPLES_MAX: usize = 5000;

/// What the test found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normality {
    /// Shapiro's and Wilk's W: 1 where the samples lie as normal ones are expected to.
    pub w: f64,
    /// How often normal samples lie at least as badly.
    pub p: f64,
}

impl Normality {
    /// Whether p is at least 0.05: nothing speaks against tests that want normal samples. Else medians with bootstrap
    /// intervals fit better.
    pub fn is_plausible(&self) -> bool {
        self.p >= 0.05
    }
}

/// Of 3 to 5000 finite samples that are not all equal.
pub fn looks_normal(samples: &[f64]) -> Option<Normality> {
    let summary = Summary::of(samples)?;
    let (n, range) = (summary.n, summary.max - summary.min);
    if !(NORMALITY_SAMPLES_MIN..=NORMALITY_SAMPLES_MAX).contains(&n)
        || range == 0.0
        || range.is_infinite()
    {
        return None;
    }
    let sorted = summary.sorted();
    // In units of the range, so that squares neither vanish nor overflow.
    let scaled = |value: f64| (value - summary.mean) / range;
    let slope: f64 = weights(n)
        .iter()
        .enumerate()
        .map(|(i, a)| a * (scaled(sorted[n - 1 - i]) - scaled(sorted[i])))
        .sum();
    let squares: f64 = sorted.iter().map(|value| scaled(*value).powi(2)).sum();
    let w = (slope * slope / squares).min(1.0);
    Some(Normality { w, p: p_value(w, n) })
}

/// The weights of the largest sample less the smallest, the second largest less the second smallest, and so on.
fn weights(n: usize) -> Vec<f64> {
    let size = n as f64;
    if n == 3 {
        return vec![0.5_f64.sqrt()];
    }
    let expected: Vec<f64> =
        (1..=n / 2).map(|i| -normal::quantile((i as f64 - 0.375) / (size + 0.25))).collect();
    let squares = 2.0 * expected.iter().map(|m| m * m).sum::<f64>();
    let u = size.sqrt().recip();
    let first = polynomial(&FIRST, u) + expected[0] / squares.sqrt();
    let second = polynomial(&SECOND, u) + expected[1] / squares.sqrt();
    // The outermost weights are fitted; the rest share what is left of the unit length.
    let fitted: &[f64] = if n > 5 { &[first, second] } else { &[first] };
    let left = squares - 2.0 * expected.iter().take(fitted.len()).map(|m| m * m).sum::<f64>();
    let length = (left / (1.0 - 2.0 * fitted.iter().map(|a| a * a).sum::<f64>())).sqrt();
    let rest = expected.iter().skip(fitted.len()).map(|m| m / length);
    fitted.iter().copied().chain(rest).collect()
}

fn p_value(w: f64, n: usize) -> f64 {
    use std::f64::consts::PI;
    let size = n as f64;
    if n == 3 {
        return (6.0 / PI * (w.sqrt().asin() - 0.75_f64.sqrt().asin())).clamp(0.0, 1.0);
    }
    if w >= 1.0 {
        return 1.0;
    }
    let (y, mean, deviation) = if n <= 11 {
        let gamma = -2.273 + 0.459 * size;
        let below = gamma - (1.0 - w).ln();
        if below <= 0.0 {
            return 0.0;
        }
        (-below.ln(), polynomial(&SMALL_MEAN, size), polynomial(&SMALL_DEVIATION, size).exp())
    } else {
        let log = size.ln();
        ((1.0 - w).ln(), polynomial(&LARGE_MEAN, log), polynomial(&LARGE_DEVIATION, log).exp())
    };
    normal::upper_tail((y - mean) / deviation)
}

/// The constant comes first.
fn polynomial(terms: &[f64], x: f64) -> f64 {
    terms.iter().rev().fold(0.0, |sum, term| sum * x + term)
}

// Royston's constants. AS R94, Applied Statistics 44 (1995).
const FIRST: [f64; 6] = [0.0, 0.221_157, -0.147_981, -2.071_190, 4.434_685, -2.706_056];
const SECOND: [f64; 6] = [0.0, 0.042_981, -0.293_762, -1.752_461, 5.682_633, -3.582_633];
const SMALL_MEAN: [f64; 4] = [0.5440, -0.399_78, 0.025_054, -0.000_671_4];
const SMALL_DEVIATION: [f64; 4] = [1.3822, -0.778_57, 0.062_767, -0.002_032_2];
const LARGE_MEAN: [f64; 4] = [-1.5861, -0.310_82, -0.083_751, 0.003_891_5];
const LARGE_DEVIATION: [f64; 3] = [-0.4803, -0.082_676, 0.003_030_2];
