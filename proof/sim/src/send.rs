//! A sending process: the lines to next hops, and the conversation with queue.
//!
//! Stands where `daemon/src/process/send` stands. Must never forget an attempt.

use crate::ledger::parse_address;
use crate::lie;
use crate::net::{End, Segment, StreamId};
use crate::plan::{Lie, Station};
use crate::receive::BUILD;
use crate::stage::{Event, Given, World, address_of, domain_of};
use bytes::{Bytes, BytesMut};
use delivery::resolve::{Answer, Answers, Mx};
use delivery::route::Target;
use delivery::{DeadAddresses, Input, Limits, Ourselves, OutboundSession, Output, Question, Rules};
use link::send::{Attempt, SenderEnd, SenderEvent};
use link::streams::Loss;
use mail::{Instant, MessageId, NextHop, Outcome};
use smtp::client::{self, Message};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use world::Chance as _;

/// A connection without work is kept so long, as in the daemon.
const IDLE: Duration = Duration::from_secs(5);

struct Job {
    attempt: Box<Attempt>,
    indices: Vec<u32>,
    began: Instant,
}

struct Waiting {
    job: Job,
    message: Box<Message>,
}

struct Connection {
    hop: NextHop,
    line: OutboundSession,
    stream: Option<StreamId>,
    job: Option<Job>,
    messages: u32,
    idle_since: Option<Instant>,
    fetching: Option<(u64, u32)>,
    wake_at: Option<Instant>,
}

/// One sending process.
pub struct Send {
    /// Which.
    pub station: Station,
    /// Counts its lives.
    pub life: u64,
    number: u16,
    end: SenderEnd,
    rules: Arc<Rules>,
    config: Arc<client::Config>,
    dead: DeadAddresses,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    waiting: BTreeMap<NextHop, VecDeque<Waiting>>,
    /// Deliveries that are told and not yet recorded.
    told: BTreeMap<u64, Vec<(u32, usize)>>,
    /// The stream to queue.
    pub link: Option<StreamId>,
    input: BytesMut,
}

impl Send {
    /// Starts one.
    pub fn new(number: u16, life: u64, world: &mut World) -> Send {
        let capacity = world.plan.settings.scheduler.attempts_in_flight_max * 2;
        let ourselves = Ourselves { names: vec!["mx.test".into()], addresses: Vec::new() };
        Send {
            station: Station::Send(number),
            life,
            number,
            end: SenderEnd::new(BUILD, world.chance.u64(), capacity),
            rules: Arc::new(Rules { ourselves, ..Rules::for_tests() }),
            config: Arc::new(client::Config {
                helo: "mx.test".into(),
                ..client::Config::for_tests()
            }),
            dead: DeadAddresses::default(),
            connections: BTreeMap::new(),
            next_connection: 0,
            waiting: BTreeMap::new(),
            told: BTreeMap::new(),
            link: None,
            input: BytesMut::new(),
        }
    }

    /// A stream to a queue process is there.
    pub fn connected(&mut self, stream: StreamId, world: &mut World) {
        self.link = Some(stream);
        self.input.clear();
        self.end.connected();
        for connection in self.connections.values() {
            if let (Some(job), Some((offset, bytes))) = (&connection.job, connection.fetching) {
                self.end.fetch(job.attempt.id, job.attempt.message, offset, bytes);
            }
        }
        self.write(world);
    }

    /// Something has arrived.
    pub fn hear(&mut self, stream: StreamId, end: End, segment: Segment, world: &mut World) {
        if matches!(end, End::Line(_)) {
            return self.hear_line(stream, segment, world);
        }
        if self.link != Some(stream) {
            return;
        }
        let heard = match &segment {
            Segment::Bytes(bytes) => {
                self.input.extend_from_slice(bytes);
                self.end.handle(&mut self.input).map_err(Some)
            }
            Segment::Fin | Segment::Reset => Err(None),
        };
        if let Err(error) = heard {
            if let Some(error) = error {
                world.broken(stream, &format!("send{}", self.number), error);
            }
            self.link = None;
            world.lost(self.station, stream, error.map_or(Loss::Ended, Loss::Link));
            world.hang_up(stream, 1, Segment::Fin);
        }
        while let Some(event) = self.end.poll() {
            match event {
                SenderEvent::Attempt { attempt, body } => self.attempt(attempt, body, world),
                SenderEvent::Chunk { attempt, offset, bytes } => {
                    self.chunk(attempt, offset, Some(bytes), world);
                }
                SenderEvent::ChunkBad { attempt } => self.chunk(attempt, u64::MAX, None, world),
            }
        }
        self.settle(world);
        self.write(world);
    }

