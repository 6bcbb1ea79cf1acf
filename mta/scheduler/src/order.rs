//! The orders in which ready messages can go: one key each, all of it from the index.
//!
//! Must never read anything but what it is handed.

use mail::MessageId;
use view::Order;

/// Where one ready message stands in an order; lesser goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub first: u64,
    pub then: u32,
    pub id: MessageId,
}

/// What an order can depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub id: MessageId,
    pub arrived_seconds: u32,
    pub modified_seconds: u32,
    pub priority: i8,
    pub destination: u32,
    pub destination_name: &'a str,
    /// Drawn, or counted up, when it became ready.
    pub number: u32,
}

/// One waiting group, as a queue run reads it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub(crate) key: Key,
    pub(crate) group: u32,
}

/// What a queue run has read; `sort` is a step of its own, so that it can be timed.
#[derive(Clone, Debug)]
pub struct Candidates {
    pub(crate) order: Order,
    pub(crate) all: Vec<Candidate>,
}

impl Candidates {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Brings them into the order.
    pub fn sort(&mut self) {
        if self.order != Order::None {
            self.all.sort_unstable_by_key(|candidate| (candidate.key, candidate.group));
        }
    }

    /// The messages as they stand now.
    pub fn messages(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.all.iter().map(|candidate| candidate.key.id)
    }
}

impl Key {
    /// The key of a message in this order.
    pub fn of(order: Order, facts: &Facts) -> Key {
        let (first, then) = match order {
            Order::Fair | Order::Id => (0, 0),
            Order::Priority => ((100 - i64::from(facts.priority)).unsigned_abs(), 0),
            Order::Arrival => (u64::from(facts.arrived_seconds), 0),
            Order::Destination => (first_letters(facts.destination_name), facts.destination),
            // Within a second, as they became ready.
            Order::Modified => (u64::from(facts.modified_seconds), facts.number),
            Order::Random | Order::None => (u64::from(facts.number), 0),
        };
        Key { first, then, id: facts.id }
    }
}

/// Eight letters decide; destinations that share them stay apart by their number.
fn first_letters(name: &str) -> u64 {
    let mut letters = [0u8; 8];
    for (place, letter) in letters.iter_mut().zip(name.bytes()) {
        *place = letter;
    }
    u64::from_be_bytes(letters)
}
