//! The sort keys of the orders in which ready messages can be tried.
//!
//! Must never read anything but the facts it is given.

use mail::MessageId;
use view::Order;

/// Sort key of a ready message in an order; the smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub first: u64,
    pub then: u32,
    pub id: MessageId,
}

/// Facts on which an order can depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub id: MessageId,
    pub arrived_seconds: u32,
    pub modified_seconds: u32,
    pub priority: i8,
    pub destination: u32,
    pub destination_name: &'a str,
    /// Random or counted up, set when the message became ready.
    pub number: u32,
}

/// A group that waits, as a queue run reads it.
#[derive(Clone, Copy, Debug)]
pub struct RunCandidate {
    pub(crate) key: Key,
    pub(crate) group: u32,
}

/// Groups that a queue run has read. Sorting is a step of its own, so that it can be timed.
#[derive(Clone, Debug)]
pub struct Candidates {
    pub(crate) order: Order,
    pub(crate) all: Vec<RunCandidate>,
}

impl Candidates {
    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there are no candidates.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Sorts the candidates.
    pub fn sort(&mut self) {
        if self.order != Order::None {
            self.all.sort_unstable_by_key(|candidate| (candidate.key, candidate.group));
        }
    }

    /// Returns the messages in their current order.
    pub fn messages(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.all.iter().map(|candidate| candidate.key.id)
    }
}

impl Key {
    /// Returns the key of a message in an order.
    pub fn of(order: Order, facts: &Facts) -> Key {
        let (first, then) = match order {
            Order::Fair | Order::Id => (0, 0),
            Order::Priority => ((100 - i64::from(facts.priority)).unsigned_abs(), 0),
            Order::Arrival => (u64::from(facts.arrived_seconds), 0),
            Order::Destination => (first_letters(facts.destination_name), facts.destination),
            // Within a second, in the order in which they became ready.
            Order::Modified => (u64::from(facts.modified_seconds), facts.number),
            Order::Random | Order::None => (u64::from(facts.number), 0),
        };
        Key { first, then, id: facts.id }
    }
}

/// Returns the first eight letters. Destinations with the same letters are told apart by their number.
fn first_letters(name: &str) -> u64 {
    let mut letters = [0u8; 8];
    for (place, letter) in letters.iter_mut().zip(name.bytes()) {
        *place = letter;
    }
    u64::from_be_bytes(letters)
}
