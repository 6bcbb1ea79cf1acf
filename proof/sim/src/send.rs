//! A sending process for next hops: the pool and its connections are those of the daemon; lookups,
//! streams and the time are played here.
//!
//! Stands where `daemon/src/process/send` stands. Must never decide which connection takes a
//! message.

use crate::ledger::parse_address;
use crate::lie;
use crate::net::{End, Segment, StreamId};
use crate::plan::{Lie, Station};
use crate::receive::BUILD;
use crate::stage::{Event, Given, World, address_of, domain_of};
use bytes::BytesMut;
use delivery::resolve::{Answer, Answers, Mx};
use delivery::route::Target;
use delivery::{Limits, Ourselves, Question, Rules};
use link::LinkError;
use link::send::{SenderEnd, SenderEvent};
use link::streams::Loss;
use mail::{Instant, Outcome};
use send::{
    ConnectionId, ConnectionInput, ConnectionOutput, ConnectionPool, EndedAttempt, Input, Output,
    PooledConnection, Settings,
};
use smtp::client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use world::Rng as _;

struct Connection {
    pooled: Box<PooledConnection>,
    stream: Option<StreamId>,
    wake_at: Option<Instant>,
}

/// One sending process.
pub struct Send {
    /// Which.
    pub station: Station,
    /// The number of this start, counted over all processes.
    pub start: u64,
    /// The stream to queue.
    pub link: Option<StreamId>,
    number: u16,
    pool: ConnectionPool,
    connections: BTreeMap<u64, Connection>,
    /// Hears what the pool hears, so that the books know the attempts.
    tap: SenderEnd,
    /// Deliveries that are told and not yet recorded.
    told: BTreeMap<u64, Vec<(u32, usize)>>,
    input: BytesMut,
    wake_at: Option<Instant>,
}

impl Send {
    /// Starts one.
    pub fn new(number: u16, start: u64, world: &mut World) -> Send {
        let incarnation = world.chance.u64();
        let ourselves = Ourselves { names: vec!["mx.test".into()], addresses: Vec::new() };
        let client = client::Settings { helo: "mx.test".into(), ..client::Settings::for_tests() };
        let settings = Settings {
            build: BUILD,
            incarnation,
            attempts_max: world.plan.settings.scheduler.attempts_in_flight_max * 2,
            connections_max: world.plan.settings.send.connections_max,
            idle: world.plan.settings.send.idle,
            client: Arc::new(client),
            rules: Arc::new(Rules { ourselves, ..Rules::for_tests() }),
            limits: Limits::for_tests(),
        };
        Send {
            station: Station::Send(number),
            start,
            link: None,
            number,
            tap: SenderEnd::new(BUILD, incarnation, settings.attempts_max),
            pool: ConnectionPool::new(settings),
            connections: BTreeMap::new(),
            told: BTreeMap::new(),
            input: BytesMut::new(),
            wake_at: None,
        }
    }

    /// A stream to a queue process is there.
    pub fn connected(&mut self, stream: StreamId, world: &mut World) {
        self.link = Some(stream);
        self.input.clear();
        self.tap.connected();
        self.handle(Input::Connected, world);
    }

    /// Something has arrived.
    pub fn hear(&mut self, stream: StreamId, end: End, segment: Segment, world: &mut World) {
        if matches!(end, End::Line(_)) {
            return self.hear_next_hop(stream, segment, world);
        }
        if self.link != Some(stream) {
            return;
        }
        match segment {
            Segment::Bytes(bytes) => {
                self.input.extend_from_slice(&bytes);
                let received = self.pool.handle(Input::Received(&mut self.input), world.now());
                self.listen(&bytes, world);
                if let Err(error) = received {
                    self.lost(Some(error), world);
                }
                self.act(world);
            }
            Segment::Fin | Segment::Reset => self.lost(None, world),
        }
    }

