//! Which of the pending operations survive: every combination where there are few, random ones
//! where there are many.
//!
//! Must never leave out a combination that could make a difference, where it says that it tries all.

use world::Rng as _;
use world::sim::{PowerCutFate, Rng, Sectors, UnsyncedOperation};

/// Upper bound on the units of which every combination is tried: 1,024 combinations.
pub const UNITS_MAX: u32 = 10;

/// What can survive or not on its own: a telling sector of a write, or a whole other operation.
pub struct Subsets {
    pending: Vec<UnsyncedOperation>,
    units: u32,
    random: u64,
}

impl Subsets {
    /// `random`: how many to try where there are too many to try all.
    pub fn of(pending: Vec<UnsyncedOperation>, random: u64) -> Subsets {
        let units = pending.iter().map(units_of).sum();
        Subsets { pending, units, random }
    }

    /// Whether all are tried.
    pub fn is_every(&self) -> bool {
        self.units <= UNITS_MAX
    }

    /// How many are tried.
    pub fn count(&self) -> u64 {
        if self.is_every() { 1 << self.units } else { self.random }
    }

    /// The n-th; where not all are tried, `seed` draws it.
    pub fn nth(&self, nth: u64, seed: u64) -> Vec<PowerCutFate> {
        if self.is_every() {
            return self.chosen(nth);
        }
        match nth {
            0 => vec![PowerCutFate::Vanishes; self.pending.len()],
            1 => vec![PowerCutFate::Survives; self.pending.len()],
            _ => {
                let mut chance = Rng::seeded(seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                self.pending.iter().map(|pending| drawn(pending, &mut chance)).collect()
            }
        }
    }

    /// The bits of `mask` are the units in their order.
    fn chosen(&self, mut mask: u64) -> Vec<PowerCutFate> {
        let mut take = || {
            let bit = mask & 1 == 1;
            mask >>= 1;
            bit
        };
        let fate = |pending: &UnsyncedOperation| match pending.sectors {
            0 if take() => PowerCutFate::Survives,
            0 => PowerCutFate::Vanishes,
            _ => PowerCutFate::Torn(pending.telling.iter().copied().filter(|_| take()).collect()),
        };
        self.pending.iter().map(fate).collect()
    }
}

fn units_of(pending: &UnsyncedOperation) -> u32 {
    if pending.sectors == 0 { 1 } else { pending.telling.len() as u32 }
}

/// Luck, with a liking for what nearly was and what nearly was not.
fn drawn(pending: &UnsyncedOperation, chance: &mut Rng) -> PowerCutFate {
    let one = |chance: &mut Rng| {
        let telling = &pending.telling;
        telling.get(chance.below(telling.len() as u64) as usize).copied()
    };
    match (pending.telling.len(), chance.below(8)) {
        (0 | 1, luck) if luck < 4 => PowerCutFate::Vanishes,
        (0 | 1, _) | (_, 0 | 1) => PowerCutFate::Survives,
        (_, 2 | 3) => PowerCutFate::Vanishes,
        (_, 4 | 5) => PowerCutFate::Torn(Sectors::by_chance(pending.sectors, chance)),
        (_, 6) => PowerCutFate::Torn(one(chance).into_iter().collect()),
        _ => {
            let missing = one(chance);
            let kept = pending.telling.iter().copied().filter(|at| Some(*at) != missing);
            PowerCutFate::Torn(kept.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use world::Disk as _;
    use world::sim::Disk;

    fn disk() -> Disk {
        let disk = Disk::new(1);
        disk.put("a", &[1; 2048]);
        disk.write_at("a", 0, &[2; 1024]).unwrap();
        disk.write_at("a", 512, &[3; 1024]).unwrap();
        disk.create("b").unwrap();
        disk
    }

    #[test]
    fn every_combination_of_few_units_is_tried_once() {
        let disk = disk();
        let subsets = Subsets::of(disk.pending(), 7);
        assert!(subsets.is_every());
        assert_eq!(subsets.count(), 32, "two sectors, two sectors and a name");
        let fates: BTreeSet<_> = (0..32).map(|nth| format!("{:?}", subsets.nth(nth, 0))).collect();
        assert_eq!(fates.len(), 32);
        let media = (0..32).map(|nth| {
            let fork = disk.forked(0);
            fork.power_on_with(&subsets.nth(nth, 0));
            (fork.bytes("a"), fork.bytes("b"))
        });
        // The second sector has three contents, the first and the third two, the name two.
        assert_eq!(media.collect::<BTreeSet<_>>().len(), 24);
    }

    #[test]
    fn many_units_are_drawn_and_the_draw_repeats() {
        let disk = disk();
        disk.write_at("a", 4096, &[5; 4096]).unwrap();
        let subsets = Subsets::of(disk.pending(), 500);
        assert_eq!(subsets.count(), 500);
        let all = |seed| (0..500).map(|nth| format!("{:?}", subsets.nth(nth, seed))).collect();
        let (first, again): (Vec<_>, Vec<_>) = (all(1), all(1));
        assert_eq!(first, again);
        assert!(first.iter().collect::<BTreeSet<_>>().len() > 300);
    }
}
