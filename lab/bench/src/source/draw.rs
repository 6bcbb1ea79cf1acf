//! Reproducible randomness: the choices of message `number` follow from the seed alone.
//!
//! Must never depend on which session sends a message, or on when.

/// The purpose of a random number: different purposes of one message get different numbers.
#[derive(Clone, Copy)]
pub enum Purpose {
    /// The size, or the choice among real messages.
    Size = 1,
    /// The second number for a size.
    SizeAgain = 2,
    /// The choice among recipient templates.
    Template = 3,
    /// `{r}`.
    Spread = 4,
}

/// Returns 64 random bits for message `number`, recipient `n` (SplitMix64).
pub fn draw(seed: u64, purpose: Purpose, number: u64, n: u32) -> u64 {
    let mut state = mix(seed ^ ((purpose as u64) << 56));
    state = mix(state ^ number);
    mix(state ^ u64::from(n))
}

/// Returns a random number in 0..1.
pub fn part(seed: u64, purpose: Purpose, number: u64, n: u32) -> f64 {
    (draw(seed, purpose, number, n) >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A weighted choice.
#[derive(Clone, Debug)]
pub struct Weighted<T> {
    /// The items, each with the sum of the weights up to it.
    things: Vec<(T, f64)>,
}

impl<T> Weighted<T> {
    /// Creates a choice among at least one item, with weights above 0.
    pub fn new(things: impl IntoIterator<Item = (T, f64)>) -> anyhow::Result<Weighted<T>> {
        let mut sum = 0.0;
        let mut summed = Vec::new();
        for (thing, weight) in things {
            anyhow::ensure!(weight > 0.0 && weight.is_finite(), "a weight is a number above 0");
            sum += weight;
            summed.push((thing, sum));
        }
        anyhow::ensure!(!summed.is_empty(), "nothing to choose from");
        Ok(Weighted { things: summed })
    }

    /// Returns the item at `part` of the sum of all weights.
    pub fn choose(&self, part: f64) -> &T {
        let last = self.things.len() - 1;
        let wanted = part * self.things[last].1;
        let at = self.things.partition_point(|(_, sum)| *sum <= wanted);
        &self.things[at.min(last)].0
    }

    /// Returns the only item, if there is no choice.
    pub fn only(&self) -> Option<&T> {
        (self.things.len() == 1).then(|| &self.things[0].0)
    }

    /// Returns all items.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.things.iter().map(|(thing, _)| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept_and_a_seed_repeats() {
        let things = Weighted::new([("a", 97.0), ("b", 2.0), ("c", 1.0)]).unwrap();
        let chosen = |seed: u64| -> Vec<&str> {
            let part = |number| part(seed, Purpose::Template, number, 0);
            (0..100_000).map(|number| *things.choose(part(number))).collect()
        };
        let one = chosen(1);
        let count = |wanted: &str| one.iter().filter(|name| **name == wanted).count();
        assert!(count("a").abs_diff(97_000) < 300, "{}", count("a"));
        assert!(count("b").abs_diff(2_000) < 200, "{}", count("b"));
        assert!(count("c").abs_diff(1_000) < 150, "{}", count("c"));
        assert_eq!(one, chosen(1));
        assert_ne!(one, chosen(2));
        assert!(Weighted::new([("a", 0.0)]).is_err() && Weighted::<u8>::new([]).is_err());
    }
}
