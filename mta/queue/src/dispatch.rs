//! Attempts to the sending processes, and their results back.
//!
//! Must never hand out an attempt that no living process has, nor forget one that a process has
//! under way from a former life of ours.

use crate::Queue;
use crate::reads::ReadFor;
use crate::shelf::Opened;
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::control::Role;
use link::send::{INLINE_BYTES_MAX, QueueEnd, QueueEvent, UnderWay};
use mail::{Instant, NextHop, Now, Outcome};
use scheduler::{Attempt, AttemptId};
use std::collections::{BTreeMap, VecDeque};
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
    /// Attempts that wait for a process of their kind.
    waiting: VecDeque<(Attempt, NextHop)>,
    /// When durable results that nothing else went along with are told.
    tell_at: Option<Instant>,
}

#[derive(Debug)]
struct Sender {
    end: QueueEnd,
    greeted: bool,
    capacity: usize,
    /// Attempts it has, by its own name for them, which is ours unless a former life gave it.
    under_way: BTreeMap<u64, AttemptId>,
    /// Results that are durable, of which it has not been told.
    recorded: Vec<u64>,
}

impl Sender {
    /// Tells it which of its results are durable, in one frame.
    fn tell_recorded(&mut self) {
        if !self.recorded.is_empty() {
            self.end.recorded(std::mem::take(&mut self.recorded));
        }
    }
}

/// So many durable results are told at once; fewer go with the next attempt, or after a while: a
/// process keeps a result, and the body of its message, until it is told, and nothing waits for it.
const RECORDED_MAX: usize = 128;
/// How long the first of them waits.
const RECORDED_WAIT: Duration = Duration::from_millis(100);

impl Senders {
    pub fn new(expected: usize, wait_until: Instant) -> Senders {
        Senders {
            expected,
            wait_until: Some(wait_until),
            ends: BTreeMap::new(),
            waiting: VecDeque::new(),
            tell_at: None,
        }
    }

    pub fn connect(&mut self, key: SenderKey, build: u64) {
        let sender = Sender {
            end: QueueEnd::new(build),
            greeted: false,
            capacity: 0,
            under_way: BTreeMap::new(),
            recorded: Vec::new(),
        };
        self.ends.insert(key, sender);
    }

    /// Ends a conversation; gives back the attempts that went down with it.
    pub fn disconnect(&mut self, key: SenderKey) -> Vec<AttemptId> {
        let sender = self.ends.remove(&key);
        sender.map(|sender| sender.under_way.into_values().collect()).unwrap_or_default()
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
        }
    }

    fn has(&self, key: SenderKey, attempt: u64) -> bool {
        self.ends.get(&key).is_some_and(|sender| sender.under_way.contains_key(&attempt))
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
        let role = if *hop == NextHop::Local { Role::Local } else { Role::Send };
        let fit = || {
            self.ends
                .iter()
                .filter(|(key, sender)| key.0 == role && sender.greeted)
                .filter(|(_, sender)| sender.under_way.len() < sender.capacity)
                .map(|(key, _)| *key)
        };
        let place = (destination as usize).checked_rem(fit().count())?;
        fit().nth(place)
    }
}

impl Queue {
    /// Nothing is scheduled before the sending processes have said what they have under way.
    pub(crate) fn may_schedule(&mut self, now: Now) -> bool {
        self.senders.settled(now.monotonic)
    }

    /// Finds a process for an attempt, or lets it wait for one.
    pub(crate) fn attempt(&mut self, attempt: Attempt, now: Now) {
        let Some(hop) = self.scheduler.hop(attempt.destination).cloned() else {
            self.scheduler.attempt_lost(attempt.attempt, now);
            return;
        };
        match self.senders.choose(&hop, attempt.destination.0) {
            Some(key) => self.hand_out(key, attempt, hop, now),
            None => self.senders.waiting.push_back((attempt, hop)),
        }
    }

    fn hand_out(&mut self, key: SenderKey, attempt: Attempt, hop: NextHop, now: Now) {
        if let Some(sender) = self.senders.ends.get_mut(&key) {
            sender.under_way.insert(attempt.attempt.0, attempt.attempt);
        }
        let message = attempt.message;
        let held = self.senders.end(key).is_some_and(|end| end.holds(message));
        let ready = self
            .shelf
            .get(message)
            .filter(|opened| opened.bytes > INLINE_BYTES_MAX || opened.content.is_some() || held);
        match ready.cloned() {
            Some(opened) => self.send_attempt(key, attempt, hop, &opened, now),
            None => self.read(message, ReadFor::Attempt { key, attempt, hop }, now),
        }
    }

