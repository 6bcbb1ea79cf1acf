//! Reads of stored messages: for attempts, for notices, for operators, and for bodies that a sending process fetches
//! piece by piece.
//!
//! Must never give out a byte whose checksum was wrong.

use crate::dispatch::SenderKey;
use crate::message_cache::CachedMessage;
use crate::parts::Parts;
use crate::record::Acknowledgements;
use crate::{LogEvent, Queue};
use bytes::{Bytes, BytesMut};
use link::send::INLINE_BYTES_MAX;
use mail::{Enhanced, Envelope, MessageId, NextHop, Now, Outcome, Reply, Report, Stage};
use scheduler::PlannedAttempt;
use spool::{ReadError, ReadPlan, StoredMessage, read_chunk, read_message};
use std::rc::Rc;
use world::Disk;

/// Upper bound on the bytes of a message that a notice needs: the headers, and the part of the body that a bounce may
/// return.
pub const NOTICE_BYTES_MAX: u64 = 1 << 20;

/// What a message is read for.
#[derive(Debug)]
pub enum ReadFor {
    /// An attempt whose message is not in the cache.
    Attempt {
        /// The process that makes the attempt.
        key: SenderKey,
        /// The attempt, as the scheduler planned it.
        attempt: PlannedAttempt,
        /// The next hop.
        hop: NextHop,
    },
    /// A notice about the message.
    Notice {
        /// The record that requires the notice.
        parts: Parts,
        /// The answers that wait for the record.
        acknowledgements: Acknowledgements,
    },
    /// A piece of a large body.
    Fetch {
        /// The process that fetches.
        key: SenderKey,
        /// The id of the attempt in that process.
        attempt: u64,
        /// Offset in our headers and the body together.
        offset: u64,
        /// Upper bound on the bytes to return.
        bytes: u32,
    },
    /// Envelope and headers for an operator.
    Show {
        /// The number of the question.
        question: u64,
    },
}

/// A message that must be read.
#[derive(Debug)]
pub struct Read {
    plan: ReadPlan,
    what: ReadFor,
}

/// The result of a read.
#[derive(Debug)]
pub struct ReadDone {
    plan: ReadPlan,
    what: ReadFor,
    result: Result<Got, ReadError>,
}

/// A message or a part of it.
#[derive(Debug)]
struct Got {
    envelope: Envelope,
    bytes: u64,
    prefix_bytes: u32,
    /// All of a small message, the beginning of a large one for a notice, or the fetched piece.
    content: Bytes,
}

/// Reads a message. May be called on any thread.
pub fn perform(disk: &dyn Disk, read: Read) -> ReadDone {
    let Read { plan, what } = read;
    let result = read_message(disk, &plan).and_then(|stored| {
        let total = stored.prefix.len() as u64 + stored.body_bytes;
        let (offset, length) = match &what {
            ReadFor::Attempt { .. } if total > INLINE_BYTES_MAX => (0, 0),
            ReadFor::Attempt { .. } => (0, total),
            ReadFor::Notice { .. } | ReadFor::Show { .. } => (0, total.min(NOTICE_BYTES_MAX)),
            ReadFor::Fetch { offset, bytes, .. } => {
                (*offset, u64::from(*bytes).min(total.saturating_sub(*offset)))
            }
        };
        let content = piece(disk, &stored, offset, length)?;
        let prefix_bytes = stored.prefix.len() as u32;
        Ok(Got { envelope: stored.envelope, bytes: total, prefix_bytes, content })
    });
    ReadDone { plan, what, result }
}

/// Returns `length` bytes from `offset` of our headers and the body together.
fn piece(
    disk: &dyn Disk,
    stored: &StoredMessage,
    offset: u64,
    length: u64,
) -> Result<Bytes, ReadError> {
    let mut out = BytesMut::with_capacity(length as usize);
    let end = offset + length;
    let mut at = 0;
    let mut take = |at: u64, bytes: &[u8]| {
        let from = offset.saturating_sub(at).min(bytes.len() as u64);
        let to = end.saturating_sub(at).min(bytes.len() as u64);
        if from < to {
            out.extend_from_slice(&bytes[from as usize..to as usize]);
        }
    };
    take(at, &stored.prefix);
    at += stored.prefix.len() as u64;
    if let Some(body) = &stored.body {
        take(at, body);
        return Ok(out.freeze());
    }
    for chunk in &stored.chunks {
        let length = u64::from(chunk.bytes());
        if at < end && at + length > offset {
            take(at, &read_chunk(disk, chunk)?);
        }
        at += length;
    }
    Ok(out.freeze())
}

