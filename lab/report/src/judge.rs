//! What may be said of a set of runs, and of one set beside another.
//!
//! Must never compute a statistic itself, or claim a difference from fewer than ten runs of either side.

use stats::{Confidence, Difference, Interval, Outlier, RUNS_MIN, Sameness, Summary, Test};

/// Ratio of the standard deviations above which Welch's test replaces Student's.
pub const STDDEV_RATIO_MAX: f64 = 2.0;
/// Two means count as the same within this share of the reference's.
pub const SAME_WITHIN: f64 = 0.05;
/// From what lots are drawn for the intervals of medians: a page made again is the same page.
const SEED: u64 = 20_061_997;

/// The figures of a set of runs.
#[derive(Clone, Debug)]
pub struct Standing {
    /// How many runs.
    pub n: usize,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// `None` for a single run.
    pub stddev: Option<f64>,
    /// Where the true median lies, at 95 %; `None` for a single run.
    pub interval: Option<Interval>,
    /// Far from the rest.
    pub outliers: Vec<Outlier>,
}

/// One set of runs beside the reference's.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Its median to the reference's; `None` where that is 0.
    pub ratio: Option<f64>,
    /// Where the true ratio lies, at 95 %.
    pub ratio_interval: Option<Interval>,
    /// Runs on the side that has fewer.
    pub runs: usize,
    /// The same question at 95 and at 99.5 %.
    pub at_95: Option<Difference>,
    /// See `at_95`.
    pub at_99_5: Option<Difference>,
    /// Shown to be the same within `SAME_WITHIN`.
    pub is_same: bool,
}

/// Which way a difference goes, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// More than the reference, at 99.5 %, or only at 95 %.
    Higher(bool),
    /// Less, likewise.
    Lower(bool),
    /// The same within `SAME_WITHIN`.
    Same,
    /// Nothing may be said.
    NotProven,
    /// Nothing may be said, for there are too few runs.
    TooFew,
}

/// `None` without values.
pub fn standing(values: &[f64]) -> Option<Standing> {
    let summary = Summary::of(values)?;
    let several = summary.n > 1;
    Some(Standing {
        n: summary.n,
        min: summary.min,
        max: summary.max,
        mean: summary.mean,
        median: summary.quantile(0.5),
        stddev: several.then_some(summary.stddev),
        interval: if several {
            stats::bootstrap_median(values, Confidence::P95, SEED)
        } else {
            None
        },
        outliers: stats::outliers(values),
    })
}

/// The middle of some numbers; `None` without any.
pub fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values).map(|summary| summary.quantile(0.5))
}

/// The value below which a share of some numbers lies; `None` without any.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    Summary::of(values).map(|summary| summary.quantile(share))
}

/// One set beside the reference's.
pub fn against(reference: &[f64], other: &[f64]) -> Judgement {
    let ratio = median(reference)
        .filter(|median| *median != 0.0)
        .zip(median(other))
        .map(|(below, above)| above / below);
    let runs = reference.len().min(other.len());
    let test =
        |confidence| if runs < RUNS_MIN { None } else { difference(reference, other, confidence) };
    let equivalence = stats::equivalent(reference, other, SAME_WITHIN, Confidence::P95);
    Judgement {
        ratio,
        ratio_interval: if runs > 1 {
            stats::bootstrap_ratio_of_medians(reference, other, Confidence::P95, SEED)
        } else {
            None
        },
        runs,
        at_95: test(Confidence::P95),
        at_99_5: test(Confidence::P99_5),
        is_same: equivalence.is_some_and(|found| found.verdict == Sameness::Same),
    }
}

/// Student's test, or Welch's where the spreads differ.
fn difference(reference: &[f64], other: &[f64], confidence: Confidence) -> Option<Difference> {
    let spread = |values: &[f64]| Summary::of(values).map(|summary| summary.stddev);
    let (one, two) = (spread(reference)?, spread(other)?);
    let differ = one.max(two) > STDDEV_RATIO_MAX * one.min(two);
    if differ {
        stats::welch(reference, other, confidence)
    } else {
        stats::student(reference, other, confidence)
    }
}

impl Judgement {
    /// What was found.
    pub fn finding(&self) -> Finding {
        if self.runs < RUNS_MIN {
            return Finding::TooFew;
        }
        let proven = |found: &Option<Difference>| found.filter(Difference::is_proven);
        let Some(found) = proven(&self.at_99_5).or(proven(&self.at_95)) else {
            return if self.is_same { Finding::Same } else { Finding::NotProven };
        };
        let sure = proven(&self.at_99_5).is_some();
        if found.difference > 0.0 { Finding::Higher(sure) } else { Finding::Lower(sure) }
    }

    /// In words.
    pub fn words(&self) -> String {
        match self.finding() {
            Finding::Higher(sure) => format!("higher, {}", percent(sure)),
            Finding::Lower(sure) => format!("lower, {}", percent(sure)),
            Finding::Same => format!("same within {:.0} %", SAME_WITHIN * 100.0),
            Finding::NotProven => "no difference proven".into(),
            Finding::TooFew => format!("no difference proven (n = {})", self.runs),
        }
    }

    /// The difference of the means at 95 %, and what it was found by; empty where nothing was tested.
    pub fn test(&self) -> String {
        let Some(found) = &self.at_95 else { return String::new() };
        let test = match found.test {
            Test::Student => "Student",
            Test::Welch => "Welch",
        };
        format!("{:+.1} % ± {:.1} %, {test}", found.percent, found.percent_margin).replace('-', "−")
    }
}

fn percent(sure: bool) -> &'static str {
    if sure { "99.5 %" } else { "95 % only" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(middle: f64, spread: f64, n: usize) -> Vec<f64> {
        (0..n).map(|index| middle + spread * ((index * 7 % 10) as f64 - 4.5) / 4.5).collect()
    }

    #[test]
    fn three_runs_prove_nothing_however_far_apart_they_are() {
        let found = against(&around(100.0, 1.0, 10), &around(900.0, 1.0, 3));
        assert_eq!(found.words(), "no difference proven (n = 3)");
        assert_eq!((found.at_95, found.test()), (None, String::new()));
    }

    #[test]
    fn ten_runs_far_apart_differ_and_ten_runs_alike_are_the_same_or_not_proven() {
        let reference = around(100.0, 2.0, 10);
        assert_eq!(against(&reference, &around(150.0, 2.0, 10)).words(), "higher, 99.5 %");
        assert_eq!(against(&reference, &around(50.0, 2.0, 10)).words(), "lower, 99.5 %");
        assert_eq!(against(&reference, &around(100.3, 2.0, 10)).finding(), Finding::Same);
        assert_eq!(
            against(&around(100.0, 60.0, 10), &around(110.0, 60.0, 10)).words(),
            "no difference proven"
        );
    }

    #[test]
    fn welch_takes_over_where_the_spreads_differ() {
        let reference = around(100.0, 2.0, 10);
        assert!(against(&reference, &around(150.0, 3.0, 10)).test().starts_with("+50.0 % ± "));
        assert!(against(&reference, &around(150.0, 30.0, 10)).test().ends_with("Welch"));
    }
}
