//! Random numbers that replay: the same seed gives the same numbers in every version (SplitMix64).
//!
//! Must never choose its own seed, or be used where an adversary must not guess the number.

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from -1 to 1, evenly distributed.
    pub fn signed_unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_unit_lies_between_minus_one_and_one_on_either_side_alike() {
        let mut chance = Rng::new(5);
        let drawn: Vec<f64> = (0..10_000).map(|_| chance.signed_unit()).collect();
        assert!(drawn.iter().all(|one| (-1.0..1.0).contains(one)));
        let below = |bound: f64| drawn.iter().filter(|one| **one < bound).count();
        for (bound, expected) in [(-0.5, 2_500), (0.0, 5_000), (0.5, 7_500)] {
            assert!(below(bound).abs_diff(expected) < 200, "{} below {bound}", below(bound));
        }
    }
}
