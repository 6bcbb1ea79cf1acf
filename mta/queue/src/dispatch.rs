//! Attempts to the sending processes, and their results back.
//!
//! Must never hand out an attempt that no living process has, nor forget one that a process has
//! under way from a former incarnation of ours. Must never believe a process about mail that it was not
//! given: what is under way is believed by its seal, and a result or a fetch by the attempt's own
//! message.

use crate::Queue;
use crate::message_cache::CachedMessage;
use crate::reads::ReadFor;
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::bounds::{ATTEMPT_RECIPIENTS_MAX, RECIPIENTS_BYTES_MAX, recipient_bytes};
use link::control::Role;
use link::send::{BodySize, INLINE_BYTES_MAX, QueueEnd, QueueEvent, Route, Times, UnderWay};
use mail::{Envelope, Instant, MessageId, NextHop, Now, Outcome, Recipient};
use scheduler::{AttemptId, PlannedAttempt};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};
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
    ends: BTreeMap<SenderKey, Sender>,
    /// Attempts that wait for a process of their kind, in the order in which they were given out.
    waiting: BTreeMap<(Role, AttemptId), (PlannedAttempt, NextHop)>,
    /// Attempts whose stream has ended, until their process tells what it still has.
    orphans: BTreeMap<SenderKey, Orphans>,
    /// Results of each process that have become durable. It may not have heard so.
    settled: BTreeMap<SenderKey, Settled>,
    /// Seals attempts: the same in each incarnation of the queue process.
    seal_key: [u64; 2],
    /// A hasher that has taken the key in.
    keyed: DefaultHasher,
    /// When durable results that nothing else went along with are told.
    tell_at: Option<Instant>,
}

#[derive(Debug)]
struct Sender {
    end: QueueEnd,
    /// It has said hello: before that it takes nothing over this stream.
    welcomed: bool,
    /// It has told all that it has under way.
    greeted: bool,
    /// It was told to end: it takes nothing more, and what it leaves is no fault of the mail.
    drains: bool,
    capacity: usize,
    /// Attempts it has, by its own name for them, which is ours unless a former incarnation gave it.
    under_way: BTreeMap<u64, HeldAttempt>,
    /// Of these, attempts whose message is being read: the process does not know of them yet.
    reading: BTreeSet<AttemptId>,
    /// Attempts whose results were on their way to the disk when the stream began, until it has told
    /// all that it has under way.
    awaited: HashSet<u64>,
    /// Attempts that it told and that are over, or whose end is on its way to the disk: their results
    /// are said again, and count nothing.
    strays: HashSet<u64>,
    /// Results that are durable, of which it has not been told.
    recorded: Vec<u64>,
}

/// An attempt that a process has.
#[derive(Clone, Copy, Debug)]
struct HeldAttempt {
    attempt: AttemptId,
    message: MessageId,
}

/// The newest durable results of a process.
#[derive(Debug, Default)]
struct Settled {
    /// In the order in which they became durable.
    row: VecDeque<u64>,
    /// The same to be searched, from when the process first names an attempt over a new stream until
    /// it has named all.
    names: Option<HashSet<u64>>,
}

impl Settled {
    fn add(&mut self, attempts: &[u64]) {
        self.row.extend(attempts);
        self.row.drain(..self.row.len().saturating_sub(SETTLED_KEPT));
        if let Some(names) = &mut self.names {
            names.extend(attempts);
        }
    }

    /// Whether this one is among them. It costs the same however many there are.
    fn has(&mut self, attempt: u64) -> bool {
        self.names.get_or_insert_with(|| self.row.iter().copied().collect()).contains(&attempt)
    }
}

/// What a process had when its stream ended.
#[derive(Debug)]
struct Orphans {
    under_way: BTreeMap<u64, HeldAttempt>,
    /// The process was told to end.
    drained: bool,
    /// When they count as lost, if the process has not come back.
    lost_at: Instant,
}

impl Sender {
    /// Tells it which of its results are durable, in one frame, as soon as it takes that.
    fn tell_recorded(&mut self) {
        if self.welcomed && !self.recorded.is_empty() {
            self.end.recorded(std::mem::take(&mut self.recorded));
        }
    }
}

