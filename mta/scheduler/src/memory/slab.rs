//! Places for records of one type, in chunks. Growing copies nothing, so that no event pays for all records.
//!
//! Must never hand out a place twice before it was freed.

use std::ops::{Index, IndexMut};

/// Number of records in a chunk.
const CHUNK: usize = 1024;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    pub fn new() -> Self {
        Slab { chunks: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self[at] = value;
            return at;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("one was pushed if there was none");
        chunk.push(value);
        u32::try_from(before + chunk.len() - 1).expect("four thousand million records do not fit")
    }

    pub fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        std::mem::take(&mut self[at])
    }

    /// Returns the record at a place, the default record if the place was freed, and `None` past the end.
    pub fn get(&self, at: u32) -> Option<&T> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)
    }

    /// Returns all places ever used, including freed ones.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.chunks.iter().flatten().enumerate().map(|(at, value)| (at as u32, value))
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_given_back_is_used_again_before_a_new_one() {
        let mut slab = Slab::new();
        let places: Vec<u32> = (0..3000u32).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.remove(places[1500]), 1500);
        assert_eq!(slab.insert(7), places[1500]);
        assert_eq!(slab[places[1500]], 7);
        assert_eq!(slab[places[2999]], 2999);
        assert_eq!(slab.iter().count(), 3000);
        assert_eq!(slab.get(100_000), None);
    }
}
