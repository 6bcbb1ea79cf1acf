//! Attempts to the sending processes, and their results.
//!
//! Must never give an attempt to a process that is not there, nor forget an attempt that a process has from a former
//! incarnation of the queue. Must never believe a process about mail that it was not given: a seal proves an attempt
//! that is under way, and the message of the attempt proves a result or a fetch.

mod seal;
mod senders;
mod settled;

pub use senders::SenderKey;
pub(crate) use senders::Senders;

use crate::Queue;
use crate::message_cache::CachedMessage;
use crate::reads::ReadFor;
use link::LinkError;
use link::bounds::{ATTEMPT_RECIPIENTS_MAX, RECIPIENTS_BYTES_MAX, recipient_bytes};
use link::control::Role;
use link::send::{AttemptRoute, BodySize, INLINE_BYTES_MAX, QueueEvent, Times, UnderWay};
use mail::{Envelope, NextHop, Now, Outcome, Recipient};
use scheduler::{AttemptId, PlannedAttempt};
use senders::{HeldAttempt, Orphans, Phase, RECORDED_MAX, role_for};
use std::collections::HashSet;

impl Queue {
    /// Returns true if attempts may be scheduled: each sending process has named the attempts that it has.
    pub(crate) fn may_schedule(&mut self, now: Now) -> bool {
        self.senders.all_greeted(now.monotonic)
    }

    /// Gives an attempt to a process, or keeps it until one has room.
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

    /// Withdraws each attempt that has not begun and that the scheduler no longer wants. The attempt must not begin
    /// after the hold or deletion of its message has been confirmed. Returns true if there was one.
    pub(crate) fn withdraw_unwanted(&mut self, now: Now) -> bool {
        let mut withdrawn = false;
        while let Some(attempt) = self.scheduler.unwanted() {
            withdrawn |= self.withdraw(attempt, now);
        }
        withdrawn
    }

    /// Withdraws all attempts that no process knows of.
    pub(crate) fn withdraw_waiting(&mut self, now: Now) {
        for attempt in self.senders.not_begun() {
            self.withdraw(attempt, now);
        }
    }

    /// Withdraws the attempts for a process whose stream ends, if the process does not know of them.
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
            return; // the process died while the message was read, or the attempt was withdrawn
        }
        let envelope = &cached.envelope;
        let recipients = recipients_that_fit(envelope, &attempt.recipients);
        let indices = recipients.iter().map(|(index, _)| *index);
        let seal = self.senders.seals.seal(key, attempt.attempt.0, attempt.message, indices);
        let Some(sender) = self.senders.ends.get_mut(&key) else { return };
        sender.reading.remove(&attempt.attempt);
        let order = link::send::Attempt {
            id: attempt.attempt.0,
            seal,
            message: attempt.message,
            route: AttemptRoute {
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
        // After the attempt, because the process may still hold the body for a result that is acknowledged here.
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
                        sender.phase = Phase::ExpectAttempts;
                        sender.capacity = capacity as usize;
                    }
                }
                QueueEvent::UnderWay(told) => self.take_back(key, told, now)?,
                QueueEvent::AllTold => self.greeted(key, now),
                QueueEvent::Drains => {
                    if let Some(sender) = self.senders.ends.get_mut(&key) {
                        sender.phase = Phase::Draining;
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
                        // An attempt has at most one read at a time, so a process without the attempt gets none.
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

    /// Takes an attempt that a process names over a new stream. An attempt of a former incarnation of the queue gets
    /// a new id here. Later attempts come first: if a recipient of an earlier attempt was tried again, the outcome of
    /// the later attempt counts.
    fn take_back(&mut self, key: SenderKey, told: UnderWay, now: Now) -> Result<(), LinkError> {
        let recipients = told.recipients.iter().copied();
        if told.seal != self.senders.seals.seal(key, told.attempt, told.message, recipients) {
            return Err(LinkError::NotGiven);
        }
        let orphans = self.senders.orphans.get_mut(&key);
        let known = orphans.and_then(|orphans| orphans.under_way.remove(&told.attempt));
        if let (None, Some(sender)) = (&known, self.senders.ends.get_mut(&key))
            && sender.awaited.remove(&told.attempt)
        {
            // Its result is being made durable, or became durable after the stream began. The process is told when it
            // is durable and repeats the result.
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
            // Its result was recorded before the former incarnation or stream ended.
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

    /// Adopts an attempt that the scheduler does not know. Attempts at the same recipients that no process knows of
    /// are withdrawn first, so that no recipient is tried twice.
    fn take_over(&mut self, told: &UnderWay, now: Now) -> Option<HeldAttempt> {
        for attempt in self.scheduler.flights_of(told.message, &told.recipients) {
            if self.senders.recall(attempt) {
                self.scheduler.put_back(attempt, now);
            }
        }
        let attempt = self.scheduler.adopt(told.message, &told.recipients, now)?;
        Some(HeldAttempt { attempt, message: told.message })
    }

    /// The process has named all attempts that it has. Those that it had over its former stream and did not name are
    /// lost.
    fn greeted(&mut self, key: SenderKey, now: Now) {
        self.senders.all_named(key);
        if let Some(sender) = self.senders.ends.get_mut(&key) {
            sender.phase = Phase::Ready;
            sender.awaited = HashSet::new();
            sender.tell_recorded();
        }
        if let Some(orphans) = self.senders.orphans.remove(&key) {
            self.lose(orphans, now);
        }
    }

    /// Gives up the attempts of processes that have not come back in time.
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

    /// Gives waiting attempts to processes that have room. Looks at no more attempts than there is room for.
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
            // The process repeats a result over a new stream: it is being made durable, or was recorded before.
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

/// Returns the recipients of an attempt that fit into its frame: all of them, unless a former version accepted an
/// envelope that this version would refuse. The others count as deferred and are tried next time.
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
