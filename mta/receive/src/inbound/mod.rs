//! One client: its bytes to `smtp`'s session and the replies back, until the connection ends.
//!
//! | state | waits for | ends with |
//! |---|---|---|
//! | `Talking` | bytes, or room for replies | the session's end, or a client that takes no replies |
//! | `AwaitCredit` | credit of the queue process | credit, or a timeout |
//! | `AwaitAnswer` | what became of the message | the answer; the gateway gives one up |
//! | `Closing` | room for the last replies | the last octet, or a timeout |
//! | `Lingering` | the client to close its side | end of input, or a timeout |
//!
//! Must never be read from while it has replies to take, or while the queue process gives no credit.

mod body;
mod envelope;
mod recipients;
mod transaction;

use crate::clients::ClientId;
use crate::memory::{Share, session_bytes};
use crate::{Gateway, SessionOutput};
use mail::{Instant, Now, Refusal, ReversePath, Verdict};
use policy::ConnectionPermit;
use smtp::server::{BodyEnd, Event, Server, Session};
use std::sync::Arc;
use std::time::Duration;
use transaction::{AwaitedMessage, Transaction};

/// Upper bound on what is read from a client at once, and on a piece of a body.
pub const READ_BYTES_MAX: usize = 64 << 10;
/// How long a client that heard the last reply may take to close, so that it can read the reply.
const LINGER_WAIT_MAX: Duration = Duration::from_millis(500);
/// Replies that gather before they are sent: a client that sent thousands of RCPTs at once hears of the first while the
/// others are read. No flood makes more of them: EHLO must be the last of its packet, and idle commands are counted.
const REPLIES_BYTES_MAX: usize = 8 << 10;
/// The same, and what is read from a client at once, while there is no room for more: a session then stays within the
/// least that it counts with.
const SHORT_BYTES_MAX: usize = 1 << 10;
/// A larger buffer of replies is given back when the replies are sent.
const REPLIES_BYTES_KEPT: usize = 4 << 10;

/// What happens to a connection.
#[derive(Debug)]
pub enum Input<'a> {
    /// Bytes came: at most [`InboundSession::read_bytes_max`].
    Received(&'a [u8]),
    /// The client has closed its side.
    Eof,
    /// The connection is lost.
    Lost,
}

/// One client's connection.
#[derive(Debug)]
pub struct InboundSession {
    id: ClientId,
    client: policy::Client,
    session: Session,
    state: State,
    /// What the session has not taken yet, from `kept_from` on; empty if it has everything. A list's thousands of RCPTs
    /// come in one piece: to move the rest of it up after each would cost more than everything else.
    kept: Vec<u8>,
    kept_from: usize,
    /// There were replies to send at the last wait.
    is_flushing: bool,
    /// The client has closed its side, or the last reply was to QUIT: there is no need to linger.
    parted: bool,
    /// The session was told that the process must end.
    is_stopping: bool,
    helo: Box<str>,
    transaction: Option<Transaction>,
    /// Recipients that were refused.
    recipients_refused: u64,
    share: Share,
    /// `None`: the connection was given back.
    connection: Option<ConnectionPermit>,
}

#[derive(Debug)]
enum State {
    Talking,
    AwaitCredit {
        purpose: CreditPurpose,
        until: Instant,
    },
    AwaitAnswer {
        number: u64,
        arrival: AwaitedMessage,
    },
    Closing {
        until: Instant,
    },
    Lingering {
        until: Instant,
    },
    /// Nothing is waited for.
    Ended,
    /// The driver was told to close.
    Closed,
}

/// What credit is waited for.
#[derive(Debug)]
enum CreditPurpose {
    /// To answer DATA.
    Data,
    /// To hand over this piece of the body.
    Piece(Vec<u8>),
    /// To read more of the body.
    More,
    /// To hand over the end of the message.
    End(Box<BodyEnd>),
}

