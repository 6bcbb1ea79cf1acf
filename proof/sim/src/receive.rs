//! A receiving process: the machine of `mta/receive` between clients and queue.
//!
//! Drives the machine as `daemon/src/process/receive` does. What a client sends waits outside, as in the kernel, until the
//! machine wants to read it.
//! Must never answer a client itself: the machine does.

use crate::ledger::Check;
use crate::net::{End, Segment, StreamId};
use crate::plan::Station;
use crate::stage::{Event, World};
use bytes::BytesMut;
use link::streams::Loss;
use mail::Instant;
use policy::{Caller, ConnectionLimits};
use receive::{
    Gateway, InboundSession, Input, Listener, Output, READ_BYTES_MAX, SessionInput, SessionOutput,
};
use smtp::server::{self, Server};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use world::Rng as _;

/// The build that all processes are of.
pub const BUILD: u64 = 1;
/// What sessions may hold above their limit: a read that began while there was room, and one message on its way.
const MEMORY_SLACK_BYTES: u64 = 3 * READ_BYTES_MAX as u64;

/// Upper bound on the envelope of a message with 128 recipients.
const ENVELOPE_SLACK_BYTES: u64 = 32 << 10;

/// One connection, with what its client has sent and nobody has read.
struct Connection {
    session: InboundSession,
    unread: Vec<u8>,
    /// How the client's side has ended.
    end: Option<Segment>,
}

/// One receiving process.
pub struct Receive {
    /// Which.
    pub station: Station,
    /// The number of this start, counted over all processes.
    pub start: u64,
    instance: u16,
    gateway: Gateway,
    listener: Listener,
    connections: BTreeMap<StreamId, Connection>,
    /// The stream of each client, by its number.
    streams: Vec<StreamId>,
    /// The stream to queue.
    pub link: Option<StreamId>,
    input: BytesMut,
    wake_at: Option<Instant>,
}

impl Receive {
    /// Starts one.
    pub fn new(instance: u16, start: u64, world: &mut World) -> Receive {
        let incarnation = world.chance.u64();
        let settings = world.plan.settings.receive;
        let now = world.now().monotonic;
        let gateway = Gateway::new((BUILD, incarnation), world.policy.clone(), settings, now);
        Receive {
            station: Station::Receive(instance),
            start,
            instance,
            gateway,
            listener: listener(world),
            connections: BTreeMap::new(),
            streams: Vec::new(),
            link: None,
            input: BytesMut::new(),
            wake_at: None,
        }
    }

    /// A client has connected.
    pub fn greet(&mut self, stream: StreamId, client: IpAddr, world: &mut World) {
        match self.gateway.admit(&self.listener, Some(client), world.now()) {
            Ok(session) => {
                let index = session.id().index();
                self.streams.resize(self.streams.len().max(index + 1), 0);
                self.streams[index] = stream;
                let connection = Connection { session, unread: Vec::new(), end: None };
                self.connections.insert(stream, connection);
                self.drive(stream, world);
            }
            Err(reply) => {
                let mut bytes = Vec::new();
                reply.encode(&mut bytes);
                world.put(stream, 1, Segment::Bytes(bytes), Duration::ZERO);
                world.hang_up(stream, 1, Segment::Fin);
            }
        }
        self.pump(world);
    }

    /// A stream to a queue process is there.
    pub fn connected(&mut self, stream: StreamId, world: &mut World) {
        self.link = Some(stream);
        self.input.clear();
        let _ = self.gateway.handle(Input::Connected, world.now().monotonic);
        self.pump(world);
    }

    /// Something has arrived.
    pub fn hear(&mut self, stream: StreamId, end: End, segment: Segment, world: &mut World) {
        match (end, segment) {
            (End::Session(_), segment) => {
                if let Some(connection) = self.connections.get_mut(&stream) {
                    match segment {
                        Segment::Bytes(bytes) => connection.unread.extend_from_slice(&bytes),
                        end => connection.end = Some(end),
                    }
                }
                self.drive(stream, world);
            }
            (_, Segment::Bytes(bytes)) if self.link == Some(stream) => {
                self.input.extend_from_slice(&bytes);
                let input = Input::Received(&mut self.input);
                if let Err(error) = self.gateway.handle(input, world.now().monotonic) {
                    world.broken(stream, &format!("receive{}", self.instance), error);
                    self.unlink(Loss::Link(error), world);
                }
            }
            (_, _) if self.link == Some(stream) => self.unlink(Loss::Ended, world),
            _ => {}
        }
        self.pump(world);
    }

    fn unlink(&mut self, loss: Loss, world: &mut World) {
        if let Some(stream) = self.link.take() {
            world.lost(self.station, stream, loss);
            world.hang_up(stream, 1, Segment::Fin);
        }
        let _ = self.gateway.handle(Input::Disconnected, world.now().monotonic);
    }

    /// A clock has rung.
    pub fn wake(&mut self, world: &mut World) {
        let now = world.now().monotonic;
        self.wake_at.take_if(|at| *at <= now);
        let due =
            |connection: &Connection| connection.session.next_wakeup().is_some_and(|at| at <= now);
        let due = self.connections.iter().filter(|(_, connection)| due(connection));
        for stream in due.map(|(stream, _)| *stream).collect::<Vec<_>>() {
            self.drive(stream, world);
        }
        self.pump(world);
    }

