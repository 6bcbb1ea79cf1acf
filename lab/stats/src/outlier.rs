//! Samples far from the rest, named so that a reader looks at them.
//!
//! Must never drop one: what was measured counts.

use crate::summary::Summary;

/// A quarter needs this many samples to mean something.
const OUTLIER_SAMPLES_MIN: usize = 4;

/// A sample outside of Tukey's fences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// Its place among the samples, from 0, in the order in which they were given.
    pub index: usize,
    /// Its value.
    pub value: f64,
    /// How far out.
    pub distance: Distance,
}

/// How far outside of the middle half a sample lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// More than one and a half times the width of the middle half.
    Mild,
    /// More than three times.
    Extreme,
}

/// Samples outside of Tukey's fences, in the order given. Of fewer than four samples none is.
pub fn outliers(samples: &[f64]) -> Vec<Outlier> {
    let Some(summary) = Summary::of(samples).filter(|set| set.n >= OUTLIER_SAMPLES_MIN) else {
        return Vec::new();
    };
    let (low, high) = (summary.quantile(0.25), summary.quantile(0.75));
    let distance = |value: f64| {
        let beyond = (low - value).max(value - high);
        [(3.0, Distance::Extreme), (1.5, Distance::Mild)]
            .into_iter()
            .find(|(widths, _)| beyond > widths * (high - low))
            .map(|(_, distance)| distance)
    };
    let outlier = |(index, value): (usize, &f64)| {
        distance(*value).map(|distance| Outlier { index, value: *value, distance })
    };
    samples.iter().enumerate().filter_map(outlier).collect()
}
