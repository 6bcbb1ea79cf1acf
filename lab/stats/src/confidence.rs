//! How sure a statement has to be, in percent, on both sides of a figure together.
//!
//! Must never be 0 or 100.

use crate::student_t::t_quantile;
use std::fmt;

/// A confidence, such as 95 %.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Confidence {
    percent: f64,
}

impl Confidence {
    /// 80 %.
    pub const P80: Confidence = Confidence { percent: 80.0 };
    /// 90 %.
    pub const P90: Confidence = Confidence { percent: 90.0 };
    /// 95 %.
    pub const P95: Confidence = Confidence { percent: 95.0 };
    /// 98 %.
    pub const P98: Confidence = Confidence { percent: 98.0 };
    /// 99 %.
    pub const P99: Confidence = Confidence { percent: 99.0 };
    /// 99.5 %.
    pub const P99_5: Confidence = Confidence { percent: 99.5 };
    /// Those that ministat knows.
    pub const MINISTAT: [Confidence; 6] = [
        Confidence::P80,
        Confidence::P90,
        Confidence::P95,
        Confidence::P98,
        Confidence::P99,
        Confidence::P99_5,
    ];

    /// More than 0 and less than 100.
    pub fn of_percent(percent: f64) -> Option<Confidence> {
        (percent > 0.0 && percent < 100.0).then_some(Confidence { percent })
    }

    /// In percent.
    pub fn percent(self) -> f64 {
        self.percent
    }

    /// The share of errors that is allowed, on both sides together: 0.05 for 95 %.
    pub fn alpha(self) -> f64 {
        (100.0 - self.percent) / 100.0
    }

    /// How many standard errors to each side hold the truth so often.
    pub fn t(self, degrees: f64) -> f64 {
        t_quantile(self.alpha(), degrees)
    }

    /// The same as ministat has it in a printed table: three decimals, the last row from 101 degrees on, and under
    /// "99.5 %" the column for one side and 0.999, which is 99.8 % on both sides. `None` for what is not in the table.
    pub fn t_of_ministat(self, degrees: usize) -> Option<f64> {
        if degrees == 0 || !Confidence::MINISTAT.contains(&self) {
            return None;
        }
        let last_column = self == Confidence::P99_5;
        if let Some((_, printed)) = SLIPS.iter().find(|(row, _)| last_column && *row == degrees) {
            return Some(*printed);
        }
        let tails = if last_column { 0.002 } else { self.alpha() };
        let row = if degrees > TABLE_DEGREES_MAX { f64::INFINITY } else { degrees as f64 };
        Some((t_quantile(tails, row) * 1000.0).round() / 1000.0)
    }
}

/// The last row of ministat's table but that for infinity.
const TABLE_DEGREES_MAX: usize = 100;

/// Rows in which the table's last column is off by up to 0.003. All others from 4 to 101, as ministat's own margins show
/// them, are the exact quantile, rounded.
const SLIPS: [(usize, f64); 6] =
    [(7, 4.782), (8, 4.499), (9, 4.296), (10, 4.143), (11, 4.024), (12, 3.929)];

impl Default for Confidence {
    fn default() -> Confidence {
        Confidence::P95
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}%", self.percent)
    }
}