    /// What queue has recorded is durable.
    fn settle(&mut self, world: &mut World) {
        let now = world.now().monotonic;
        let end = &self.end;
        let ledger = &mut world.ledger;
        self.told.retain(|attempt, delivered| {
            let open = end.is_open(*attempt);
            if !open {
                delivered.iter().for_each(|(number, index)| ledger.settled(*number, *index, now));
            }
            open
        });
    }

    /// Says of a former or another process's attempt what it must not say, as one would that was
    /// taken over.
    pub fn lie(&mut self, kind: Lie, world: &mut World) {
        let Some(link) = self.link else { return };
        let end = &self.end;
        lie::tell(kind, self.station, link, |attempt| end.is_under_way(attempt), world);
    }

    fn write(&mut self, world: &mut World) {
        if let Some(link) = self.link {
            let frames: Vec<u8> = self.end.output().drain(..).flatten().collect();
            if !frames.is_empty() {
                world.put(link, 1, Segment::Bytes(frames), Duration::ZERO);
            }
        }
    }

    fn attempt(&mut self, mut attempt: Box<Attempt>, body: Option<Bytes>, world: &mut World) {
        let began = world.now().monotonic;
        world.log(|| {
            format!(
                "send{}: attempt {} of {} {:?}",
                self.number,
                attempt.id,
                attempt.message,
                attempt.recipients.iter().map(|r| r.1.address.to_string()).collect::<Vec<_>>()
            )
        });
        world.gave(Given {
            to: self.station,
            attempt: attempt.id,
            message: attempt.message,
            recipients: attempt.recipients.iter().map(|(index, _)| *index).collect(),
        });
        let (indices, recipients) = std::mem::take(&mut attempt.recipients).into_iter().unzip();
        let message = Box::new(Message {
            from: attempt.from.clone(),
            recipients,
            body_bytes: attempt.body.bytes,
            content: body,
        });
        let hop = attempt.route.hop.clone();
        let waiting = Waiting { job: Job { attempt, indices, began }, message };
        self.waiting.entry(hop.clone()).or_default().push_back(waiting);
        let idle = |connection: &Connection| connection.hop == hop && connection.job.is_none();
        let idle: Vec<u64> =
            self.connections.iter().filter(|(_, c)| idle(c)).map(|(id, _)| *id).collect();
        idle.into_iter().for_each(|id| self.drive(id, world));
        self.open(&hop, world);
    }

    /// Opens a connection if something waits and the limit allows it.
    fn open(&mut self, hop: &NextHop, world: &mut World) {
        let Some(first) = self.waiting.get_mut(hop).and_then(VecDeque::pop_front) else { return };
        let most = first.job.attempt.route.connections_max.max(1) as usize;
        let open = self.connections.values().filter(|other| other.hop == *hop).count();
        if open >= most {
            self.waiting.entry(hop.clone()).or_default().push_front(first);
            return;
        }
        let Waiting { job, message } = first;
        let (rules, config) = (self.rules.clone(), self.config.clone());
        let (limits, dead) = (Limits::for_tests(), self.dead.clone());
        let line = OutboundSession::new(hop, message, rules, config, limits, dead, world.now());
        self.next_connection += 1;
        let id = self.next_connection;
        let connection = Connection {
            hop: hop.clone(),
            line,
            stream: None,
            job: Some(job),
            messages: 1,
            idle_since: None,
            fetching: None,
            wake_at: None,
        };
        self.connections.insert(id, connection);
        self.drive(id, world);
    }

