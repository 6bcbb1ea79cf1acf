//! The distribution of memory among sessions: a reserve for trusted clients, which may relay, and a share for each
//! network of other clients, the strangers. Also decides when a shortage of memory is reported to the operator.
//!
//! Must never refuse a trusted client while there is room. Must never let one network of strangers take the memory that
//! other clients need.

use mail::Instant;
use std::time::Duration;

/// Upper bound on the share of all strangers together, in percent of the memory and of the connections. The rest is for
/// trusted clients.
pub const STRANGERS_PERCENT_MAX: u64 = 75;
/// Upper bound on the memory of the strangers of one network, in per mille of all memory: one eighth.
pub const NETWORK_PERMILLE_MAX: u64 = 125;
/// The share of the strangers' memory, in percent, above which strangers get shorter timeouts.
pub const STRESS_PERCENT_MIN: u64 = 50;
/// How long a shortage is still reported after the last refusal.
pub const SHORTAGE_KEPT: Duration = Duration::from_secs(60);
/// The time after which a shortage that lasts is logged again.
pub const SHORTAGE_ALARM_WAIT: Duration = Duration::from_secs(60);

const _: () =
    assert!(NETWORK_PERMILLE_MAX < 10 * STRANGERS_PERCENT_MAX && STRANGERS_PERCENT_MAX < 100);

/// The memory that the sessions of one process may hold, in bytes. The bounds for strangers always allow one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBounds {
    /// All sessions together.
    all: u64,
    /// All strangers together.
    strangers: u64,
    /// One network of strangers.
    network: u64,
    /// The memory of strangers above which they get shorter timeouts.
    stress: u64,
    /// Unanswered bytes on the link to process queue.
    in_transit: u64,
}

/// The memory that strangers hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrangersHold {
    /// All strangers together.
    pub all: u64,
    /// The strangers of one network.
    pub network: u64,
}

impl MemoryBounds {
    /// Returns the bounds for a process whose sessions may hold `bytes_max` together. One session with a usual message
    /// needs `message_bytes`.
    pub fn new(bytes_max: u64, message_bytes: u64) -> MemoryBounds {
        let strangers = part(bytes_max, STRANGERS_PERCENT_MAX, 100).max(message_bytes);
        let network = part(bytes_max, NETWORK_PERMILLE_MAX, 1_000).max(message_bytes);
        let strangers = strangers.min(bytes_max);
        MemoryBounds {
            all: bytes_max,
            strangers,
            network: network.min(strangers),
            stress: part(strangers, STRESS_PERCENT_MIN, 100),
            in_transit: (strangers.saturating_sub(message_bytes) / 2).max(1),
        }
    }

    /// The number of bytes on their way to process queue at which sessions wait before they send more.
    ///
    /// The rest of the strangers' memory has room for at least one session with a message. No body is therefore refused
    /// because of its own bytes on their way.
    pub fn in_transit_bytes_max(&self) -> u64 {
        self.in_transit
    }

    /// True if a client may hold these bytes while no other client holds any. Otherwise the client need not try again.
    pub fn has_room_alone(&self, trusted: bool, bytes: u64) -> bool {
        bytes <= if trusted { self.all } else { self.network }
    }

    /// True if all sessions together may hold `wanted` bytes. This is the only bound for trusted clients.
    pub fn has_room(&self, wanted: u64) -> bool {
        wanted <= self.all
    }

    /// True if a stranger may hold `bytes` more. All sessions hold `all` bytes, and `beside` bytes are held outside of
    /// sessions. The clients of the latter are unknown, so they count as strangers' memory.
    #[inline]
    pub fn has_room_for_stranger(
        &self,
        all: u64,
        hold: StrangersHold,
        beside: u64,
        bytes: u64,
    ) -> bool {
        let more = beside.saturating_add(bytes);
        let wanted = all.saturating_add(more);
        // If the sum is within the smallest bound, so is each of its parts.
        wanted <= self.network
            || (self.has_room(wanted)
                && hold.all.saturating_add(more) <= self.strangers
                && hold.network.saturating_add(bytes) <= self.network)
    }

    /// True if strangers with an open transaction must get shorter timeouts.
    pub fn is_stressed(&self, strangers: u64) -> bool {
        strangers > self.stress
    }
}

fn part(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    bytes.saturating_mul(numerator) / denominator
}

/// A shortage of memory: its start, and when it was last logged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shortage {
    refused: u64,
    lasts: Option<Lasts>,
}

#[derive(Clone, Copy, Debug)]
struct Lasts {
    since: Instant,
    /// Requests that were refused before the shortage began.
    refused_before: u64,
    /// When the last request was refused or the last stress was seen.
    seen: Instant,
    logged: Option<Instant>,
}

/// The report of a shortage of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// The time since the shortage began.
    pub lasted: Duration,
    /// Requests that were refused during the shortage.
    pub refused: u64,
}

impl Shortage {
    /// Updates the state, once a second. `refused` is the number of all requests that were refused for lack of memory.
    pub fn look(&mut self, stressed: bool, refused: u64, now: Instant) {
        let refused_before = std::mem::replace(&mut self.refused, refused);
        if stressed || refused > refused_before {
            let new = Lasts { since: now, refused_before, seen: now, logged: None };
            self.lasts.get_or_insert(new).seen = now;
        }
        self.lasts = self.lasts.filter(|lasts| now.since(lasts.seen) < SHORTAGE_KEPT);
    }

