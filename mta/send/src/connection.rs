//! One pooled connection: its session with the next hop, its attempt, and the decision to take another message or to end.
//!
//! Must never carry a message of another next hop, or end without returning its message or an outcome for each recipient.

use crate::attempt::{OpenAttempt, WaitingAttempt};
use crate::hops::HopId;
use crate::pool::{ConnectionId, ConnectionPool};
use crate::settings::Settings;
use delivery::resolve::{Answer, Question};
use delivery::route::Target;
use delivery::{DeadAddresses, OutboundSession};
use mail::{Instant, MessageId, NextHop, Now, Outcome, Stage};
use smtp::client::{self, OutboundMessage};
use std::sync::Arc;
use std::time::Duration;

/// What happens to a connection.
#[derive(Debug)]
pub enum ConnectionInput<'a> {
    /// The answer to `ConnectionOutput::Ask`.
    Answer {
        /// The question.
        question: Question,
        /// The answer of the DNS.
        answer: Answer,
        /// A random number, for the order among equal answers.
        chance: u64,
    },
    /// The connection of `ConnectionOutput::Connect` is open.
    Connected,
    /// The connection could not be opened, for this reason.
    ConnectFailed(&'a str),
    /// Bytes from the next hop.
    Received(&'a [u8]),
    /// The next hop has closed the connection, or the connection broke.
    Lost,
    /// The time of `next_wakeup` has come.
    Timeout,
}

/// What the driver must do for a connection, besides writing what `transmit` returns.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionOutput {
    /// Ask the DNS.
    Ask(Question),
    /// Open a stream to this target. The former stream is closed.
    Connect(Target),
    /// Write what the stream accepts at once of [`PooledConnection::transmit`], then close the stream.
    CloseStream,
    /// Call [`PooledConnection::close`]. This output comes last, and once.
    Finished,
}

/// The message that the connection carries.
#[derive(Debug)]
struct Current {
    attempt: OpenAttempt,
    begun: Now,
    /// The connection waits for a chunk of the message.
    is_fetching: bool,
}

/// A connection to one next hop, which carries one message after another.
#[derive(Debug)]
pub struct PooledConnection {
    id: ConnectionId,
    hop: HopId,
    session: OutboundSession,
    current: Option<Current>,
    messages: u32,
    messages_max: u32,
    /// Time for which the connection is kept without work.
    idle: Duration,
    idle_since: Option<Instant>,
    /// The peer has greeted us, because a message was begun.
    is_greeted: bool,
    is_finished: bool,
}

impl PooledConnection {
    pub(crate) fn new(
        id: ConnectionId,
        (hop, name): (HopId, &NextHop),
        first: WaitingAttempt,
        settings: &Settings,
        dead: DeadAddresses,
        now: Now,
    ) -> PooledConnection {
        let WaitingAttempt { attempt, message } = first;
        let (rules, client) = (Arc::clone(&settings.rules), Arc::clone(&settings.client));
        PooledConnection {
            id,
            hop,
            session: OutboundSession::new(name, message, rules, client, settings.limits, dead, now),
            messages: 1,
            messages_max: attempt.messages_per_connection_max,
            current: Some(Current { attempt, begun: now, is_fetching: false }),
            idle: settings.idle,
            idle_since: None,
            is_greeted: false,
            is_finished: false,
        }
    }

    /// Takes what has happened.
    pub fn handle(&mut self, input: ConnectionInput<'_>, now: Now) {
        let input = match input {
            ConnectionInput::Answer { question, answer, chance } => {
                delivery::Input::Answer { question, answer, chance }
            }
            ConnectionInput::Connected => delivery::Input::Connected,
            ConnectionInput::ConnectFailed(why) => delivery::Input::ConnectFailed(why),
            ConnectionInput::Received(bytes) => {
                delivery::Input::Session(client::Input::Received(bytes))
            }
            ConnectionInput::Lost => delivery::Input::Session(client::Input::Lost),
            ConnectionInput::Timeout => {
                if self.session.next_wakeup().is_none_or(|due| due > now.monotonic) {
                    return; // for the connection itself: `poll` compares the time
                }
                delivery::Input::Session(client::Input::Tick)
            }
        };
        self.session.handle(input, now);
    }

    /// Returns the next thing to do. The driver calls this after each input, after it has written bytes, and when the pool
    /// returns `Output::Wake`.
    pub fn poll(&mut self, pool: &mut ConnectionPool, now: Now) -> Option<ConnectionOutput> {
        self.take_chunk(pool, now);
        loop {
            if !self.is_greeted && self.session.session().is_some_and(|open| open.mails() > 0) {
                self.is_greeted = true;
                pool.greeted(self.hop);
            }
            match self.session.poll() {
                Some(delivery::Output::Ask(question)) => {
                    return Some(ConnectionOutput::Ask(question));
                }
                Some(delivery::Output::Connect(target)) => {
                    return Some(ConnectionOutput::Connect(target));
                }
                Some(delivery::Output::Session(client::Output::Close)) => {
                    return Some(ConnectionOutput::CloseStream);
                }
                Some(delivery::Output::Session(output)) => self.session_output(output, pool, now),
                None if self.next_message(pool, now) => {}
                None if self.session.is_closed() && !self.is_finished => {
                    self.is_finished = true;
                    return Some(ConnectionOutput::Finished);
                }
                None => return None,
            }
        }
    }