impl Queue {
    /// Asks the driver to read a message. The work goes on in `read_done`.
    pub(crate) fn read(&mut self, message: MessageId, what: ReadFor, now: Now) {
        match self.spool.plan(message) {
            Some(plan) => self.output.push_back(crate::Output::Read(Read { plan, what })),
            None => self.not_read(message, what, "the message is not in the spool", now),
        }
    }

    /// Takes the result of a read.
    pub fn read_done(&mut self, done: ReadDone, now: Now) {
        let ReadDone { plan, what, result } = done;
        let message = plan.message;
        self.spool.unplan(plan);
        match result {
            Ok(got) => self.have_read(message, what, got, now),
            Err(error) => {
                let text = error.to_string();
                if matches!(error, ReadError::Damaged(_)) {
                    self.scheduler.hold(message, now);
                    self.log(LogEvent::Damaged { message, text: text.clone() });
                }
                self.not_read(message, what, &text, now);
            }
        }
    }

    fn have_read(&mut self, message: MessageId, what: ReadFor, got: Got, now: Now) {
        let Got { envelope, bytes, prefix_bytes, content } = got;
        let whole = (content.len() as u64 == bytes).then(|| content.clone());
        let cached = CachedMessage {
            envelope: Rc::new(envelope),
            bytes,
            prefix_bytes,
            content: whole.filter(|_| bytes <= INLINE_BYTES_MAX),
        };
        match what {
            ReadFor::Attempt { key, attempt, hop } => {
                self.message_cache.put(message, cached.clone());
                if self.holds_back(now) {
                    self.senders.forget(key, attempt.attempt);
                    return self.scheduler.withdraw(attempt.attempt, now);
                }
                self.send_attempt(key, attempt, hop, &cached, now);
            }
            ReadFor::Notice { parts, acknowledgements } => {
                self.record_read(parts, acknowledgements, Some((&cached, &content)), now);
            }
            ReadFor::Fetch { key, attempt, offset, .. } => {
                if let Some(end) = self.senders.fetcher(key, attempt) {
                    end.chunk(attempt, offset, &content);
                }
            }
            ReadFor::Show { question } => self.shown(question, message, &cached, &content),
        }
    }

    fn not_read(&mut self, message: MessageId, what: ReadFor, text: &str, now: Now) {
        match what {
            ReadFor::Attempt { key, attempt, .. } => self.not_attempted(key, &attempt, text, now),
            // The outcome is recorded without the notice, which cannot be made.
            ReadFor::Notice { parts, acknowledgements } => {
                self.no_notice(message, text);
                self.record_read(parts, acknowledgements, None, now);
            }
            ReadFor::Fetch { key, attempt, .. } => {
                if let Some(end) = self.senders.fetcher(key, attempt) {
                    end.chunk_bad(attempt);
                }
            }
            ReadFor::Show { question } => self.not_shown(question, message, text),
        }
    }

    /// Defers the recipients of an attempt whose message could not be read.
    pub(crate) fn not_attempted(
        &mut self,
        key: SenderKey,
        attempt: &PlannedAttempt,
        text: &str,
        now: Now,
    ) {
        self.senders.forget(key, attempt.attempt);
        let report = Report {
            stage: Stage::Here,
            reply: Reply::new(451, Enhanced(4, 3, 0), format!("message cannot be read: {text}")),
            peer: "".into(),
            from_peer: false,
        };
        let deferred = |index: &u32| (*index, Outcome::Deferred(report.clone()));
        let outcomes: Vec<_> = attempt.recipients.iter().map(deferred).collect();
        self.scheduler.outcome(attempt.attempt, &outcomes, now);
    }
}
