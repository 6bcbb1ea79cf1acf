//! A straight line through points by least squares, and how sure it is.
//!
//! Must never claim more than the points hold: with two of them, or all above one x, there is no line.

use crate::confidence::Confidence;
use crate::interval::Interval;
use crate::student_t::t_tails;
use crate::summary::sum;

/// y = intercept + slope · x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// How many points.
    pub n: usize,
    /// What y grows by with each x.
    pub slope: f64,
    /// Its standard error.
    pub slope_error: f64,
    /// y where x is 0.
    pub intercept: f64,
    /// Its standard error.
    pub intercept_error: f64,
    /// The share of y's variance that the line explains.
    pub r_squared: f64,
    /// The standard deviation of the points around the line.
    pub residual_stddev: f64,
    x_mean: f64,
    x_squares: f64,
}

impl Trend {
    /// Through at least three finite points (x, y), not all above one x.
    pub fn of(points: &[(f64, f64)]) -> Option<Trend> {
        let n = points.len();
        if n < 3 || !points.iter().all(|(x, y)| x.is_finite() && y.is_finite()) {
            return None;
        }
        let mean = |value: fn(&(f64, f64)) -> f64| sum(points.iter().map(value)) / n as f64;
        let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
        let x_squares = sum(points.iter().map(|(x, _)| (x - x_mean).powi(2)));
        if x_squares.is_nan() || x_squares <= 0.0 {
            return None;
        }
        let slope = sum(points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean))) / x_squares;
        let rest = sum(points.iter().map(|(x, y)| (y - y_mean - slope * (x - x_mean)).powi(2)));
        let y_squares = sum(points.iter().map(|(_, y)| (y - y_mean).powi(2)));
        let residual_stddev = (rest / (n as f64 - 2.0)).sqrt();
        Some(Trend {
            n,
            slope,
            slope_error: residual_stddev / x_squares.sqrt(),
            intercept: y_mean - slope * x_mean,
            intercept_error: residual_stddev
                * (1.0 / n as f64 + x_mean * x_mean / x_squares).sqrt(),
            // A level line through level points explains all there is.
            r_squared: if y_squares > 0.0 { (1.0 - rest / y_squares).max(0.0) } else { 1.0 },
            residual_stddev,
            x_mean,
            x_squares,
        })
    }

    /// The line's y.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Half the height, at `x`, of the band in which the true line lies.
    pub fn band(&self, x: f64, confidence: Confidence) -> f64 {
        confidence.t(self.degrees()) * self.residual_stddev * self.leverage(x).sqrt()
    }

    /// Half the height, at `x`, of the band in which one more point lies.
    pub fn prediction_band(&self, x: f64, confidence: Confidence) -> f64 {
        confidence.t(self.degrees()) * self.residual_stddev * (1.0 + self.leverage(x)).sqrt()
    }

    /// Where the true slope lies.
    pub fn slope_interval(&self, confidence: Confidence) -> Interval {
        Interval::around(self.slope, confidence.t(self.degrees()) * self.slope_error)
    }

    /// How often chance makes a slope at least as steep where there is none.
    pub fn slope_p(&self) -> f64 {
        let t = if self.slope == 0.0 { 0.0 } else { self.slope / self.slope_error };
        t_tails(t, self.degrees())
    }

    /// Degrees of freedom.
    pub fn degrees(&self) -> f64 {
        self.n as f64 - 2.0
    }

    fn leverage(&self, x: f64) -> f64 {
        1.0 / self.n as f64 + (x - self.x_mean).powi(2) / self.x_squares
    }
}
