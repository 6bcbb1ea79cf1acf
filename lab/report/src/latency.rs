//! Delays out of the runs' HDR histograms.
//!
//! Must never pass over a histogram that cannot be read: it is named.

use crate::campaign::Group;
use crate::record::Run;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

/// The shares in the tables, in percent; the greatest comes after them.
pub const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
/// Points of a curve.
const CURVE_POINTS: usize = 72;
/// The curve ends here, or where there is one message beyond.
const NINES_MAX: f64 = 1e5;
/// Bins of a picture for each power of ten.
const BINS_PER_DECADE: f64 = 12.0;

/// A bin: from, to (in microseconds), and its share of all delays.
pub type Bin = (f64, f64, f64);

/// All delays of one kind, of a subject in a cell.
pub struct Delays {
    all: Histogram<u64>,
    /// Runs that have them.
    pub runs: usize,
    /// What could not be read.
    pub faults: Vec<String>,
}

impl Delays {
    /// Of all the runs of a group; `None` if none has them.
    pub fn of(group: &Group, name: &str) -> Option<Delays> {
        let mut delays = Delays {
            all: Histogram::new(3).expect("three digits can be kept"),
            runs: 0,
            faults: Vec::new(),
        };
        for run in &group.runs {
            let Some(text) = run.histograms.get(name) else { continue };
            match decode(text)
                .and_then(|one| delays.all.add(&one).map_err(|error| error.to_string()))
            {
                Ok(()) => delays.runs += 1,
                Err(error) => delays.faults.push(fault(run, name, &error)),
            }
        }
        (delays.runs > 0 || !delays.faults.is_empty()).then_some(delays)
    }

    /// How many delays there are.
    pub fn count(&self) -> u64 {
        self.all.len()
    }

    /// Microseconds at each of `PERCENTILES`, and the greatest.
    pub fn table(&self) -> Vec<f64> {
        let at = |percent: &f64| self.all.value_at_quantile(percent / 100.0) as f64;
        PERCENTILES.iter().map(at).chain([self.all.max() as f64]).collect()
    }

    /// Points (1 / share beyond, microseconds).
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let top = (self.count() as f64).clamp(2.0, NINES_MAX);
        let beyond = (0..=CURVE_POINTS).map(|index| top.powf(index as f64 / CURVE_POINTS as f64));
        beyond
            .map(|beyond| (beyond, self.all.value_at_quantile(1.0 - 1.0 / beyond).max(1) as f64))
            .collect()
    }

    /// Bins of equal ratios, from the first that holds something to the last.
    pub fn bins(&self) -> Vec<Bin> {
        let place = |value: u64| ((value.max(1) as f64).log10() * BINS_PER_DECADE).floor() as i32;
        let mut counts = std::collections::BTreeMap::<i32, u64>::new();
        for value in self.all.iter_recorded() {
            *counts.entry(place(value.value_iterated_to())).or_default() +=
                value.count_since_last_iteration();
        }
        let (Some(first), Some(last)) = (counts.keys().next(), counts.keys().next_back()) else {
            return Vec::new();
        };
        let edge = |bin: i32| 10f64.powf(f64::from(bin) / BINS_PER_DECADE);
        let share = |bin: i32| counts.get(&bin).copied().unwrap_or(0) as f64 / self.count() as f64;
        (*first..=*last).map(|bin| (edge(bin), edge(bin + 1), share(bin))).collect()
    }
}

fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| error.to_string())
}

fn fault(run: &Run, name: &str, error: &str) -> String {
    format!("the histogram {name} of run {} cannot be read: {error}", run.ordinal)
}