/// The number of durable results that are told at once; fewer go with the next attempt, or after a while: a
/// process keeps a result, and the body of its message, until it is told, and nothing waits for it.
const RECORDED_MAX: usize = 128;
/// How long the first of them waits.
const RECORDED_WAIT: Duration = Duration::from_millis(100);
/// Durable results of one process that are remembered, so that it can name them over a new stream and
/// nothing is counted twice. It keeps only those of which it has not been told, and a lost stream has
/// swallowed only what was said over it last.
const SETTLED_KEPT: usize = 4096;
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
            seal_key,
            keyed: keyed(seal_key),
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

    /// Attempts are sealed with this key, which former incarnations of ours had, too.
    pub fn set_seal_key(&mut self, key: [u64; 2]) {
        self.seal_key = key;
        self.keyed = keyed(key);
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
    fn all_named(&mut self, key: SenderKey) {
        if let Some(settled) = self.settled.get_mut(&key) {
            settled.names = None;
        }
    }

    /// When [`Queue::lose_orphans`] has something to do.
    pub fn orphans_due(&self) -> Option<Instant> {
        self.orphans.values().map(|orphans| orphans.lost_at).min()
    }

    /// Binds an attempt to the process that it is given to. Guessing one takes 2^63 tries, and the
    /// first wrong one ends the process.
    fn seal(
        &self,
        key: SenderKey,
        attempt: u64,
        message: MessageId,
        recipients: impl Iterator<Item = u32>,
    ) -> u64 {
        let [first, second] = self.seal_key;
        let process = (key.0 as u64) << 16 | u64::from(key.1);
        let mut hasher = BlockHasher::new(self.keyed.clone());
        for word in [process, attempt, message.0] {
            hasher.put(word.to_le_bytes());
        }
        recipients.for_each(|index| hasher.put(index.to_le_bytes()));
        hasher.put(first.to_le_bytes());
        hasher.put(second.to_le_bytes());
        hasher.finish()
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
    fn recall(&mut self, attempt: AttemptId) -> bool {
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
    fn reading(&self, key: SenderKey) -> Vec<AttemptId> {
        let sender = self.ends.get(&key).into_iter();
        sender.flat_map(|sender| sender.reading.iter().copied()).collect()
    }

    /// All attempts of which no process knows yet.
    fn not_begun(&self) -> Vec<AttemptId> {
        let waiting = self.waiting.keys().map(|(_, attempt)| *attempt);
        waiting.chain(self.ends.keys().flat_map(|key| self.reading(*key))).collect()
    }

    /// The first attempt that waits for a process of this kind, and one that has room.
    fn next_waiting(&mut self, role: Role) -> Option<(SenderKey, PlannedAttempt, NextHop)> {
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

    fn flight(&self, key: SenderKey, attempt: u64) -> Option<HeldAttempt> {
        self.ends.get(&key)?.under_way.get(&attempt).copied()
    }

    fn poll(&mut self, key: SenderKey) -> Option<QueueEvent> {
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
    fn settled(&mut self, now: Instant) -> bool {
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
    fn choose(&self, hop: &NextHop, destination: u32) -> Option<SenderKey> {
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
fn role_for(hop: &NextHop) -> Role {
    if *hop == NextHop::Local { Role::Local } else { Role::Send }
}

impl Queue {
    /// Nothing is scheduled before the sending processes have said what they have under way.
    pub(crate) fn may_schedule(&mut self, now: Now) -> bool {
        self.senders.settled(now.monotonic)
    }

    /// Finds a process for an attempt, or lets it wait for one.
    pub(crate) fn attempt(&mut self, attempt: PlannedAttempt, now: Now) {
        let Some(hop) = self.scheduler.hop(attempt.destination).cloned() else {
            self.scheduler.attempt_lost(attempt.attempt, now);
            return;
        };
        match self.senders.choose(&hop, attempt.destination.0) {
            Some(key) => self.hand_out(key, attempt, hop, now),
            None => {
                let name = (role_for(&hop), attempt.attempt);
                self.senders.waiting.insert(name, (attempt, hop));
            }
        }
    }

    /// Gives the scheduler back each attempt that has not begun and is not wanted any more: it must not begin after the
    /// hold or deletion of its message has been confirmed. Returns whether there was one.
    pub(crate) fn withdraw_unwanted(&mut self, now: Now) -> bool {
        let mut withdrawn = false;
        while let Some(attempt) = self.scheduler.unwanted() {
            withdrawn |= self.withdraw(attempt, now);
        }
        withdrawn
    }

    /// Gives the scheduler back all attempts of which no process knows yet.
    pub(crate) fn withdraw_waiting(&mut self, now: Now) {
        for attempt in self.senders.not_begun() {
            self.withdraw(attempt, now);
        }
    }

    /// Gives the scheduler back what was meant for a process whose stream ends.
    pub(crate) fn withdraw_from(&mut self, key: SenderKey, now: Now) {
        for attempt in self.senders.reading(key) {
            self.withdraw(attempt, now);
        }
    }

    fn withdraw(&mut self, attempt: AttemptId, now: Now) -> bool {
        let recalled = self.senders.recall(attempt);
        if recalled {
            self.scheduler.withdraw(attempt, now);
        }
        recalled
    }

    fn hand_out(&mut self, key: SenderKey, attempt: PlannedAttempt, hop: NextHop, now: Now) {
        let message = attempt.message;
        if let Some(sender) = self.senders.ends.get_mut(&key) {
            let flight = HeldAttempt { attempt: attempt.attempt, message };
            sender.under_way.insert(attempt.attempt.0, flight);
        }
        let held = || self.senders.ends.get(&key).is_some_and(|sender| sender.end.holds(message));
        let ready = self
            .message_cache
            .get(message)
            .filter(|cached| cached.bytes > INLINE_BYTES_MAX || cached.content.is_some() || held());
        match ready.cloned() {
            Some(cached) => self.send_attempt(key, attempt, hop, &cached, now),
            None => {
                if let Some(sender) = self.senders.ends.get_mut(&key) {
                    sender.reading.insert(attempt.attempt);
                }
                self.read(message, ReadFor::Attempt { key, attempt, hop }, now);
            }
        }
    }

    pub(crate) fn send_attempt(
        &mut self,
        key: SenderKey,
        attempt: PlannedAttempt,
        hop: NextHop,
        cached: &CachedMessage,
        now: Now,
    ) {
        let limits = self.scheduler.limits(attempt.destination);
        if self.senders.flight(key, attempt.attempt.0).is_none() {
            return; // while the message was read the process died, or the attempt was withdrawn
        }
        let envelope = &cached.envelope;
        let recipients = recipients_that_fit(envelope, &attempt.recipients);
        let indices = recipients.iter().map(|(index, _)| *index);
        let seal = self.senders.seal(key, attempt.attempt.0, attempt.message, indices);
        let Some(sender) = self.senders.ends.get_mut(&key) else { return };
        sender.reading.remove(&attempt.attempt);
        let order = link::send::Attempt {
            id: attempt.attempt.0,
            seal,
            message: attempt.message,
            route: Route {
                hop,
                connections_max: limits.connections,
                messages_per_connection_max: limits.messages_per_connection,
            },
            from: envelope.from.clone(),
            times: Times { arrived: envelope.arrived, due: now.wall },
            body: BodySize { bytes: cached.bytes, prefix_bytes: cached.prefix_bytes },
            recipients,
        };
        let handed_out = sender.end.attempt(order, cached.content.as_deref());
        // Behind it: what was told before might have been the last that held this very body.
        sender.tell_recorded();
        match handed_out {
            Ok(()) => self.counters.attempts += 1,
            Err(error) => self.not_attempted(key, &attempt, &error.to_string(), now),
        }
    }

    pub(crate) fn hear_sender(&mut self, key: SenderKey, now: Now) -> Result<(), LinkError> {
        while let Some(event) = self.senders.poll(key) {
            match event {
                QueueEvent::Hello { capacity, .. } => {
                    if let Some(sender) = self.senders.ends.get_mut(&key) {
                        sender.welcomed = true;
                        sender.capacity = capacity as usize;
                    }
                }
                QueueEvent::UnderWay(told) => self.take_back(key, told, now)?,
                QueueEvent::AllTold => self.greeted(key, now),
                QueueEvent::Drains => {
                    if let Some(sender) = self.senders.ends.get_mut(&key) {
                        sender.drains = true;
                    }
                    self.withdraw_from(key, now);
                }
                QueueEvent::Result(result) => self.result(key, result, now)?,
                QueueEvent::Fetch { attempt, message, offset, bytes } => {
                    match self.senders.flight(key, attempt) {
                        Some(flight) if flight.message != message => {
                            return Err(LinkError::NotGiven);
                        }
                        Some(_) => {
                            let fetch = ReadFor::Fetch { key, attempt, offset, bytes };
                            self.read(message, fetch, now);
                        }
                        // As many reads at once as there are attempts, and none for whoever has
                        // none.
                        None => {
                            if let Some(end) = self.senders.end(key) {
                                end.chunk_bad(attempt);
                            }
                        }
                    }
                }
            }
        }
        self.hand_out_waiting(now);
        Ok(())
    }

    /// An attempt that the process has from a former stream goes on. One of a former incarnation of ours
    /// goes on under a new name of ours. The later ones come first: a recipient of an earlier one
    /// may have been tried again since, and the later outcome is the one that counts.
    fn take_back(&mut self, key: SenderKey, told: UnderWay, now: Now) -> Result<(), LinkError> {
        let recipients = told.recipients.iter().copied();
        if told.seal != self.senders.seal(key, told.attempt, told.message, recipients) {
            return Err(LinkError::NotGiven);
        }
        let orphans = self.senders.orphans.get_mut(&key);
        let known = orphans.and_then(|orphans| orphans.under_way.remove(&told.attempt));
        if let (None, Some(sender)) = (&known, self.senders.ends.get_mut(&key))
            && sender.awaited.remove(&told.attempt)
        {
            // Its end is on its way to the disk, or has come there since the stream began: only the
            // stream is new. The process is told when it is durable, and says the result again.
            sender.strays.insert(told.attempt);
            return Ok(());
        }
        let settled = self.senders.settled.entry(key).or_default().has(told.attempt);
        let adopted = match known {
            None if !settled => self.take_over(&told, now),
            known => known,
        };
        let Some(sender) = self.senders.ends.get_mut(&key) else { return Ok(()) };
        match adopted {
            Some(flight) => {
                sender.under_way.insert(told.attempt, flight);
            }
            // Its end was recorded before the former incarnation or stream ended.
            None => {
                sender.strays.insert(told.attempt);
                sender.recorded.push(told.attempt);
                if sender.recorded.len() >= RECORDED_MAX {
                    sender.tell_recorded();
                }
            }
        }
        Ok(())
    }

    /// What has begun and was not known goes before what has not begun: its recipients are not tried
    /// twice because the process could not be heard for long.
    fn take_over(&mut self, told: &UnderWay, now: Now) -> Option<HeldAttempt> {
        for attempt in self.scheduler.flights_of(told.message, &told.recipients) {
            if self.senders.recall(attempt) {
                self.scheduler.put_back(attempt, now);
            }
        }
        let attempt = self.scheduler.adopt(told.message, &told.recipients, now)?;
        Some(HeldAttempt { attempt, message: told.message })
    }

    /// The process has told all: what it had and does not name is lost.
    fn greeted(&mut self, key: SenderKey, now: Now) {
        self.senders.all_named(key);
        if let Some(sender) = self.senders.ends.get_mut(&key) {
            sender.greeted = true;
            sender.awaited = HashSet::new();
            sender.tell_recorded();
        }
        if let Some(orphans) = self.senders.orphans.remove(&key) {
            self.lose(orphans, now);
        }
    }

    /// Gives up the attempts of processes that have not come back.
    pub(crate) fn lose_orphans(&mut self, now: Now) {
        if self.senders.orphans_due().is_none_or(|due| now.monotonic < due) {
            return;
        }
        let lost: Vec<_> =
            self.senders.orphans.extract_if(.., |_, it| it.lost_at <= now.monotonic).collect();
        lost.into_iter().for_each(|(_, orphans)| self.lose(orphans, now));
    }

    fn lose(&mut self, orphans: Orphans, now: Now) {
        for flight in orphans.under_way.into_values() {
            match orphans.drained {
                true => self.scheduler.attempt_cut_short(flight.attempt, now),
                false => self.scheduler.attempt_lost(flight.attempt, now),
            }
        }
    }

    /// Looks at no more attempts than there is room for.
    fn hand_out_waiting(&mut self, now: Now) {
        if self.holds_back(now) {
            return;
        }
        for role in [Role::Send, Role::Local] {
            while let Some((key, attempt, hop)) = self.senders.next_waiting(role) {
                self.hand_out(key, attempt, hop, now);
            }
        }
    }

    fn result(
        &mut self,
        key: SenderKey,
        result: link::send::Result,
        now: Now,
    ) -> Result<(), LinkError> {
        let Some(sender) = self.senders.ends.get_mut(&key) else { return Ok(()) };
        let Some(flight) = sender.under_way.get(&result.attempt).copied() else {
            // Said again over a new stream: its end is on its way to the disk, or was recorded before.
            let known = sender.strays.remove(&result.attempt);
            return if known { Ok(()) } else { Err(LinkError::NotGiven) };
        };
        if flight.message != result.message {
            return Err(LinkError::NotGiven);
        }
        sender.under_way.remove(&result.attempt);
        for (_, outcome) in &result.outcomes {
            match outcome {
                Outcome::Delivered { .. } => self.counters.delivered += 1,
                Outcome::Deferred(_) => self.counters.deferred += 1,
                Outcome::Failed(_) => self.counters.failed += 1,
            }
        }
        let deleted = !self.scheduler.contains(result.message);
        self.scheduler.outcome(flight.attempt, &result.outcomes, now);
        self.records.expect_result(key, result.attempt, result.message);
        if deleted {
            self.record_deletion(result.message, now);
        }
        Ok(())
    }
}

/// The recipients of an attempt, as many as fit into its frame: all, unless a former version took
/// an envelope that this one would refuse. Those left out are deferred, and tried next time.
fn recipients_that_fit(envelope: &Envelope, indices: &[u32]) -> Vec<(u32, Recipient)> {
    let found = |index: &u32| Some((*index, envelope.recipients.get(*index as usize)?));
    let mut bytes = 0;
    let recipients = indices
        .iter()
        .filter_map(found)
        .take(ATTEMPT_RECIPIENTS_MAX)
        .take_while(|(_, recipient)| {
            bytes += recipient_bytes(recipient);
            bytes <= RECIPIENTS_BYTES_MAX
        })
        .map(|(index, recipient)| (index, recipient.clone()));
    let mut all = Vec::with_capacity(indices.len().min(ATTEMPT_RECIPIENTS_MAX));
    all.extend(recipients);
    all
}

fn keyed(key: [u64; 2]) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    key.into_iter().for_each(|word| hasher.write_u64(word));
    hasher
}

/// A hasher with a block in front of it: each call of a hasher costs much more than the bytes of a number.
struct BlockHasher {
    hasher: DefaultHasher,
    block: [u8; 64],
    filled: usize,
}

impl BlockHasher {
    fn new(hasher: DefaultHasher) -> BlockHasher {
        BlockHasher { hasher, block: [0; 64], filled: 0 }
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if self.filled + N > self.block.len() {
            self.hasher.write(&self.block[..self.filled]);
            self.filled = 0;
        }
        self.block[self.filled..self.filled + N].copy_from_slice(&bytes);
        self.filled += N;
    }

    fn finish(mut self) -> u64 {
        self.hasher.write(&self.block[..self.filled]);
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_its_key_its_process_its_attempt_its_message_and_its_recipients() {
        let seal = |seal_key, (role, number), attempt, message, recipients: &[u32]| {
            let senders = Senders::new(1, Instant::default(), seal_key);
            let key = SenderKey(role, number);
            senders.seal(key, attempt, MessageId(message), recipients.iter().copied())
        };
        let send = (Role::Send, 1);
        let many: Vec<u32> = (0..100).collect();
        let mut swapped = many.clone();
        swapped.swap(50, 51);
        let all = [
            seal([1, 2], send, 3, 4, &[5]),
            seal([7, 2], send, 3, 4, &[5]),
            seal([1, 7], send, 3, 4, &[5]),
            seal([1, 2], (Role::Local, 1), 3, 4, &[5]),
            seal([1, 2], (Role::Send, 7), 3, 4, &[5]),
            seal([1, 2], send, 7, 4, &[5]),
            seal([1, 2], send, 3, 7, &[5]),
            seal([1, 2], send, 3, 4, &[7]),
            seal([1, 2], send, 3, 4, &[5, 0]),
            seal([1, 2], send, 3, 4, &[]),
            seal([1, 2], send, 3, 4, &many),
            seal([1, 2], send, 3, 4, &many[..99]),
            seal([1, 2], send, 3, 4, &swapped),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        let mut later = Senders::new(1, Instant::default(), [9, 9]);
        later.set_seal_key([1, 2]);
        assert_eq!(later.seal(SenderKey(Role::Send, 1), 3, MessageId(4), [5].into_iter()), all[0]);
    }

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