/// What became of one step.
enum Step {
    /// There may be more to do.
    GoOn,
    Output(SessionOutput),
    /// Nothing can be done before something happens.
    Wait,
}

impl InboundSession {
    pub(crate) fn new(
        client: policy::Client,
        server: Arc<Server>,
        (id, connection, share): (ClientId, ConnectionPermit, Share),
        now: Now,
    ) -> InboundSession {
        InboundSession {
            id,
            client,
            session: Session::new(server, now),
            state: State::Talking,
            kept: Vec::new(),
            kept_from: 0,
            is_flushing: false,
            parted: false,
            is_stopping: false,
            helo: "".into(),
            transaction: None,
            recipients_refused: 0,
            share,
            connection: Some(connection),
        }
    }

    /// Returns the id of the client in its gateway.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns the name with which the client greeted.
    pub fn helo(&self) -> &str {
        &self.helo
    }

    /// Returns the sender of the transaction, or the null sender if there is no transaction.
    pub fn sender(&self) -> &ReversePath {
        self.transaction
            .as_ref()
            .map_or(&ReversePath::Null, |transaction| &transaction.mail.from.sender)
    }

    /// Takes what has happened.
    pub fn handle(&mut self, input: Input<'_>, gateway: &mut Gateway, now: Now) {
        match (input, &self.state) {
            (Input::Lost, State::Closed) => {}
            (Input::Lost, _) => self.lose(gateway),
            (Input::Received(bytes), State::Talking) => self.receive(bytes, gateway, now),
            (Input::Received(bytes), State::AwaitCredit { .. } | State::AwaitAnswer { .. }) => {
                self.kept.extend_from_slice(bytes);
            }
            (Input::Eof, State::Lingering { .. }) => self.state = State::Ended,
            (Input::Eof, _) => {
                self.parted = true;
                self.session.eof(now);
            }
            (Input::Received(_), _) => {}
        }
    }

    fn receive(&mut self, bytes: &[u8], gateway: &mut Gateway, now: Now) {
        let is_full = !gateway.has_room(&self.share, 0);
        if is_full && self.session.drop_body(&Refusal::Full.reply()) {
            gateway.memory.count_refusal();
        }
        let taken = if self.kept.is_empty() { self.session.receive(bytes, now) } else { 0 };
        self.kept.extend_from_slice(&bytes[taken..]);
    }

    fn lose(&mut self, gateway: &mut Gateway) {
        self.give_up(gateway);
        self.forget_answer(gateway);
        self.state = State::Ended;
    }

    /// The next thing to do. Call this after [`InboundSession::handle`], after [`InboundSession::transmitted`], at
    /// [`InboundSession::next_wakeup`], and when the gateway wakes the client.
    pub fn poll(&mut self, gateway: &mut Gateway, now: Now) -> Option<SessionOutput> {
        loop {
            let step = match self.state {
                State::Talking => self.talk(gateway, now),
                State::AwaitCredit { until, .. } => self.await_credit(until, gateway, now),
                State::AwaitAnswer { number, .. } => self.await_answer(number, gateway, now),
                State::Closing { until } => self.flush_last(until, gateway, now),
                State::Lingering { until } => self.linger(until, now),
                State::Ended => self.end(),
                State::Closed => return None,
            };
            match step {
                Step::GoOn => {}
                Step::Output(output) => return Some(output),
                Step::Wait => {
                    self.count(gateway);
                    return None;
                }
            }
        }
    }

    fn talk(&mut self, gateway: &mut Gateway, now: Now) -> Step {
        if self.hears_shutdown(gateway) {
            self.session.shutdown(now);
        }
        if let Some(event) = self.session.poll(now) {
            return self.act(event, gateway, now);
        }
        // The replies to commands that came together go together (RFC 2920 3.2).
        if self.session.output().len() < self.replies_bytes_max(gateway) && self.offer_kept(now) {
            return Step::GoOn;
        }
        self.session.stress(gateway.memory.stresses(&self.share));
        if self.session.output().is_empty() {
            return self.check_time(now);
        }
        // The client takes no replies: it would not take another one that says so.
        let deadline = self.session.next_wakeup();
        if self.is_flushing && deadline.is_some_and(|deadline| deadline <= now.monotonic) {
            self.lose(gateway);
            return Step::GoOn;
        }
        self.is_flushing = true;
        Step::Wait
    }

