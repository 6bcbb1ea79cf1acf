//! Whether two means differ: Student's t as ministat computes it, and Welch's, which does not need equal variances.
//!
//! Must never say that two things are the same; that is [`crate::equivalent`]'s to show.

use crate::SAMPLES_MIN;
use crate::confidence::Confidence;
use crate::interval::Interval;
use crate::student_t::t_tails;
use crate::summary::Summary;

/// What a test for a difference found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Which test.
    pub test: Test,
    /// How sure it had to be.
    pub confidence: Confidence,
    /// The other's mean less the reference's.
    pub difference: f64,
    /// So far to each side of `difference` the truth may lie.
    pub margin: f64,
    /// The difference, in percent of the reference's mean.
    pub percent: f64,
    /// The margin, in percent of the reference's mean, which is taken as exact (so does ministat).
    pub percent_margin: f64,
    /// Student's: the standard deviation of both sets together. Welch's has none.
    pub pooled_stddev: Option<f64>,
    /// Degrees of freedom.
    pub degrees: f64,
    /// The difference in standard errors.
    pub t: f64,
    /// How often a difference at least as large comes by chance where there is none.
    pub p: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// A test for a difference of means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// With one variance for both sets.
    Student,
    /// With a variance for each.
    Welch,
}

/// What may be said about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is one.
    Proven,
    /// None is proven, which does not mean that there is none.
    NotProven,
}

impl Difference {
    /// Where the true difference lies.
    pub fn interval(&self) -> Interval {
        Interval::around(self.difference, self.margin)
    }

    /// Whether there is one.
    pub fn is_proven(&self) -> bool {
        self.verdict == Verdict::Proven
    }
}

/// Student's t test with pooled variance, to the digit as ministat does it for the confidences that it knows (see
/// [`Confidence::t_of_ministat`]); others take the exact quantile. `None` if a set has fewer than three samples.
pub fn student(reference: &[f64], other: &[f64], confidence: Confidence) -> Option<Difference> {
    let (reference, other) = both(reference, other)?;
    let (n, m) = (reference.n as f64, other.n as f64);
    let degrees = reference.n + other.n - 2;
    let pooled = ((n - 1.0) * reference.variance() + (m - 1.0) * other.variance()) / degrees as f64;
    let quantile =
        confidence.t_of_ministat(degrees).unwrap_or_else(|| confidence.t(degrees as f64));
    let error = pooled.sqrt() * (1.0 / n + 1.0 / m).sqrt();
    let found = judge(&reference, &other, error, degrees as f64, quantile);
    Some(Difference { confidence, pooled_stddev: Some(pooled.sqrt()), ..found })
}

/// Welch's t test, with the degrees of freedom of Welch and Satterthwaite. `None` if a set has fewer than three samples.
pub fn welch(reference: &[f64], other: &[f64], confidence: Confidence) -> Option<Difference> {
    let (reference, other) = both(reference, other)?;
    let contrast = Contrast::of(&reference, &other, 1.0);
    let found =
        judge(&reference, &other, contrast.error, contrast.degrees, confidence.t(contrast.degrees));
    Some(Difference { test: Test::Welch, confidence, ..found })
}

/// The other's mean less `factor` times the reference's, with a variance for each.
pub(crate) struct Contrast {
    pub difference: f64,
    pub error: f64,
    pub degrees: f64,
}

impl Contrast {
    pub fn of(reference: &Summary, other: &Summary, factor: f64) -> Contrast {
        let squares = |set: &Summary, factor: f64| (factor * set.mean_error()).powi(2);
        let (first, second) = (squares(reference, factor), squares(other, 1.0));
        // Of shares, so that the square of something tiny does not vanish.
        let (share, rest) = (first / (first + second), second / (first + second));
        let inverse =
            share * share / (reference.n as f64 - 1.0) + rest * rest / (other.n as f64 - 1.0);
        // Two sets without any spread leave no doubt at all; with NaN nothing could be looked up.
        let degrees =
            if first + second > 0.0 { 1.0 / inverse } else { (reference.n + other.n - 2) as f64 };
        Contrast {
            difference: other.mean - factor * reference.mean,
            error: (first + second).sqrt(),
            degrees,
        }
    }
}

fn both(reference: &[f64], other: &[f64]) -> Option<(Summary, Summary)> {
    let summary = |samples: &[f64]| Summary::of(samples).filter(|set| set.n >= SAMPLES_MIN);
    Some((summary(reference)?, summary(other)?))
}

fn judge(
    reference: &Summary,
    other: &Summary,
    error: f64,
    degrees: f64,
    quantile: f64,
) -> Difference {
    let difference = other.mean - reference.mean;
    let margin = quantile * error;
    let t = if difference == 0.0 { 0.0 } else { difference / error };
    Difference {
        test: Test::Student,
        confidence: Confidence::default(),
        difference,
        margin,
        percent: difference * 100.0 / reference.mean,
        percent_margin: margin * 100.0 / reference.mean,
        pooled_stddev: None,
        degrees,
        t,
        p: t_tails(t, degrees),
        verdict: if difference.abs() > margin { Verdict::Proven } else { Verdict::NotProven },
    }
}
