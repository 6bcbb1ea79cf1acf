//! The instruments of source and sink: the clock, CPU time, rows over time, histograms.
//!
//! Must never make a system call for a message: the clock is read without one.

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use report::record::Minute;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Upper bound on a recorded time; longer times count as this.
const HISTOGRAM_US_MAX: u64 = 3_600_000_000;
/// Significant decimal digits of a histogram's values.
const HISTOGRAM_DIGITS: u8 = 3;
/// Upper bound on rows; later counts go into the last one.
const ROWS_MAX: usize = 100_000;

/// A moment on both clocks that a run needs.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    ns: u64,
}

impl Moment {
    /// Returns the current moment.
    pub fn now() -> Moment {
        Moment { at: Instant::now(), ns: nanos(ClockId::Monotonic) }
    }

    /// Returns the standard library's instant.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Returns another moment in nanoseconds of `CLOCK_MONOTONIC`, which all processes of this machine share.
    pub fn ns(&self, other: Instant) -> u64 {
        let later = other.saturating_duration_since(self.at).as_nanos();
        let earlier = self.at.saturating_duration_since(other).as_nanos();
        (self.ns + later as u64).saturating_sub(earlier as u64)
    }
}

/// Returns the CPU time of this process, with all its threads.
pub fn cpu_time() -> Duration {
    Duration::from_nanos(nanos(ClockId::ProcessCPUTime))
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the share of CPU time in a load: 1 means that all threads were always busy.
pub fn busy_share(cpu: Duration, threads: usize, wall: Duration) -> f64 {
    cpu.as_secs_f64() / (threads.max(1) as f64 * wall.as_secs_f64()).max(1e-6)
}

/// A distribution of times, from a microsecond to an hour, each within a thousandth.
#[derive(Clone, Debug)]
pub struct Times {
    histogram: Histogram<u64>,
}

impl Default for Times {
    fn default() -> Times {
        let histogram = Histogram::new_with_bounds(1, HISTOGRAM_US_MAX, HISTOGRAM_DIGITS);
        Times { histogram: histogram.expect("the bounds are constants that fit") }
    }
}

impl Times {
    /// Adds a time.
    pub fn record(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        self.histogram.saturating_record(us);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Times) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Returns the number of times between two bounds, in milliseconds.
    #[cfg(test)]
    pub fn between_ms(&self, low: f64, high: f64) -> u64 {
        self.histogram.count_between((low * 1000.0) as u64, (high * 1000.0) as u64)
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Writes HDR's V2 format with DEFLATE in base64, as `report::record::Run::histograms` holds it.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes);
        written.expect("a Vec takes all bytes");
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }
}

/// Exact percentiles by nearest rank, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Percentiles {
    /// The least.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The greatest.
    pub max: f64,
}

impl Percentiles {
    /// Computes percentiles of microseconds in any order; `None` without any.
    pub fn of(mut samples_us: Vec<u32>) -> Option<Percentiles> {
        samples_us.sort_unstable();
        let last = samples_us.len().checked_sub(1)?;
        let ms = |us: u32| f64::from(us) / 1000.0;
        let rank = |part: f64| {
            let rank = (part * samples_us.len() as f64).ceil() as usize;
            ms(samples_us[rank.saturating_sub(1).min(last)])
        };
        let sum: f64 = samples_us.iter().map(|us| ms(*us)).sum();
        Some(Percentiles {
            min: ms(samples_us[0]),
            mean: sum / samples_us.len() as f64,
            p50: rank(0.5),
            p90: rank(0.9),
            p99: rank(0.99),
            p999: rank(0.999),
            max: ms(samples_us[last]),
        })
    }
}

