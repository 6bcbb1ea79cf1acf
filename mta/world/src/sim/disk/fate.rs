//! The operations that are pending when the power goes out, and what can become of them.
//!
//! Must never tear a sector.

use crate::Rng as _;
use crate::sim::Rng;

/// A write is torn at multiples of this size.
pub const SECTOR_BYTES: usize = 512;

/// An operation that no sync has settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsyncedOperation {
    /// The file; empty if its name is gone.
    pub name: String,
    /// The operation.
    pub what: What,
    /// How many sectors a write touches; 0 for anything else.
    pub sectors: u32,
    /// The sectors, counted from the first of the write, whose survival makes a difference on the medium.
    pub telling: Vec<u32>,
}

/// The kinds of operations that can be pending.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are those of the disk's verbs
pub enum What {
    Write { offset: u64, bytes: u64 },
    Extend { bytes: u64 },
    Create,
    Remove,
    Rename { to: String },
}

/// What becomes of a pending operation when the power goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerCutFate {
    /// All of it reaches the medium.
    Survives,
    /// Nothing of it reaches the medium.
    Vanishes,
    /// These sectors of a write reach the medium. Another operation survives if the set is not empty.
    Torn(Sectors),
}

/// A set of the sectors of one write, counted from its first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sectors(Vec<u64>);

impl Sectors {
    /// Returns a random subset of `count` sectors.
    pub fn by_chance(count: u32, chance: &mut Rng) -> Sectors {
        (0..count).filter(|_| chance.below(2) == 0).collect()
    }

    /// Adds a sector.
    pub fn insert(&mut self, sector: u32) {
        let word = sector as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (sector % 64);
    }

    /// Whether the sector is in the set.
    pub fn contains(&self, sector: u32) -> bool {
        self.0.get(sector as usize / 64).is_some_and(|word| word & (1 << (sector % 64)) != 0)
    }

    /// Whether no sector is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

impl FromIterator<u32> for Sectors {
    fn from_iter<T: IntoIterator<Item = u32>>(sectors: T) -> Sectors {
        let mut set = Sectors::default();
        sectors.into_iter().for_each(|sector| set.insert(sector));
        set
    }
}

impl PowerCutFate {
    /// Returns one of the three, each equally likely.
    pub fn by_chance(sectors: u32, chance: &mut Rng) -> PowerCutFate {
        match chance.below(3) {
            0 => PowerCutFate::Vanishes,
            1 if sectors > 0 => PowerCutFate::Torn(Sectors::by_chance(sectors, chance)),
            _ => PowerCutFate::Survives,
        }
    }

    /// Whether the operation, or this sector of a write, reaches the medium.
    pub(super) fn keeps(&self, sector: u32) -> bool {
        match self {
            PowerCutFate::Survives => true,
            PowerCutFate::Vanishes => false,
            PowerCutFate::Torn(sectors) => sectors.contains(sector),
        }
    }

    /// Whether an operation without sectors reaches the medium.
    pub(super) fn keeps_any(&self) -> bool {
        match self {
            PowerCutFate::Survives => true,
            PowerCutFate::Vanishes => false,
            PowerCutFate::Torn(sectors) => !sectors.is_empty(),
        }
    }
}
