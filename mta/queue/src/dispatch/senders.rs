//! The sending processes: the stream to each, the attempts that it has, and the attempts that wait for one.
//!
//! Must never forget an attempt whose process may come back over a new stream.

use super::seal::Seals;
use super::settled::Settled;
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::control::Role;
use link::send::{QueueEnd, QueueEvent};
use mail::{Instant, MessageId, NextHop};
use scheduler::{AttemptId, PlannedAttempt};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

/// The name of a sending process: its role (send or local) and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderKey(pub Role, pub u16);

/// All sending processes.
#[derive(Debug)]
pub(crate) struct Senders {
    expected: usize,
    /// Attempts wait until this time for all processes to name what they have.
    wait_until: Option<Instant>,
    pub(super) ends: BTreeMap<SenderKey, Sender>,
    /// Attempts that wait for a process of their role, in the order in which the scheduler gave them.
    pub(super) waiting: BTreeMap<(Role, AttemptId), (PlannedAttempt, NextHop)>,
    /// Attempts of processes whose stream has ended, until the process names what it still has.
    pub(super) orphans: BTreeMap<SenderKey, Orphans>,
    /// The newest durable results of each process, which may not have been told of them.
    pub(super) settled: BTreeMap<SenderKey, Settled>,
    pub(super) seals: Seals,
    /// When durable results are told that no attempt was sent after.
    tell_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) end: QueueEnd,
    pub(super) phase: Phase,
    pub(super) capacity: usize,
    /// Attempts that the process has, by the id that the process uses. This is our id unless a former incarnation
    /// gave it.
    pub(super) under_way: BTreeMap<u64, HeldAttempt>,
    /// The attempts in `under_way` whose message is being read: the process does not know of them yet.
    pub(super) reading: BTreeSet<AttemptId>,
    /// Attempts whose results were not durable yet when the stream began. Empty once the process has named all
    /// attempts.
    pub(super) awaited: HashSet<u64>,
    /// Attempts that the process named and whose results are recorded or being recorded. The process repeats these
    /// results, and they count for nothing.
    pub(super) strays: HashSet<u64>,
    /// Durable results that the process has not been told of.
    pub(super) recorded: Vec<u64>,
}

/// How far a stream to a sending process has come. `link` refuses any other order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The process has not said hello, and is told nothing.
    ExpectHello,
    /// The process names the attempts that it has.
    ExpectAttempts,
    /// The process takes attempts.
    Ready,
    /// The process was told to end: it takes no more attempts, and what it leaves is no failure of a message.
    Draining,
}

/// An attempt that a process has.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldAttempt {
    pub(super) attempt: AttemptId,
    pub(super) message: MessageId,
}

/// The attempts of a process whose stream has ended.
#[derive(Debug)]
pub(super) struct Orphans {
    pub(super) under_way: BTreeMap<u64, HeldAttempt>,
    /// The process was told to end.
    pub(super) drained: bool,
    /// When the attempts count as lost if the process has not come back.
    pub(super) lost_at: Instant,
}

impl Sender {
    /// Tells the process which of its results are durable, in one frame. Does nothing before the process has said
    /// hello.
    pub(super) fn tell_recorded(&mut self) {
        if self.phase > Phase::ExpectHello && !self.recorded.is_empty() {
            self.end.recorded(std::mem::take(&mut self.recorded));
        }
    }
}

/// The number of durable results that are told at once. Fewer are told after the next attempt or after a while: the
/// process only keeps each result and the body of its message for longer.
pub(super) const RECORDED_MAX: usize = 128;
/// How long the first durable result waits to be told.
const RECORDED_WAIT: Duration = Duration::from_millis(100);
/// How long attempts wait for their process to come back over a new stream. Longer than it takes to open a new
/// stream, so that a lost stream repeats no attempt.
const ORPHANS_WAIT: Duration = Duration::from_secs(2);
const _: () = assert!(ORPHANS_WAIT.as_millis() > 2 * link::streams::RENEW_WAIT_MAX.as_millis());

impl Senders {
    pub fn new(expected: usize, wait_until: Instant, seal_key: [u64; 2]) -> Senders {
        Senders {
            expected,
            wait_until: Some(wait_until),
            ends: BTreeMap::new(),
            waiting: BTreeMap::new(),
            orphans: BTreeMap::new(),
            settled: BTreeMap::new(),
            seals: Seals::new(seal_key),
            tell_at: None,
        }
    }

