//! The orders in which ready messages can be tried, by name.
//!
//! Must never sort: the keys of an order are the scheduler's.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Order in which ready messages are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// Destinations take turns, at each destination the senders, and small messages go ahead of bulk.
    #[default]
    Fair,
    /// By the operator's priority, then by arrival.
    Priority,
    /// By arrival.
    Arrival,
    /// One destination after the other, by name, then by arrival.
    Destination,
    /// By the time of the last change of state, oldest first.
    Modified,
    /// By queue id.
    Id,
    /// At random.
    Random,
    /// In the order in which the messages became ready.
    None,
}

/// All orders with their names, as settings and the command line write them.
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

impl Order {
    /// Returns the name of the order.
    pub fn name(self) -> &'static str {
        ORDERS.iter().find(|(_, order)| *order == self).map_or("", |(name, _)| name)
    }
}

/// Error for a text that names no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an order: fair, priority, arrival, destination, modified, id, random or none")]
pub struct NotAnOrder;

impl FromStr for Order {
    type Err = NotAnOrder;
    fn from_str(text: &str) -> Result<Self, NotAnOrder> {
        ORDERS.iter().find(|(name, _)| *name == text).map(|(_, order)| *order).ok_or(NotAnOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_found_by_its_name() {
        for (name, order) in ORDERS {
            assert_eq!((order.name(), name.parse()), (name, Ok(order)));
        }
        assert_eq!("up".parse::<Order>(), Err(NotAnOrder));
    }
}