    /// Returns the current shortage.
    pub fn short(&self, now: Instant) -> Option<Short> {
        self.lasts.map(|lasts| Short {
            lasted: now.since(lasts.since),
            refused: self.refused - lasts.refused_before,
        })
    }

    /// Returns the current shortage if it must be logged now.
    pub fn alarm(&mut self, now: Instant) -> Option<Short> {
        let lasts = self.lasts.as_mut()?;
        if lasts.logged.is_some_and(|logged| now.since(logged) < SHORTAGE_ALARM_WAIT) {
            return None;
        }
        lasts.logged = Some(now);
        self.short(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MESSAGE: u64 = 80 << 10;

    fn hold(all: u64, network: u64) -> StrangersHold {
        StrangersHold { all, network }
    }

    #[test]
    fn r211_strangers_leave_a_quarter_of_the_memory_to_trusted_clients() {
        let bounds = MemoryBounds::new(256 * MIB, MESSAGE);
        let strangers = 192 * MIB;
        let may = |all, bytes| bounds.has_room_for_stranger(all, hold(all, 0), 0, bytes);
        assert!(may(strangers - 1, 1) && !may(strangers, 1));
        assert!(bounds.has_room(256 * MIB) && !bounds.has_room(256 * MIB + 1));
        // The memory of trusted clients does not reduce the strangers' part until all memory is full.
        let beside_trusted = |strangers| {
            bounds.has_room_for_stranger(64 * MIB + strangers, hold(strangers, 0), 0, 1)
        };
        assert!(beside_trusted(strangers - 1) && !beside_trusted(strangers));
        assert!(!bounds.has_room_for_stranger(256 * MIB, hold(0, 0), 0, 1));
        // Bytes that strangers have sent to process queue cannot fill the reserve either.
        let handed_over = |beside| bounds.has_room_for_stranger(0, hold(0, 0), beside, 1);
        assert!(handed_over(strangers - 1) && !handed_over(strangers));
    }

    #[test]
    fn r211_a_network_of_strangers_holds_an_eighth_and_others_do_not_feel_it() {
        let bounds = MemoryBounds::new(256 * MIB, MESSAGE);
        let share = 32 * MIB;
        let may = |network, bytes| {
            bounds.has_room_for_stranger(100 * MIB, hold(100 * MIB, network), 0, bytes)
        };
        assert!(may(share - 1, 1) && !may(share, 1) && !may(share - 1, 2));
        assert!(may(0, MIB), "another network");
    }

    #[test]
    fn r211_with_little_memory_a_stranger_has_room_for_a_message() {
        for kib in [80, 100, 128, 600, 1_024, 4_096] {
            let bounds = MemoryBounds::new(kib << 10, MESSAGE);
            let may = |bytes| bounds.has_room_for_stranger(0, StrangersHold::default(), 0, bytes);
            assert!(may(MESSAGE), "{kib} KiB");
            assert!(!may((kib << 10) + 1), "{kib} KiB");
        }
    }

    #[test]
    fn r211_what_is_on_its_way_to_queue_leaves_room_for_the_rest_of_its_message() {
        for kib in [80, 85, 100, 128, 160, 256, 1_024, 262_144] {
            let bounds = MemoryBounds::new(kib << 10, MESSAGE);
            // More bytes are sent only while fewer bytes are on their way.
            let beside = bounds.in_transit_bytes_max() - 1;
            let hold = StrangersHold::default();
            assert!(bounds.has_room_for_stranger(0, hold, beside, MESSAGE), "{kib} KiB");
        }
        let bounds = MemoryBounds::new(256 * MIB, MESSAGE);
        assert_eq!(bounds.in_transit_bytes_max(), 96 * MIB - MESSAGE / 2);
    }

    #[test]
    fn r211_what_a_client_may_hold_alone_is_its_share() {
        let bounds = MemoryBounds::new(256 * MIB, MESSAGE);
        for (trusted, most) in [(true, 256 * MIB), (false, 32 * MIB)] {
            assert!(bounds.has_room_alone(trusted, most), "{trusted}");
            assert!(!bounds.has_room_alone(trusted, most + 1), "{trusted}");
        }
    }

    #[test]
    fn r211_strangers_are_hurried_from_half_of_their_part_on() {
        let bounds = MemoryBounds::new(256 * MIB, MESSAGE);
        assert!(!bounds.is_stressed(96 * MIB) && bounds.is_stressed(96 * MIB + 1));
    }

    #[test]
    fn r211_a_shortage_is_told_until_a_minute_after_the_last_refusal_and_logged_each_minute() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut shortage = Shortage::default();
        shortage.look(false, 0, at(0));
        assert_eq!((shortage.short(at(0)), shortage.alarm(at(0))), (None, None));
        let mut logged = Vec::new();
        for second in 1..=200 {
            // Refused at 1 and at 100; stress from 130 to 135.
            let refused = if second < 100 { 3 } else { 10 };
            shortage.look((130..=135).contains(&second), refused, at(second));
            logged.extend(shortage.alarm(at(second)).map(|short| (second, short.refused)));
            let expected = match second {
                1..=60 => Some((second - 1, 3)),
                100..=194 => Some((second - 100, 7)),
                _ => None,
            };
            let found = shortage.short(at(second));
            assert_eq!(found.map(|s| (s.lasted.as_secs(), s.refused)), expected, "{second}");
        }
        assert_eq!(logged, [(1, 3), (100, 7), (160, 7)]);
    }
}