    fn chunk(&mut self, attempt: u64, offset: u64, bytes: Option<Bytes>, world: &mut World) {
        let is_its = |connection: &&mut Connection| {
            connection.job.as_ref().is_some_and(|job| job.attempt.id == attempt)
        };
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.connections.get_mut(&id).filter(is_its) else { continue };
            // An answer that came twice, over a former stream and again, counts once.
            if bytes.is_some() && connection.fetching.map(|(at, _)| at) != Some(offset) {
                return;
            }
            connection.fetching = None;
            let input = match &bytes {
                Some(bytes) => client::Input::Body(bytes.clone()),
                None => client::Input::BodyFailed,
            };
            connection.line.handle(Input::Session(input), world.now());
            return self.drive(id, world);
        }
    }

    fn hear_line(&mut self, stream: StreamId, segment: Segment, world: &mut World) {
        let found = self.connections.iter_mut().find(|(_, c)| c.stream == Some(stream));
        let Some((id, connection)) = found else { return };
        let id = *id;
        let input = match &segment {
            Segment::Bytes(bytes) => client::Input::Received(bytes),
            Segment::Fin | Segment::Reset => client::Input::Lost,
        };
        connection.line.handle(Input::Session(input), world.now());
        if !matches!(segment, Segment::Bytes(_)) {
            connection.stream = None;
            world.hang_up(stream, 0, Segment::Fin);
        }
        self.drive(id, world);
        self.write(world);
    }

    /// The DNS has answered.
    pub fn answer(&mut self, id: u64, question: Question, world: &mut World) {
        let chance = world.chance.u64();
        let answer = dns(&question, world);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.line.handle(Input::Answer { question, answer, chance }, world.now());
            self.drive(id, world);
            self.write(world);
        }
    }

    /// A connection comes about, or not; gives back the stream to a next hop.
    pub fn reach(&mut self, id: u64, target: &Target, world: &mut World) -> Option<(StreamId, u8)> {
        let connection = self.connections.get_mut(&id)?;
        let reached = world.reachable(target).map(|domain| {
            let delay = world.delay(30_000);
            (world.net.open([End::Line(self.number), End::Sink(domain)], delay), domain)
        });
        match reached {
            Some((stream, _)) => {
                connection.stream = Some(stream);
                if let Some(job) = &connection.job {
                    world.attempts.insert(stream, job.began);
                }
                connection.line.handle(Input::Connected, world.now());
            }
            None => connection.line.handle(Input::ConnectFailed("connection refused"), world.now()),
        }
        self.drive(id, world);
        self.write(world);
        reached
    }

    /// A line's clock has rung.
    pub fn tick(&mut self, id: u64, world: &mut World) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let now = world.now();
        connection.wake_at.take_if(|at| *at <= now.monotonic);
        if connection.line.next_wakeup().is_some_and(|due| due <= now.monotonic) {
            connection.line.handle(Input::Session(client::Input::Tick), now);
        }
        self.drive(id, world);
        self.write(world);
    }

    fn drive(&mut self, id: u64, world: &mut World) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        loop {
            let wrote = write_line(&mut connection, world);
            let moved = self.outputs(id, &mut connection, world);
            let next = self.next_message(&mut connection, world);
            if !(wrote || moved || next) {
                break;
            }
        }
        if connection.line.is_closed() {
            if let Some(stream) = connection.stream.take() {
                world.hang_up(stream, 0, Segment::Fin);
            }
            let hop = connection.hop.clone();
            drop(connection);
            return self.open(&hop, world);
        }
        let idle = connection.idle_since.map(|since| since + IDLE);
        if let Some(at) = connection.line.next_wakeup().or(idle) {
            let at = at.max(world.now().monotonic + Duration::from_micros(1));
            if connection.wake_at.is_none_or(|before| at < before) {
                connection.wake_at = Some(at);
                world.at(at, Event::Line(self.station, self.life, id));
            }
        }
        self.connections.insert(id, connection);
    }

    fn outputs(&mut self, id: u64, connection: &mut Connection, world: &mut World) -> bool {
        let mut moved = false;
        while let Some(output) = connection.line.poll() {
            moved = true;
            let (station, life) = (self.station, self.life);
            match output {
                Output::Ask(question) => {
                    let wait = world.delay(50_000);
                    world.after(wait, Event::Answer(station, life, id, Box::new(question)));
                }
                Output::Connect(target) => {
                    let wait = world.delay(50_000);
                    world.after(wait, Event::Connected(station, life, id, Box::new(target)));
                }
                Output::Session(client::Output::NeedBody { offset, bytes }) => {
                    let Some(job) = &connection.job else { continue };
                    connection.fetching = Some((offset, bytes));
                    self.end.fetch(job.attempt.id, job.attempt.message, offset, bytes);
                }
                Output::Session(client::Output::Done { message, outcomes }) => {
                    if let Some(job) = connection.job.take() {
                        connection.fetching = None;
                        self.result(job, &message, outcomes, world);
                    }
                }
                Output::Session(client::Output::Unsent(message)) => {
                    if let Some(job) = connection.job.take() {
                        let waiting = Waiting { job, message };
                        self.waiting.entry(connection.hop.clone()).or_default().push_front(waiting);
                    }
                }
                Output::Session(client::Output::Close) => {
                    write_line(connection, world);
                    if let Some(stream) = connection.stream.take() {
                        world.hang_up(stream, 0, Segment::Fin);
                    }
                }
            }
        }
        moved
    }

    fn result(&mut self, job: Job, message: &Message, outcomes: Vec<Outcome>, world: &mut World) {
        let Job { attempt, indices, .. } = job;
        world.log(|| {
            let said = outcomes.iter().map(|o| format!("{o:?}")).collect::<Vec<_>>();
            format!("send{}: attempt {} ended: {said:?}", self.number, attempt.id)
        });
        let recipients = message.recipients.iter().map(|r| r.address.to_string());
        let delivered = recipients
            .zip(&outcomes)
            .filter(|(_, outcome)| matches!(outcome, Outcome::Delivered { .. }))
            .filter_map(|(address, _)| parse_address(&address))
            .collect();
        self.told.insert(attempt.id, delivered);
        let outcomes = indices.into_iter().zip(outcomes).collect();
        self.say_result(attempt.id, attempt.message, outcomes);
    }

    fn say_result(&mut self, attempt: u64, message: MessageId, outcomes: Vec<(u32, Outcome)>) {
        self.end.result(link::send::Result { attempt, message, outcomes });
    }

    /// More work, or goodbye.
    fn next_message(&mut self, connection: &mut Connection, world: &mut World) -> bool {
        if connection.line.is_closed() || connection.job.is_some() {
            return false;
        }
        let now = world.now();
        let waiting = self.waiting.get_mut(&connection.hop);
        let first = waiting.and_then(VecDeque::pop_front);
        let spent = first.as_ref().is_some_and(|w| {
            connection.messages >= w.job.attempt.route.messages_per_connection_max.max(1)
        });
        if !connection.line.can_send() || spent {
            if let Some(first) = first {
                self.waiting.entry(connection.hop.clone()).or_default().push_front(first);
            }
            connection.line.handle(Input::Session(client::Input::Quit), now);
            return true;
        }
        if let Some(Waiting { job, message }) = first {
            connection.idle_since = None;
            connection.messages += 1;
            if let Some(stream) = connection.stream {
                world.attempts.insert(stream, job.began);
            }
            connection.job = Some(job);
            connection.line.handle(Input::Session(client::Input::Send(message)), now);
            return true;
        }
        let since = *connection.idle_since.get_or_insert(now.monotonic);
        if now.monotonic.since(since) >= IDLE {
            connection.line.handle(Input::Session(client::Input::Quit), now);
            return true;
        }
        false
    }
}

