//! From values to places: scales of equal steps and of equal ratios, with round ticks.
//!
//! Must never leave out a value: what it is made of lies between its ends.

/// More ticks than this are never made.
const TICKS_MAX: usize = 40;
/// What is set and spans as much has steps of equal ratios.
const EXACT_SPAN_MAX: f64 = 16.0;

/// From values to places along one direction.
#[derive(Clone, Debug)]
pub struct Scale {
    kind: Kind,
    /// The values at the ends.
    low: f64,
    high: f64,
    /// The places of the ends.
    from: f64,
    to: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Equal,
    /// Equal ratios; below the least positive value comes 0, if there is one.
    Ratio {
        zero: bool,
    },
}

impl Scale {
    /// Equal steps, from 0 if `zero`, with round ends.
    pub fn equal(values: &[f64], zero: bool) -> Scale {
        let (mut low, mut high) = ends(values).unwrap_or((0.0, 1.0));
        if zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if high - low <= f64::EPSILON * high.abs().max(low.abs()) {
            let margin = if high == 0.0 { 1.0 } else { high.abs() * 0.05 };
            (low, high) = (if zero && low == 0.0 { 0.0 } else { low - margin }, high + margin);
        }
        let step = round_step((high - low) / 5.0);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Scale { kind: Kind::Equal, low, high, from: 0.0, to: 1.0 }
    }

    /// Equal ratios between round numbers. Values of 0 get a place of their own; those below count as 0.
    pub fn ratio(values: &[f64]) -> Scale {
        let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        let (low, high) = ends(&positive).unwrap_or((1.0, 10.0));
        let (low, mut high) = (round_ratio(low, false), round_ratio(high, true));
        if high <= low {
            high = low * 10.0;
        }
        let zero = values.iter().any(|value| *value <= 0.0);
        Scale { kind: Kind::Ratio { zero }, low, high, from: 0.0, to: 1.0 }
    }

    /// Equal ratios exactly between the ends of the values, for what is set rather than measured.
    pub fn ratio_exact(values: &[f64]) -> Scale {
        let mut scale = Scale::ratio(values);
        let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        if let Some((low, high)) = ends(&positive)
            && high > low
        {
            (scale.low, scale.high) = (low, high);
        }
        scale
    }

    /// Of equal ratios where the values span more than `span`-fold, else of equal steps from 0.
    pub fn fitting(values: &[f64], span: f64) -> Scale {
        let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        match ends(&positive) {
            Some((low, high)) if high / low > span => Scale::ratio(values),
            _ => Scale::equal(values, true),
        }
    }

    /// For what is set rather than measured: exactly between the ends of the values, of equal ratios if they span much.
    pub fn fitting_exact(values: &[f64]) -> Scale {
        let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        match (ends(&positive), ends(values)) {
            (Some((low, high)), _) if high / low >= EXACT_SPAN_MAX => Scale::ratio_exact(values),
            (_, Some((low, high))) if high > low => {
                Scale { kind: Kind::Equal, low, high, from: 0.0, to: 1.0 }
            }
            _ => Scale::equal(values, false),
        }
    }

    /// The same between two places.
    pub fn between(mut self, from: f64, to: f64) -> Scale {
        (self.from, self.to) = (from, to);
        self
    }

    /// Whether equal ways are equal ratios.
    pub fn is_ratio(&self) -> bool {
        self.kind != Kind::Equal
    }

    /// The places of its ends.
    pub fn places(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// The values at its ends; of a scale of equal ratios the least positive one.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// A value's place.
    pub fn at(&self, value: f64) -> f64 {
        self.from + self.part(value) * (self.to - self.from)
    }

    fn part(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Equal => (value - self.low) / (self.high - self.low),
            Kind::Ratio { zero } => {
                let room = if zero { self.zero_room() } else { 0.0 };
                if value <= 0.0 {
                    return 0.0;
                }
                let part = (value / self.low).ln() / (self.high / self.low).ln();
                room + part * (1.0 - room)
            }
        }
    }

    /// The part of the way that is left for 0.
    fn zero_room(&self) -> f64 {
        let decades = (self.high / self.low).log10();
        (1.0 / (decades + 1.0)).clamp(0.08, 0.25)
    }

    /// Round values that are about `apart` units from one another, and lie between the ends.
    pub fn ticks(&self, apart: f64) -> Vec<f64> {
        let room = (self.to - self.from).abs();
        let count = (room / apart).clamp(2.0, TICKS_MAX as f64);
        match self.kind {
            Kind::Equal => self.equal_ticks(count),
            Kind::Ratio { zero } => self.ratio_ticks(count, zero),
        }
    }