    /// Returns bytes for the next hop.
    pub fn transmit(&self) -> &[u8] {
        self.session.transmit()
    }

    /// Notes that the driver has written the first `bytes` bytes of `transmit`.
    pub fn transmitted(&mut self, bytes: usize, now: Now) {
        self.session.transmitted(bytes, now);
    }

    /// Returns when the driver must report `ConnectionInput::Timeout`.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.session.next_wakeup().or(self.idle_since.map(|since| since + self.idle))
    }

    /// Leaves the pool. If the connection still carries a message, because its driver panicked, the message is deferred or
    /// returned to the pool.
    pub fn close(&mut self, pool: &mut ConnectionPool, now: Now) {
        if self.current.is_some() {
            self.session.handle(delivery::Input::Session(client::Input::Quit), now);
            while self.poll(pool, now).is_some() {}
        }
        pool.closed(self.id, self.hop, std::mem::take(&mut self.is_greeted), now);
    }

    /// Returns the id of the connection in the pool.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns the number of messages that this connection has taken.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Returns the current message, and the time at which its attempt came from the queue process.
    pub fn current(&self) -> Option<(MessageId, Now)> {
        self.current.as_ref().map(|current| (current.attempt.message, current.attempt.taken))
    }

    /// Returns true if nothing more needs to be read from the next hop.
    pub fn is_closed(&self) -> bool {
        self.session.is_closed()
    }
}

impl PooledConnection {
    fn session_input(&mut self, input: client::Input<'_>, now: Now) {
        self.session.handle(delivery::Input::Session(input), now);
    }

    fn session_output(&mut self, output: client::Output, pool: &mut ConnectionPool, now: Now) {
        match output {
            client::Output::NeedBody { offset, bytes } => {
                if let Some(current) = &mut self.current {
                    current.is_fetching = true;
                    pool.fetch(self.id, &current.attempt, offset, bytes);
                }
            }
            client::Output::Done { message, outcomes } => self.done(message, outcomes, pool, now),
            client::Output::Unsent(message) => {
                if let Some(Current { attempt, .. }) = self.current.take() {
                    pool.put_back(self.hop, WaitingAttempt { attempt, message });
                }
            }
            client::Output::Close => {}
        }
    }

    fn take_chunk(&mut self, pool: &mut ConnectionPool, now: Now) {
        let Some(current) = self.current.as_mut().filter(|current| current.is_fetching) else {
            return;
        };
        let Some(chunk) = pool.take_chunk(self.id) else { return };
        if chunk.attempt == current.attempt.id {
            current.is_fetching = false;
            self.session_input(
                chunk.bytes.map_or(client::Input::BodyFailed, client::Input::Body),
                now,
            );
        }
    }

    fn done(
        &mut self,
        message: Box<OutboundMessage>,
        outcomes: Vec<Outcome>,
        pool: &mut ConnectionPool,
        now: Now,
    ) {
        let Some(Current { attempt, begun, .. }) = self.current.take() else { return };
        if let Some(outcome) = outcomes.first().filter(|first| self.is_unreached(first)) {
            pool.fail_waiting(self.hop, outcome, now);
        }
        pool.ended(attempt, message, outcomes, begun, now);
    }

    /// Returns true if the outcome means that the next hop was not reached.
    fn is_unreached(&self, outcome: &Outcome) -> bool {
        let stage = outcome.report().stage;
        !self.is_greeted && matches!(stage, Stage::Resolve | Stage::Connect | Stage::Greeting)
    }

    /// Gives the session its next message, or ends it if the connection should not be kept. Returns false if there was
    /// nothing to do.
    fn next_message(&mut self, pool: &mut ConnectionPool, now: Now) -> bool {
        if self.current.is_some() || self.session.is_closed() {
            return false;
        }
        let must_end = self.idle_since.is_some() && pool.must_end(self.id);
        let is_spent = must_end || self.messages >= self.messages_max || !self.session.can_send();
        if !is_spent && let Some(WaitingAttempt { attempt, message }) = pool.next(self.hop) {
            self.leave_idle(pool);
            self.messages += 1;
            self.current = Some(Current { attempt, begun: now, is_fetching: false });
            self.session_input(client::Input::Send(message), now);
            return true;
        }
        let since = *self.idle_since.get_or_insert(now.monotonic);
        let is_tired = now.monotonic.since(since) >= self.idle;
        if is_spent || is_tired || pool.is_draining() {
            self.leave_idle(pool);
            self.session_input(client::Input::Quit, now);
            return true;
        }
        pool.idle(self.id, self.hop, since, now);
        false
    }

    fn leave_idle(&mut self, pool: &mut ConnectionPool) {
        if self.idle_since.take().is_some() {
            pool.not_idle(self.id, self.hop);
        }
    }
}
