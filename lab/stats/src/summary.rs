//! What a set of samples looks like: how many, from where to where, its middle, its spread.
//!
//! Must never lose digits to a far-off mean: the spread is taken around the mean, not as a difference of squares.

/// The figures of one set of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The middle one, as ministat takes it: the upper of two. [`Summary::quantile`] of 0.5 is the mean of the two.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample (divided by n − 1); of a single one it is not a number.
    pub stddev: f64,
    /// All of them together.
    pub sum: f64,
    sorted: Vec<f64>,
}

impl Summary {
    /// Of at least one sample, all of them finite.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        if samples.is_empty() || !samples.iter().all(|sample| sample.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = samples.len();
        let sum = sum(samples.iter().copied());
        let mean = mean_near(samples, sum / n as f64);
        Some(Summary {
            n,
            min: sorted[0],
            max: sorted[n - 1],
            median: sorted[n / 2],
            mean,
            stddev: (squares_around(samples, mean) / (n as f64 - 1.0)).sqrt(),
            sum,
            sorted,
        })
    }

    /// The square of the standard deviation.
    pub fn variance(&self) -> f64 {
        self.stddev * self.stddev
    }

    /// The standard error of the mean.
    pub fn mean_error(&self) -> f64 {
        self.stddev / (self.n as f64).sqrt()
    }

    /// The value below which the share `q` (0 to 1) of the samples lies, with a straight line between two samples
    /// (type 7 of Hyndman and Fan, what most programs do).
    pub fn quantile(&self, q: f64) -> f64 {
        quantile_of_sorted(&self.sorted, q)
    }

    /// The samples from the smallest to the largest.
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }
}

/// As [`Summary::quantile`], of what is sorted and not empty.
pub(crate) fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let place = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let share = place - below as f64;
    // Two equal neighbours give exactly their value.
    if share == 0.0 || sorted[below] == sorted[above] {
        return sorted[below];
    }
    sorted[below] * (1.0 - share) + sorted[above] * share
}

/// A sum that carries along what each step rounds away (Neumaier).
pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = total + value;
        lost += if total.abs() >= value.abs() {
            (total - next) + value
        } else {
            (value - next) + total
        };
        total = next;
    }
    if lost.is_finite() { total + lost } else { total }
}

/// The mean, corrected once by the mean distance from a first guess.
fn mean_near(samples: &[f64], guess: f64) -> f64 {
    guess + sum(samples.iter().map(|sample| sample - guess)) / samples.len() as f64
}

fn squares_around(samples: &[f64], mean: f64) -> f64 {
    let squares = sum(samples.iter().map(|sample| (sample - mean).powi(2)));
    // What the mean itself was rounded by.
    let rest = sum(samples.iter().map(|sample| sample - mean));
    (squares - rest * rest / samples.len() as f64).max(0.0)
}
