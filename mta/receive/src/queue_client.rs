//! The queue process as the sessions see it: credit, hand-over, answers.
//!
//! Must never give an answer to a message that the answer does not name.

use crate::clients::{ClientId, Clients};
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::receive::{ReceiverEnd, ReceiverEvent, SessionMemory};
use link::recipients::Recipients;
use link::streams::Presence;
use mail::{Durable, Envelope, Instant, Refusal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What became of a message that was handed over.
#[derive(Debug)]
pub(crate) enum Answer {
    Promised(Durable),
    Refused(Refusal),
    /// It is unknown whether the message is durable: the connection closes without a reply (RFC 1047).
    Abandoned,
}

/// A message that was handed over and whose client waits.
#[derive(Debug)]
struct UnansweredMessage {
    client: ClientId,
    since: Instant,
    /// The answer, until the client fetches it.
    answer: Option<Answer>,
}

/// Our end of the link to the queue process.
#[derive(Debug)]
pub(crate) struct QueueClient {
    end: ReceiverEnd,
    pending: BTreeMap<u64, UnansweredMessage>,
    /// The messages without an answer, oldest first.
    unanswered: BTreeSet<(Instant, u64)>,
    commit_timeout: Duration,
    next_number: u64,
    presence: Presence,
}

impl QueueClient {
    /// `incarnation` is a random number that names this process.
    pub fn new(build: u64, incarnation: u64, now: Instant) -> QueueClient {
        QueueClient {
            end: ReceiverEnd::new(build, incarnation),
            pending: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            commit_timeout: Duration::MAX,
            next_number: 1,
            presence: Presence::absent(now),
        }
    }

    /// Sets the maximum time to wait for an answer, and the number of bytes in transit from which on clients wait.
    pub fn bound(&mut self, commit_timeout: Duration, in_transit_bytes_max: u64) {
        self.commit_timeout = commit_timeout;
        self.end.bound_held(in_transit_bytes_max);
    }

    pub fn connected(&mut self, now: Instant) {
        self.end.connected(now);
        self.note_presence(now);
    }

    pub fn received(&mut self, input: &mut BytesMut, now: Instant) -> Result<(), LinkError> {
        let heard = self.end.handle(input);
        self.note_presence(now);
        heard
    }

    pub fn disconnected(&mut self, now: Instant) {
        self.end.disconnected(now);
        self.note_presence(now);
    }

    fn note_presence(&mut self, now: Instant) {
        self.presence.is_now(self.end.is_welcomed(), now);
    }

    pub fn is_present(&self) -> bool {
        self.end.is_welcomed()
    }

    /// Returns for how long no queue process has answered, if it is time to log that.
    pub fn absence_alarm(&mut self, now: Instant) -> Option<Duration> {
        self.note_presence(now);
        self.presence.alarm(now)
    }

    /// Returns the number of a new transaction.
    pub fn begin(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Returns true if the oldest unanswered message has waited for half of the commit timeout. New mail is then deferred.
    pub fn is_stuck(&self, now: Instant) -> bool {
        let oldest = self.unanswered.first();
        oldest.is_some_and(|(since, _)| now.since(*since) >= self.commit_timeout / 2)
    }

    /// Returns the maximum time for which a client waits for credit or for an answer.
    pub fn commit_timeout(&self) -> Duration {
        self.commit_timeout
    }

    /// Returns true if this transaction may hand over more.
    pub fn has_credit(&mut self, number: u64) -> bool {
        self.end.may_stage(number)
    }

    /// Returns the bytes of bodies and envelopes that the queue process has not taken or answered.
    pub fn in_transit_bytes(&self) -> u64 {
        self.end.held_bytes()
    }

    /// Tells the queue process about the memory of sessions, unless it knows that already or frames wait. Returns true if it
    /// was told.
    pub fn tell_memory(&mut self, memory: SessionMemory) -> bool {
        self.end.tell_memory(memory)
    }

    pub fn stage(&mut self, number: u64, bytes: &[u8]) {
        self.end.stage(number, bytes);
    }

    pub fn unstage(&mut self, number: u64) {
        self.end.unstage(number);
    }

    /// Hands over the end of a message. Its client fetches the answer with [`Self::take_answer`].
    pub fn accept(
        &mut self,
        number: u64,
        client: ClientId,
        message: (Envelope, &Recipients, &[u8]),
        now: Instant,
    ) {
        let (envelope, recipients, tail) = message;
        self.pending.insert(number, UnansweredMessage { client, since: now, answer: None });
        self.unanswered.insert((now, number));
        self.end.accept_encoded(number, envelope, recipients, tail);
    }

    /// Takes the answer to a message, if there is one, and forgets the message.
    pub fn take_answer(&mut self, number: u64) -> Option<Answer> {
        let pending = self.pending.get_mut(&number)?;
        let answer = pending.answer.take()?;
        self.pending.remove(&number);
        Some(answer)
    }

    /// Forgets a message whose client is gone. Queue may still keep the message.
    pub fn forget(&mut self, number: u64) {
        if let Some(pending) = self.pending.remove(&number) {
            self.unanswered.remove(&(pending.since, number));
        }
    }

    /// Gives up what has waited too long, and wakes the clients that have something to fetch.
    pub fn advance(&mut self, clients: &mut Clients, now: Instant) {
        self.end.handle_timeout(now);
        while self.next_timeout().is_some_and(|at| at <= now) {
            let (_, number) =
                self.unanswered.pop_first().expect("the timeout is that of the first");
            self.answer(number, Answer::Abandoned, clients);
        }
        while let Some(event) = self.end.poll() {
            match event {
                ReceiverEvent::Promised { number, durable } => {
                    self.answer(number, Answer::Promised(durable), clients);
                }
                ReceiverEvent::Refused { number, refusal } => {
                    self.answer(number, Answer::Refused(refusal), clients);
                }
                ReceiverEvent::Abandoned { number } => {
                    self.answer(number, Answer::Abandoned, clients);
                }
                ReceiverEvent::Credit => clients.wake_credit_waiters(),
            }
        }
    }

    /// Keeps the first answer for the client, if the client still waits. A message that was given up stays given up.
    fn answer(&mut self, number: u64, answer: Answer, clients: &mut Clients) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        self.unanswered.remove(&(pending.since, number));
        if pending.answer.is_none() {
            pending.answer = Some(answer);
            clients.wake(pending.client);
        }
    }

    /// Returns when the oldest unanswered message is given up.
    fn next_timeout(&self) -> Option<Instant> {
        self.unanswered.first().map(|(since, _)| *since + self.commit_timeout)
    }

    pub fn next_wakeup(&self) -> Option<Instant> {
        [self.next_timeout(), self.end.next_wakeup()].into_iter().flatten().min()
    }

    /// Returns the frames to write, in order.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        self.end.transmit()
    }
}
