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

/// Names a sending process: its role (send or local) and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderKey(pub Role, pub u16);

/// The sending processes.
#[derive(Debug)]
pub(crate) struct Senders {
    expected: usize,
    /// Until then attempts wait for all of them to say hello.
    wait_until: Option<Instant>,
    pub(super) ends: BTreeMap<SenderKey, Sender>,
    /// Attempts that wait for a process of their kind, in the order in which they were given out.
    pub(super) waiting: BTreeMap<(Role, AttemptId), (PlannedAttempt, NextHop)>,
    /// Attempts whose stream has ended, until their process tells what it still has.
    pub(super) orphans: BTreeMap<SenderKey, Orphans>,
    /// Results of each process that have become durable. It may not have heard so.
    pub(super) settled: BTreeMap<SenderKey, Settled>,
    /// Seals attempts: the same in each incarnation of the queue process.
    pub(super) seals: Seals,
    /// When durable results that nothing else went along with are told.
    tell_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) end: QueueEnd,
    /// It has said hello: before that it takes nothing over this stream.
    pub(super) welcomed: bool,
    /// It has told all that it has under way.
    pub(super) greeted: bool,
    /// It was told to end: it takes nothing more, and what it leaves is no fault of the mail.
    pub(super) drains: bool,
    pub(super) capacity: usize,
    /// Attempts it has, by its own name for them, which is ours unless a former incarnation gave it.
    pub(super) under_way: BTreeMap<u64, HeldAttempt>,
    /// Of these, attempts whose message is being read: the process does not know of them yet.
    pub(super) reading: BTreeSet<AttemptId>,
    /// Attempts whose results were on their way to the disk when the stream began, until it has told
    /// all that it has under way.
    pub(super) awaited: HashSet<u64>,
    /// Attempts that it told and that are over, or whose end is on its way to the disk: their results
    /// are said again, and count nothing.
    pub(super) strays: HashSet<u64>,
    /// Results that are durable, of which it has not been told.
    pub(super) recorded: Vec<u64>,
}

/// An attempt that a process has.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldAttempt {
    pub(super) attempt: AttemptId,
    pub(super) message: MessageId,
}

/// What a process had when its stream ended.
#[derive(Debug)]
pub(super) struct Orphans {
    pub(super) under_way: BTreeMap<u64, HeldAttempt>,
    /// The process was told to end.
    pub(super) drained: bool,
    /// When they count as lost, if the process has not come back.
    pub(super) lost_at: Instant,
}

impl Sender {
    /// Tells it which of its results are durable, in one frame, as soon as it takes that.
    pub(super) fn tell_recorded(&mut self) {
        if self.welcomed && !self.recorded.is_empty() {
            self.end.recorded(std::mem::take(&mut self.recorded));
        }
    }
}

