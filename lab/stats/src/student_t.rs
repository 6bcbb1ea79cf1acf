//! Student's t distribution for any degrees of freedom, whole or not.
//!
//! Must never fall back to the normal distribution while the degrees are finite.

use crate::normal;
use crate::special::incomplete_beta;

/// Halvings of the bracket around a quantile; a float has no more digits than that.
const HALVINGS_MAX: usize = 200;

/// The probability of a value at least as far from 0 as `t`, on both sides together.
pub fn t_tails(t: f64, degrees: f64) -> f64 {
    if t.is_nan() || degrees.is_nan() {
        return f64::NAN;
    }
    if t.is_infinite() {
        return 0.0;
    }
    if degrees.is_infinite() {
        return 2.0 * normal::upper_tail(t.abs());
    }
    let square = t * t;
    let whole = degrees + square;
    incomplete_beta(0.5 * degrees, 0.5, degrees / whole, square / whole)
}

/// The distance from 0 beyond which lies the share `tails` (above 0, at most 1), on both sides together.
pub fn t_quantile(tails: f64, degrees: f64) -> f64 {
    if tails.is_nan() || degrees.is_nan() {
        return f64::NAN;
    }
    if degrees.is_infinite() {
        return normal::upper_quantile(0.5 * tails);
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while t_tails(high, degrees) > tails && high < f64::MAX / 4.0 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..HALVINGS_MAX {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if t_tails(middle, degrees) > tails { low = middle } else { high = middle }
    }
    high
}
