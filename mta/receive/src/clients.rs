//! The clients that are connected, by number, and those that wait for credit.
//!
//! Must never wake one client before another that has waited for credit longer.

use crate::Output;
use std::collections::VecDeque;

/// Id of a client of a [`Gateway`](crate::Gateway). It is always less than the greatest number of simultaneous clients, so that
/// a driver can use it as an index. The id of a released client is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u32);

impl ClientId {
    /// Returns the id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Whether the client with this number waits for credit.
    waits_for_credit: Vec<bool>,
    free: Vec<ClientId>,
    /// In the order in which they began to wait. A client that was released may still be here.
    credit_waiters: VecDeque<ClientId>,
    /// Outputs that the driver has not fetched: for each client at most its answer and its credit.
    outputs: VecDeque<Output>,
}

impl Clients {
    pub fn add(&mut self) -> ClientId {
        self.free.pop().unwrap_or_else(|| {
            let id = ClientId(self.waits_for_credit.len() as u32);
            self.waits_for_credit.push(false);
            id
        })
    }

    pub fn remove(&mut self, id: ClientId) {
        if std::mem::take(&mut self.waits_for_credit[id.index()]) {
            self.credit_waiters.retain(|waiter| *waiter != id);
        }
        self.free.push(id);
    }

    /// Makes the client wait for credit.
    pub fn wait_for_credit(&mut self, id: ClientId) {
        if !std::mem::replace(&mut self.waits_for_credit[id.index()], true) {
            self.credit_waiters.push_back(id);
        }
    }

    /// Wakes all clients that wait for credit. A client that finds no credit left waits again.
    pub fn wake_credit_waiters(&mut self) {
        for id in std::mem::take(&mut self.credit_waiters) {
            self.waits_for_credit[id.index()] = false;
            self.wake(id);
        }
    }

    pub fn wake(&mut self, id: ClientId) {
        self.outputs.push_back(Output::Wake(id));
    }

    pub fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_woken_in_the_order_in_which_they_wait_and_numbers_are_used_again() {
        let mut clients = Clients::default();
        let ids: Vec<ClientId> = (0..4).map(|_| clients.add()).collect();
        for at in [2, 0, 3, 0, 1] {
            clients.wait_for_credit(ids[at]);
        }
        clients.remove(ids[3]);
        clients.wake_credit_waiters();
        let woken: Vec<_> = std::iter::from_fn(|| clients.poll()).collect();
        assert_eq!(woken, [2, 0, 1].map(|at| Output::Wake(ids[at])));
        assert_eq!((clients.add(), clients.add().index()), (ids[3], 4));
        clients.wake_credit_waiters();
        assert_eq!(clients.poll(), None);
    }
}
