//! The memory of all sessions of one process, in bytes, against one bound.
//!
//! Each session counts with the memory that the allocator gives out for it, and with at least [`SESSION_BYTES_MIN`]. A session
//! asks whether there is room before it holds more. The link counts what is in transit to the queue process; callers
//! pass that as `in_transit`. The process needs more than the bound for its code, for one envelope that is being encoded,
//! and for what the allocator cannot use again: decision 0053 says how much.
//!
//! [`MemoryBounds`] decides who may hold more: strangers leave a reserve to trusted clients, and each network of
//! strangers has a share.
//!
//! Must never count memory that a session has given back, or end an open session.

use crate::inbound::READ_BYTES_MAX;
use mail::Instant;
use policy::{MemoryBounds, Short, Shortage, StrangersHold, client_network};
use std::collections::HashMap;
use std::net::IpAddr;

/// Memory of an open connection that holds nothing: its task, socket, timer and session. Measured: 4.2 KiB after the
/// greeting, 4.8 KiB with a transaction of one recipient.
const SESSION_BYTES: usize = 6 << 10;
/// Counted for the unread input, unfinished command and waiting replies of each connection, whether there are any or
/// not. While the sum is full, a session takes no more for them.
const BUFFERS_BYTES_MIN: usize = 6 << 10;
/// The least that a connection counts with.
pub const SESSION_BYTES_MIN: usize = SESSION_BYTES + BUFFERS_BYTES_MIN;

/// Memory of one session with a usual message: itself, a piece of the body, and about 20 recipients, which are there
/// twice while the envelope is encoded. No share of a stranger is smaller.
pub const MESSAGE_BYTES_MIN: usize = SESSION_BYTES_MIN + READ_BYTES_MAX + (4 << 10);

/// Returns what a session counts with: `buffers` bytes of buffers, and `more` bytes of everything else.
pub(crate) fn session_bytes(buffers: usize, more: usize) -> usize {
    SESSION_BYTES + buffers.max(BUFFERS_BYTES_MIN) + more
}

/// The sums and their bounds.
#[derive(Debug, Default)]
pub(crate) struct MemoryUse {
    /// All sessions.
    all: u64,
    /// The sessions of strangers.
    strangers: u64,
    networks: Networks,
    bounds: MemoryBounds,
    /// Requests refused for lack of memory since the process began.
    refused: u64,
    shortage: Shortage,
}

/// Each network of strangers that has a session: one IPv4 address or IPv6 network, or all clients of the Unix sockets
/// that are not trusted.
#[derive(Debug, Default)]
struct Networks {
    places: HashMap<Option<IpAddr>, u32>,
    /// A place without sessions is free.
    entries: Vec<Network>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Network {
    name: Option<IpAddr>,
    sessions: u32,
    bytes: u64,
}

/// What one session counts with. [`MemoryUse::leave`] gives it back.
#[derive(Debug, Default)]
pub(crate) struct Share {
    bytes: u64,
    /// The place of its network. `None`: the client is trusted.
    network: Option<u32>,
}

impl MemoryUse {
    /// Sets the bounds for `bytes_max` in all, also while sessions are open.
    pub fn bound(&mut self, bytes_max: u64) {
        self.bounds = MemoryBounds::new(bytes_max, MESSAGE_BYTES_MIN as u64);
    }

    /// Returns how many bytes may be in transit to the queue process; see [`MemoryBounds::in_transit_bytes_max`].
    pub fn in_transit_bytes_max(&self) -> u64 {
        self.bounds.in_transit_bytes_max()
    }

    /// Returns the share of a new session, if there is room for it.
    pub fn enter(
        &mut self,
        client: Option<IpAddr>,
        trusted: bool,
        in_transit: u64,
    ) -> Option<Share> {
        let network = (!trusted).then(|| self.networks.enter(client.map(client_network)));
        let mut share = Share { bytes: 0, network };
        if !self.has_room(&share, SESSION_BYTES_MIN, in_transit) {
            self.refused += 1;
            self.leave(&mut share);
            return None;
        }
        self.set(&mut share, SESSION_BYTES_MIN);
        Some(share)
    }

    /// Returns the share of a session that has ended.
    pub fn leave(&mut self, share: &mut Share) {
        self.set(share, 0);
        if let Some(network) = share.network.take() {
            self.networks.leave(network);
        }
    }

    /// Sets the number of bytes that the session holds.
    pub fn set(&mut self, share: &mut Share, bytes: usize) {
        let bytes = bytes as u64;
        let changed = |sum: u64| sum - share.bytes + bytes;
        self.all = changed(self.all);
        if let Some(network) = share.network {
            self.strangers = changed(self.strangers);
            let held = &mut self.networks.entries[network as usize].bytes;
            *held = changed(*held);
        }
        share.bytes = bytes;
    }

    /// Returns true if a session may hold `bytes` more.
    pub fn has_room(&self, share: &Share, bytes: usize, in_transit: u64) -> bool {
        let (bounds, bytes) = (self.bounds, bytes as u64);
        match share.network {
            None => bounds.has_room(self.all.saturating_add(in_transit).saturating_add(bytes)),
            Some(network) => {
                let network = self.networks.entries[network as usize].bytes;
                let hold = StrangersHold { all: self.strangers, network };
                bounds.has_room_for_stranger(self.all, hold, in_transit, bytes)
            }
        }
    }