    /// Writes into the books what queue says.
    fn listen(&mut self, bytes: &[u8], world: &mut World) {
        // What the pool refuses is refused here as well, and reported there.
        let _ = self.tap.handle(&mut BytesMut::from(bytes));
        self.tap.transmit().clear();
        while let Some(event) = self.tap.poll() {
            let SenderEvent::Attempt { attempt, .. } = event else { continue };
            world.log(|| {
                let to = attempt.recipients.iter().map(|(_, r)| r.address.to_string());
                let to: Vec<String> = to.collect();
                format!("send{}: attempt {} of {} {to:?}", self.number, attempt.id, attempt.message)
            });
            world.gave(Given {
                to: self.station,
                attempt: attempt.id,
                message: attempt.message,
                recipients: attempt.recipients.iter().map(|(index, _)| *index).collect(),
            });
        }
        let now = world.now().monotonic;
        let (queue, ledger) = (self.pool.queue(), &mut world.ledger);
        self.told.retain(|attempt, delivered| {
            let is_open = queue.is_open(*attempt);
            if !is_open {
                delivered.iter().for_each(|(mail, index)| ledger.settled(*mail, *index, now));
            }
            is_open
        });
    }

    fn lost(&mut self, error: Option<LinkError>, world: &mut World) {
        let Some(stream) = self.link.take() else { return };
        if let Some(error) = error {
            world.broken(stream, &format!("send{}", self.number), error);
        }
        world.lost(self.station, stream, error.map_or(Loss::Ended, Loss::Link));
        world.hang_up(stream, 1, Segment::Fin);
        self.handle(Input::Disconnected, world);
    }

    /// Says what it must not say, as a process would that was taken over.
    pub fn lie(&mut self, kind: Lie, world: &mut World) {
        let Some(link) = self.link else { return };
        let queue = self.pool.queue();
        lie::tell(kind, self.station, link, |attempt| queue.is_under_way(attempt), world);
    }

    /// The process is told to end.
    pub fn drain(&mut self, world: &mut World) {
        self.handle(Input::Drain, world);
    }

    /// Whether the process ends now.
    pub fn is_drained(&self, now: Instant) -> bool {
        self.pool.is_drained(now)
    }

    /// The pool's time has come.
    pub fn wake(&mut self, world: &mut World) {
        self.wake_at.take_if(|at| *at <= world.now().monotonic);
        self.handle(Input::Timeout, world);
    }

    fn handle(&mut self, input: Input<'_>, world: &mut World) {
        self.pool.handle(input, world.now()).expect("only bytes are refused");
        self.act(world);
    }

    /// Does what the pool asks for.
    fn act(&mut self, world: &mut World) {
        while let Some(output) = self.pool.poll() {
            match output {
                Output::Open(pooled) => {
                    let id = pooled.id().0;
                    let connection = Connection { pooled, stream: None, wake_at: None };
                    self.connections.insert(id, connection);
                    self.drive(id, world);
                }
                Output::Wake(ConnectionId(id)) => self.drive(id, world),
                Output::Ended(ended) => self.note(&ended, world),
            }
        }
        if let Some(link) = self.link {
            let frames: Vec<u8> = self.pool.transmit().drain(..).flatten().collect();
            if !frames.is_empty() {
                world.put(link, 1, Segment::Bytes(frames), Duration::ZERO);
            }
        }
        if let Some(at) = self.pool.next_wakeup()
            && self.wake_at.is_none_or(|before| at < before)
        {
            self.wake_at = Some(at);
            world.at(at, Event::Wake(self.station, self.start));
        }
    }

    /// An attempt has ended: its deliveries are remembered until queue has recorded them.
    fn note(&mut self, ended: &EndedAttempt, world: &mut World) {
        let outcomes = &ended.outcomes;
        world.log(|| {
            let said = outcomes.iter().map(|(_, o)| format!("{o:?}")).collect::<Vec<_>>();
            format!("send{}: attempt {} ended: {said:?}", self.number, ended.attempt.id)
        });
        let recipients = ended.message.recipients.iter().map(|r| r.address.to_string());
        let delivered = recipients
            .zip(outcomes)
            .filter(|(_, (_, outcome))| matches!(outcome, Outcome::Delivered { .. }))
            .filter_map(|(address, _)| parse_address(&address));
        self.told.insert(ended.attempt.id, delivered.collect());
    }

