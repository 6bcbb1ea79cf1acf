//! A timing wheel. Its lists run through the records themselves, and an entry costs the same among millions as among ten.
//!
//! Must never allocate memory for an entry, or handle more entries in one call than allowed.

use crate::memory::{NONE, Slab};

const BITS: u32 = 6;
const SLOTS: u32 = 1 << BITS;
const LEVELS: u32 = 6;
const _: () = assert!(BITS * LEVELS >= u32::BITS);
/// Bit in `prev` of the first entry of a slot, beside the number of the slot.
const SLOT: u32 = 1 << 31;

/// A record that can wait for a tick. It is in at most one list at a time.
pub(crate) trait Timed {
    fn links(&mut self) -> &mut Links;
    fn tick(&self) -> u32;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    pub prev: u32,
    pub next: u32,
}

impl Default for Links {
    fn default() -> Self {
        Links { prev: NONE, next: NONE }
    }
}

#[derive(Debug)]
pub(crate) struct Wheel {
    /// All earlier ticks are done, and so is this one after `pop` has returned `None`.
    elapsed: u32,
    heads: Vec<u32>,
    occupied: [u64; LEVELS as usize],
}

impl Wheel {
    pub fn new() -> Self {
        let heads = vec![NONE; (LEVELS * SLOTS) as usize];
        Wheel { elapsed: 0, heads, occupied: [0; LEVELS as usize] }
    }

    /// Puts in a record that is in no list. A tick in the past is due at once.
    pub fn insert<T: Timed + Default>(&mut self, all: &mut Slab<T>, at: u32) {
        let tick = all[at].tick().max(self.elapsed);
        let level = (tick ^ self.elapsed).checked_ilog2().unwrap_or(0) / BITS;
        let slot = level * SLOTS + slot_in(tick, level);
        let first = self.heads[slot as usize];
        *all[at].links() = Links { prev: SLOT | slot, next: first };
        if first != NONE {
            all[first].links().prev = at;
        }
        self.heads[slot as usize] = at;
        self.occupied[level as usize] |= 1 << slot_in(tick, level);
    }

    /// Takes out a record that `insert` put in.
    pub fn remove<T: Timed + Default>(&mut self, all: &mut Slab<T>, at: u32) {
        let links = std::mem::take(all[at].links());
        if links.next != NONE {
            all[links.next].links().prev = links.prev;
        }
        if links.prev & SLOT == 0 {
            all[links.prev].links().next = links.next;
            return;
        }
        let slot = links.prev & !SLOT;
        self.heads[slot as usize] = links.next;
        if links.next == NONE {
            self.occupied[(slot / SLOTS) as usize] &= !(1 << (slot % SLOTS));
        }
    }

    /// Takes out one record that is due at `now`. Looks at up to `work` records, and moves those that are not due nearer.
    pub fn pop<T: Timed + Default>(
        &mut self,
        all: &mut Slab<T>,
        now: u32,
        work: &mut u32,
    ) -> Option<u32> {
        loop {
            while let Some(at) = self.here() {
                if *work == 0 {
                    return None;
                }
                *work -= 1;
                self.remove(all, at);
                if all[at].tick() <= self.elapsed {
                    return Some(at);
                }
                self.insert(all, at);
            }
            match self.next_slot() {
                Some(tick) if tick <= now => self.elapsed = tick,
                _ => {
                    self.elapsed = self.elapsed.max(now);
                    return None;
                }
            }
        }
    }

    /// Returns the tick from which `pop` has something to do, even if only to move records nearer.
    pub fn next(&self) -> Option<u32> {
        if self.here().is_some() { Some(self.elapsed) } else { self.next_slot() }
    }

    /// Returns the first record of a slot that includes `elapsed`.
    fn here(&self) -> Option<u32> {
        (0..LEVELS).find_map(|level| {
            let slot = slot_in(self.elapsed, level);
            let occupied = self.occupied[level as usize] >> slot & 1 == 1;
            occupied.then(|| self.heads[(level * SLOTS + slot) as usize])
        })
    }

