//! What all sessions of this process hold for their clients, in bytes, against one bound.
//!
//! Each session counts with what the allocator gives out for it, and with [`SESSION_BYTES_MIN`] at least. Whoever
//! wants to hold more asks first whether there is room. What is on its way to the queue process is counted by the link
//! and comes in as `beside`. The process needs more than the bound for its code, for one envelope that is being
//! encoded, and for what the allocator cannot use again: `docs/knobs.md` and decision 0053 say how much.
//!
//! `policy::MemoryBounds` decides who may hold more: strangers leave a reserve to trusted clients, and each network of
//! strangers has a share.
//!
//! Must never count what a session has given back, nor end a session that is open.

use super::SCRATCH_BYTES;
use mail::Instant;
use policy::{MemoryBounds, Short, Shortage, StrangersHold, client_network};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// What an open connection takes that holds nothing: its task, socket, timer and session. Measured: 4.2 KiB when it
/// has been greeted, 4.8 KiB with a transaction of one recipient.
const SESSION_BYTES: usize = 6 << 10;
/// Counted for each connection's unread input, unfinished command and waiting replies, whether they are there or not:
/// while the sum is full a session takes no more for them.
const BUFFERS_BYTES_MIN: usize = 6 << 10;
/// The least that a connection is counted with.
pub const SESSION_BYTES_MIN: usize = SESSION_BYTES + BUFFERS_BYTES_MIN;

/// What one session with a usual message needs: itself, a piece of the body, and 20 recipients or so, which are there
/// twice while the envelope is encoded. No share of a stranger is smaller.
pub const MESSAGE_BYTES_MIN: usize = SESSION_BYTES_MIN + SCRATCH_BYTES + (4 << 10);

/// What a session with these buffers counts for; `more`: everything else that it holds.
pub fn session_bytes(buffers: usize, more: usize) -> usize {
    SESSION_BYTES + buffers.max(BUFFERS_BYTES_MIN) + more
}

/// The sums and their bounds.
#[derive(Clone, Debug, Default)]
pub struct Memory(Rc<Sums>);

#[derive(Debug, Default)]
struct Sums {
    /// What all sessions count for, in bytes.
    all: Cell<u64>,
    /// What strangers count for.
    strangers: Cell<u64>,
    /// Each network of strangers that has a session.
    networks: RefCell<HashMap<Option<IpAddr>, Rc<Network>>>,
    bounds: Cell<MemoryBounds>,
    /// Requests refused for want of memory.
    refused: Cell<u64>,
    shortage: Cell<Shortage>,
}

/// The clients that have one share: one IPv4 address or IPv6 network, or all of the Unix sockets that are not trusted.
#[derive(Debug)]
struct Network {
    name: Option<IpAddr>,
    bytes: Cell<u64>,
}

/// What one session counts for; given back when dropped.
#[derive(Debug)]
pub struct Share {
    memory: Memory,
    bytes: u64,
    /// `None`: the client is trusted.
    network: Option<Rc<Network>>,
}

impl Memory {
    /// Sets the bounds for `bytes_max` in all, also while sessions are open.
    pub fn bound(&self, bytes_max: u64) {
        self.0.bounds.set(MemoryBounds::new(bytes_max, MESSAGE_BYTES_MIN as u64));
    }

    /// How much may be on its way to queue; see [`MemoryBounds::in_transit_bytes_max`].
    pub fn in_transit_bytes_max(&self) -> u64 {
        self.0.bounds.get().in_transit_bytes_max()
    }

    /// The place of a new session, if there is room; `beside` bytes are held outside of sessions.
    pub fn enter(&self, client: Option<IpAddr>, trusted: bool, beside: u64) -> Option<Share> {
        let network = (!trusted).then(|| self.network(client));
        let mut share = Share { memory: self.clone(), bytes: 0, network };
        if !share.has_room(SESSION_BYTES_MIN, beside) {
            share.refused();
            return None;
        }
        share.is_now(SESSION_BYTES_MIN);
        Some(share)
    }

    fn network(&self, client: Option<IpAddr>) -> Rc<Network> {
        let name = client.map(client_network);
        let mut networks = self.0.networks.borrow_mut();
        networks
            .entry(name)
            .or_insert_with(|| Rc::new(Network { name, bytes: Cell::new(0) }))
            .clone()
    }

    /// Whether strangers hold so much that silent ones are to make room.
    pub fn is_stressed(&self) -> bool {
        self.0.bounds.get().is_stressed(self.0.strangers.get())
    }

    /// Requests that were refused since the process began.
    pub fn refused(&self) -> u64 {
        self.0.refused.get()
    }

    /// How short memory is now; to be asked every second. The second is the same, when it is time to log it.
    pub fn look(&self, now: Instant) -> (Option<Short>, Option<Short>) {
        let mut shortage = self.0.shortage.get();
        shortage.look(self.is_stressed(), self.refused(), now);
        let told = (shortage.short(now), shortage.alarm(now));
        self.0.shortage.set(shortage);
        told
    }
}