    fn equal_ticks(&self, count: f64) -> Vec<f64> {
        let step = round_step((self.high - self.low) / count);
        let first = (self.low / step - 1e-9).ceil();
        let ticks = (0..TICKS_MAX).map(|index| (first + index as f64) * step);
        ticks
            .take_while(|tick| *tick <= self.high + step * 1e-9)
            .map(|tick| clean(tick, step))
            .collect()
    }

    fn ratio_ticks(&self, count: f64, zero: bool) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let steps: &[f64] = if decades * 3.0 <= count { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((decades / count).ceil() as i32).max(1);
        let all = (first..=last).filter(|power| power % every == 0);
        let all = all.flat_map(|power| steps.iter().map(move |step| power10(power) * step));
        let inside = all
            .filter(|tick| *tick >= self.low * (1.0 - 1e-9) && *tick <= self.high * (1.0 + 1e-9));
        zero.then_some(0.0).into_iter().chain(inside).take(TICKS_MAX).collect()
    }
}

/// Least and greatest of the finite ones.
fn ends(values: &[f64]) -> Option<(f64, f64)> {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    finite.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    let power = power10(step.log10().floor() as i32);
    let part = step / power;
    let rounded = [1.0, 2.0, 5.0].into_iter().find(|round| part <= round * (1.0 + 1e-9));
    rounded.unwrap_or(10.0) * power
}

/// The next of 1, 2, 5 times a power of ten, upwards or downwards.
fn round_ratio(value: f64, up: bool) -> f64 {
    if up {
        return round_step(value);
    }
    let power = power10(value.log10().floor() as i32);
    let part = value / power;
    let rounded = [5.0, 2.0].into_iter().find(|round| part >= round * (1.0 - 1e-9));
    rounded.unwrap_or(1.0) * power
}

fn power10(power: i32) -> f64 {
    10f64.powi(power)
}

/// Without the dust of binary fractions.
fn clean(tick: f64, step: f64) -> f64 {
    let digits = (-step.log10().floor()).clamp(0.0, 15.0);
    let shift = 10f64.powf(digits);
    if digits == 0.0 { tick.round() } else { (tick * shift).round() / shift }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_round(tick: f64) -> bool {
        let power = 10f64.powf(tick.abs().log10().floor());
        (tick / power * 10.0).fract().abs() < 1e-6 || (tick / power * 10.0).fract() > 1.0 - 1e-6
    }

    #[test]
    fn ticks_are_round_and_lie_between_the_ends_whatever_the_values() {
        let sets: [&[f64]; 6] = [
            &[0.0, 4512.7],
            &[830.1, 912.9],
            &[0.000_31, 0.000_47],
            &[-3.2, 17.0],
            &[5.0, 5.0],
            &[1e9, 3.3e9],
        ];
        for values in sets {
            for zero in [false, true] {
                let scale = Scale::equal(values, zero).between(0.0, 400.0);
                let ticks = scale.ticks(60.0);
                assert!((2..=9).contains(&ticks.len()), "{values:?}: {ticks:?}");
                assert!(
                    ticks.iter().all(|tick| *tick == 0.0 || is_round(*tick)),
                    "{values:?}: {ticks:?}"
                );
                assert!(
                    ticks.iter().all(|tick| (-0.1..=400.1).contains(&scale.at(*tick))),
                    "{values:?}: {ticks:?}"
                );
            }
        }
    }

    #[test]
    fn a_thousandfold_spread_has_a_tick_for_each_power_of_ten() {
        let scale = Scale::fitting(&[3.0, 9000.0], 200.0).between(0.0, 200.0);
        assert!(scale.is_ratio());
        assert_eq!(scale.ticks(50.0), [10.0, 100.0, 1000.0, 10_000.0]);
        assert!(!Scale::fitting(&[3.0, 300.0], 200.0).is_ratio());
    }

    #[test]
    fn every_value_has_its_place_between_the_ends_and_nothing_one_below_the_rest() {
        let values = [0.0, 1000.0, 10_000.0, 100_000.0];
        let scale = Scale::ratio_exact(&values).between(100.0, 500.0);
        let places = values.map(|value| scale.at(value));
        assert_eq!((places[0], places[3]), (100.0, 500.0));
        assert!(places.windows(2).all(|pair| pair[0] + 10.0 < pair[1]), "{places:?}");
        assert_eq!(scale.ticks(120.0), values);
    }

    #[test]
    fn no_values_and_equal_values_still_make_a_scale() {
        for scale in [
            Scale::equal(&[], true),
            Scale::ratio(&[]),
            Scale::equal(&[f64::NAN], false),
            Scale::ratio(&[7.0]),
        ] {
            let ticks = scale.clone().between(0.0, 100.0).ticks(30.0);
            assert!(
                !ticks.is_empty() && ticks.iter().all(|tick| tick.is_finite()),
                "{scale:?}: {ticks:?}"
            );
        }
    }
}
