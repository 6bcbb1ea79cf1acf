//! The receive station: a client's bytes through the machine of `mta/receive`, up to the `250`.
//!
//! Drives the machine as `daemon/src/process/receive` does, without its log, sockets and tasks. Must never say `250`
//! itself: the machine does.

use crate::house::{BUILD, House, RECEIVER, carry, domain, routes};
use crate::meter::{Meter, Part, outside};
use bytes::BytesMut;
use link::bounds::RECIPIENTS_BYTES_MAX;
use mail::Now;
use policy::{Accounts, Caller, ConnectionLimits, Mailboxes, Names, Policy, Postmaster};
use receive::{Gateway, InboundSession, Input, Listener, SessionInput, SessionOutput};
use smtp::server::{self, Server};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7));
/// Connections at once: more than any run has.
const CONNECTIONS_MAX: u32 = 1_000_000;

/// The receiving process.
pub struct Receive {
    gateway: Gateway,
    listener: Listener,
    from_queue: BytesMut,
    to_queue: BytesMut,
}

/// One client's connection.
pub struct Guest {
    session: InboundSession,
    /// What was answered, for the eyes of a client that waits.
    heard: Vec<u8>,
}

impl Receive {
    /// One that has met the queue process.
    pub fn new(house: &mut House) -> Receive {
        let policy = Policy {
            relay_from: vec!["198.51.100.0/24".parse().expect("a network")],
            mailboxes: Mailboxes { names: Names::default(), accounts: Accounts::Any },
            postmaster: Postmaster::for_tests(),
            routes: routes(),
        };
        let settings = receive::Settings {
            session_memory_bytes_max: 1 << 30,
            recipients_bytes_max: RECIPIENTS_BYTES_MAX,
            commit_timeout: Duration::from_secs(600),
        };
        let now = house.now.monotonic;
        let mut receive = Receive {
            gateway: Gateway::new((BUILD, 1), policy, settings, now),
            listener: listener(),
            from_queue: BytesMut::new(),
            to_queue: BytesMut::new(),
        };
        house.queue.receiver_connected(RECEIVER);
        receive.gateway.handle(Input::Connected, now).expect("a new stream says nothing");
        let meter = Meter::new(Part::Reference);
        receive.hand_over(house, &meter);
        receive.hear(house, &meter);
        receive
    }

    /// A client connects.
    pub fn greet(&mut self, now: Now) -> Guest {
        let session = self.gateway.admit(&self.listener, Some(CLIENT), now);
        let session = session.expect("there is room for every client");
        let mut guest = Guest { session, heard: Vec::new() };
        self.talk(&mut guest, now);
        guest
    }

    /// Takes all bytes of a client.
    pub fn take(&mut self, guest: &mut Guest, bytes: &[u8], now: Now) {
        let taken = self.take_some(guest, bytes, now);
        assert_eq!(taken, bytes.len(), "the client is read from");
    }

    /// Takes bytes of a client until its session waits for the queue process. Returns their number.
    pub fn take_some(&mut self, guest: &mut Guest, bytes: &[u8], now: Now) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let length = guest.session.read_bytes_max(&self.gateway).min(bytes.len() - taken);
            if length == 0 {
                break;
            }
            let piece = &bytes[taken..taken + length];
            guest.session.handle(SessionInput::Received(piece), &mut self.gateway, now);
            self.talk(guest, now);
            taken += length;
        }
        taken
    }

    /// Runs the session until it waits for its client or for a promise.
    pub fn talk(&mut self, guest: &mut Guest, now: Now) {
        loop {
            while let Some(output) = guest.session.poll(&mut self.gateway, now) {
                if output == SessionOutput::Close {
                    guest.session.release(&mut self.gateway);
                }
            }
            let replies = guest.session.transmit();
            if replies.is_empty() {
                return;
            }
            outside(|| guest.heard.extend_from_slice(replies));
            let sent = replies.len();
            guest.session.transmitted(sent);
        }
    }

    /// What has gathered for the queue process reaches it.
    pub fn hand_over(&mut self, house: &mut House, meter: &Meter) {
        carry(Some(self.gateway.transmit()), &mut self.to_queue);
        let (queue, now, input) = (&mut house.queue, house.now, &mut self.to_queue);
        let heard = meter.run(Part::Commit, || queue.receiver_input(RECEIVER, input, now));
        heard.expect("the two are of one build");
        house.pump(meter, Part::Commit);
    }

    /// What the queue process has answered reaches us: from now on each guest hears its promise by [`Receive::talk`].
    pub fn hear(&mut self, house: &mut House, meter: &Meter) {
        carry(house.queue.receiver_output(RECEIVER), &mut self.from_queue);
        let (gateway, input, now) = (&mut self.gateway, &mut self.from_queue, house.now.monotonic);
        meter.run(Part::Receive, || {
            gateway.handle(Input::Received(input), now).expect("the two are of one build");
            while gateway.poll(now).is_some() {}
        });
    }
}

impl Guest {
    /// The replies since it was asked last.
    pub fn heard(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.heard)).expect("replies are text")
    }
}

fn listener() -> Listener {
    let server = Server::new(server::Settings::for_tests(domain("mx.example.org")));
    Listener {
        trusted: server.clone(),
        strangers: server,
        limits: ConnectionLimits {
            connections_max: CONNECTIONS_MAX,
            listener_connections: CONNECTIONS_MAX,
            connections_per_client: CONNECTIONS_MAX,
        },
        address: "[::]:25".into(),
        all_trusted: false,
        socket: Caller::Socket(Path::new("").into()),
    }
}