impl Share {
    /// Whether this session may hold `bytes` more; `beside` bytes are held outside of sessions.
    pub fn has_room(&self, bytes: usize, beside: u64) -> bool {
        let (sums, bytes) = (&self.memory.0, bytes as u64);
        let (bounds, all) = (sums.bounds.get(), sums.all.get());
        match &self.network {
            None => bounds.has_room(all.saturating_add(beside).saturating_add(bytes)),
            Some(network) => {
                let hold =
                    StrangersHold { all: sums.strangers.get(), network: network.bytes.get() };
                bounds.has_room_for_stranger(all, hold, beside, bytes)
            }
        }
    }

    /// Whether this session may hold these bytes in all when there is no other.
    pub fn has_room_alone(&self, bytes: usize) -> bool {
        self.memory.0.bounds.get().has_room_alone(self.network.is_none(), bytes as u64)
    }

    /// Whether this client is to make room if it holds a transaction and says nothing.
    pub fn is_stressed(&self) -> bool {
        self.network.is_some() && self.memory.is_stressed()
    }

    /// A request of this session was refused for want of memory.
    pub fn refused(&self) {
        let refused = &self.memory.0.refused;
        refused.set(refused.get() + 1);
    }

    /// The session holds so many bytes now.
    pub fn is_now(&mut self, bytes: usize) {
        self.set(bytes as u64);
    }

    fn set(&mut self, bytes: u64) {
        let change = |sum: &Cell<u64>| sum.set(sum.get() - self.bytes + bytes);
        change(&self.memory.0.all);
        if let Some(network) = &self.network {
            change(&self.memory.0.strangers);
            change(&network.bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
        // The last session takes the entry along: each counts for something.
        if let Some(network) = self.network.take().filter(|network| network.bytes.get() == 0) {
            self.memory.0.networks.borrow_mut().remove(&network.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = SESSION_BYTES_MIN as u64;

    fn memory(bytes_max: u64) -> Memory {
        let memory = Memory::default();
        memory.bound(bytes_max);
        memory
    }

    fn trusted(memory: &Memory) -> Share {
        memory.enter(None, true, 0).unwrap()
    }

    fn stranger(memory: &Memory, client: &str) -> Option<Share> {
        memory.enter(Some(client.parse().unwrap()), false, 0)
    }

    #[test]
    fn the_sum_follows_what_each_session_holds_and_what_it_gives_back() {
        let memory = memory(100_000);
        let (mut one, mut other) = (trusted(&memory), trusted(&memory));
        assert_eq!(memory.0.all.get(), 2 * MIN);
        one.is_now(60_000);
        other.is_now(40_000);
        assert!(one.has_room(0, 0) && !one.has_room(1, 0) && !one.has_room(0, 1));
        one.is_now(20_000);
        assert!(one.has_room(40_000, 0) && one.has_room(30_000, 10_000));
        assert!(!one.has_room(40_000, 1));
        drop(other);
        assert!(one.has_room(80_000, 0));
        drop(one);
        assert_eq!(memory.0.all.get(), 0);
    }

    #[test]
    fn a_new_bound_counts_what_is_held_already() {
        let memory = memory(100_000);
        let mut one = trusted(&memory);
        one.is_now(50_000);
        memory.bound(40_000);
        assert!(!one.has_room(0, 0));
    }

    #[test]
    fn r211_a_session_counts_with_its_smallest_need_before_it_needs_that() {
        assert_eq!(session_bytes(0, 0), SESSION_BYTES_MIN);
        assert_eq!(session_bytes(BUFFERS_BYTES_MIN, 7), SESSION_BYTES_MIN + 7);
        assert_eq!(session_bytes(BUFFERS_BYTES_MIN + 9, 7), SESSION_BYTES_MIN + 16);
    }

    #[test]
    fn r211_strangers_fill_their_part_and_each_network_its_share_and_trusted_clients_have_the_rest()
    {
        const SHARE: usize = 1 << 20;
        let memory = memory(8 << 20);
        let mut full: Vec<Share> = Vec::new();
        // Two addresses of one IPv6 network have one share.
        for half in ["2001:db8::1", "2001:db8::2"] {
            let mut session = stranger(&memory, half).unwrap();
            assert!(session.has_room(SHARE / 2 - SESSION_BYTES_MIN, 0));
            session.is_now(SHARE / 2);
            full.push(session);
        }
        assert!(stranger(&memory, "2001:db8::3").is_none() && !full[0].has_room(1, 0));
        for network in 1..6 {
            assert!(!memory.is_stressed() || network > 3);
            let mut session = stranger(&memory, &format!("192.0.2.{network}")).unwrap();
            assert!(session.has_room(SHARE - SESSION_BYTES_MIN, 0));
            assert!(!session.has_room(SHARE - SESSION_BYTES_MIN + 1, 0));
            session.is_now(SHARE);
            full.push(session);
        }
        assert!(stranger(&memory, "192.0.2.7").is_none() && full[2].is_stressed());
        let mut trusted = trusted(&memory);
        assert!(trusted.has_room((2 << 20) - SESSION_BYTES_MIN, 0) && !trusted.is_stressed());
        trusted.is_now(2 << 20);
        assert!(!trusted.has_room(1, 0));
        assert_eq!(memory.refused(), 2);
        full.clear();
        drop(trusted);
        assert!(memory.0.networks.borrow().is_empty());
        assert_eq!((memory.0.all.get(), memory.0.strangers.get()), (0, 0));
    }
}