/// The number of durable results that are told at once; fewer go with the next attempt, or after a while: a
/// process keeps a result, and the body of its message, until it is told, and nothing waits for it.
pub(super) const RECORDED_MAX: usize = 128;
/// How long the first of them waits.
const RECORDED_WAIT: Duration = Duration::from_millis(100);
/// How long attempts wait for their process to come back over a new stream. Longer than a stream
/// takes to be begun again, so that a lost stream makes no attempt twice.
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

    /// A stream begins; results of this process that are `awaited` are on their way to the disk.
    pub fn connect(&mut self, key: SenderKey, build: u64, awaited: HashSet<u64>) {
        let sender = Sender {
            end: QueueEnd::new(build),
            welcomed: false,
            greeted: false,
            drains: false,
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

    /// Ends a conversation. Its attempts wait for the process to come back.
    pub fn disconnect(&mut self, key: SenderKey, now: Instant) {
        let Some(mut sender) = self.ends.remove(&key) else { return };
        self.all_named(key);
        let mut drained = sender.drains;
        if let Some(former) = self.orphans.remove(&key) {
            sender.under_way.extend(former.under_way);
            drained |= former.drained;
        }
        if !sender.under_way.is_empty() {
            let (under_way, lost_at) = (sender.under_way, now + ORPHANS_WAIT);
            self.orphans.insert(key, Orphans { under_way, drained, lost_at });
        }
    }

    /// The process names nothing more over this stream.
    pub(super) fn all_named(&mut self, key: SenderKey) {
        if let Some(settled) = self.settled.get_mut(&key) {
            settled.names = None;
        }
    }

    /// When [`Queue::lose_orphans`] has something to do.
    pub fn orphans_due(&self) -> Option<Instant> {
        self.orphans.values().map(|orphans| orphans.lost_at).min()
    }

    pub fn input(&mut self, key: SenderKey, input: &mut BytesMut) -> Result<(), LinkError> {
        self.ends.get_mut(&key).map_or(Ok(()), |sender| sender.end.handle(input))
    }

    pub fn output(&mut self, key: SenderKey) -> Option<&mut VecDeque<Bytes>> {
        self.ends.get_mut(&key).map(|sender| sender.end.output())
    }

    pub fn end(&mut self, key: SenderKey) -> Option<&mut QueueEnd> {
        self.ends.get_mut(&key).map(|sender| &mut sender.end)
    }

    /// An attempt that never reached its process.
    pub fn forget(&mut self, key: SenderKey, attempt: AttemptId) {
        if let Some(sender) = self.ends.get_mut(&key) {
            sender.under_way.remove(&attempt.0);
            sender.reading.remove(&attempt);
        }
    }

    /// Takes back an attempt of which no process knows yet; false: there is none of this name.
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

    /// Attempts that were meant for this process, which does not know of them.
    pub(super) fn reading(&self, key: SenderKey) -> Vec<AttemptId> {
        let sender = self.ends.get(&key).into_iter();
        sender.flat_map(|sender| sender.reading.iter().copied()).collect()
    }

    /// All attempts of which no process knows yet.
    pub(super) fn not_begun(&self) -> Vec<AttemptId> {
        let waiting = self.waiting.keys().map(|(_, attempt)| *attempt);
        waiting.chain(self.ends.keys().flat_map(|key| self.reading(*key))).collect()
    }

    /// The first attempt that waits for a process of this kind, and one that has room.
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

    /// The process that fetches for this attempt, if it has said over its present stream that it has
    /// it. What was read for a former stream is for nobody: it is fetched again.
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

    /// Attempts wait until then for the processes to say hello.
    pub fn hello_due(&self) -> Option<Instant> {
        self.wait_until
    }

    /// When [`Self::tell`] has something to do.
    pub fn tell_due(&self) -> Option<Instant> {
        self.tell_at
    }

    /// These results are durable: their process is told soon.
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

    /// Tells what has waited long enough.
    pub fn tell(&mut self, now: Instant) {
        if self.tell_at.is_some_and(|due| due <= now) {
            self.tell_at = None;
            self.ends.values_mut().for_each(Sender::tell_recorded);
        }
    }

    /// Whether all have said what they have under way, or have been waited for long enough.
    pub(super) fn settled(&mut self, now: Instant) -> bool {
        let Some(until) = self.wait_until else { return true };
        let greeted = self.ends.values().filter(|sender| sender.greeted).count();
        let settled = greeted >= self.expected || now >= until;
        if settled {
            self.wait_until = None;
        }
        settled
    }

    /// A process for this next hop with room: always the same one for a destination while it has
    /// room, because it keeps the connections.
    pub(super) fn choose(&self, hop: &NextHop, destination: u32) -> Option<SenderKey> {
        let role = role_for(hop);
        let fit = || {
            self.ends
                .iter()
                .filter(|(key, sender)| key.0 == role && sender.greeted && !sender.drains)
                .filter(|(_, sender)| sender.under_way.len() < sender.capacity)
                .map(|(key, _)| *key)
        };
        let place = (destination as usize).checked_rem(fit().count())?;
        fit().nth(place)
    }
}

/// The kind of process that makes attempts to a next hop.
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
        // What becomes durable while the process names its attempts is found, too.
        senders.recorded(key, vec![newest + 1], Instant::default());
        let kept = senders.settled.get_mut(&key).unwrap();
        assert!(kept.has(newest + 1) && kept.row.len() == SETTLED_KEPT);
        senders.all_named(key);
        assert!(senders.settled[&key].names.is_none());
    }
}
