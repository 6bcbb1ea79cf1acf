//! The conversation on one connection: takes bytes and returns replies and events, one event at a time.
//!
//! Must never read further bytes while the driver owes an answer or the client does not read its
//! replies. Must never answer data with `250` except in `promise`.

use super::bdat::BdatChunk;
use super::body::Body;
use super::clock::Clock;
use super::rcpt::Seen;
use super::{Event, Server};
use mail::{Durable, Enhanced, Instant, Now, Protocol, Reply, Verdict, allocation_bytes};
use std::sync::Arc;

/// The server's end of one connection.
#[derive(Debug)]
pub struct Session {
    pub(super) server: Arc<Server>,
    pub(super) state: State,
    /// The start of a command line whose end has not arrived.
    pub(super) line: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// True if the client must wait for the last reply in `output` (RFC 2920 3.1) or for the greeting.
    /// Bytes that arrive before the driver has written that reply were sent too early.
    pub(super) client_must_wait: bool,
    pub(super) ready: Option<Event>,
    pub(super) reset_due: bool,
    pub(super) close_event: CloseEvent,
    pub(super) hello: Option<Protocol>,
    pub(super) transaction: Option<Transaction>,
    pub(super) seen: Seen,
    pub(super) mails: u32,
    pub(super) errors: u32,
    pub(super) idle_commands: u32,
    /// Commands and bodies that were refused although they were correct.
    pub(super) refusals: u32,
    /// Whether the session ends after the current command or transaction, and why.
    pub(super) ending: Ending,
    /// True if the driver's memory is short.
    pub(super) stressed: bool,
    pub(super) clock: Clock,
}

/// What a session waits for.
#[derive(Debug)]
pub(super) enum State {
    ExpectCommand,
    ExpectVerdict(Asked),
    ExpectBody(Body),
    ExpectChunk(BdatChunk),
    ExpectPromise,
    Closed,
}

/// What the driver was asked about.
#[derive(Debug)]
pub(super) enum Asked {
    Hello(Protocol),
    Mail { smtputf8: bool },
    Rcpt,
    Data,
    Chunk { size: u64, last: bool },
}

/// The transaction between MAIL and the end of the data.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) smtputf8: bool,
    /// Accepted recipients, without repetitions.
    pub(super) recipients: u32,
    /// RCPT commands beyond the limit.
    pub(super) excess: u32,
    /// The body between two BDAT chunks. While a chunk is read, the state holds the body.
    pub(super) chunked: Option<Body>,
    /// True if the driver was told to drop the transaction before its end.
    pub(super) doomed: bool,
}

/// Whether the driver must still get [`Event::Close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseEvent {
    NotDue,
    Due,
    /// The last reply answers QUIT.
    DueAfterQuit,
}

/// Why the session ends once the current command or transaction is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    NotYet,
    /// The client has closed its side of the connection.
    Eof,
    /// The process is shutting down.
    Shutdown,
}

impl Session {
    /// Creates the session of a new connection. The greeting is in `output()`.
    ///
    /// Bytes that the driver passes on before it has written the greeting end the connection: the
    /// client did not wait. A driver that writes the greeting before it reads tolerates such clients.
    pub fn new(server: Arc<Server>, now: Now) -> Session {
        let output = server.greeting.to_vec();
        Session {
            server,
            state: State::ExpectCommand,
            line: Vec::new(),
            output,
            client_must_wait: true,
            ready: None,
            reset_due: false,
            close_event: CloseEvent::NotDue,
            hello: None,
            transaction: None,
            seen: Seen::default(),
            mails: 0,
            errors: 0,
            idle_commands: 0,
            refusals: 0,
            ending: Ending::NotYet,
            stressed: false,
            clock: Clock::new(now.monotonic),
        }
    }

    /// Takes as many of the bytes as it can use now and returns their number. The driver passes the
    /// rest again after `poll`, after `answer`, or after it has written the output.
    pub fn receive(&mut self, bytes: &[u8], now: Now) -> usize {
        if self.is_reading() {
            self.clock.go(now.monotonic);
        }
        if self.is_too_early(bytes) {
            self.out_of_step();
        }
        let mut used = 0;
        while used < bytes.len() && self.is_reading() {
            used += self.step(&bytes[used..], now.monotonic);
        }
        if self.is_closed() { bytes.len() } else { used }
    }

    /// Returns the next event. The client's timeouts are paused from `Some` to the next `None`.
    pub fn poll(&mut self, now: Now) -> Option<Event> {
        let event = self.next_event();
        match event {
            Some(_) => self.clock.stop(now.monotonic),
            None if !self.awaits_answer() => self.clock.go(now.monotonic),
            None => {}
        }
        event
    }

