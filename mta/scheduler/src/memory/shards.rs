//! A hash table of places, split into many small tables: when one of them grows, only a small part moves.
//!
//! Must never own keys: they are where the places lead.

use hashbrown::HashTable;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of small tables. With ten million entries, growing one of them moves forty thousand.
const SHARDS: usize = 256;

#[derive(Debug)]
pub(crate) struct Shards {
    tables: Vec<HashTable<u32>>,
    seed: u64,
}

impl Shards {
    /// `seed` keeps strangers from choosing texts that collide.
    pub fn new(seed: u64) -> Self {
        Shards { tables: (0..SHARDS).map(|_| HashTable::new()).collect(), seed }
    }

    pub fn hash(&self, key: impl Hash) -> u64 {
        hash_with(self.seed, key)
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.tables[shard(hash)].find(hash, |at| is(*at)).copied()
    }

    pub fn insert(&mut self, hash: u64, at: u32, hash_of: impl Fn(u32) -> u64) {
        self.tables[shard(hash)].insert_unique(hash, at, |at| hash_of(*at));
    }

    pub fn remove(&mut self, hash: u64, at: u32) {
        if let Ok(entry) = self.tables[shard(hash)].find_entry(hash, |other| *other == at) {
            entry.remove();
        }
    }
}

pub(crate) fn hash_with(seed: u64, key: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(seed);
    key.hash(&mut hasher);
    hasher.finish()
}

/// Returns the table for a hash. The tables themselves use the lowest bits and the highest seven.
fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_when_a_table_grows_is_a_small_part_of_all() {
        let mut shards = Shards::new(7);
        for at in 0..100_000 {
            shards.insert(shards.hash(at), at, |at| hash_with(7, at));
        }
        let longest = shards.tables.iter().map(HashTable::len).max();
        assert!(longest < Some(2 * 100_000 / SHARDS), "{longest:?}");
    }
}
