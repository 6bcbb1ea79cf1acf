//! A range in which a figure lies with a stated confidence.
//!
//! Must never have its ends the wrong way round.

/// From `low` to `high`, both within.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// So far to each side of a middle.
    pub fn around(middle: f64, half: f64) -> Interval {
        Interval { low: middle - half.abs(), high: middle + half.abs() }
    }

    /// Whether `value` lies in it.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether all of it lies in `outer`.
    pub fn is_within(&self, outer: &Interval) -> bool {
        outer.contains(self.low) && outer.contains(self.high)
    }

    /// From end to end.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}