    /// Begins a stream. The results of the attempts in `awaited` are not durable yet.
    pub fn connect(&mut self, key: SenderKey, build: u64, awaited: HashSet<u64>) {
        let sender = Sender {
            end: QueueEnd::new(build),
            phase: Phase::ExpectHello,
            capacity: 0,
            under_way: BTreeMap::new(),
            reading: BTreeSet::new(),
            awaited,
            strays: HashSet::new(),
            recorded: Vec::new(),
        };
        self.ends.insert(key, sender);
    }

    /// Seals attempts with this key from now on.
    pub fn set_seal_key(&mut self, key: [u64; 2]) {
        self.seals = Seals::new(key);
    }

    /// Ends a stream. Its attempts wait for the process to come back.
    pub fn disconnect(&mut self, key: SenderKey, now: Instant) {
        let Some(mut sender) = self.ends.remove(&key) else { return };
        self.all_named(key);
        let mut drained = sender.phase == Phase::Draining;
        if let Some(former) = self.orphans.remove(&key) {
            sender.under_way.extend(former.under_way);
            drained |= former.drained;
        }
        if !sender.under_way.is_empty() {
            let (under_way, lost_at) = (sender.under_way, now + ORPHANS_WAIT);
            self.orphans.insert(key, Orphans { under_way, drained, lost_at });
        }
    }

    /// Notes that the process names no more attempts over this stream.
    pub(super) fn all_named(&mut self, key: SenderKey) {
        if let Some(settled) = self.settled.get_mut(&key) {
            settled.names = None;
        }
    }

    /// Returns when `Queue::lose_orphans` must be called.
    pub fn orphans_due(&self) -> Option<Instant> {
        self.orphans.values().map(|orphans| orphans.lost_at).min()
    }

    pub fn input(&mut self, key: SenderKey, input: &mut BytesMut) -> Result<(), LinkError> {
        self.ends.get_mut(&key).map_or(Ok(()), |sender| sender.end.handle(input))
    }

    pub fn output(&mut self, key: SenderKey) -> Option<&mut VecDeque<Bytes>> {
        self.ends.get_mut(&key).map(|sender| sender.end.transmit())
    }

    pub fn end(&mut self, key: SenderKey) -> Option<&mut QueueEnd> {
        self.ends.get_mut(&key).map(|sender| &mut sender.end)
    }

    /// Forgets an attempt that never reached its process.
    pub fn forget(&mut self, key: SenderKey, attempt: AttemptId) {
        if let Some(sender) = self.ends.get_mut(&key) {
            sender.under_way.remove(&attempt.0);
            sender.reading.remove(&attempt);
        }
    }

    /// Takes back an attempt that no process knows of. Returns false if there is no such attempt.
    pub(super) fn recall(&mut self, attempt: AttemptId) -> bool {
        let waited = |role| self.waiting.remove(&(role, attempt)).is_some();
        if [Role::Send, Role::Local].into_iter().any(waited) {
            return true;
        }
        let read = self.ends.iter().find(|(_, sender)| sender.reading.contains(&attempt));
        let Some(key) = read.map(|(key, _)| *key) else { return false };
        self.forget(key, attempt);
        true
    }

    /// Returns the attempts for this process that it does not know of.
    pub(super) fn reading(&self, key: SenderKey) -> Vec<AttemptId> {
        let sender = self.ends.get(&key).into_iter();
        sender.flat_map(|sender| sender.reading.iter().copied()).collect()
    }

    /// Returns all attempts that no process knows of.
    pub(super) fn not_begun(&self) -> Vec<AttemptId> {
        let waiting = self.waiting.keys().map(|(_, attempt)| *attempt);
        waiting.chain(self.ends.keys().flat_map(|key| self.reading(*key))).collect()
    }

    /// Takes the first attempt that waits for a process of this role, with a process that has room.
    pub(super) fn next_waiting(
        &mut self,
        role: Role,
    ) -> Option<(SenderKey, PlannedAttempt, NextHop)> {
        let all = (role, AttemptId(0))..=(role, AttemptId(u64::MAX));
        let (name, (attempt, hop)) = self.waiting.range(all).next()?;
        let (name, key) = (*name, self.choose(hop, attempt.destination.0)?);
        let (attempt, hop) = self.waiting.remove(&name)?;
        Some((key, attempt, hop))
    }

