//! The laboratory's statistics: samples in, figures and verdicts out.
//!
//! Must never draw lots but from a seed that it is given, or call two things the same because no difference was found.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bootstrap;
mod bound;
mod confidence;
mod difference;
mod dot_plot;
mod equivalence;
mod interval;
mod normal;
mod normality;
mod outlier;
mod special;
mod student_t;
mod summary;
mod trend;

pub use bootstrap::{
    bootstrap_median, bootstrap_median_ratio_of_pairs, bootstrap_ratio_of_medians,
};
pub use bound::{Bound, Keeping};
pub use confidence::Confidence;
pub use difference::{Difference, Test, Verdict, student, welch};
pub use dot_plot::{SETS_MAX, SYMBOLS, WIDTH_DEFAULT, WIDTH_MAX, dot_plot};
pub use equivalence::{Equivalence, Sameness, equivalent};
pub use interval::Interval;
pub use normality::{Normality, looks_normal};
pub use outlier::{Distance, Outlier, outliers};
pub use student_t::{t_quantile, t_tails};
pub use summary::Summary;
pub use trend::Trend;

/// A test needs this many samples of each side; ministat asks for as many.
pub const SAMPLES_MIN: usize = 3;

/// With fewer runs of a side nothing is claimed about it in words.
pub const RUNS_MIN: usize = 10;