/// Microseconds as a sample is kept.
pub fn sample_us(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Counts over time, in rows of one length.
#[derive(Clone, Debug)]
pub struct Rows {
    every: Duration,
    rows: Vec<Minute>,
}

impl Rows {
    /// Creates rows of this length.
    pub fn new(every: Duration) -> Rows {
        Rows { every: every.max(Duration::from_millis(1)), rows: Vec::new() }
    }

    /// The row of this time since the start, made with all those before it.
    pub fn at(&mut self, since: Duration) -> &mut Minute {
        let wanted = (since.as_nanos() / self.every.as_nanos()) as usize;
        let wanted = wanted.min(ROWS_MAX - 1);
        while self.rows.len() <= wanted {
            let seconds = self.every.as_secs_f64() * (self.rows.len() + 1) as f64;
            self.rows.push(Minute { seconds, messages: 0, bytes: 0, errors: 0, connections: 0 });
        }
        &mut self.rows[wanted]
    }

    /// Adds another's rows.
    pub fn merge(&mut self, other: &Rows) {
        for (number, row) in other.rows.iter().enumerate() {
            let ours = self.at(self.every * number as u32);
            ours.messages += row.messages;
            ours.bytes += row.bytes;
            ours.errors += row.errors;
            ours.connections += row.connections;
        }
    }

    /// Returns row `number`, if it or a later one has counts.
    pub fn get(&self, number: usize) -> Option<&Minute> {
        self.rows.get(number)
    }

    /// Returns all rows; the last one ends with the load, `end` after the start.
    pub fn into_rows(mut self, end: Duration) -> Vec<Minute> {
        if let Some(last) = self.rows.last_mut() {
            last.seconds = last.seconds.min(end.as_secs_f64());
        }
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let samples: Vec<u32> = (1..=1000).rev().map(|ms| ms * 1000).collect();
        let latency = Percentiles::of(samples).unwrap();
        assert_eq!((latency.min, latency.p50, latency.p90), (1.0, 500.0, 900.0));
        assert_eq!((latency.p99, latency.p999, latency.max), (990.0, 999.0, 1000.0));
        assert_eq!(latency.mean, 500.5);
        assert!(Percentiles::of(Vec::new()).is_none());
    }

    #[test]
    fn a_histogram_read_back_from_its_text_has_each_time_within_a_thousandth() {
        let (mut one, mut two) = (Times::default(), Times::default());
        (1..=500).for_each(|ms| one.record(Duration::from_millis(ms)));
        (501..=1000).for_each(|ms| two.record(Duration::from_millis(ms)));
        two.record(Duration::from_secs(100_000)); // counts as an hour
        one.merge(&two);
        let bytes = base64::engine::general_purpose::STANDARD.decode(one.to_base64()).unwrap();
        let back: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(back.len(), 1001);
        let median = back.value_at_quantile(0.5) as f64;
        assert!((median / 501_000.0 - 1.0).abs() < 0.001, "{median}");
        assert!((back.max() as f64 / HISTOGRAM_US_MAX as f64 - 1.0).abs() < 0.001);
    }

    #[test]
    fn rows_without_anything_are_kept_and_the_last_ends_with_the_load() {
        let ms = Duration::from_millis;
        let (mut one, mut two) = (Rows::new(ms(100)), Rows::new(ms(100)));
        one.at(ms(0)).messages += 1;
        two.at(ms(99)).messages += 1;
        two.at(ms(250)).errors += 1;
        one.merge(&two);
        let rows = one.into_rows(ms(260));
        let counts: Vec<_> = rows.iter().map(|row| (row.messages, row.errors)).collect();
        assert_eq!(counts, [(2, 0), (0, 0), (0, 1)]);
        assert_eq!((rows[1].seconds, rows[2].seconds), (0.2, 0.26));
    }

    #[test]
    fn any_moment_has_nanoseconds_of_the_clock_that_all_processes_share() {
        let start = Moment::now();
        let later = start.at() + Duration::from_millis(5);
        assert_eq!(start.ns(later) - start.ns(start.at()), 5_000_000);
        let earlier = start.at() - Duration::from_millis(5);
        assert_eq!(start.ns(start.at()) - start.ns(earlier), 5_000_000);
    }
}