    fn hear_next_hop(&mut self, stream: StreamId, segment: Segment, world: &mut World) {
        let found = self.connections.iter_mut().find(|(_, c)| c.stream == Some(stream));
        let Some((id, connection)) = found else { return };
        let id = *id;
        let input = match &segment {
            Segment::Bytes(bytes) => ConnectionInput::Received(bytes),
            Segment::Fin | Segment::Reset => ConnectionInput::Lost,
        };
        connection.pooled.handle(input, world.now());
        if !matches!(segment, Segment::Bytes(_)) {
            connection.stream = None;
            world.hang_up(stream, 0, Segment::Fin);
        }
        self.drive(id, world);
        self.act(world);
    }

    /// The DNS has answered.
    pub fn answer(&mut self, id: u64, question: Question, world: &mut World) {
        let chance = world.chance.u64();
        let answer = dns(&question, world);
        if let Some(connection) = self.connections.get_mut(&id) {
            let input = ConnectionInput::Answer { question, answer, chance };
            connection.pooled.handle(input, world.now());
            self.drive(id, world);
            self.act(world);
        }
    }

    /// A connection comes about, or not; returns the stream to a next hop.
    pub fn reach(&mut self, id: u64, target: &Target, world: &mut World) -> Option<(StreamId, u8)> {
        let connection = self.connections.get_mut(&id)?;
        let reached = world.reachable(target).map(|domain| {
            let delay = world.delay(30_000);
            (world.net.open([End::Line(self.number), End::Sink(domain)], delay), domain)
        });
        match reached {
            Some((stream, _)) => {
                connection.stream = Some(stream);
                connection.pooled.handle(ConnectionInput::Connected, world.now());
            }
            None => {
                let refused = ConnectionInput::ConnectFailed("connection refused");
                connection.pooled.handle(refused, world.now());
            }
        }
        self.drive(id, world);
        self.act(world);
        reached
    }

    /// A connection's time has come.
    pub fn tick(&mut self, id: u64, world: &mut World) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let now = world.now();
        connection.wake_at.take_if(|at| *at <= now.monotonic);
        connection.pooled.handle(ConnectionInput::Timeout, now);
        self.drive(id, world);
        self.act(world);
    }

    /// Does what a connection asks for, until it waits or has ended.
    fn drive(&mut self, id: u64, world: &mut World) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        loop {
            let output = connection.pooled.poll(&mut self.pool, world.now());
            if let (Some(stream), Some((_, taken))) =
                (connection.stream, connection.pooled.current())
            {
                world.attempts.insert(stream, taken.monotonic);
            }
            match output {
                Some(ConnectionOutput::Finished) => {
                    hang_up(&mut connection, world);
                    return connection.pooled.close(&mut self.pool, world.now());
                }
                Some(output) => self.connection_output(id, &mut connection, output, world),
                None if write(&mut connection, world) => {}
                None => break,
            }
        }
        if let Some(at) = connection.pooled.next_wakeup() {
            let at = at.max(world.now().monotonic + Duration::from_micros(1));
            if connection.wake_at.is_none_or(|before| at < before) {
                connection.wake_at = Some(at);
                world.at(at, Event::Line(self.station, self.start, id));
            }
        }
        self.connections.insert(id, connection);
    }

    fn connection_output(
        &self,
        id: u64,
        connection: &mut Connection,
        output: ConnectionOutput,
        world: &mut World,
    ) {
        let (station, start) = (self.station, self.start);
        match output {
            ConnectionOutput::Ask(question) => {
                let wait = world.delay(50_000);
                world.after(wait, Event::Answer(station, start, id, Box::new(question)));
            }
            ConnectionOutput::Connect(target) => {
                let wait = world.delay(50_000);
                world.after(wait, Event::Connected(station, start, id, Box::new(target)));
            }
            ConnectionOutput::CloseStream => {
                write(connection, world);
                hang_up(connection, world);
            }
            ConnectionOutput::Finished => {}
        }
    }
}

fn hang_up(connection: &mut Connection, world: &mut World) {
    if let Some(stream) = connection.stream.take() {
        world.hang_up(stream, 0, Segment::Fin);
    }
}

fn write(connection: &mut Connection, world: &mut World) -> bool {
    let bytes = connection.pooled.transmit().to_vec();
    let Some(stream) = connection.stream.filter(|_| !bytes.is_empty()) else { return false };
    connection.pooled.transmitted(bytes.len(), world.now());
    world.put(stream, 0, Segment::Bytes(bytes), Duration::ZERO);
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
