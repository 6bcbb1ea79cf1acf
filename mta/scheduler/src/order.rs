//! The orders in which ready messages can go: one key each, all of it from the index.
//!
//! Must never read anything but what it is handed.

use mail::MessageId;
use std::str::FromStr;

/// Which of the ready messages goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// In turn between destinations, in each between senders, small before bulk.
    #[default]
    Fair,
    /// The operator's priority, then arrival.
    Priority,
    /// Arrival.
    Arrival,
    /// One destination after the other, by name, then arrival.
    Destination,
    /// What changed longest ago first.
    Modified,
    /// Queue id.
    Id,
    /// By chance.
    Random,
    /// As they became ready.
    None,
}

/// All orders, as they are shown.
pub const ORDERS: [(&str, Order); 8] = [
    ("fair", Order::Fair),
    ("priority", Order::Priority),
    ("arrival", Order::Arrival),
    ("destination", Order::Destination),
    ("modified", Order::Modified),
    ("id", Order::Id),
    ("random", Order::Random),
    ("none", Order::None),
];

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

/// One waiting transaction, as a queue run reads it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub(crate) key: Key,
    pub(crate) job: u32,
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
            self.all.sort_unstable_by_key(|candidate| (candidate.key, candidate.job));
        }
    }

    /// The messages as they stand now.
    pub fn messages(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.all.iter().map(|candidate| candidate.key.id)
    }
}

impl Order {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        ORDERS.iter().find(|(_, order)| *order == self).map_or("", |(name, _)| name)
    }

    pub(crate) fn key(self, facts: &Facts) -> Key {
        let (first, then) = match self {
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

/// The text names no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an order: fair, priority, arrival, destination, modified, id, random or none")]
pub struct NotAnOrder;

impl FromStr for Order {
    type Err = NotAnOrder;
    fn from_str(text: &str) -> Result<Self, NotAnOrder> {
        ORDERS.iter().find(|(name, _)| *name == text).map(|(_, order)| *order).ok_or(NotAnOrder)
    }
}
