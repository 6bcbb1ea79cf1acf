//! A line to a next hop: from the question where it is, over the addresses that do not answer,
//! to the last message that went through.
//!
//! Must never lose a message it was given: each comes back, with an outcome for each recipient
//! or as unsent.

use crate::dead::DeadAddresses;
use crate::resolve::{Answer, Question};
use crate::route::{Rules, Search, Target, Unreachable};
use bytes::Bytes;
use mail::{Enhanced, Instant, NextHop, Now, Outcome, Reply, Report, Stage};
use smtp::client::{self, Config, Message, Session};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How much one attempt may try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Addresses tried until one answers with 220.
    pub addresses_max: usize,
    /// How long one connection may take to open.
    pub connect: Duration,
    /// How long the lookups together may take.
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

/// What the driver has to tell.
#[derive(Debug)]
pub enum Input<'a> {
    /// The answer to `Output::Ask`; `chance` decides the order among equals.
    Answer {
        /// As it was asked.
        question: Question,
        /// What the DNS says.
        answer: Answer,
        /// Any number.
        chance: u64,
    },
    /// `Output::Connect` came about.
    Connected,
    /// It did not, in words.
    ConnectFailed(&'a str),
    /// For the session on the line: what it knows as `client::Input`.
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

/// One line. It opens for its first message, and takes more while it lives.
#[derive(Debug)]
pub struct OutboundSession {
    config: Arc<Config>,
    limits: Limits,
    state: State,
    /// The first message until a session has it.
    first: Option<Box<Message>>,
    /// Why the addresses so far did not do; the one that gives the most hope.
    so_far: Option<Report>,
    /// Where addresses that do not take us in are remembered.
    dead: DeadAddresses,
    /// There are more addresses than one attempt may try, so the dead ones are remembered.
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
    /// `target` and `rest` are gone once the peer has taken us in.
    Open {
        session: Box<Session>,
        target: Option<Target>,
        rest: VecDeque<Target>,
    },
    Closed,
}

impl OutboundSession {
    /// A line for this message, and others to the same next hop after it. `dead` is what all lines
    /// of the process remember.
    pub fn new(
        hop: &NextHop,
        message: Box<Message>,
        rules: Arc<Rules>,
        config: Arc<Config>,
        limits: Limits,
        dead: DeadAddresses,
        now: Now,
    ) -> OutboundSession {
        let search = Search::new(hop, rules);
        let due = now.monotonic + limits.resolve;
        let mut session = OutboundSession {
            config,
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

    /// What the driver is to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with `client::Input::Tick`.
    pub fn next_wakeup(&self) -> Option<Instant> {
        match &self.state {
            State::ExpectAnswers { due, .. } | State::ExpectConnection { due, .. } => Some(*due),
            State::Open { session, .. } => session.next_wakeup(),
            State::Closed => None,
        }
    }

    /// Bytes to write to the peer.
    pub fn transmit(&self) -> &[u8] {
        match &self.state {
            State::Open { session, .. } => session.transmit(),
            _ => &[],
        }
    }

    /// So many of `transmit` have been written.
    pub fn transmitted(&mut self, bytes: usize, now: Now) {
        if let State::Open { session, .. } = &mut self.state {
            session.transmitted(bytes, now);
            self.relay(now);
        }
    }

    /// The next message may be given with `client::Input::Send`.
    pub fn can_send(&self) -> bool {
        self.session().is_some_and(Session::can_send)
    }

    /// The session, once there is a connection.
    pub fn session(&self) -> Option<&Session> {
        match &self.state {
            State::Open { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Nothing more will come of it, once what is outgoing has been written.
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
                let config = Arc::clone(&self.config);
                let mut session = Session::new(config, target.dialect, target.peer(), now);
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

    /// Passes on what the session wants; one that was turned away at the door makes room for
    /// the next address (RFC 5321 5.1).
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
                client::Output::Done { message, outcomes } if at_the_door(&outcomes) => {
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

    /// Only where it can make a difference: each attempt reaches all of a few addresses.
    fn remember_failure(&self, target: &Target, now: Now) {
        if self.is_wide {
            self.dead.failed(&target.place, now.monotonic);
        }
    }

    /// A reply that lets us hope wins over one that does not; of equals the later.
    fn keep(&mut self, report: Report) {
        let hopeless = report.reply.is_permanent();
        if self.so_far.as_ref().is_none_or(|so_far| so_far.reply.is_permanent() || !hopeless) {
            self.so_far = Some(report);
        }
    }

    /// No address is left.
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

/// For the driver's ease: body bytes for the session.
impl From<Bytes> for Input<'_> {
    fn from(bytes: Bytes) -> Self {
        Input::Session(client::Input::Body(bytes))
    }
}

/// The peer took no message at all: greeting or hello failed, or the connection broke there.
fn at_the_door(outcomes: &[Outcome]) -> bool {
    let early = |outcome: &Outcome| {
        matches!(outcome.report().stage, Stage::Greeting | Stage::Hello)
            && !matches!(outcome, Outcome::Delivered { .. })
    };
    !outcomes.is_empty() && outcomes.iter().all(early)
}

fn report(stage: Stage, reply: Reply, peer: &str) -> Report {
    Report { stage, reply, peer: peer.into(), from_peer: false }
}
