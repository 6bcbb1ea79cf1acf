//! Shortens a long series of create times for a record and a figure.
//!
//! Must never hide slow ones behind means: bins have medians, and raw times are kept as well.

use std::time::Duration;

/// Number of medians kept.
const BINS_MAX: usize = 1_000;
/// Number of raw times kept.
const RAW_MAX: usize = 1_000;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Messages queued before it.
    pub queued: f64,
    /// How long it took, in microseconds.
    pub create_us: f64,
}

impl Point {
    /// As x and y.
    pub fn pair(&self) -> (f64, f64) {
        (self.queued, self.create_us)
    }

    /// How long it took.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.create_us / 1e6)
    }
}

/// Of points in the order of `queued`: bins with the same number of points (but the last), each with its middle place
/// and its median time.
pub fn medians(points: &[Point]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(BINS_MAX).max(1);
    let median = |bin: &[Point]| {
        let mut times: Vec<f64> = bin.iter().map(|point| point.create_us).collect();
        times.sort_by(f64::total_cmp);
        let half = times.len() / 2;
        let middle = if times.len().is_multiple_of(2) {
            (times[half - 1] + times[half]) / 2.0
        } else {
            times[half]
        };
        (bin[bin.len() / 2].queued, middle)
    };
    points.chunks(size).map(median).collect()
}

/// Returns an even selection of raw points.
pub fn thinned(points: &[Point]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(RAW_MAX).max(1);
    points.iter().step_by(step).map(Point::pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: u32) -> Vec<Point> {
        (0..count).map(|at| Point { queued: at.into(), create_us: f64::from(at % 3) }).collect()
    }

    #[test]
    fn a_short_series_is_kept_as_it_is() {
        let points = points(5);
        assert_eq!(thinned(&points), medians(&points));
        assert_eq!(thinned(&points).len(), 5);
        assert_eq!((medians(&[]), thinned(&[])), (vec![], vec![]));
    }

    #[test]
    fn a_long_series_is_bounded_and_its_bins_have_their_own_median() {
        let points = points(3_000);
        assert_eq!(
            medians(&points),
            Vec::from_iter((0..1_000).map(|bin| (f64::from(bin * 3 + 1), 1.0)))
        );
        assert_eq!(thinned(&points)[1], (3.0, 0.0));
        let uneven = super::tests::points(30_001);
        assert!(medians(&uneven).len() <= 1_000 && thinned(&uneven).len() <= 1_000);
    }
}