    /// Returns the tick at which the next occupied slot after `elapsed` begins.
    fn next_slot(&self) -> Option<u32> {
        (0..LEVELS).find_map(|level| {
            let later = u64::MAX.checked_shl(slot_in(self.elapsed, level) + 1).unwrap_or(0);
            let slots = self.occupied[level as usize] & later;
            (slots != 0).then(|| {
                let above = u64::from(self.elapsed) >> (BITS * (level + 1)) << (BITS * (level + 1));
                (above | u64::from(slots.trailing_zeros()) << (BITS * level)) as u32
            })
        })
    }
}

fn slot_in(tick: u32, level: u32) -> u32 {
    (u64::from(tick) >> (BITS * level)) as u32 % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Entry {
        links: Links,
        tick: u32,
    }

    impl Timed for Entry {
        fn links(&mut self) -> &mut Links {
            &mut self.links
        }
        fn tick(&self) -> u32 {
            self.tick
        }
    }

    proptest! {
        #[test]
        fn everything_comes_out_at_its_tick_and_nothing_before(
            steps in proptest::collection::vec((0u32..40, 0u32..1u32 << 20, 0u8..4, 1u32..50), 1..300)
        ) {
            let (mut wheel, mut all) = (Wheel::new(), Slab::new());
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            let mut now = 0u32;
            for (shift, wait, what, work_max) in steps {
                match what {
                    0 | 1 => {
                        let tick = now.saturating_add(wait >> (shift % 20));
                        let at = all.insert(Entry { tick, ..Entry::default() });
                        wheel.insert(&mut all, at);
                        model.insert(at, tick);
                    }
                    2 => if let Some(at) = model.keys().nth(shift as usize).copied() {
                        wheel.remove(&mut all, at);
                        model.remove(&at);
                        all.remove(at);
                    },
                    _ => {
                        now += wait >> (shift % 20);
                        loop {
                            let mut work = work_max;
                            while let Some(at) = wheel.pop(&mut all, now, &mut work) {
                                prop_assert!(model.remove(&at).is_some_and(|tick| tick <= now));
                                all.remove(at);
                            }
                            if work > 0 { break }
                        }
                        prop_assert!(model.values().all(|tick| *tick > now));
                    }
                }
                let next = wheel.next();
                prop_assert_eq!(next.is_none(), model.is_empty());
                prop_assert!(model.values().all(|tick| next.is_some_and(|next| next <= *tick)));
            }
        }
    }

    /// Lets these entries come due, with waits of up to five days, and returns the number of looks they cost.
    fn looks_at(numbers: std::ops::Range<u32>) -> u32 {
        const TICKS: u32 = 5 * 86_400 * 4;
        let (mut wheel, mut all) = (Wheel::new(), Slab::new());
        for number in numbers.clone() {
            let at = all.insert(Entry {
                tick: number.wrapping_mul(2_654_435_761) % TICKS,
                ..Entry::default()
            });
            wheel.insert(&mut all, at);
        }
        let (mut work, mut popped) = (u32::MAX, 0);
        while wheel.pop(&mut all, TICKS, &mut work).is_some() {
            popped += 1;
        }
        assert_eq!(popped, numbers.len());
        u32::MAX - work
    }

    #[test]
    fn one_that_is_due_costs_among_a_million_what_it_costs_among_ten() {
        let among_ten: u32 = (0..100_000).map(|ten| looks_at(ten * 10..ten * 10 + 10)).sum();
        let among_a_million = looks_at(0..1_000_000);
        assert!(among_a_million <= among_ten, "{among_a_million} {among_ten}");
    }

    #[test]
    fn a_million_entries_cost_a_bounded_number_of_moves_each() {
        let (mut wheel, mut all) = (Wheel::new(), Slab::new());
        for number in 0..1_000_000u32 {
            let tick = number.wrapping_mul(2_654_435_761) >> 10;
            let at = all.insert(Entry { tick, ..Entry::default() });
            wheel.insert(&mut all, at);
        }
        let (mut work, mut popped) = (u32::MAX, 0);
        while wheel.pop(&mut all, u32::MAX, &mut work).is_some() {
            popped += 1;
        }
        assert_eq!(popped, 1_000_000);
        assert!(u32::MAX - work <= LEVELS * popped, "{}", u32::MAX - work);
    }
}