    /// Does what the gateway asks for, and writes to queue.
    fn pump(&mut self, world: &mut World) {
        while let Some(output) = self.gateway.poll(world.now().monotonic) {
            match output {
                Output::Wake(client) => self.drive(self.streams[client.index()], world),
                Output::WakeAll => {
                    for stream in self.connections.keys().copied().collect::<Vec<_>>() {
                        self.drive(stream, world);
                    }
                }
                alarm => world.log(|| format!("receive: {alarm:?}")),
            }
        }
        let frames: Vec<u8> = self.gateway.transmit().drain(..).flatten().collect();
        if let Some(link) = self.link.filter(|_| !frames.is_empty()) {
            world.put(link, 1, Segment::Bytes(frames), Duration::ZERO);
        }
        self.check_memory(world);
        self.check_credit(world);
        self.sleep(world);
    }

    /// Runs a session until it waits.
    fn drive(&mut self, stream: StreamId, world: &mut World) {
        let Some(connection) = self.connections.get_mut(&stream) else { return };
        loop {
            let now = world.now();
            while let Some(output) = connection.session.poll(&mut self.gateway, now) {
                match output {
                    SessionOutput::CloseWrite => {
                        world.put(stream, 1, Segment::Fin, Duration::ZERO);
                    }
                    SessionOutput::Close => {
                        world.log(|| format!("receive: stream {stream} is closed by us"));
                        connection.session.release(&mut self.gateway);
                        self.connections.remove(&stream);
                        return world.hang_up(stream, 1, Segment::Fin);
                    }
                    output => world.log(|| format!("receive: stream {stream}: {output:?}")),
                }
            }
            let replies = connection.session.transmit().to_vec();
            if !replies.is_empty() {
                connection.session.transmitted(replies.len());
                world.put(stream, 1, Segment::Bytes(replies), Duration::ZERO);
            } else if !connection.read(&mut self.gateway, now) {
                return;
            }
        }
    }

    /// The sum is made anew of what each session says: the limit is not asked what it counts.
    fn check_memory(&self, world: &mut World) {
        let sessions = self.connections.values().map(|one| one.session.memory_bytes() as u64);
        let held = sessions.sum::<u64>() + self.gateway.in_transit_bytes();
        let limit = world.plan.settings.receive.session_memory_bytes_max;
        if held > limit + MEMORY_SLACK_BYTES {
            let text = format!("{:?} holds {held} bytes for clients, of {limit}", self.station);
            world.ledger.find(Check::Memory, text);
        }
    }

    /// A process overdraws the credit by one piece of a body at most, and an envelope.
    fn check_credit(&self, world: &mut World) {
        let settings = &world.plan.settings;
        let (held, credit) = (self.gateway.in_transit_bytes(), settings.credit_bytes);
        if held > credit + 2 * settings.body_chunk_bytes as u64 + ENVELOPE_SLACK_BYTES {
            let text = format!("{:?} has {held} bytes in transit, of {credit}", self.station);
            world.ledger.find(Check::Order, text);
        }
    }

    fn sleep(&mut self, world: &mut World) {
        let sessions = self.connections.values();
        let waits = sessions.filter_map(|connection| connection.session.next_wakeup());
        let Some(at) = waits.chain(self.gateway.next_wakeup()).min() else { return };
        let at = at.max(world.now().monotonic + Duration::from_micros(1));
        if self.wake_at.is_none_or(|before| at < before) {
            self.wake_at = Some(at);
            world.at(at, Event::Wake(self.station, self.start));
        }
    }
}

impl Connection {
    /// Has the session read what it wants. False: there is nothing for it.
    fn read(&mut self, gateway: &mut Gateway, now: mail::Now) -> bool {
        let length = self.session.read_bytes_max(gateway).min(self.unread.len());
        if length > 0 {
            let bytes: Vec<u8> = self.unread.drain(..length).collect();
            self.session.handle(SessionInput::Received(&bytes), gateway, now);
            return true;
        }
        if self.session.read_bytes_max(gateway) == 0 {
            return false;
        }
        let input = match self.end.take() {
            Some(Segment::Reset) => SessionInput::Lost,
            Some(_) => SessionInput::Eof,
            None => return false,
        };
        self.session.handle(input, gateway, now);
        true
    }
}

fn listener(world: &World) -> Listener {
    let hostname = mail::Domain::parse("mx.test").expect("a domain");
    let server = Server::new(server::Settings {
        body_chunk_bytes: world.plan.settings.body_chunk_bytes,
        ..server::Settings::for_tests(hostname)
    });
    let connections_max = world.plan.settings.connections_max;
    Listener {
        trusted: server.clone(),
        strangers: server,
        limits: ConnectionLimits {
            connections_max,
            listener_connections: connections_max,
            connections_per_client: connections_max,
        },
        address: "[::]:25".into(),
        all_trusted: false,
        socket: Caller::Socket(Path::new("").into()),
    }
}