    /// Ends the session of a client whose time is over, even if it keeps sending.
    fn check_time(&mut self, now: Now) -> Step {
        self.session.handle_timeout(now);
        if self.session.is_closed() { Step::GoOn } else { Step::Wait }
    }

    /// Returns true the first time after the process was told to end.
    fn hears_shutdown(&mut self, gateway: &Gateway) -> bool {
        gateway.is_stopping() && !std::mem::replace(&mut self.is_stopping, true)
    }

    fn act(&mut self, event: Event, gateway: &mut Gateway, now: Now) -> Step {
        match event {
            Event::Hello { name, .. } => {
                self.helo = name;
                self.answer(Verdict::Accept, now);
            }
            Event::Mail(mail) => self.mail(mail, gateway, now),
            Event::Rcpt(recipient) => return self.rcpt(recipient, gateway, now),
            Event::Data => self.data(gateway, now),
            Event::Body(bytes) => self.piece(bytes, gateway, now),
            Event::BodyEnd(end) => return self.end_of_body(end, gateway, now),
            Event::Reset => self.give_up(gateway),
            Event::Close { after_quit } => {
                self.parted |= after_quit;
                self.begin_closing(gateway, now);
            }
        }
        Step::GoOn
    }

    fn answer(&mut self, verdict: Verdict, now: Now) {
        self.session.answer(verdict, now);
    }

    /// Answers that there is no room for what was asked.
    fn answer_full(&mut self, gateway: &mut Gateway, now: Now) {
        gateway.memory.count_refusal();
        self.answer(Refusal::Full.into(), now);
    }

    /// Offers the session what it did not take before. Returns whether it took any of that.
    fn offer_kept(&mut self, now: Now) -> bool {
        if self.kept.is_empty() {
            return false;
        }
        let taken = self.session.receive(&self.kept[self.kept_from..], now);
        self.kept_from += taken;
        if self.kept_from == self.kept.len() {
            (self.kept, self.kept_from) = (Vec::new(), 0);
        }
        taken > 0
    }

    fn replies_bytes_max(&self, gateway: &Gateway) -> usize {
        if gateway.has_room(&self.share, 0) { REPLIES_BYTES_MAX } else { SHORT_BYTES_MAX }
    }

    fn begin_closing(&mut self, gateway: &mut Gateway, now: Now) {
        self.give_up(gateway);
        let wait_max = match gateway.is_stopping() {
            true => LINGER_WAIT_MAX,
            false => self.session.server().settings().command_timeout,
        };
        self.is_stopping = gateway.is_stopping();
        self.state = State::Closing { until: now.monotonic + wait_max };
    }

    /// Waits for the last replies to be written: up to the command timeout, or [`LINGER_WAIT_MAX`] if the process must end.
    fn flush_last(&mut self, until: Instant, gateway: &mut Gateway, now: Now) -> Step {
        if self.session.output().is_empty() {
            return self.say_goodbye(now);
        }
        let mut until = until;
        if self.hears_shutdown(gateway) {
            until = until.min(now.monotonic + LINGER_WAIT_MAX);
        }
        self.state = State::Closing { until };
        if until <= now.monotonic {
            self.state = State::Ended;
            return Step::GoOn;
        }
        Step::Wait
    }

    /// Closes for writing and lingers. A close with unread input sends a reset, and the client could lose the last reply.
    fn say_goodbye(&mut self, now: Now) -> Step {
        if let Some(output) = self.sum_of_refused() {
            return Step::Output(output);
        }
        if self.has_parted() {
            self.state = State::Ended;
            return Step::GoOn;
        }
        self.state = State::Lingering { until: now.monotonic + LINGER_WAIT_MAX };
        Step::Output(SessionOutput::CloseWrite)
    }

