//! The send station: from the scheduler's attempt through the connection pool to the next hop, and
//! its answer back into a commit.
//!
//! Stands where `daemon/src/process/send` stands, without its sockets, lookups, tasks and log.
//! Must never measure a message that the next hop did not take, or that is still queued.

use crate::commit::{Load, Way};
use crate::house::{self, BUILD, House, SENDER, carry};
use crate::meter::{Count, Meter, Part, outside};
use crate::next_hop::NextHop;
use bytes::BytesMut;
use delivery::{Limits, Rules};
use mail::{Now, Outcome};
use send::{
    ConnectionInput, ConnectionOutput, ConnectionPool, Input, Output, PooledConnection, Settings,
};
use smtp::client;
use std::sync::Arc;
use std::time::Duration;

/// How the next hop is reached.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Recipients of each message.
    pub recipients: usize,
    /// Messages on one connection.
    pub per_connection: u32,
    /// It offers BDAT.
    pub chunking: bool,
}

/// Not counted: the scheduler opens up to as many connections as it may have.
const WARM_UP: u64 = 500;
/// Counted at least.
const MESSAGES: u64 = 500;
/// Enough that the queue does not run dry before.
const QUEUED: usize = 1_400;
/// An outcome waits for a commit no longer than this.
const ROUND: Duration = Duration::from_millis(25);

/// Fills the queue, then empties it and counts.
pub fn count(hop: Hop) -> Count {
    let load =
        Load { together: 10, recipients: hop.recipients, per_connection: 0, pipelined: true };
    let mut meter = Meter::new(Part::Send);
    let mut settings = house::settings();
    settings.scheduler.default.messages_per_connection = hop.per_connection;
    // The whole queue fits: reading a message back is the disk's work.
    settings.message_cache_bytes_max = 64 << 20;
    let mut way = Way::with(load, settings);
    (0..QUEUED / load.together).for_each(|_| way.round(&mut Meter::new(Part::Reference)));
    let mut send = Send::new(hop, way.house);
    while meter.messages() < MESSAGES {
        if send.done >= WARM_UP {
            meter.start();
        }
        send.round(&mut meter);
    }
    let left = send.house.queue.summary(send.house.now).messages;
    assert_eq!(left, QUEUED as u64 - send.done, "what was sent has left the queue");
    meter.count()
}

/// The way out: the queue process, the sending process, the next hop.
struct Send {
    house: House,
    chunking: bool,
    pool: ConnectionPool,
    from_queue: BytesMut,
    to_queue: BytesMut,
    /// The only connection, while there is one.
    connection: Option<Connection>,
    done: u64,
}

struct Connection {
    pooled: Box<PooledConnection>,
    peer: NextHop,
    /// What the peer has said and the connection not heard.
    said: Vec<u8>,
}

impl Send {
    fn new(hop: Hop, house: House) -> Send {
        let settings = Settings {
            build: BUILD,
            incarnation: 1,
            attempts_max: 2_000,
            // All messages go over one connection after the other.
            connections_max: 1,
            idle: Duration::from_secs(5),
            client: Arc::new(client::Settings {
                helo: "mx.example.org".into(),
                ..client::Settings::for_tests()
            }),
            rules: Arc::new(Rules::for_tests()),
            limits: Limits::for_tests(),
        };
        let mut send = Send {
            house,
            chunking: hop.chunking,
            pool: ConnectionPool::new(settings),
            from_queue: BytesMut::new(),
            to_queue: BytesMut::new(),
            connection: None,
            done: 0,
        };
        send.pool.handle(Input::Connected, send.house.now).expect("there are no bytes to refuse");
        send.house.queue.sender_connected(SENDER, send.house.now);
        send.tell(&Meter::new(Part::Reference));
        send
    }

    /// All attempts that are there are made, and their outcomes recorded.
    fn round(&mut self, meter: &mut Meter) {
        carry(self.house.queue.sender_output(SENDER), &mut self.from_queue);
        let before = self.done;
        meter.run(Part::Send, || {
            let received = self.pool.handle(Input::Received(&mut self.from_queue), self.house.now);
            received.expect("the two are of one build");
            self.carry_out();
        });
        assert!(self.done > before, "there is something to try");
        self.tell(meter);
        meter.passed(self.done - before);
    }

    /// What became of the attempts reaches queue, and the disk.
    fn tell(&mut self, meter: &Meter) {
        let frames = self.pool.transmit().drain(..);
        frames.for_each(|frame| self.to_queue.extend_from_slice(&frame));
        let (queue, input, now) = (&mut self.house.queue, &mut self.to_queue, self.house.now);
        let heard = meter.run(Part::Send, || queue.sender_input(SENDER, input, now));
        heard.expect("the two are of one build");
        self.house.pump(meter, Part::Send);
        self.house.wait(ROUND);
        self.house.pump(meter, Part::Send);
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.pool.poll() {
            match output {
                Output::Open(pooled) => {
                    let (peer, said) = outside(|| NextHop::greet(self.chunking));
                    self.connection = Some(Connection { pooled, peer, said });
                    self.run();
                }
                Output::Wake(_) => self.run(),
                Output::Ended(ended) => {
                    let delivered = |(_, one): &_| matches!(one, Outcome::Delivered { .. });
                    let outcomes = &ended.outcomes;
                    outside(|| assert!(outcomes.iter().all(delivered), "{outcomes:?}"));
                    self.done += 1;
                }
            }
        }
    }

    /// Runs the connection until it waits for the next message or has ended.
    fn run(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let now = self.house.now;
        loop {
            match connection.pooled.poll(&mut self.pool, now) {
                Some(ConnectionOutput::Connect(_)) => {
                    connection.pooled.handle(ConnectionInput::Connected, now);
                }
                Some(ConnectionOutput::CloseStream) => connection.write(now),
                Some(ConnectionOutput::Finished) => {
                    connection.pooled.close(&mut self.pool, now);
                    let messages = u64::from(connection.pooled.messages());
                    return outside(|| assert_eq!(connection.peer.taken, messages));
                }
                Some(other) => panic!("an address needs no lookup: {other:?}"),
                None => {
                    connection.write(now);
                    let said = outside(|| std::mem::take(&mut connection.said));
                    if said.is_empty() {
                        self.connection = Some(connection);
                        return;
                    }
                    connection.pooled.handle(ConnectionInput::Received(&said), now);
                    outside(|| drop(said));
                }
            }
        }
    }
}

impl Connection {
    /// Carries the bytes that wait for the peer, and takes its answer.
    fn write(&mut self, now: Now) {
        while !self.pooled.transmit().is_empty() {
            let bytes = self.pooled.transmit();
            let written = bytes.len();
            outside(|| self.said.extend(self.peer.hear(bytes)));
            self.pooled.transmitted(written, now);
        }
    }
}
