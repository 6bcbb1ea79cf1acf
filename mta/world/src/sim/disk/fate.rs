//! What is pending when the power goes, and what can become of it.
//!
//! Must never tear a sector.

use crate::Chance as _;
use crate::sim::Chance;

/// The grain at which a write is torn.
pub const SECTOR_BYTES: usize = 512;

/// An operation that no sync has settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The file; empty if its name is gone.
    pub name: String,
    /// What was done to it.
    pub what: What,
    /// How many sectors a write touches; 0 for anything else.
    pub sectors: u32,
    /// Those of them, counted from the write's first, by whose survival the medium would differ;
    /// what survives of the others makes no difference.
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

/// What becomes of a pending operation when the power goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All of it is there.
    Survives,
    /// Nothing of it is there.
    Vanishes,
    /// These sectors of a write are there. An operation that is no write survives if there are any.
    Torn(Sectors),
}

/// A set of the sectors of one write, counted from its first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sectors(Vec<u64>);

impl Sectors {
    /// Each of `count` sectors by the throw of a coin.
    pub fn by_chance(count: u32, chance: &mut Chance) -> Sectors {
        (0..count).filter(|_| chance.below(2) == 0).collect()
    }

    /// Puts one in.
    pub fn insert(&mut self, sector: u32) {
        let word = sector as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (sector % 64);
    }

    /// Whether it is in.
    pub fn contains(&self, sector: u32) -> bool {
        self.0.get(sector as usize / 64).is_some_and(|word| word & (1 << (sector % 64)) != 0)
    }

    /// None at all.
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

impl Fate {
    /// One of the three, each equally likely.
    pub fn by_chance(sectors: u32, chance: &mut Chance) -> Fate {
        match chance.below(3) {
            0 => Fate::Vanishes,
            1 if sectors > 0 => Fate::Torn(Sectors::by_chance(sectors, chance)),
            _ => Fate::Survives,
        }
    }

    /// Whether a whole operation, or this sector of a write, is there.
    pub(super) fn keeps(&self, sector: u32) -> bool {
        match self {
            Fate::Survives => true,
            Fate::Vanishes => false,
            Fate::Torn(sectors) => sectors.contains(sector),
        }
    }

    /// The same for what has no sectors.
    pub(super) fn keeps_any(&self) -> bool {
        match self {
            Fate::Survives => true,
            Fate::Vanishes => false,
            Fate::Torn(sectors) => !sectors.is_empty(),
        }
    }
}
