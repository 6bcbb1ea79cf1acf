//! A session with a next hop: finds its addresses, tries one after the other, and carries messages
//! over the connection that was greeted.
//!
//! Must never lose a message: each is returned with an outcome for each recipient, or as unsent.

use crate::dead::DeadAddresses;
use crate::resolve::{Answer, Question};
use crate::route::{Rules, Search, Target, Unreachable};
use bytes::Bytes;
use mail::{Enhanced, Instant, NextHop, Now, Outcome, Reply, Report, Stage};
use smtp::client::{self, OutboundMessage, Session};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How much one attempt may try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Upper bound on the addresses that are tried until one greets with 220.
    pub addresses_max: usize,
    /// How long opening one connection may take.
    pub connect: Duration,
    /// How long all lookups together may take.
    pub resolve: Duration,
}

impl Limits {
    /// The daemon's limits, for tests of any crate.
    ///
    /// Product code fills every field itself; tidy refuses a call from it.
    pub fn for_tests() -> Limits {
        Limits {
            addresses_max: 5,
            connect: Duration::from_secs(30),
            resolve: Duration::from_secs(60),
        }
    }
}

/// What the driver tells the session.
#[derive(Debug)]
pub enum Input<'a> {
    /// The answer to `Output::Ask`.
    Answer {
        /// The question as it was asked.
        question: Question,
        /// What the DNS says.
        answer: Answer,
        /// A random number, which decides the order of equal hosts.
        chance: u64,
    },
    /// The connection of `Output::Connect` is open.
    Connected,
    /// The connection could not be opened, for this reason.
    ConnectFailed(&'a str),
    /// An input of the SMTP or LMTP session on the connection.
    Session(client::Input<'a>),
}

/// What the driver has to do, besides writing what `transmit` returns.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Look this up.
    Ask(Question),
    /// Open a connection; a former one has been closed.
    Connect(Target),
    /// What the session of the connection wants. `Close` also comes from this machine itself.
    Session(client::Output),
}

/// A session with one next hop. Its first message is the reason to connect; more messages follow
/// over the same connection.
#[derive(Debug)]
pub struct OutboundSession {
    settings: Arc<client::Settings>,
    limits: Limits,
    state: State,
    /// The first message, until an address has greeted and taken it.
    first: Option<Box<OutboundMessage>>,
    /// The report of the best failure so far: temporary beats permanent, otherwise the most recent.
    so_far: Option<Report>,
    /// Addresses that failed, as all sessions of the process remember them.
    dead: DeadAddresses,
    /// True if there are more addresses than one attempt may try. Only then are failures
    /// remembered.
    is_wide: bool,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
enum State {
    ExpectAnswers {
        search: Search,
        due: Instant,
    },
    ExpectConnection {
        target: Target,
        rest: VecDeque<Target>,
        due: Instant,
    },
    /// `target` and `rest` are empty once the peer has greeted.
    Open {
        session: Box<Session>,
        target: Option<Target>,
        rest: VecDeque<Target>,
    },
    Closed,
}

impl OutboundSession {
    /// Starts the search for the addresses of the next hop. `dead` is shared by all sessions of the
    /// process.
    pub fn new(
        hop: &NextHop,
        message: Box<OutboundMessage>,
        rules: Arc<Rules>,
        settings: Arc<client::Settings>,
        limits: Limits,
        dead: DeadAddresses,
        now: Now,
    ) -> OutboundSession {
        let search = Search::new(hop, rules);
        let due = now.monotonic + limits.resolve;
        let mut session = OutboundSession {
            settings,
            limits,
            state: State::ExpectAnswers { search, due },
            first: Some(message),
            so_far: None,
            dead,
            is_wide: false,
            outputs: VecDeque::new(),
        };
        session.search_on(now);
        session
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Now) {
        match input {
            Input::Answer { question, answer, chance } => {
                if let State::ExpectAnswers { search, .. } = &mut self.state {
                    search.handle(&question, answer, chance);
                }
                self.search_on(now);
            }
            Input::Connected => self.connected(now),
            Input::ConnectFailed(why) => self.connect_failed(why, now),
            Input::Session(input) => self.session_input(input, now),
        }
    }

