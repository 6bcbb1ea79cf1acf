//! How large messages are: one size, a list with weights, or a log-normal distribution.
//!
//! Must never make an unbounded number of size classes: each has a template in memory.

use super::draw::{Purpose, Weighted, part};
use anyhow::{Context, Result, bail, ensure};
use std::str::FromStr;

/// Classes of a distribution: neighbours differ by a few hundredths.
const CLASSES_MAX: usize = 256;
/// The smallest class of a distribution, and the largest unless told.
const LEAST_BYTES: usize = 350;
const MOST_BYTES: usize = 10 << 20;
/// Upper bound on the size of a message.
const SIZE_BYTES_MAX: usize = 1 << 30;

/// `SIZE`, `SIZE:WEIGHT,SIZE:WEIGHT,...` or `lognormal:MEDIAN:SIGMA[:MAX]`.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// These sizes, by weight.
    Listed(Weighted<usize>),
    /// The logarithm of the size is normal.
    LogNormal {
        /// The median.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        /// All classes, ascending.
        classes: Vec<usize>,
    },
}

impl Sizes {
    /// Returns every possible size once, ascending.
    pub fn classes(&self) -> Vec<usize> {
        let mut classes: Vec<usize> = match self {
            Sizes::Listed(list) => list.all().copied().collect(),
            Sizes::LogNormal { classes, .. } => classes.clone(),
        };
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// The size of message `number`.
    pub fn of(&self, seed: u64, number: u64) -> usize {
        match self {
            Sizes::Listed(list) => match list.only() {
                Some(size) => *size,
                None => *list.choose(part(seed, Purpose::Size, number, 0)),
            },
            Sizes::LogNormal { median, sigma, classes } => {
                let one = 1.0 - part(seed, Purpose::Size, number, 0); // above 0
                let two = part(seed, Purpose::SizeAgain, number, 0);
                // Box and Muller's way to a normal deviate.
                let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos();
                nearest(classes, median * (sigma * normal).exp())
            }
        }
    }
}

/// The class next to `size` on a logarithmic scale.
fn nearest(classes: &[usize], size: f64) -> usize {
    let at = classes.partition_point(|class| (*class as f64) < size);
    let above = classes[at.min(classes.len() - 1)];
    let below = classes[at.saturating_sub(1)];
    if size * size < below as f64 * above as f64 { below } else { above }
}

impl FromStr for Sizes {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Sizes> {
        if let Some(numbers) = text.strip_prefix("lognormal:") {
            return log_normal(numbers);
        }
        let listed = text.split(',').map(|item| {
            let (size, weight) = item.split_once(':').unwrap_or((item, "1"));
            Ok((bytes(size)?, weight.parse().with_context(|| format!("{weight}: no weight"))?))
        });
        let listed: Vec<(usize, f64)> = listed.collect::<Result<_>>()?;
        ensure!(listed.len() <= CLASSES_MAX, "at most {CLASSES_MAX} sizes");
        Ok(Sizes::Listed(Weighted::new(listed)?))
    }
}

fn log_normal(numbers: &str) -> Result<Sizes> {
    let words: Vec<&str> = numbers.split(':').collect();
    let (median, sigma, most) = match words[..] {
        [median, sigma] => (median, sigma, MOST_BYTES),
        [median, sigma, most] => (median, sigma, bytes(most)?),
        _ => bail!("lognormal:MEDIAN:SIGMA[:MAX] is expected"),
    };
    let median = bytes(median)? as f64;
    let sigma: f64 = sigma.parse().with_context(|| format!("{sigma}: no standard deviation"))?;
    ensure!((0.0..=10.0).contains(&sigma), "a standard deviation of 0 to 10 is expected");
    let most = most.max(LEAST_BYTES);
    let step = (most as f64 / LEAST_BYTES as f64).ln() / (CLASSES_MAX - 1) as f64;
    let class = |number: usize| (LEAST_BYTES as f64 * (step * number as f64).exp()).round();
    let mut classes: Vec<usize> = (0..CLASSES_MAX).map(|number| class(number) as usize).collect();
    classes.dedup();
    Ok(Sizes::LogNormal { median, sigma, classes })
}

/// `4096`, `4k`, `1M`: k is 1,024.
fn bytes(text: &str) -> Result<usize> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let number: usize = digits.parse().with_context(|| format!("{text}: not a size"))?;
    let bytes = number.saturating_mul(unit);
    ensure!(bytes <= SIZE_BYTES_MAX, "{text}: more than {SIZE_BYTES_MAX} bytes");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_drawn_by_its_weights() {
        let sizes: Sizes = "1k:50,4k:30,100k:20".parse().unwrap();
        assert_eq!(sizes.classes(), [1024, 4096, 102_400]);
        let count = |wanted| (0..10_000).filter(|number| sizes.of(7, *number) == wanted).count();
        assert!(count(1024).abs_diff(5000) < 200 && count(4096).abs_diff(3000) < 200);
        assert_eq!("4096".parse::<Sizes>().unwrap().of(1, 2), 4096);
    }

    #[test]
    fn log_normal_sizes_have_their_median_and_their_spread() {
        let sizes: Sizes = "lognormal:8k:1.5:1M".parse().unwrap();
        let mut drawn: Vec<usize> = (0..20_000).map(|number| sizes.of(3, number)).collect();
        drawn.sort_unstable();
        let share = |part: f64| drawn[(part * drawn.len() as f64) as usize] as f64;
        assert!((share(0.5) / 8192.0).ln().abs() < 0.06, "{}", share(0.5));
        // One standard deviation above the median: 84.13 %.
        assert!((share(0.8413) / (8192.0 * 1.5f64.exp())).ln().abs() < 0.08, "{}", share(0.8413));
        assert!(*drawn.last().unwrap() <= 1 << 20 && sizes.classes().len() <= CLASSES_MAX);
        assert_eq!(sizes.of(3, 11), sizes.of(3, 11));
    }

    #[test]
    fn a_size_that_cannot_be_read_is_refused() {
        for text in ["", "x", "4k:0", "4k:", "lognormal:4k", "lognormal:4k:-1", "99999M", "-1"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}
