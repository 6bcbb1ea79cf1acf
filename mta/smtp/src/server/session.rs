//! One connection's conversation: bytes in, replies and events out, one thing at a time.
//!
//! Must never read on while the driver owes an answer or the client has not taken its replies,
//! and never say `250` after data but in `promise`.

use super::bdat::Chunk;
use super::body::Body;
use super::clock::Clock;
use super::rcpt::Seen;
use super::{Event, Server};
use mail::{Durable, Enhanced, Instant, Now, Protocol, Reply, Verdict, allocation_bytes};
use std::sync::Arc;

/// The receiving end of one connection.
#[derive(Debug)]
pub struct Session {
    pub(super) server: Arc<Server>,
    pub(super) state: State,
    /// The beginning of a command whose end has not come.
    pub(super) line: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// The reply to a command after which the client must wait (RFC 2920 3.1), or the greeting,
    /// is in `output`: bytes offered before it was taken were sent too early.
    pub(super) client_must_wait: bool,
    pub(super) ready: Option<Event>,
    pub(super) reset_due: bool,
    pub(super) close_due: bool,
    /// QUIT was answered.
    pub(super) after_quit: bool,
    pub(super) hello: Option<Protocol>,
    pub(super) transaction: Option<Transaction>,
    pub(super) seen: Seen,
    pub(super) mails: u32,
    pub(super) errors: u32,
    pub(super) idle_commands: u32,
    /// Refused though nothing was wrong with them.
    pub(super) refusals: u32,
    /// No more bytes will come, or we are to stop: over after what is under way.
    pub(super) ending: Ending,
    /// The driver's memory is short.
    pub(super) stressed: bool,
    pub(super) clock: Clock,
}

/// What a session waits for.
#[derive(Debug)]
pub(super) enum State {
    ExpectCommand,
    ExpectVerdict(Asked),
    ExpectBody(Body),
    ExpectChunk(Chunk),
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

/// Between MAIL and the end.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) smtputf8: bool,
    /// Accepted, and not a repetition.
    pub(super) recipients: u32,
    /// RCPTs beyond the limit.
    pub(super) excess: u32,
    /// BDAT began; its body, while no chunk of it is being read.
    pub(super) chunked: Option<Body>,
    /// The driver was told to drop it, though its end has not come.
    pub(super) doomed: bool,
}

/// How the session comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    NotYet,
    /// The client has closed its side.
    Eof,
    /// We are shutting down.
    Shutdown,
}

impl Session {
    /// A new connection; the greeting is in `output()`. Bytes offered before it was taken are
    /// refused (early talkers); a driver that writes it before it reads grants them grace.
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
            close_due: false,
            after_quit: false,
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

    /// Takes what it can use now of `bytes` and says how much; the rest is to be offered again
    /// after `poll`, `answer` or once the output was taken.
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

    /// The next event. The client's time stands still from `Some` to the next `None`.
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
        let after_quit = self.after_quit;
        std::mem::take(&mut self.close_due).then_some(Event::Close { after_quit })
    }

    /// Replies to be written; the driver takes from it what it wrote, at best all.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Answers `Hello`, `Mail`, `Rcpt` or `Data`.
    ///
    /// # Panics
    /// If nothing was asked: a bug of the driver.
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

    /// The message is kept: says so. The only place where data is answered with `250`.
    ///
    /// # Panics
    /// If no body has ended: a bug of the driver.
    pub fn promise(&mut self, durable: Durable, now: Now) {
        let text = format!("Ok: queued as {}", durable.message());
        (self.errors, self.idle_commands, self.refusals) = (0, 0, 0);
        self.clock.message(now.monotonic);
        self.end_body(&Reply::new(250, Enhanced(2, 0, 0), text), now);
    }

    /// The message is not kept: 4yz or 5yz after `BodyEnd`.
    ///
    /// # Panics
    /// If no body has ended: a bug of the driver.
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

    /// The client has closed its side; to be called once all that it sent was taken. What it
    /// has asked for so far is still answered.
    pub fn eof(&mut self, _now: Now) {
        self.ending = Ending::Eof;
        if !self.awaits_answer() {
            self.end_if_due();
        }
    }

    /// We stop: at once if no transaction is under way, else after it (RFC 5321 3.8).
    pub fn shutdown(&mut self, _now: Now) {
        if self.ending == Ending::NotYet {
            self.ending = Ending::Shutdown;
        }
        if !self.awaits_answer() {
            self.end_if_due();
        }
    }

    /// We end it with `reply` (421) wherever it is: the driver cannot go on. `Reset`, if a
    /// transaction was open, and `Close` follow.
    pub fn hang_up(&mut self, reply: &Reply, _now: Now) {
        if !self.is_closed() {
            reply.encode(&mut self.output);
            self.close();
        }
    }

    /// The body that is being read will not be kept, because the driver has no room: what has come
    /// of it is dropped, the rest is read and dropped, and `reply` (4yz) is said at its end. `Reset`
    /// follows. Returns `false`, and does nothing, if no body is being read or it was dropped before.
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

    /// Says whether the driver's memory is short: a client that holds a transaction then has
    /// [`STRESS_COMMAND_WAIT_MAX`](super::clock::STRESS_COMMAND_WAIT_MAX) for its next command. The usual limit holds
    /// again once this is called with `false`.
    pub fn stress(&mut self, stressed: bool) {
        self.stressed = stressed;
    }

    /// When `handle_timeout` is to be called; `None`: not while the driver works.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let within_body = matches!(self.state, State::ExpectBody(_) | State::ExpectChunk(_));
        let open = !self.is_closed() && !self.awaits_answer();
        let hurried = self.stressed && self.transaction.is_some();
        open.then(|| self.clock.deadline(&self.server.settings, within_body, hurried)).flatten()
    }

    /// Ends the connection if the client's time is over.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.next_wakeup().is_some_and(|deadline| deadline <= now.monotonic) {
            self.close_with(Enhanced(4, 4, 2), "Error: timeout exceeded");
        }
    }

    /// Between MAIL and the end of its message.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some() || matches!(self.state, State::ExpectPromise)
    }

    /// What it has in common with the other sessions of its listener.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The driver owes an answer.
    pub fn awaits_answer(&self) -> bool {
        matches!(self.state, State::ExpectVerdict(_) | State::ExpectPromise)
    }

    /// What it holds for its client, in bytes: for the sum over all sessions.
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

    /// The part of [`Session::memory_bytes`] that the beginning of a command and waiting replies take.
    pub fn buffer_bytes(&self) -> usize {
        allocation_bytes(self.line.capacity()) + allocation_bytes(self.output.capacity())
    }

    /// Nothing more will be read.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }
}