    /// Returns what the driver has to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When the driver has to say `client::Input::Tick`.
    pub fn next_wakeup(&self) -> Option<Instant> {
        match &self.state {
            State::ExpectAnswers { due, .. } | State::ExpectConnection { due, .. } => Some(*due),
            State::Open { session, .. } => session.next_wakeup(),
            State::Closed => None,
        }
    }

    /// Returns the bytes to write to the peer.
    pub fn transmit(&self) -> &[u8] {
        match &self.state {
            State::Open { session, .. } => session.transmit(),
            _ => &[],
        }
    }

    /// Records that this many bytes of `transmit` have been written.
    pub fn transmitted(&mut self, bytes: usize, now: Now) {
        if let State::Open { session, .. } = &mut self.state {
            session.transmitted(bytes, now);
            self.relay(now);
        }
    }

    /// True if the next message may be given with `client::Input::Send`.
    pub fn can_send(&self) -> bool {
        self.session().is_some_and(Session::can_send)
    }

    /// The SMTP or LMTP session, once there is a connection.
    pub fn session(&self) -> Option<&Session> {
        match &self.state {
            State::Open { session, .. } => Some(session),
            _ => None,
        }
    }

    /// True if no output will follow. Bytes of `transmit` may still be written.
    pub fn is_closed(&self) -> bool {
        match &self.state {
            State::Closed => true,
            State::Open { session, .. } => session.is_closed(),
            _ => false,
        }
    }

    fn search_on(&mut self, now: Now) {
        let State::ExpectAnswers { search, .. } = &mut self.state else { return };
        while let Some(question) = search.poll() {
            self.outputs.push_back(Output::Ask(question));
        }
        match search.found() {
            None => {}
            Some(Ok(targets)) => {
                self.is_wide = targets.len() > self.limits.addresses_max;
                let max = self.limits.addresses_max;
                let targets = self.dead.choose(targets, max, now.monotonic);
                self.next_target(targets, now);
            }
            Some(Err(Unreachable(reply))) => {
                let report = report(Stage::Resolve, reply.clone(), "");
                self.keep(report);
                self.give_up();
            }
        }
    }

    fn next_target(&mut self, mut rest: VecDeque<Target>, now: Now) {
        let Some(target) = rest.pop_front() else { return self.give_up() };
        self.outputs.push_back(Output::Connect(target.clone()));
        let due = now.monotonic + self.limits.connect;
        self.state = State::ExpectConnection { target, rest, due };
    }