    /// Returns true if a session may hold `bytes` in total when it is the only one.
    pub fn has_room_alone(&self, share: &Share, bytes: usize) -> bool {
        self.bounds.has_room_alone(share.network.is_none(), bytes as u64)
    }

    /// Counts a request that was refused for lack of memory.
    pub fn count_refusal(&mut self) {
        self.refused += 1;
    }

    /// Returns the number of requests refused since the process began.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns true if strangers hold so much memory that silent strangers must make room.
    pub fn is_stressed(&self) -> bool {
        self.bounds.is_stressed(self.strangers)
    }

    /// Returns true if this client must make room when it holds a transaction and is silent.
    pub fn stresses(&self, share: &Share) -> bool {
        share.network.is_some() && self.is_stressed()
    }

    /// Returns the current shortage, and the same again if it is time to log it. Called every second.
    pub fn look(&mut self, now: Instant) -> (Option<Short>, Option<Short>) {
        let (stressed, refused) = (self.is_stressed(), self.refused);
        self.shortage.look(stressed, refused, now);
        (self.shortage.short(now), self.shortage.alarm(now))
    }
}

impl Networks {
    fn enter(&mut self, name: Option<IpAddr>) -> u32 {
        let place = *self.places.entry(name).or_insert_with(|| {
            let network = Network { name, sessions: 0, bytes: 0 };
            match self.free.pop() {
                Some(place) => {
                    self.entries[place as usize] = network;
                    place
                }
                None => {
                    self.entries.push(network);
                    (self.entries.len() - 1) as u32
                }
            }
        });
        self.entries[place as usize].sessions += 1;
        place
    }

    /// Removes a session, and the entry of its network with the last session.
    fn leave(&mut self, place: u32) {
        let network = &mut self.entries[place as usize];
        network.sessions -= 1;
        if network.sessions == 0 {
            self.places.remove(&network.name);
            self.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = SESSION_BYTES_MIN as u64;

    fn memory(bytes_max: u64) -> MemoryUse {
        let mut memory = MemoryUse::default();
        memory.bound(bytes_max);
        memory
    }

    fn trusted(memory: &mut MemoryUse) -> Share {
        memory.enter(None, true, 0).unwrap()
    }

    fn stranger(memory: &mut MemoryUse, client: &str) -> Option<Share> {
        memory.enter(Some(client.parse().unwrap()), false, 0)
    }

    #[test]
    fn the_sum_follows_what_each_session_holds_and_what_it_gives_back() {
        let mut memory = memory(100_000);
        let (mut one, mut other) = (trusted(&mut memory), trusted(&mut memory));
        assert_eq!(memory.all, 2 * MIN);
        memory.set(&mut one, 60_000);
        memory.set(&mut other, 40_000);
        assert!(memory.has_room(&one, 0, 0));
        assert!(!memory.has_room(&one, 1, 0) && !memory.has_room(&one, 0, 1));
        memory.set(&mut one, 20_000);
        assert!(memory.has_room(&one, 40_000, 0) && memory.has_room(&one, 30_000, 10_000));
        assert!(!memory.has_room(&one, 40_000, 1));
        memory.leave(&mut other);
        assert!(memory.has_room(&one, 80_000, 0));
        memory.leave(&mut one);
        assert_eq!(memory.all, 0);
    }

    #[test]
    fn a_new_bound_counts_what_is_held_already() {
        let mut memory = memory(100_000);
        let mut one = trusted(&mut memory);
        memory.set(&mut one, 50_000);
        memory.bound(40_000);
        assert!(!memory.has_room(&one, 0, 0));
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
        let mut memory = memory(8 << 20);
        let mut full: Vec<Share> = Vec::new();
        // Two addresses of one IPv6 network have one share.
        for half in ["2001:db8::1", "2001:db8::2"] {
            let mut session = stranger(&mut memory, half).unwrap();
            assert!(memory.has_room(&session, SHARE / 2 - SESSION_BYTES_MIN, 0));
            memory.set(&mut session, SHARE / 2);
            full.push(session);
        }
        let third = stranger(&mut memory, "2001:db8::3");
        assert!(third.is_none() && !memory.has_room(&full[0], 1, 0));
        for network in 1..6 {
            assert!(!memory.is_stressed() || network > 3);
            let mut session = stranger(&mut memory, &format!("192.0.2.{network}")).unwrap();
            assert!(memory.has_room(&session, SHARE - SESSION_BYTES_MIN, 0));
            assert!(!memory.has_room(&session, SHARE - SESSION_BYTES_MIN + 1, 0));
            memory.set(&mut session, SHARE);
            full.push(session);
        }
        assert!(stranger(&mut memory, "192.0.2.7").is_none() && memory.stresses(&full[2]));
        let mut one = trusted(&mut memory);
        assert!(memory.has_room(&one, (2 << 20) - SESSION_BYTES_MIN, 0) && !memory.stresses(&one));
        memory.set(&mut one, 2 << 20);
        assert!(!memory.has_room(&one, 1, 0));
        assert_eq!(memory.refused(), 2);
        full.iter_mut().chain([&mut one]).for_each(|share| memory.leave(share));
        assert!(memory.networks.places.is_empty());
        assert_eq!((memory.all, memory.strangers), (0, 0));
        assert_eq!(memory.networks.free.len(), memory.networks.entries.len());
    }
}