fn write_line(connection: &mut Connection, world: &mut World) -> bool {
    let bytes = connection.line.transmit().to_vec();
    let Some(stream) = connection.stream.filter(|_| !bytes.is_empty()) else { return false };
    world.put(stream, 0, Segment::Bytes(bytes.clone()), Duration::ZERO);
    connection.line.transmitted(bytes.len(), world.now());
    true
}

/// What the DNS says: `d2.test` has an MX, `d3.test` only an address, and both may be silent.
fn dns(question: &Question, world: &World) -> Answer {
    let silent = world.now().monotonic < world.no_dns && !world.is_quiet();
    match question {
        Question::Mx(_) if silent => Answer::Mx(Answers::Unknown("SERVFAIL".into())),
        Question::Addresses(_) if silent => Answer::Addresses(Answers::Unknown("timeout".into())),
        Question::Mx(domain) => Answer::Mx(match domain_of(domain.as_str()) {
            Some(2) => Answers::Found(vec![Mx { preference: 10, host: "mx.d2.test".into() }]),
            Some(_) => Answers::NoRecord,
            None => Answers::NoName,
        }),
        Question::Addresses(domain) => Answer::Addresses(match domain_of(domain.as_str()) {
            // The first address answers nobody.
            Some(number) => Answers::Found(vec![[10, 0, 1, number].into(), address_of(number)]),
            None => Answers::NoName,
        }),
    }
}
