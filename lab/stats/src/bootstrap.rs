//! Intervals for medians by drawing again from the samples (percentile bootstrap), for what is not normal.
//!
//! Must never draw but from the seed: the same samples and seed give the same interval.

use crate::confidence::Confidence;
use crate::interval::Interval;
use crate::summary::quantile_of_sorted;

/// Times that a set is drawn anew.
const RESAMPLES: usize = 10_000;

/// At least so often, however large the set.
const RESAMPLES_MIN: usize = 1_000;

/// Samples drawn in all, about; larger sets are drawn anew less often.
const DRAWS_MAX: usize = 50_000_000;

/// Where the true median lies. `None` without samples, or if one is not finite.
pub fn bootstrap_median(samples: &[f64], confidence: Confidence, seed: u64) -> Option<Interval> {
    let mut lots = Lots(seed);
    let mut room = Vec::new();
    interval(usable(samples)?, confidence, || median_of_draw(samples, &mut lots, &mut room))
}

/// Where the ratio of the true medians, `other` over `reference`, lies. Both have to be above 0.
pub fn bootstrap_ratio_of_medians(
    reference: &[f64],
    other: &[f64],
    confidence: Confidence,
    seed: u64,
) -> Option<Interval> {
    let size = positive(reference)? + positive(other)?;
    let mut lots = Lots(seed);
    let mut room = Vec::new();
    interval(size, confidence, || {
        let below = median_of_draw(reference, &mut lots, &mut room);
        median_of_draw(other, &mut lots, &mut room) / below
    })
}

/// Where the true median of the pairs' ratios lies, `other` over `reference`, for runs made in turn: what slows both of
/// a pair falls out. The pairs are (reference, other), all above 0.
pub fn bootstrap_median_ratio_of_pairs(
    pairs: &[(f64, f64)],
    confidence: Confidence,
    seed: u64,
) -> Option<Interval> {
    let positive = pairs.iter().all(|(reference, other)| *reference > 0.0 && *other > 0.0);
    let ratios: Vec<f64> = pairs.iter().map(|(reference, other)| other / reference).collect();
    if positive { bootstrap_median(&ratios, confidence, seed) } else { None }
}

/// How many, if they can be used.
fn usable(samples: &[f64]) -> Option<usize> {
    (!samples.is_empty() && samples.iter().all(|sample| sample.is_finite()))
        .then_some(samples.len())
}

fn positive(samples: &[f64]) -> Option<usize> {
    usable(samples).filter(|_| samples.iter().all(|sample| *sample > 0.0))
}

fn interval(size: usize, confidence: Confidence, draw: impl FnMut() -> f64) -> Option<Interval> {
    let resamples = (DRAWS_MAX / size).clamp(RESAMPLES_MIN, RESAMPLES);
    let mut figures: Vec<f64> = std::iter::repeat_with(draw).take(resamples).collect();
    figures.sort_unstable_by(f64::total_cmp);
    let end = |q| quantile_of_sorted(&figures, q);
    let half = 0.5 * confidence.alpha();
    Some(Interval { low: end(half), high: end(1.0 - half) })
}

/// The median (the mean of the two in the middle) of as many samples, drawn with putting back.
fn median_of_draw(samples: &[f64], lots: &mut Lots, room: &mut Vec<f64>) -> f64 {
    let n = samples.len();
    room.clear();
    room.extend((0..n).map(|_| samples[lots.below(n)]));
    let (lower, upper, _) = room.select_nth_unstable_by(n / 2, f64::total_cmp);
    let upper = *upper;
    if n % 2 == 1 {
        return upper;
    }
    let lower = lower.iter().copied().fold(f64::MIN, f64::max);
    lower + 0.5 * (upper - lower)
}

/// SplitMix64: small, and the same on every machine and in every year.
struct Lots(u64);

impl Lots {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`; the bias is below one in 2⁶⁴ / bound.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