    fn next_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.reset_due) {
            return Some(Event::Reset);
        }
        if let Some(event) = self.ready.take() {
            return Some(event);
        }
        match std::mem::replace(&mut self.close_event, CloseEvent::NotDue) {
            CloseEvent::NotDue => None,
            CloseEvent::Due => Some(Event::Close { after_quit: false }),
            CloseEvent::DueAfterQuit => Some(Event::Close { after_quit: true }),
        }
    }

    /// Returns the replies to write. The driver removes the bytes that it has written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Answers the event `Hello`, `Mail`, `Rcpt` or `Data`.
    ///
    /// # Panics
    /// If no such event awaits an answer, which is a bug of the driver.
    pub fn answer(&mut self, verdict: Verdict, now: Now) {
        self.clock.go(now.monotonic);
        self.clock.command(now.monotonic);
        let asked = match std::mem::replace(&mut self.state, State::ExpectCommand) {
            State::ExpectVerdict(asked) => asked,
            State::Closed => return self.state = State::Closed,
            other => panic!("a verdict on nothing asked, in {other:?}"),
        };
        match verdict {
            Verdict::Accept => self.accepted(asked, now.monotonic),
            Verdict::Defer(reply) | Verdict::Reject(reply) => self.refused(asked, &reply),
        }
        self.end_if_due();
    }

    /// Answers `BodyEnd` with `250`, because the message is durable. No other code answers data with `250`.
    ///
    /// # Panics
    /// If no `BodyEnd` awaits an answer, which is a bug of the driver.
    pub fn promise(&mut self, durable: Durable, now: Now) {
        let text = format!("Ok: queued as {}", durable.message());
        (self.errors, self.idle_commands, self.refusals) = (0, 0, 0);
        self.clock.message(now.monotonic);
        self.end_body(&Reply::new(250, Enhanced(2, 0, 0), text), now);
    }

    /// Answers `BodyEnd` with 4yz or 5yz, because the message was not accepted.
    ///
    /// # Panics
    /// If no `BodyEnd` awaits an answer, or the reply is positive: bugs of the driver.
    pub fn refuse(&mut self, reply: &Reply, now: Now) {
        assert!(!reply.is_positive(), "250 after data is said by a promise only");
        self.end_body(reply, now);
    }

    fn end_body(&mut self, reply: &Reply, now: Now) {
        self.clock.go(now.monotonic);
        self.clock.command(now.monotonic);
        match std::mem::replace(&mut self.state, State::ExpectCommand) {
            State::ExpectPromise => {}
            State::Closed => return self.state = State::Closed,
            other => panic!("the end of a body that has not ended, in {other:?}"),
        }
        self.reply_for_body(reply);
        self.forget_transaction();
        if !reply.is_positive() {
            self.count_refusal();
        }
        self.end_if_due();
    }

    /// Records that the client has closed its side. The driver calls this after `receive` has taken all
    /// bytes. A command that awaits the driver's answer is still answered.
    pub fn eof(&mut self, _now: Now) {
        self.ending = Ending::Eof;
        if !self.awaits_answer() {
            self.end_if_due();
        }
    }

    /// Ends the session with 421: at once if no transaction is open, otherwise after it (RFC 5321 3.8).
    pub fn shutdown(&mut self, _now: Now) {
        if self.ending == Ending::NotYet {
            self.ending = Ending::Shutdown;
        }
        if !self.awaits_answer() {
            self.end_if_due();
        }
    }

    /// Ends the session with `reply` (421) in any state, because the driver cannot continue. `Reset`
    /// follows if a transaction was open, then `Close`.
    pub fn hang_up(&mut self, reply: &Reply, _now: Now) {
        if !self.is_closed() {
            reply.encode(&mut self.output);
            self.close();
        }
    }

    /// Drops the body that is being read, because the driver has no room. The rest of the body is read
    /// and discarded, its end is answered with `reply` (4yz), and `Reset` follows.
    ///
    /// Returns `false` and does nothing if no body is being read, or if the body was dropped before.
    pub fn drop_body(&mut self, reply: &Reply) -> bool {
        let body = match &mut self.state {
            State::ExpectBody(body) => Some(body),
            State::ExpectChunk(chunk) => chunk.body(),
            _ => None,
        };
        let Some(body) = body.filter(|body| !body.is_dropped()) else { return false };
        body.drop_with(reply);
        self.doom();
        true
    }

    /// Sets whether the driver's memory is short. While it is, a client with an open transaction has at
    /// most [`STRESS_COMMAND_WAIT_MAX`](super::clock::STRESS_COMMAND_WAIT_MAX) for its next command.
    pub fn stress(&mut self, stressed: bool) {
        self.stressed = stressed;
    }

    /// Returns when to call `handle_timeout`, or `None` while the driver owes an answer.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let within_body = matches!(self.state, State::ExpectBody(_) | State::ExpectChunk(_));
        let open = !self.is_closed() && !self.awaits_answer();
        let hurried = self.stressed && self.transaction.is_some();
        open.then(|| self.clock.deadline(&self.server.settings, within_body, hurried)).flatten()
    }

    /// Ends the session if the client has exceeded a timeout.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.next_wakeup().is_some_and(|deadline| deadline <= now.monotonic) {
            self.close_with(Enhanced(4, 4, 2), "Error: timeout exceeded");
        }
    }

    /// True between MAIL and the end of the message.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some() || matches!(self.state, State::ExpectPromise)
    }

    /// The settings and texts that all sessions of the listener share.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// True if the driver owes an answer.
    pub fn awaits_answer(&self) -> bool {
        matches!(self.state, State::ExpectVerdict(_) | State::ExpectPromise)
    }

    /// Returns the memory that the session holds, in bytes. The driver adds up all sessions.
    pub fn memory_bytes(&self) -> usize {
        let body = match &self.state {
            State::ExpectBody(body) => body.memory_bytes(),
            State::ExpectChunk(chunk) => chunk.memory_bytes(),
            _ => 0,
        };
        let kept = self.transaction.as_ref().and_then(|transaction| transaction.chunked.as_ref());
        let kept = kept.map_or(0, Body::memory_bytes);
        size_of::<Session>() + self.buffer_bytes() + body + kept + self.seen.memory_bytes()
    }

    /// Returns the part of [`Session::memory_bytes`] that an incomplete command and unwritten replies take.
    pub fn buffer_bytes(&self) -> usize {
        allocation_bytes(self.line.capacity()) + allocation_bytes(self.output.capacity())
    }

    /// True if the session is over and reads nothing more.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }
}