    fn connected(&mut self, now: Now) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::ExpectConnection { target, rest, .. } => {
                let settings = Arc::clone(&self.settings);
                let mut session = Session::new(settings, target.dialect, target.peer(), now);
                if let Some(message) = self.first.take() {
                    session.handle(client::Input::Send(message), now);
                }
                let session = Box::new(session);
                self.state = State::Open { session, target: Some(target), rest };
            }
            state => self.state = state,
        }
    }

    fn connect_failed(&mut self, why: &str, now: Now) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::ExpectConnection { target, rest, .. } => {
                let reply = Reply::new(451, Enhanced(4, 4, 1), format!("connecting: {why}"));
                self.keep(report(Stage::Connect, reply, &target.peer()));
                self.remember_failure(&target, now);
                self.next_target(rest, now);
            }
            state => self.state = state,
        }
    }

    fn session_input(&mut self, input: client::Input<'_>, now: Now) {
        match (&mut self.state, input) {
            (State::Open { session, .. }, input) => {
                session.handle(input, now);
                self.relay(now);
            }
            (State::ExpectAnswers { due, .. }, client::Input::Tick) if *due <= now.monotonic => {
                let reply = Reply::new(451, Enhanced(4, 4, 3), "the lookups took too long");
                self.keep(report(Stage::Resolve, reply, ""));
                self.give_up();
            }
            (State::ExpectConnection { due, .. }, client::Input::Tick) if *due <= now.monotonic => {
                self.outputs.push_back(CLOSE);
                self.connect_failed("no answer in time", now);
            }
            (State::ExpectAnswers { .. } | State::ExpectConnection { .. }, client::Input::Quit) => {
                let reply = Reply::new(451, Enhanced(4, 3, 2), "the delivery was stopped");
                self.keep(report(Stage::Connect, reply, ""));
                self.give_up();
            }
            (_, client::Input::Send(message)) => {
                self.outputs.push_back(Output::Session(client::Output::Unsent(message)));
            }
            _ => {}
        }
    }

    /// Passes on the outputs of the session. If the peer refused us before it took a message, the
    /// next address is tried instead (RFC 5321 5.1).
    fn relay(&mut self, now: Now) {
        let State::Open { session, target, rest } = &mut self.state else { return };
        if session.is_idle() || session.mails() > 0 {
            rest.clear();
            if let Some(target) = target.take() {
                self.dead.answered(&target.place);
            }
        }
        let (mut turned_away, mut closing) = (None, false);
        while let Some(output) = session.poll() {
            match output {
                client::Output::Done { message, outcomes } if failed_early(&outcomes) => {
                    turned_away = Some((message, outcomes));
                }
                client::Output::Close => closing = true,
                output => self.outputs.push_back(Output::Session(output)),
            }
        }
        let (target, rest) = (target.take(), std::mem::take(rest));
        match turned_away {
            Some((message, outcomes)) => {
                target.iter().for_each(|target| self.remember_failure(target, now));
                self.first = Some(message);
                outcomes
                    .into_iter()
                    .take(1)
                    .for_each(|outcome| self.keep(outcome.report().clone()));
                self.outputs.push_back(CLOSE);
                self.next_target(rest, now);
            }
            None if closing => self.outputs.push_back(CLOSE),
            None => {
                if let State::Open { target: here, rest: place, .. } = &mut self.state {
                    (*here, *place) = (target, rest);
                }
            }
        }
    }

    /// Remembers that an address failed, if there are more addresses than one attempt may try.
    fn remember_failure(&self, target: &Target, now: Now) {
        if self.is_wide {
            self.dead.failed(&target.place, now.monotonic);
        }
    }

    /// Keeps the report of the best failure: temporary beats permanent; otherwise the most recent.
    fn keep(&mut self, report: Report) {
        let hopeless = report.reply.is_permanent();
        if self.so_far.as_ref().is_none_or(|so_far| so_far.reply.is_permanent() || !hopeless) {
            self.so_far = Some(report);
        }
    }

    /// Ends the session because no address is left.
    fn give_up(&mut self) {
        self.state = State::Closed;
        let Some(message) = self.first.take() else { return };
        let none = || {
            let reply = Reply::new(451, Enhanced(4, 4, 4), "there is no address to try");
            report(Stage::Resolve, reply, "")
        };
        let report = self.so_far.take().unwrap_or_else(none);
        let outcome = match report.reply.is_permanent() {
            true => Outcome::Failed(report),
            false => Outcome::Deferred(report),
        };
        let outcomes = vec![outcome; message.recipients.len()];
        self.outputs.push_back(Output::Session(client::Output::Done { message, outcomes }));
        self.outputs.push_back(CLOSE);
    }
}

const CLOSE: Output = Output::Session(client::Output::Close);

/// Bytes of a message for the session.
impl From<Bytes> for Input<'_> {
    fn from(bytes: Bytes) -> Self {
        Input::Session(client::Input::Body(bytes))
    }
}

/// True if the peer failed before it took a message: in its greeting or its answer to EHLO.
fn failed_early(outcomes: &[Outcome]) -> bool {
    let early = |outcome: &Outcome| {
        matches!(outcome.report().stage, Stage::Greeting | Stage::Hello)
            && !matches!(outcome, Outcome::Delivered { .. })
    };
    !outcomes.is_empty() && outcomes.iter().all(early)
}

fn report(stage: Stage, reply: Reply, peer: &str) -> Report {
    Report { stage, reply, peer: peer.into(), from_peer: false }
}