    pub(crate) fn send_attempt(
        &mut self,
        key: SenderKey,
        attempt: Attempt,
        hop: NextHop,
        opened: &Opened,
        now: Now,
    ) {
        let limits = self.scheduler.limits(attempt.destination);
        let Some(sender) = self.senders.ends.get_mut(&key) else { return };
        if !sender.under_way.contains_key(&attempt.attempt.0) {
            return; // the process died while the message was read
        }
        let envelope = &opened.envelope;
        let recipients = attempt
            .recipients
            .iter()
            .filter_map(|index| Some((*index, envelope.recipients.get(*index as usize)?.clone())))
            .collect();
        let order = link::send::Attempt {
            attempt: attempt.attempt.0,
            message: attempt.message,
            hop,
            connections_max: limits.connections,
            messages_per_connection_max: limits.messages_per_connection,
            sender: envelope.sender.clone(),
            ret: envelope.ret,
            envid: envelope.envid.clone(),
            body: envelope.body,
            smtputf8: envelope.smtputf8,
            arrived: envelope.arrived,
            due: now.wall,
            attempts_before: attempt.attempts_before,
            body_bytes: opened.bytes,
            prefix_bytes: opened.prefix_bytes,
            recipients,
        };
        let small = opened.bytes <= INLINE_BYTES_MAX;
        let inline = small && !sender.end.holds(attempt.message);
        let body = opened.content.as_deref().filter(|_| inline);
        self.counters.attempts += 1;
        sender.end.attempt(order, body);
        // Behind it: what was told before might have been the last that held this very body.
        sender.tell_recorded();
    }

    pub(crate) fn hear_sender(&mut self, key: SenderKey, now: Now) {
        while let Some(event) = self.senders.poll(key) {
            match event {
                QueueEvent::Hello { capacity, under_way, .. } => {
                    self.greet_sender(key, capacity, under_way, now);
                }
                QueueEvent::Result(result) => self.result(key, result, now),
                // As many reads at once as there are attempts, and none for whoever has none.
                QueueEvent::Fetch { attempt, .. } if !self.senders.has(key, attempt) => {
                    if let Some(end) = self.senders.end(key) {
                        end.chunk_bad(attempt);
                    }
                }
                QueueEvent::Fetch { attempt, message, offset, bytes } => {
                    let fetch = ReadFor::Fetch { key, attempt, offset, bytes };
                    self.read(message, fetch, now);
                }
            }
        }
        self.hand_out_waiting(now);
    }

    /// Attempts of a former life of ours go on under new names of ours.
    fn greet_sender(&mut self, key: SenderKey, capacity: u32, under_way: Vec<UnderWay>, now: Now) {
        let mut strays = Vec::new();
        // The later ones first: a recipient of an earlier one may have been tried again since, and
        // the later outcome is the one that counts.
        for old in under_way.into_iter().rev() {
            match self.scheduler.adopt(old.message, &old.recipients, now) {
                Some(attempt) => {
                    if let Some(sender) = self.senders.ends.get_mut(&key) {
                        sender.under_way.insert(old.attempt, attempt);
                    }
                }
                // Its end is on its way to the disk: only the stream is new.
                None if self.records.awaits(key, old.attempt) => {}
                // Its end was recorded before the former life ended.
                None => strays.push(old.attempt),
            }
        }
        let Some(sender) = self.senders.ends.get_mut(&key) else { return };
        sender.greeted = true;
        sender.capacity = capacity as usize;
        if !strays.is_empty() {
            sender.end.recorded(strays);
        }
    }

    /// Gives the scheduler back the attempts that wait for a process.
    pub(crate) fn withdraw_waiting(&mut self, now: Now) {
        for (attempt, _) in std::mem::take(&mut self.senders.waiting) {
            self.scheduler.withdraw(attempt.attempt, now);
        }
    }

    fn hand_out_waiting(&mut self, now: Now) {
        if self.holds_back(now) {
            return;
        }
        for _ in 0..self.senders.waiting.len() {
            let Some((attempt, hop)) = self.senders.waiting.pop_front() else { return };
            match self.senders.choose(&hop, attempt.destination.0) {
                Some(key) => self.hand_out(key, attempt, hop, now),
                None => self.senders.waiting.push_back((attempt, hop)),
            }
        }
    }

    fn result(&mut self, key: SenderKey, result: link::send::Result, now: Now) {
        let known = self.senders.ends.get_mut(&key);
        let known = known.and_then(|sender| sender.under_way.remove(&result.attempt));
        let Some(attempt) = known else {
            if self.records.awaits(key, result.attempt) {
                return;
            }
            // Said again after its recording was answered to a former life.
            if let Some(end) = self.senders.end(key) {
                end.recorded(vec![result.attempt]);
            }
            return;
        };
        for (_, outcome) in &result.outcomes {
            match outcome {
                Outcome::Delivered { .. } => self.counters.delivered += 1,
                Outcome::Deferred(_) => self.counters.deferred += 1,
                Outcome::Failed(_) => self.counters.failed += 1,
            }
        }
        let deleted = !self.scheduler.contains(result.message);
        self.scheduler.outcome(attempt, &result.outcomes, now);
        self.records.expect_result(key, result.attempt, result.message);
        if deleted {
            self.record_deletion(result.message, now);
        }
    }
}
