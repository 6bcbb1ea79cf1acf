//! Values that are added and removed by the thousand, each found by its name without a search.
//!
//! Must never find another value by the name of a value that was removed.

/// Values in places that are used again.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Entry<T>>,
    /// Places of values that were removed.
    free: Vec<u32>,
    /// The number of values ever added, modulo 2^32.
    count: u32,
}

#[derive(Debug)]
struct Entry<T> {
    name: u64,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new(), count: 0 }
    }
}

impl<T> Slots<T> {
    /// Adds a value. Returns its name: the count of values and the place. A name is used again after four billion
    /// other values.
    pub fn insert(&mut self, value: T) -> u64 {
        let at = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.count = self.count.wrapping_add(1);
        let name = u64::from(self.count) << 32 | u64::from(at);
        let slot = Entry { name, value: Some(value) };
        match self.slots.get_mut(at as usize) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        name
    }

    /// Returns the value with this name, if it is there.
    pub fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(name as u32 as usize)?;
        if slot.name == name { slot.value.as_mut() } else { None }
    }

    /// Removes the value with this name.
    pub fn remove(&mut self, name: u64) -> Option<T> {
        let slot = self.slots.get_mut(name as u32 as usize).filter(|slot| slot.name == name)?;
        let value = slot.value.take()?;
        self.free.push(name as u32);
        Some(value)
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_own_value_until_that_is_gone_and_no_other_after_it() {
        let mut slots = Slots::default();
        let (first, second) = (slots.insert("a"), slots.insert("b"));
        assert_eq!(slots.get_mut(first), Some(&mut "a"));
        assert_eq!(slots.remove(first), Some("a"));
        let third = slots.insert("c");
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(third), Some(&mut "c"));
        assert_eq!(slots.get_mut(second), Some(&mut "b"));
        let mut all: Vec<_> = slots.values().copied().collect();
        all.sort_unstable();
        assert_eq!(all, ["b", "c"]);
    }

    #[test]
    fn places_are_used_again_and_a_name_is_not() {
        let mut slots = Slots::default();
        let mut names = std::collections::HashSet::new();
        for value in 0..10_000 {
            let kept = slots.insert(value);
            let gone = slots.insert(value);
            assert!(names.insert(kept) && names.insert(gone));
            assert_eq!(slots.remove(gone), Some(value));
            assert_eq!(slots.remove(gone), None);
            if value % 2 == 0 {
                assert_eq!(slots.remove(kept), Some(value));
            }
        }
        assert_eq!(slots.values().count(), 5_000);
        assert!(slots.slots.len() <= 5_002, "{}", slots.slots.len());
    }
}
