//! The deliveries that wait for each delivery user.
//!
//! Batches need no timer: while one batch of a delivery user is delivered, the next batch gathers.
//!
//! Must never let a delivery user with many deliveries delay another one.

use crate::place::{DeliveryPlace, DeliveryUser};
use mail::Address;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// One message for one recipient. `M` is the driver's handle of the message.
#[derive(Clone, Debug)]
pub struct DeliveryItem<M> {
    /// The attempt.
    pub attempt: u64,
    /// The recipient's index in the envelope.
    pub index: u32,
    /// The recipient.
    pub recipient: Address,
    /// The message.
    pub message: M,
    /// Where the message goes.
    pub place: DeliveryPlace,
}

/// The deliveries that one worker gets together. The machine keeps a reference: if the worker dies, each
/// recipient of the batch still gets an outcome.
pub type DeliveryBatch<M> = Arc<[DeliveryItem<M>]>;

/// All waiting deliveries.
#[derive(Debug)]
pub(crate) struct WaitingDeliveries<M> {
    users: HashMap<DeliveryUser, UserQueue<M>>,
    /// Delivery users with deliveries and without a batch under way. The first one has waited longest.
    ready: VecDeque<DeliveryUser>,
}

#[derive(Debug)]
struct UserQueue<M> {
    items: VecDeque<DeliveryItem<M>>,
    /// True while a batch is being delivered.
    is_busy: bool,
}

impl<M> WaitingDeliveries<M> {
    /// Creates an empty table.
    pub fn new() -> WaitingDeliveries<M> {
        WaitingDeliveries { users: HashMap::new(), ready: VecDeque::new() }
    }

    /// Adds a delivery for this delivery user.
    pub fn push(&mut self, user: DeliveryUser, item: DeliveryItem<M>) {
        match self.users.get_mut(&user) {
            Some(queue) => queue.items.push_back(item),
            None => {
                let queue = UserQueue { items: VecDeque::from([item]), is_busy: false };
                self.users.insert(user.clone(), queue);
                self.ready.push_back(user);
            }
        }
    }

    /// Returns the delivery user whose next batch is due first.
    pub fn next_ready(&self) -> Option<&DeliveryUser> {
        self.ready.front()
    }

    /// Takes the next batch of the first ready delivery user, at most `items_max` deliveries; inverse
    /// of [`WaitingDeliveries::free`].
    pub fn take(&mut self, items_max: usize) -> Option<DeliveryBatch<M>> {
        let user = self.ready.pop_front()?;
        let queue = self.users.get_mut(&user)?;
        queue.is_busy = true;
        let count = queue.items.len().min(items_max.max(1));
        Some(queue.items.drain(..count).collect())
    }

    /// Records that the batch of this delivery user has ended.
    pub fn free(&mut self, user: &DeliveryUser) {
        let Some(queue) = self.users.get_mut(user) else { return };
        queue.is_busy = false;
        match queue.items.is_empty() {
            true => drop(self.users.remove(user)),
            false => self.ready.push_back(user.clone()),
        }
    }

    /// True if nothing waits and no batch is under way.
    pub fn is_idle(&self) -> bool {
        self.users.is_empty()
    }

    /// Removes all deliveries except those that `keep` selects.
    pub fn retain(&mut self, keep: impl Fn(&DeliveryItem<M>) -> bool) {
        self.users.retain(|_, queue| {
            queue.items.retain(&keep);
            queue.is_busy || !queue.items.is_empty()
        });
        self.ready.retain(|user| self.users.contains_key(user));
    }
}
