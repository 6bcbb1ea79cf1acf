//! Whether a figure keeps to a bound: at least so much, or at most.
//!
//! Must never call a bound kept, or broken, for certain after fewer than ten runs.

use crate::RUNS_MIN;
use crate::confidence::Confidence;
use crate::student_t::t_tails;
use crate::summary::Summary;

/// Which side of a bound is the good one. The bound itself is on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
}

/// What may be said of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It is kept, for certain.
    Kept,
    /// The median keeps to it; that it is so is not proven.
    KeptInMedian,
    /// The median does not keep to it; that it is so is not proven.
    BrokenInMedian,
    /// It is broken, for certain.
    Broken,
}

impl Bound {
    /// Whether a value keeps to it.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(limit) => value >= limit,
            Bound::AtMost(limit) => value <= limit,
        }
    }

    fn limit(self) -> f64 {
        match self {
            Bound::AtLeast(limit) | Bound::AtMost(limit) => limit,
        }
    }

    /// What ten or more samples prove: by Student's t of their logarithms, as rates and ratios are spread in shares of
    /// themselves; where there is none to take, or no spread, by their number on each side (the sign test). The median
    /// has to stand on the side that is proven. `None` without samples.
    pub fn judge(self, samples: &[f64], confidence: Confidence) -> Option<Keeping> {
        let median = Summary::of(samples)?.quantile(0.5);
        let sure = samples.len() >= RUNS_MIN
            && self
                .by_logarithms(samples, confidence)
                .unwrap_or_else(|| self.by_signs(samples, confidence) == Some(self.holds(median)));
        Some(match (self.holds(median), sure) {
            (true, true) => Keeping::Kept,
            (true, false) => Keeping::KeptInMedian,
            (false, false) => Keeping::BrokenInMedian,
            (false, true) => Keeping::Broken,
        })
    }

    /// Whether the mean of the logarithms is surely beyond the bound's, on the side of the median.
    fn by_logarithms(self, samples: &[f64], confidence: Confidence) -> Option<bool> {
        if self.limit() <= 0.0 || samples.iter().any(|sample| *sample <= 0.0) {
            return None;
        }
        let logarithms: Vec<f64> = samples.iter().map(|one| (one / self.limit()).ln()).collect();
        let summary = Summary::of(&logarithms)?;
        // What differs by rounding only has no spread.
        if summary.stddev <= f64::EPSILON * 8.0 {
            return None;
        }
        let t = summary.mean / summary.mean_error();
        let sure = t_tails(t, summary.n as f64 - 1.0) <= confidence.alpha();
        Some(sure && (summary.mean > 0.0) == (summary.quantile(0.5) > 0.0))
    }

    /// On which side surely more than half of all lie.
    fn by_signs(self, samples: &[f64], confidence: Confidence) -> Option<bool> {
        let held = samples.iter().filter(|sample| self.holds(**sample)).count();
        let fewer = held.min(samples.len() - held);
        let tails = 2.0 * binomial_below(samples.len(), fewer);
        (tails <= confidence.alpha()).then_some(held > samples.len() - held)
    }
}

/// How often at most `most` of `n` coins show heads.
fn binomial_below(n: usize, most: usize) -> f64 {
    let mut term = 0.5_f64.powi(n as i32);
    let mut sum = term;
    for heads in 1..=most {
        term *= (n - heads + 1) as f64 / heads as f64;
        sum += term;
    }
    sum
}
