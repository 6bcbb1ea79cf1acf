//! Outcomes and the notices about them, each pair in one group: a failed recipient's outcome and its bounce become
//! durable together.
//!
//! Must never tell a sending process or an operator that something is recorded before it is durable. Must never
//! forget a record that the spool refuses: it is kept in order and handed in again.

mod group;
mod pending;

pub(crate) use pending::{Acknowledgement, Acknowledgements, AnswerTo, PendingRecords};

use crate::message_cache::CachedMessage;
use crate::parts::{Manner, Parts};
use crate::reads::ReadFor;
use crate::{LogEvent, Queue};
use mail::{MessageId, Now};
use scheduler::MessageChanges;
use spool::Refusal;
use std::time::Duration;

/// A record that the spool refused is handed in again after this time at the latest.
const STALL_TIME_MAX: Duration = Duration::from_secs(1);

/// The message that notices are about, and its first bytes.
pub(crate) type Original<'a> = (&'a CachedMessage, &'a [u8]);

/// How far a record came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// The spool has all of the record.
    In,
    /// The message that its notices are about is being read.
    Reads,
    /// The spool has no room for the rest.
    Stalled,
}

impl Queue {
    /// Gives a record to the spool, after earlier records of the same message. A message must not end before the
    /// notices about it are stored.
    pub(crate) fn record(&mut self, record: MessageChanges, now: Now) {
        let acknowledgements = self.records.add(record.message);
        match self.records.behind.get_mut(&record.message) {
            Some(behind) => {
                behind.push_back((record, acknowledgements));
                self.records.behind_records += 1;
            }
            None => self.record_next(record, acknowledgements, None, now),
        }
    }

    /// Records the next record of a message. `original` is the message, if it has just been read.
    fn record_next(
        &mut self,
        mut record: MessageChanges,
        acknowledgements: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) {
        for silent in std::mem::take(&mut record.silent) {
            self.log(LogEvent::Silent { message: record.message, silent });
        }
        if Parts::is_one_group(&record) {
            return self.submit(record.changes, acknowledgements, now);
        }
        let parts = Parts::of(record);
        // Records of other messages that wait for room go first.
        if parts.tells() && !(self.records.stalled.is_empty() && self.spool.has_own_room()) {
            return self.stall(parts, acknowledgements, now);
        }
        self.go_on_recording(parts, acknowledgements, original, now);
    }

    /// Hands in what is left of a record. If notices must be made, the message that they are about is read first.
    fn go_on_recording(
        &mut self,
        parts: Parts,
        waits: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) -> Went {
        if original.is_some() || !parts.tells() {
            return self.hand_in(parts, waits, original, now);
        }
        let message = parts.message;
        let whole =
            self.message_cache.get(message).filter(|cached| cached.content.is_some()).cloned();
        match whole {
            Some(cached) => {
                let original = cached.content.clone().unwrap_or_default();
                self.hand_in(parts, waits, Some((&cached, &original)), now)
            }
            None => {
                self.records.behind.entry(message).or_default();
                self.read(message, ReadFor::Notice { parts, acknowledgements: waits }, now);
                Went::Reads
            }
        }
    }

    /// Goes on with a record after the message that its notices are about has been read, or could not be read.
    pub(crate) fn record_read(
        &mut self,
        parts: Parts,
        acknowledgements: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) {
        let message = parts.message;
        if self.hand_in(parts, acknowledgements, original, now) == Went::In {
            self.record_behind(message, original, now);
        }
    }

    /// Records what waited for a record of the same message. The `original` that was read for that record serves all
    /// of them, because each read of a list looks at every recipient.
    fn record_behind(&mut self, message: MessageId, original: Option<Original<'_>>, now: Now) {
        let mut behind = self.records.behind.remove(&message).unwrap_or_default();
        while let Some((record, acknowledgements)) = behind.pop_front() {
            self.records.behind_records -= 1;
            self.record_next(record, acknowledgements, original, now);
            if let Some(again) = self.records.behind.get_mut(&message) {
                debug_assert!(again.is_empty(), "nothing else has come meanwhile");
                *again = behind;
                return;
            }
        }
    }

    /// Keeps what is left of a record until the spool has room.
    fn stall(&mut self, parts: Parts, acknowledgements: Acknowledgements, now: Now) {
        self.records.behind.entry(parts.message).or_default();
        self.records.stalled.push_back((parts, acknowledgements));
        self.records.retry_at.get_or_insert(now.monotonic + STALL_TIME_MAX);
    }

    /// Hands in again what the spool refused, after something has become durable or time has passed.
    pub(crate) fn record_stalled(&mut self, now: Now) {
        if self.records.stalled.is_empty() {
            return;
        }
        self.records.retry_at = Some(now.monotonic + STALL_TIME_MAX);
        while self.spool.has_own_room() {
            let Some((parts, acknowledgements)) = self.records.stalled.pop_front() else { return };
            let message = parts.message;
            match self.go_on_recording(parts, acknowledgements, None, now) {
                Went::In => self.record_behind(message, None, now),
                Went::Reads => {}
                Went::Stalled => {
                    // The record was the first and stays the first.
                    let back = self.records.stalled.pop_back();
                    return back
                        .into_iter()
                        .for_each(|first| self.records.stalled.push_front(first));
                }
            }
        }
    }

    /// Gives the groups of a record to the spool, one after another. Without the original no notice can be made, and
    /// the outcomes are recorded alone, because they matter more.
    fn hand_in(
        &mut self,
        mut parts: Parts,
        waits: Acknowledgements,
        original: Option<Original<'_>>,
        now: Now,
    ) -> Went {
        if original.is_none() {
            parts.manner = Manner::Untold;
        }
        while !parts.is_done() {
            let (bounce, told) = self.next_notice(&parts, original, now);
            let part = parts.part(told);
            let logged = bounce.as_ref().map(|bounce| self.logged(&parts, bounce, told));
            let changes = part.changes.clone();
            match self.submit_with(bounce, changes, waits.clone(), logged, now) {
                Ok(()) if part.is_last => parts.taken(&part),
                Ok(()) => {
                    parts.taken(&part);
                    self.records.split(&waits);
                }
                Err(Refusal::TooLarge) if parts.make_smaller(told) => {
                    if parts.manner == Manner::Untold {
                        self.no_notice(
                            parts.message,
                            "the spool refuses every notice as too large",
                        );
                    }
                }
                Err(_) => {
                    self.stall(parts, waits, now);
                    return Went::Stalled;
                }
            }
        }
        Went::In
    }
}
