//! Chance that repeats: what message `number` draws follows from the seed alone.
//!
//! Must never depend on which session sends a message, or on when.

/// What a draw is for: two purposes of one message draw differently.
#[derive(Clone, Copy)]
pub enum Purpose {
    /// How large it is, or which of the real ones.
    Size = 1,
    /// The other half of that.
    SizeAgain = 2,
    /// Which of several recipient templates.
    Template = 3,
    /// `{r}`.
    Spread = 4,
}

/// 64 bits for message `number`, recipient `n` (SplitMix64).
pub fn draw(seed: u64, purpose: Purpose, number: u64, n: u32) -> u64 {
    let mut state = mix(seed ^ ((purpose as u64) << 56));
    state = mix(state ^ number);
    mix(state ^ u64::from(n))
}

/// The same as a number from 0 up to, not including, 1.
pub fn part(seed: u64, purpose: Purpose, number: u64, n: u32) -> f64 {
    (draw(seed, purpose, number, n) >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Things with weights; a drawn part of 1 chooses one.
#[derive(Clone, Debug)]
pub struct Weighted<T> {
    /// Each with the sum of all weights up to it.
    things: Vec<(T, f64)>,
}

impl<T> Weighted<T> {
    /// At least one thing, and weights above nothing.
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

    /// The one that `part` of all weights falls on.
    pub fn choose(&self, part: f64) -> &T {
        let last = self.things.len() - 1;
        let wanted = part * self.things[last].1;
        let at = self.things.partition_point(|(_, sum)| *sum <= wanted);
        &self.things[at.min(last)].0
    }

    /// The only one, where there is no choice.
    pub fn only(&self) -> Option<&T> {
        (self.things.len() == 1).then(|| &self.things[0].0)
    }

    /// All of them.
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