    fn linger(&mut self, until: Instant, now: Now) -> Step {
        if until > now.monotonic {
            return Step::Wait;
        }
        self.state = State::Ended;
        Step::GoOn
    }

    fn end(&mut self) -> Step {
        if let Some(output) = self.sum_of_refused() {
            return Step::Output(output);
        }
        self.state = State::Closed;
        Step::Output(SessionOutput::Close)
    }

    fn has_parted(&self) -> bool {
        self.parted && self.kept.is_empty()
    }

    /// Returns the replies to send.
    pub fn transmit(&mut self) -> &[u8] {
        self.session.output()
    }

    /// Notes that the driver has sent the first `bytes` bytes of [`InboundSession::transmit`].
    pub fn transmitted(&mut self, bytes: usize) {
        let output = self.session.output();
        output.drain(..bytes);
        if output.is_empty() {
            self.is_flushing = false;
            if output.capacity() > REPLIES_BYTES_KEPT {
                *output = Vec::new();
            }
        }
    }

    /// Returns true if the connection ends after these replies. They may then go out together with its end.
    pub fn ends_after_replies(&self) -> bool {
        matches!(self.state, State::Closing { .. }) && self.has_parted()
    }

    /// Returns how many bytes the driver may read now. 0 means that it must not read.
    pub fn read_bytes_max(&mut self, gateway: &Gateway) -> usize {
        match self.state {
            State::Lingering { .. } => READ_BYTES_MAX,
            State::Talking if self.session.output().is_empty() && self.kept.is_empty() => {
                let has_room = gateway.has_room(&self.share, READ_BYTES_MAX);
                if has_room { READ_BYTES_MAX } else { SHORT_BYTES_MAX }
            }
            _ => 0,
        }
    }

    /// Returns when [`InboundSession::poll`] must be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        match self.state {
            State::Talking => self.session.next_wakeup(),
            State::AwaitCredit { until, .. }
            | State::Closing { until }
            | State::Lingering { until } => Some(until),
            State::AwaitAnswer { .. } | State::Ended | State::Closed => None,
        }
    }

    /// Returns what the connection holds to the gateway. The driver calls this when the connection ends for any reason.
    pub fn release(&mut self, gateway: &mut Gateway) {
        let Some(connection) = self.connection.take() else { return };
        self.give_up(gateway);
        self.forget_answer(gateway);
        self.state = State::Closed;
        gateway.connections.closed(&connection);
        gateway.memory.leave(&mut self.share);
        gateway.clients.remove(self.id);
    }

    /// Forgets the message that the client waits for.
    fn forget_answer(&mut self, gateway: &mut Gateway) {
        if let State::AwaitAnswer { number, .. } = self.state {
            gateway.queue.forget(number);
        }
    }

    /// Drops the transaction, and the part of it that the queue process has.
    fn give_up(&mut self, gateway: &mut Gateway) {
        if let Some(number) = self.transaction.take().and_then(|one| one.staged_number()) {
            gateway.queue.unstage(number);
        }
    }

    /// Returns the memory of the connection in bytes, as the memory limit counts it.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.session.buffer_bytes() + self.kept.capacity();
        session_bytes(buffers, self.bytes_beside_buffers())
    }

    /// Updates the sum of all sessions with the memory of this session.
    fn count(&mut self, gateway: &mut Gateway) {
        let bytes = self.memory_bytes();
        gateway.memory.set(&mut self.share, bytes);
    }

    fn bytes_beside_buffers(&self) -> usize {
        let lmtp = self.session.server().settings().lmtp;
        let transaction = self.transaction.as_ref().map_or(0, |one| one.memory_bytes(lmtp));
        self.session.memory_bytes() - self.session.buffer_bytes() + transaction
    }
}
