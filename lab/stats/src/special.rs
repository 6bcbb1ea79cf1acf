//! Functions that distributions are made of: the logarithm of gamma, and the incomplete beta function.
//!
//! Must never be called outside of their domain: the distributions see to that.

/// Steps after which a continued fraction is taken as it is; a few hundred do for millions of degrees of freedom.
const STEPS_MAX: usize = 100_000;

/// ln Γ(x) for x > 0, by Stirling's series after a shift to where it is exact.
pub fn ln_gamma(x: f64) -> f64 {
    let (mut shifted, mut product) = (x, 1.0_f64);
    while shifted < SERIES_FROM {
        product *= shifted;
        shifted += 1.0;
    }
    let inverse = 1.0 / (shifted * shifted);
    let series = SERIES.iter().rev().fold(0.0, |sum, term| sum * inverse + term) / shifted;
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * std::f64::consts::TAU.ln() + series
        - product.ln()
}

/// From here on six terms of the series leave less than the last bit.
const SERIES_FROM: f64 = 15.0;

/// Bernoulli's numbers over 2k (2k − 1).
const SERIES: [f64; 6] =
    [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0];

/// The regularised incomplete beta function of `x` and `1 - x` (given apart, so that neither loses digits).
pub fn incomplete_beta(a: f64, b: f64, x: f64, rest: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if rest <= 0.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * rest.ln()).exp();
    // The fraction converges fast on this side of the mean only.
    if x < (a + 1.0) / (a + b + 2.0) {
        front / (a * beta_fraction(a, b, x))
    } else {
        1.0 - front / (b * beta_fraction(b, a, rest))
    }
}

/// The denominator 1 + d₁/(1 + d₂/(1 + …)) of the fraction (DLMF 8.17.22), by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut fraction, mut above, mut below) = (1.0_f64, 1.0_f64, 0.0_f64);
    for step in 1..STEPS_MAX {
        let m = (step / 2) as f64;
        let term = if step % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        below = 1.0 / away_from_zero(1.0 + term * below);
        above = away_from_zero(1.0 + term / above);
        let factor = above * below;
        fraction *= factor;
        if (factor - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_is_the_factorial() {
        let mut factorial = 1.0_f64;
        for n in 1..30 {
            assert!(
                (ln_gamma(f64::from(n)) - factorial.ln()).abs() < 1e-12 * factorial.ln().max(1.0),
                "{n}"
            );
            factorial *= f64::from(n);
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-13);
    }

    #[test]
    fn the_incomplete_beta_function_has_its_closed_forms() {
        for x in [0.0, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0] {
            let near = |value: f64, closed: f64| {
                assert!((value - closed).abs() < 1e-13, "{x}: {value} {closed}")
            };
            near(incomplete_beta(1.0, 1.0, x, 1.0 - x), x);
            near(incomplete_beta(2.0, 3.0, x, 1.0 - x), x * x * (6.0 - 8.0 * x + 3.0 * x * x));
            near(
                incomplete_beta(0.5, 0.5, x, 1.0 - x),
                2.0 / std::f64::consts::PI * x.sqrt().asin(),
            );
        }
    }
}
