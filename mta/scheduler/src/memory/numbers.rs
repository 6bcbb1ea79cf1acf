//! Numbers for keys in the order of their first use, so that the snapshot of a message holds each of its replies once.
//!
//! Must never search the keys one by one: there may be one for each recipient.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

/// Numbered keys. Keys are places in our own memory, which no stranger chooses, so the hasher needs no seed.
#[derive(Debug)]
pub(crate) struct Numbers<K> {
    numbers: HashMap<K, u32, BuildHasherDefault<DefaultHasher>>,
    all: Vec<K>,
}

impl<K: Copy + Eq + Hash> Numbers<K> {
    pub fn new() -> Self {
        Numbers { numbers: HashMap::default(), all: Vec::new() }
    }

    /// Returns the number of a key: 1 for the first key, and the same number for the same key.
    pub fn of(&mut self, key: K) -> u32 {
        let next = self.all.len() as u32 + 1;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.all.push(key);
        }
        number
    }

    /// All keys in the order of their numbers.
    pub fn all(&self) -> &[K] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hash::Hasher;

    thread_local! {
        static COMPARED: Cell<u32> = const { Cell::new(0) };
    }

    /// A key that counts comparisons.
    #[derive(Clone, Copy, Debug)]
    struct Key(u32);

    impl Hash for Key {
        fn hash<H: Hasher>(&self, hasher: &mut H) {
            self.0.hash(hasher);
        }
    }

    impl PartialEq for Key {
        fn eq(&self, other: &Key) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Key {}

    #[test]
    fn r222_fifty_thousand_different_replies_are_numbered_without_a_look_at_the_others() {
        let mut numbers = Numbers::new();
        for turn in 0..2 {
            let given = (0..50_000).map(|key| numbers.of(Key(key))).collect::<Vec<_>>();
            assert!(given.into_iter().eq(1..=50_000), "turn {turn}");
        }
        assert_eq!(numbers.all().len(), 50_000);
        assert!(COMPARED.get() < 4 * 50_000, "{}", COMPARED.get());
    }
}
