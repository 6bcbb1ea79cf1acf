//! The same figures for programs, as one JSON object.
//!
//! Must never round: the reader can.

use super::Options;
use super::input::Set;
use serde_json::{Value, json};
use stats::{
    Difference, Distance, Interval, Sameness, Summary, Trend, bootstrap_median,
    bootstrap_ratio_of_medians, equivalent, looks_normal, outliers, student, welch,
};

/// Returns everything about these sets. Welch's test is always included; bootstrap and equivalence on request.
pub fn sets(sets: &[Set], options: &Options) -> Value {
    let compared = |other: &Set| {
        let reference = &sets[0].samples;
        let samples = &other.samples;
        let (confidence, seed) = (options.confidence, options.seed);
        json!({
            "reference": sets[0].name,
            "name": other.name,
            "student": student(reference, samples, confidence).map(difference),
            "welch": welch(reference, samples, confidence).map(difference),
            "ratio_of_medians": options.bootstrap
                .then(|| bootstrap_ratio_of_medians(reference, samples, confidence, seed).map(interval)),
            "same": options.same.map(|margin| {
                equivalent(reference, samples, margin.0, confidence).map(|found| equivalence(&found))
            }),
        })
    };
    json!({
        "confidence_percent": options.confidence.percent(),
        "sets": sets.iter().map(|set| figures(set, options)).collect::<Vec<_>>(),
        "comparisons": sets.iter().skip(1).map(compared).collect::<Vec<_>>(),
    })
}

/// Returns a file's regression line.
pub fn trend(name: &str, trend: &Trend, options: &Options) -> Value {
    json!({
        "name": name,
        "confidence_percent": options.confidence.percent(),
        "n": trend.n,
        "slope": trend.slope,
        "slope_error": trend.slope_error,
        "slope_interval": interval(trend.slope_interval(options.confidence)),
        "slope_p": trend.slope_p(),
        "intercept": trend.intercept,
        "intercept_error": trend.intercept_error,
        "r_squared": trend.r_squared,
        "residual_stddev": trend.residual_stddev,
    })
}

fn figures(set: &Set, options: &Options) -> Value {
    let outlier = |outlier: &stats::Outlier| {
        json!({
            "line": set.lines[outlier.index],
            "value": outlier.value,
            "extreme": outlier.distance == Distance::Extreme,
        })
    };
    let normality = |found: stats::Normality| json!({"w": found.w, "p": found.p, "plausible": found.is_plausible()});
    let median = || bootstrap_median(&set.samples, options.confidence, options.seed).map(interval);
    Summary::of(&set.samples).map_or(Value::Null, |summary| {
        json!({
            "name": set.name,
            "n": summary.n,
            "min": summary.min,
            "max": summary.max,
            "median": summary.quantile(0.5),
            "upper_median": summary.median,
            "mean": summary.mean,
            "stddev": summary.stddev,
            "outliers": outliers(&set.samples).iter().map(outlier).collect::<Vec<_>>(),
            "shapiro_wilk": looks_normal(&set.samples).map(normality),
            "median_interval": options.bootstrap.then(median),
        })
    })
}

fn difference(found: Difference) -> Value {
    json!({
        "proven": found.is_proven(),
        "difference": found.difference,
        "margin": found.margin,
        "percent": found.percent,
        "percent_margin": found.percent_margin,
        "pooled_stddev": found.pooled_stddev,
        "degrees": found.degrees,
        "t": found.t,
        "p": found.p,
    })
}

fn equivalence(found: &stats::Equivalence) -> Value {
    json!({
        "margin_share": found.margin_share,
        "share": found.share,
        "interval": interval(found.interval),
        "verdict": match found.verdict {
            Sameness::Same => "same",
            Sameness::NotShown => "not-shown",
            Sameness::TooFew => "too-few",
        },
    })
}

fn interval(interval: Interval) -> Value {
    json!([interval.low, interval.high])
}
