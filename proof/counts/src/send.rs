//! The send station: from the scheduler's attempt through `link`, `delivery` and `smtp`'s client
//! to the next hop, and its answer back into a commit.
//!
//! Stands where `daemon/src/process/send` stands, without its sockets, lookups, tasks and log.
//! Must never measure a message that the next hop did not take, or that is still queued.

use crate::commit::{Load, Way};
use crate::house::{BUILD, House, SENDER, carry};
use crate::meter::{Count, Meter, Part, outside};
use crate::next_hop::NextHop;
use bytes::{Bytes, BytesMut};
use delivery::{DeadAddresses, Input, Limits, OutboundSession, Output, Rules};
use link::send::{Attempt, SenderEnd, SenderEvent};
use smtp::client::{self, Config, Message};
use std::sync::Arc;
use std::time::Duration;

/// How the next hop is reached.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Recipients of each message.
    pub recipients: usize,
    /// Messages on one connection.
    pub per_connection: u64,
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
    let mut way = Way::new(load);
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
    hop: Hop,
    end: SenderEnd,
    rules: Arc<Rules>,
    dead: DeadAddresses,
    config: Arc<Config>,
    from_queue: BytesMut,
    to_queue: BytesMut,
    /// A connection that waits for more.
    idle: Option<Connection>,
    done: u64,
}

struct Connection {
    line: OutboundSession,
    peer: NextHop,
    /// What the peer has said and the line not heard.
    said: Vec<u8>,
    messages: u64,
}

impl Send {
    fn new(hop: Hop, house: House) -> Send {
        let mut end = SenderEnd::new(BUILD, 1, 2_000);
        end.connected();
        let mut send = Send {
            house,
            hop,
            end,
            rules: Arc::new(Rules::for_tests()),
            dead: DeadAddresses::default(),
            config: Arc::new(Config { helo: "mx.example.org".into(), ..Config::for_tests() }),
            from_queue: BytesMut::new(),
            to_queue: BytesMut::new(),
            idle: None,
            done: 0,
        };
        send.house.queue.sender_connected(SENDER, send.house.now);
        send.tell(&Meter::new(Part::Reference));
        send
    }

    /// All attempts that are there are made, and their outcomes recorded.
    fn round(&mut self, meter: &mut Meter) {
        carry(self.house.queue.sender_output(SENDER), &mut self.from_queue);
        let before = self.done;
        meter.run(Part::Send, || {
            self.end.handle(&mut self.from_queue).expect("the two are of one build");
            while let Some(event) = self.end.poll() {
                match event {
                    SenderEvent::Attempt { attempt, body } => self.attempt(attempt, body),
                    other => panic!("small bodies come along: {other:?}"),
                }
            }
        });
        assert!(self.done > before, "there is something to try");
        self.tell(meter);
        meter.passed(self.done - before);
    }

    /// What became of the attempts reaches queue, and the disk.
    fn tell(&mut self, meter: &Meter) {
        carry(Some(self.end.output()), &mut self.to_queue);
        let (queue, input, now) = (&mut self.house.queue, &mut self.to_queue, self.house.now);
        let heard = meter.run(Part::Send, || queue.sender_input(SENDER, input, now));
        heard.expect("the two are of one build");
        self.house.pump(meter, Part::Send);
        self.house.wait(ROUND);
        self.house.pump(meter, Part::Send);
    }

    fn attempt(&mut self, mut attempt: Box<Attempt>, body: Option<Bytes>) {
        let (indices, recipients): (Vec<u32>, _) =
            std::mem::take(&mut attempt.recipients).into_iter().unzip();
        let message = Box::new(Message {
            from: attempt.from.clone(),
            recipients,
            body_bytes: attempt.body.bytes,
            content: body,
        });
        let mut connection = match self.idle.take() {
            Some(mut connection) => {
                connection.hear(client::Input::Send(message), &self.house);
                connection
            }
            None => self.connect(&attempt, message),
        };
        let outcomes = connection.deliver(&self.house);
        let outcomes = indices.into_iter().zip(outcomes).collect();
        let (attempt, message) = (attempt.id, attempt.message);
        self.end.result(link::send::Result { attempt, message, outcomes });
        self.done += 1;
        connection.messages += 1;
        if connection.messages >= self.hop.per_connection || !connection.line.can_send() {
            connection.hear(client::Input::Quit, &self.house);
            connection.write(&self.house);
            outside(|| assert_eq!(connection.peer.taken, connection.messages));
        } else {
            self.idle = Some(connection);
        }
    }

    fn connect(&self, attempt: &Attempt, message: Box<Message>) -> Connection {
        let (rules, config) = (self.rules.clone(), self.config.clone());
        let now = self.house.now;
        let (limits, dead) = (Limits::for_tests(), self.dead.clone());
        let line =
            OutboundSession::new(&attempt.route.hop, message, rules, config, limits, dead, now);
        let (peer, said) = outside(|| NextHop::greet(self.hop.chunking));
        Connection { line, peer, said, messages: 0 }
    }
}

impl Connection {
    fn hear(&mut self, input: client::Input<'_>, house: &House) {
        self.line.handle(Input::Session(input), house.now);
    }

    /// Writes and reads until the message has ended.
    fn deliver(&mut self, house: &House) -> Vec<mail::Outcome> {
        loop {
            while let Some(output) = self.line.poll() {
                match output {
                    Output::Connect(_) => self.line.handle(Input::Connected, house.now),
                    Output::Session(client::Output::Done { outcomes, .. }) => {
                        let delivered = |one: &_| matches!(one, mail::Outcome::Delivered { .. });
                        outside(|| assert!(outcomes.iter().all(delivered), "{outcomes:?}"));
                        return outcomes;
                    }
                    other => panic!("not in this dialogue: {other:?}"),
                }
            }
            self.write(house);
            let said = outside(|| std::mem::take(&mut self.said));
            assert!(!said.is_empty(), "the two wait for each other");
            self.hear(client::Input::Received(&said), house);
            outside(|| drop(said));
        }
    }

    /// What is to be written reaches the peer, which answers.
    fn write(&mut self, house: &House) {
        while !self.line.transmit().is_empty() {
            let bytes = self.line.transmit();
            let written = bytes.len();
            outside(|| self.said.extend(self.peer.hear(bytes)));
            self.line.transmitted(written, house.now);
        }
    }
}
