//! One pooled connection: the session with the next hop, the attempt that it carries, and when it
//! takes the next message or ends.
//!
//! Must never carry a message of another next hop, and never end without giving back its message
//! or an outcome for each recipient.

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

/// What the driver tells a connection.
#[derive(Debug)]
pub enum ConnectionInput<'a> {
    /// The answer to `ConnectionOutput::Ask`.
    Answer {
        /// As it was asked.
        question: Question,
        /// What the DNS says.
        answer: Answer,
        /// A random number, for the order among equals.
        chance: u64,
    },
    /// The connection of `ConnectionOutput::Connect` is open.
    Connected,
    /// It could not be opened, for this reason.
    ConnectFailed(&'a str),
    /// Bytes from the next hop.
    Received(&'a [u8]),
    /// The next hop has closed, or the connection broke.
    Lost,
    /// The time of `next_wakeup` has come.
    Timeout,
}

/// What the driver has to do for a connection, besides writing what `transmit` returns.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionOutput {
    /// Look this up.
    Ask(Question),
    /// Open a stream to this target. The former one has been closed.
    Connect(Target),
    /// Write what waits to be transmitted if the stream takes it at once, then close the stream.
    CloseStream,
    /// Call [`PooledConnection::close`]: nothing more will come. Said once.
    Finished,
}

/// A message on the connection.
#[derive(Debug)]
struct Current {
    attempt: OpenAttempt,
    begun: Now,
    /// A chunk of the message was asked for and has not come.
    is_fetching: bool,
}

/// A connection to one next hop, for one message after another.
#[derive(Debug)]
pub struct PooledConnection {
    id: ConnectionId,
    hop: HopId,
    session: OutboundSession,
    current: Option<Current>,
    messages: u32,
    messages_max: u32,
    /// How long the connection is kept without work.
    idle: Duration,
    idle_since: Option<Instant>,
    /// A message was begun, so the peer has greeted us.
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

    /// Takes what happened.
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

    /// What the driver is to do next. To be asked after each input, after bytes were written, and
    /// when the pool says `Output::Wake`.
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

    /// Bytes for the next hop.
    pub fn transmit(&self) -> &[u8] {
        self.session.transmit()
    }

    /// This many bytes of `transmit` have been written.
    pub fn transmitted(&mut self, bytes: usize, now: Now) {
        self.session.transmitted(bytes, now);
    }

    /// When to come back with `ConnectionInput::Timeout`.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.session.next_wakeup().or(self.idle_since.map(|since| since + self.idle))
    }

    /// Leaves the pool. A message that is still here, because its driver met a bug, is deferred or
    /// put back.
    pub fn close(&mut self, pool: &mut ConnectionPool, now: Now) {
        if self.current.is_some() {
            self.session.handle(delivery::Input::Session(client::Input::Quit), now);
            while self.poll(pool, now).is_some() {}
        }
        pool.closed(self.id, self.hop, std::mem::take(&mut self.is_greeted), now);
    }

    /// The name of the connection in the pool.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Messages that were given to this connection.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// The message that the connection carries, and when its attempt came from the queue process.
    pub fn current(&self) -> Option<(MessageId, Now)> {
        self.current.as_ref().map(|current| (current.attempt.message, current.attempt.taken))
    }

    /// True if reading from the next hop makes no more sense.
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

    /// True if the outcome says that no connection to the next hop came about.
    fn is_unreached(&self, outcome: &Outcome) -> bool {
        let stage = outcome.report().stage;
        !self.is_greeted && matches!(stage, Stage::Resolve | Stage::Connect | Stage::Greeting)
    }

    /// Gives the session its next message, or ends it if the connection is not to be kept. False:
    /// nothing was to be done.
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
