//! Whether two means are the same within a stated margin: two one-sided tests.
//!
//! Must never take "no difference proven" for "the same", or say "the same" after fewer than ten runs.

use crate::RUNS_MIN;
use crate::confidence::Confidence;
use crate::difference::Contrast;
use crate::interval::Interval;
use crate::student_t::t_tails;
use crate::summary::Summary;

/// Halvings of a bracket around an end of the interval.
const HALVINGS_MAX: usize = 200;

/// What the two tests found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Equivalence {
    /// How much the means may differ and still count as the same, as a share of the reference's mean: 0.05.
    pub margin_share: f64,
    /// How sure each of the two tests had to be.
    pub confidence: Confidence,
    /// The difference of the means, as a share of the reference's mean.
    pub share: f64,
    /// Where the true share lies. Each end is as sure as the confidence says, so that at 95 % both together are at 90 %:
    /// that is how two one-sided tests are drawn.
    pub interval: Interval,
    /// What follows.
    pub verdict: Sameness,
}

/// What may be said about two means being the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// They are, within the margin.
    Same,
    /// That is not shown; nor is the opposite.
    NotShown,
    /// One set has fewer than ten samples, too few to say so.
    TooFew,
}

/// Two one-sided tests with a variance for each set, on the other's mean less (1 ± margin) times the reference's: the
/// reference's mean is not taken as exact. `None` if the margin is not between 0 and 1, or the reference's mean is not
/// surely above 0, for then there are no shares of it.
pub fn equivalent(
    reference: &[f64],
    other: &[f64],
    margin_share: f64,
    confidence: Confidence,
) -> Option<Equivalence> {
    let summary = |samples: &[f64]| Summary::of(samples).filter(|set| set.n >= 2);
    let (reference, other) = (summary(reference)?, summary(other)?);
    let margin_makes_sense = margin_share > 0.0 && margin_share < 1.0;
    if !margin_makes_sense || !surely_positive(&reference, confidence) {
        return None;
    }
    let middle = other.mean / reference.mean;
    let end = |side: f64| ratio_at(&reference, &other, side, confidence);
    let interval = Interval { low: end(-1.0)? - 1.0, high: end(1.0)? - 1.0 };
    let inside = interval.is_within(&Interval::around(0.0, margin_share));
    let verdict = match inside {
        _ if reference.n.min(other.n) < RUNS_MIN => Sameness::TooFew,
        true => Sameness::Same,
        false => Sameness::NotShown,
    };
    Some(Equivalence { margin_share, confidence, share: middle - 1.0, interval, verdict })
}

fn surely_positive(reference: &Summary, confidence: Confidence) -> bool {
    let t = reference.mean / reference.mean_error();
    t > 0.0 && t_tails(t, reference.n as f64 - 1.0) <= 2.0 * confidence.alpha()
}

/// The ratio of means that the one-sided test just rejects, above (`side` 1) or below (−1) the ratio found: the same
/// test as for the margin, turned round (Fieller's interval, with Welch's degrees).
fn ratio_at(
    reference: &Summary,
    other: &Summary,
    side: f64,
    confidence: Confidence,
) -> Option<f64> {
    let rejected = |ratio: f64| {
        let contrast = Contrast::of(reference, other, ratio);
        let t = -side * contrast.difference / contrast.error;
        t > 0.0 && t_tails(t, contrast.degrees) <= 2.0 * confidence.alpha()
    };
    let mut inner = other.mean / reference.mean;
    let mut step = (inner.abs() * 0.01).max(0.01);
    while !rejected(inner + side * step) {
        step *= 2.0;
        if step > RATIO_MAX {
            return None;
        }
    }
    let mut outer = inner + side * step;
    for _ in 0..HALVINGS_MAX {
        let middle = 0.5 * (inner + outer);
        if middle == inner || middle == outer {
            break;
        }
        if rejected(middle) { outer = middle } else { inner = middle }
    }
    Some(outer)
}

/// Ratios beyond this are no longer looked for.
const RATIO_MAX: f64 = 1e12;
