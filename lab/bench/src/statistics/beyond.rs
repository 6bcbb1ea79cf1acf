//! The output below ministat's lines: outliers, and what further flags ask for.
//!
//! Must never say "the same" without the equivalence test.

use super::Options;
use super::input::Set;
use super::number::general;
use stats::{
    Confidence, Distance, Interval, SYMBOLS, Sameness, Summary, Trend, bootstrap_median,
    bootstrap_ratio_of_medians, equivalent, looks_normal, outliers, welch,
};
use std::fmt::Write;

/// Outliers of a set that are named one by one.
const OUTLIERS_NAMED_MAX: usize = 20;

/// Returns everything about these sets.
pub fn text(sets: &[Set], options: &Options) -> String {
    let mut text = String::new();
    if !options.quiet {
        text.extend(sets.iter().zip(SYMBOLS).map(|(set, symbol)| outlier_lines(set, symbol)));
    }
    let others = || sets.iter().zip(SYMBOLS).skip(1);
    if options.welch {
        text.extend(
            others().map(|(set, symbol)| welch_lines(&sets[0], set, symbol, options.confidence)),
        );
    }
    if options.bootstrap {
        text.extend(
            sets.iter().zip(SYMBOLS).map(|(set, symbol)| median_lines(set, symbol, options)),
        );
        text.extend(others().map(|(set, symbol)| ratio_line(&sets[0], set, symbol, options)));
    }
    if let Some(margin) = options.same {
        text.extend(
            others().map(|(set, symbol)| {
                same_lines(&sets[0], set, symbol, margin.0, options.confidence)
            }),
        );
    }
    text
}

fn outlier_lines(set: &Set, symbol: char) -> String {
    let found = outliers(&set.samples);
    let line = |outlier: &stats::Outlier| {
        let distance = match outlier.distance {
            Distance::Mild => "outlier",
            Distance::Extreme => "extreme outlier",
        };
        format!(
            "{symbol} {distance}: {} in line {}\n",
            general(outlier.value, 8),
            set.lines[outlier.index]
        )
    };
    let mut text: String = found.iter().take(OUTLIERS_NAMED_MAX).map(line).collect();
    if found.len() > OUTLIERS_NAMED_MAX {
        let more = found.len() - OUTLIERS_NAMED_MAX;
        writeln!(text, "{symbol} outliers: {more} more").expect("a string takes all");
    }
    text
}

fn welch_lines(reference: &Set, other: &Set, symbol: char, confidence: Confidence) -> String {
    let Some(found) = welch(&reference.samples, &other.samples, confidence) else {
        return String::new();
    };
    let verdict = if found.is_proven() { "Difference" } else { "No difference proven" };
    format!(
        "{symbol} Welch: {verdict} at {confidence} confidence\n\t{} +/- {}\n\t{}% +/- {}%\n\t\
         (Welch's t = {}, degrees = {}, p = {})\n",
        general(found.difference, 6),
        general(found.margin, 6),
        general(found.percent, 6),
        general(found.percent_margin, 6),
        general(found.t, 6),
        general(found.degrees, 6),
        general(found.p, 3),
    )
}

fn median_lines(set: &Set, symbol: char, options: &Options) -> String {
    let (Some(summary), Some(interval)) = (
        Summary::of(&set.samples),
        bootstrap_median(&set.samples, options.confidence, options.seed),
    ) else {
        return String::new();
    };
    let mut text = format!(
        "{symbol} median: {}, {} to {} at {} confidence (bootstrap)\n",
        general(summary.quantile(0.5), 6),
        general(interval.low, 6),
        general(interval.high, 6),
        options.confidence,
    );
    if let Some(found) = looks_normal(&set.samples).filter(|found| !found.is_plausible()) {
        let (w, p) = (general(found.w, 5), general(found.p, 3));
        writeln!(text, "{symbol} does not look normal (Shapiro-Wilk W = {w}, p = {p}): medians say more than means")
            .expect("a string takes all");
    }
    text
}

fn ratio_line(reference: &Set, other: &Set, symbol: char, options: &Options) -> String {
    let found = bootstrap_ratio_of_medians(
        &reference.samples,
        &other.samples,
        options.confidence,
        options.seed,
    );
    let Some(interval) = found else {
        return format!("{symbol} ratio of medians: none, for not all samples are above 0\n");
    };
    let middle =
        |set: &Set| Summary::of(&set.samples).map_or(f64::NAN, |summary| summary.quantile(0.5));
    let verdict = if interval.contains(1.0) { "no difference proven" } else { "difference" };
    format!(
        "{symbol} ratio of medians: {}, {} to {}, {verdict} at {} confidence (bootstrap)\n",
        general(middle(other) / middle(reference), 6),
        general(interval.low, 6),
        general(interval.high, 6),
        options.confidence,
    )
}

fn same_lines(
    reference: &Set,
    other: &Set,
    symbol: char,
    margin: f64,
    confidence: Confidence,
) -> String {
    let percent = general(margin * 100.0, 6);
    let Some(found) = equivalent(&reference.samples, &other.samples, margin, confidence) else {
        return format!(
            "{symbol} same within {percent}%: cannot be said, the first mean is not surely above 0\n"
        );
    };
    let verdict = match found.verdict {
        Sameness::Same => "yes",
        Sameness::NotShown => "not shown",
        Sameness::TooFew => "not said of fewer than ten samples",
    };
    let Interval { low, high } = found.interval;
    format!(
        "{symbol} same within {percent}%: {verdict} at {confidence} confidence\n\t{}%, from {}% to {}%\n\t\
         (two one-sided t tests)\n",
        general(found.share * 100.0, 6),
        general(low * 100.0, 6),
        general(high * 100.0, 6),
    )
}

/// Returns a file's regression line.
pub fn trend_text(
    name: &str,
    points: &[(f64, f64)],
    trend: &Trend,
    confidence: Confidence,
) -> String {
    let slope = trend.slope_interval(confidence);
    let mut text = format!(
        "{name}: {} points\n\ty = {} + {} x\n\tslope {} +/- {} at {confidence} confidence (error {}, p = {})\n\t\
         r^2 = {}, deviation around the line {}\n",
        trend.n,
        general(trend.intercept, 6),
        general(trend.slope, 6),
        general(trend.slope, 6),
        general(0.5 * slope.width(), 6),
        general(trend.slope_error, 6),
        general(trend.slope_p(), 3),
        general(trend.r_squared, 6),
        general(trend.residual_stddev, 6),
    );
    let xs = || points.iter().map(|point| point.0);
    for x in [xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max)] {
        writeln!(
            text,
            "\tat {}: {} +/- {} (one more point: +/- {})",
            general(x, 6),
            general(trend.at(x), 6),
            general(trend.band(x, confidence), 6),
            general(trend.prediction_band(x, confidence), 6),
        )
        .expect("a string takes all");
    }
    text
}