    /// Returns the stream to the process that fetches for this attempt, if the process has named the attempt over its
    /// present stream. What was read for a former stream is discarded, and the process fetches it again.
    pub fn fetcher(&mut self, key: SenderKey, attempt: u64) -> Option<&mut QueueEnd> {
        let sender = self.ends.get_mut(&key)?;
        sender.under_way.contains_key(&attempt).then_some(&mut sender.end)
    }

    pub(super) fn flight(&self, key: SenderKey, attempt: u64) -> Option<HeldAttempt> {
        self.ends.get(&key)?.under_way.get(&attempt).copied()
    }

    pub(super) fn poll(&mut self, key: SenderKey) -> Option<QueueEvent> {
        self.ends.get_mut(&key)?.end.poll()
    }

    /// Returns when attempts stop waiting for the processes to name what they have.
    pub fn hello_due(&self) -> Option<Instant> {
        self.wait_until
    }

    /// Returns when [`Self::tell`] must be called.
    pub fn tell_due(&self) -> Option<Instant> {
        self.tell_at
    }

    /// Notes that these results are durable and tells their process soon.
    pub fn recorded(&mut self, key: SenderKey, attempts: Vec<u64>, now: Instant) {
        self.settled.entry(key).or_default().add(&attempts);
        let Some(sender) = self.ends.get_mut(&key) else { return };
        sender.recorded.extend(attempts);
        if sender.recorded.len() >= RECORDED_MAX {
            sender.tell_recorded();
        } else {
            self.tell_at.get_or_insert(now + RECORDED_WAIT);
        }
    }

    /// Tells the processes of durable results that have waited long enough.
    pub fn tell(&mut self, now: Instant) {
        if self.tell_at.is_some_and(|due| due <= now) {
            self.tell_at = None;
            self.ends.values_mut().for_each(Sender::tell_recorded);
        }
    }

    /// Returns true if all processes have named what they have, or have been waited for long enough.
    pub(super) fn all_greeted(&mut self, now: Instant) -> bool {
        let Some(until) = self.wait_until else { return true };
        let greeted = self.ends.values().filter(|sender| sender.phase >= Phase::Ready).count();
        let settled = greeted >= self.expected || now >= until;
        if settled {
            self.wait_until = None;
        }
        settled
    }

    /// Returns a process for this next hop that has room. A destination always gets the same process while that
    /// process has room, because it keeps the connections.
    pub(super) fn choose(&self, hop: &NextHop, destination: u32) -> Option<SenderKey> {
        let role = role_for(hop);
        let fit = || {
            self.ends
                .iter()
                .filter(|(key, sender)| key.0 == role && sender.phase == Phase::Ready)
                .filter(|(_, sender)| sender.under_way.len() < sender.capacity)
                .map(|(key, _)| *key)
        };
        let place = (destination as usize).checked_rem(fit().count())?;
        fit().nth(place)
    }
}

/// Returns the role of the process that makes attempts to a next hop.
pub(super) fn role_for(hop: &NextHop) -> Role {
    if *hop == NextHop::Local { Role::Local } else { Role::Send }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::settled::SETTLED_KEPT;

    #[test]
    fn the_newest_durable_results_of_a_process_are_remembered_and_no_more() {
        let mut senders = Senders::new(1, Instant::default(), [1, 2]);
        let key = SenderKey(Role::Send, 0);
        for attempt in 0..2 * SETTLED_KEPT as u64 {
            senders.recorded(key, vec![attempt], Instant::default());
        }
        let newest = 2 * SETTLED_KEPT as u64 - 1;
        let kept = senders.settled.get_mut(&key).unwrap();
        assert_eq!(kept.row.len(), SETTLED_KEPT);
        assert!(kept.has(newest) && !kept.has(newest - SETTLED_KEPT as u64));
        // A result that becomes durable while the process names its attempts is found as well.
        senders.recorded(key, vec![newest + 1], Instant::default());
        let kept = senders.settled.get_mut(&key).unwrap();
        assert!(kept.has(newest + 1) && kept.row.len() == SETTLED_KEPT);
        senders.all_named(key);
        assert!(senders.settled[&key].names.is_none());
    }
}
