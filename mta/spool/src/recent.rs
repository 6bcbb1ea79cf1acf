//! The transactions that became durable last, so that a receive process that lost its answer can
//! ask again.
//!
//! Must never hold more transactions than the settings allow.

use mail::{MessageId, TransactionId};
use std::collections::{HashMap, VecDeque};

/// The messages of the latest transactions.
pub(crate) struct RecentTransactions {
    messages: HashMap<TransactionId, MessageId>,
    /// Oldest first.
    order: VecDeque<TransactionId>,
    /// Upper bound on the number of transactions.
    max: usize,
}

impl RecentTransactions {
    pub(crate) fn new(max: usize, durable: Vec<(TransactionId, MessageId)>) -> RecentTransactions {
        let mut recent =
            RecentTransactions { messages: HashMap::new(), order: VecDeque::new(), max };
        durable.into_iter().for_each(|(transaction, message)| recent.add(transaction, message));
        recent
    }

    /// Adds a transaction and drops the oldest ones above the bound.
    pub(crate) fn add(&mut self, transaction: TransactionId, message: MessageId) {
        if self.messages.insert(transaction, message).is_none() {
            self.order.push_back(transaction);
        }
        while self.order.len() > self.max {
            if let Some(oldest) = self.order.pop_front() {
                self.messages.remove(&oldest);
            }
        }
    }

    pub(crate) fn get(&self, transaction: TransactionId) -> Option<MessageId> {
        self.messages.get(&transaction).copied()
    }

    /// All of them, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TransactionId, MessageId)> + '_ {
        self.order.iter().filter_map(|of| Some((*of, *self.messages.get(of)?)))
    }
}
