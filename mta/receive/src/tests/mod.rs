//! The machines against a queue process that answers as a test says: each state, and what ends it.
//!
//! Must never look into a machine but through its public methods.

mod answers;
mod closing;
mod credit;
mod memory;
mod shutdown;

use crate::{
    Gateway, InboundSession, Input, Listener, Output, SessionInput, SessionOutput, Settings,
};
use bytes::BytesMut;
use link::receive::{QueueEnd, QueueEvent};
use mail::{Domain, Envelope, Instant, MessageId, NextHop, Now, Refusal, Reply, TransactionId};
use policy::{
    Accounts, Caller, ConnectionLimits, Mailboxes, Names, Policy, Postmaster, Routes, Standing,
};
use smtp::server::Server;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

pub const STRANGER: &str = "192.0.2.7";
pub const FRIEND: &str = "10.0.0.1";
/// Up to and with RCPT.
pub const PATHS: &str = "MAIL FROM:<a@far.test>\r\nRCPT TO:<ann@local.test>\r\n";
pub const COMMIT_TIMEOUT: Duration = secs(60);

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A gateway, the queue process at its other end, and the time.
pub struct Bench {
    pub gateway: Gateway,
    pub listener: Listener,
    pub settings: Settings,
    queue: Option<QueueEnd>,
    to_queue: BytesMut,
    pub now: Now,
    /// What the queue process was told.
    pub accepted: Vec<(TransactionId, Envelope)>,
    pub staged: Vec<(TransactionId, usize)>,
    pub unstaged: Vec<TransactionId>,
    /// The alarms.
    pub alarms: Vec<Output>,
}

/// A client and what it has seen.
pub struct Peer {
    pub client: InboundSession,
    heard: String,
    pub outputs: Vec<SessionOutput>,
    pub closed: bool,
    /// It takes no replies.
    pub deaf: bool,
}

impl Bench {
    /// With a queue process that gives a lot of credit.
    pub fn new() -> Bench {
        let mut bench = Bench::with(256 << 20);
        bench.connect_queue(64 << 20);
        bench
    }

    /// Without a queue process.
    pub fn with(session_memory_bytes_max: u64) -> Bench {
        let settings = Settings {
            session_memory_bytes_max,
            recipients_bytes_max: 1 << 20,
            commit_timeout: COMMIT_TIMEOUT,
        };
        let now = Now { monotonic: Instant::from_nanos(1), ..Now::default() };
        Bench {
            gateway: Gateway::new((1, 9), policy(), settings, now.monotonic),
            listener: listener(),
            settings,
            queue: None,
            to_queue: BytesMut::new(),
            now,
            accepted: Vec::new(),
            staged: Vec::new(),
            unstaged: Vec::new(),
            alarms: Vec::new(),
        }
    }

    pub fn connect_queue(&mut self, credit_bytes: u64) {
        self.queue = Some(QueueEnd::new(1, credit_bytes));
        self.to_queue.clear();
        self.gateway.handle(Input::Connected, self.now.monotonic).unwrap();
        self.exchange();
    }

    pub fn lose_queue(&mut self) {
        self.queue = None;
        self.gateway.handle(Input::Disconnected, self.now.monotonic).unwrap();
        self.exchange();
    }

    pub fn shut_down(&mut self) {
        self.gateway.handle(Input::Shutdown, self.now.monotonic).unwrap();
    }

    pub fn try_connect(&mut self, address: &str) -> Result<Peer, Reply> {
        let address: IpAddr = address.parse().unwrap();
        let client = self.gateway.admit(&self.listener, Some(address), self.now)?;
        let (heard, outputs) = (String::new(), Vec::new());
        let mut peer = Peer { client, heard, outputs, closed: false, deaf: false };
        self.run(&mut peer);
        Ok(peer)
    }

    /// A client that has been greeted.
    pub fn connect(&mut self, address: &str) -> Peer {
        let mut peer = self.try_connect(address).unwrap();
        self.say(&mut peer, "EHLO client.test\r\n");
        peer.hear();
        peer
    }

    /// A client whose DATA was answered with 354.
    pub fn connect_at_body(&mut self, address: &str) -> Peer {
        let mut peer = self.connect(address);
        self.say(&mut peer, &format!("{PATHS}DATA\r\n"));
        assert_eq!(peer.hear(), "250 250 354");
        peer
    }

    /// The client sends this; all of it must be wanted.
    pub fn say(&mut self, peer: &mut Peer, text: &str) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let most = peer.client.read_bytes_max(&self.gateway).min(rest.len());
            assert!(most > 0, "nobody reads {:?}", String::from_utf8_lossy(rest));
            let (now, later) = rest.split_at(most);
            self.hear(peer, SessionInput::Received(now));
            self.exchange();
            self.run(peer);
            rest = later;
        }
    }

    pub fn hear(&mut self, peer: &mut Peer, input: SessionInput<'_>) {
        peer.client.handle(input, &mut self.gateway, self.now);
        self.run(peer);
    }

    /// Polls the client, which takes its replies, until it waits.
    pub fn run(&mut self, peer: &mut Peer) {
        loop {
            while let Some(output) = peer.client.poll(&mut self.gateway, self.now) {
                assert!(!peer.closed, "{output:?} after the end");
                peer.closed = output == SessionOutput::Close;
                peer.outputs.push(output);
            }
            let replies = peer.client.transmit().to_vec();
            if replies.is_empty() || peer.deaf || peer.closed {
                break;
            }
            peer.heard += &String::from_utf8(replies.clone()).unwrap();
            peer.client.transmitted(replies.len());
        }
        self.exchange();
    }

    /// Carries frames in both directions. Returns the clients that were woken.
    pub fn exchange(&mut self) -> usize {
        let now = self.now.monotonic;
        let mut woken = 0;
        loop {
            let outputs: Vec<Output> = std::iter::from_fn(|| self.gateway.poll(now)).collect();
            woken += outputs.iter().filter(|output| matches!(output, Output::Wake(_))).count();
            self.alarms.extend(outputs.into_iter().filter(|o| !matches!(o, Output::Wake(_))));
            let frames: Vec<_> = self.gateway.transmit().drain(..).collect();
            let Some(queue) = &mut self.queue else { return woken };
            frames.iter().for_each(|frame| self.to_queue.extend_from_slice(frame));
            queue.handle(&mut self.to_queue).unwrap();
            while let Some(event) = queue.poll() {
                match event {
                    QueueEvent::Stage { transaction, bytes } => {
                        self.staged.push((transaction, bytes.len()));
                    }
                    QueueEvent::Accept { transaction, envelope, bytes } => {
                        self.staged.push((transaction, bytes.len()));
                        self.accepted.push((transaction, *envelope));
                    }
                    QueueEvent::Unstage { transaction } => self.unstaged.push(transaction),
                    QueueEvent::Question { transaction } => queue.unknown(transaction),
                }
            }
            let mut input: BytesMut = queue.transmit().drain(..).flatten().collect();
            if input.is_empty() && frames.is_empty() {
                return woken;
            }
            self.gateway.handle(Input::Received(&mut input), now).unwrap();
        }
    }

    /// The queue process keeps the last message that it was given.
    pub fn keep_last(&mut self) {
        let (transaction, _) = *self.accepted.last().unwrap();
        self.queue.as_mut().unwrap().known(transaction, MessageId(7));
        self.exchange();
    }

    /// The queue process refuses the last message that it was given.
    pub fn refuse_last(&mut self, refusal: Refusal) {
        let (transaction, _) = *self.accepted.last().unwrap();
        self.queue.as_mut().unwrap().refused(transaction, refusal);
        self.queue.as_mut().unwrap().credit();
        self.exchange();
    }

    /// The queue process has taken what was staged so far.
    pub fn take_staged(&mut self) -> usize {
        let queue = self.queue.as_mut().unwrap();
        for (transaction, bytes) in self.staged.drain(..) {
            queue.taken(transaction, bytes as u64);
        }
        self.exchange()
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.exchange();
    }

    /// Time passes for a client too.
    pub fn pass_for(&mut self, peer: &mut Peer, time: Duration) {
        self.pass(time);
        self.run(peer);
    }

    /// The time until the client has to be polled.
    pub fn wakeup(&self, peer: &Peer) -> Option<Duration> {
        peer.client.next_wakeup().map(|at| at.since(self.now.monotonic))
    }

    pub fn release(&mut self, mut peer: Peer) {
        peer.client.release(&mut self.gateway);
        self.exchange();
    }
}

impl Peer {
    /// The codes of the replies since it was asked last, one after the other.
    pub fn hear(&mut self) -> String {
        let last = |line: &&str| line.as_bytes().get(3) == Some(&b' ');
        let codes: Vec<&str> = self.heard.lines().filter(last).map(|line| &line[..3]).collect();
        let codes = codes.join(" ");
        self.heard.clear();
        codes
    }

    /// The last reply since it was asked last.
    pub fn hear_last(&mut self) -> String {
        let last = self.heard.lines().last().unwrap_or("").to_owned();
        self.heard.clear();
        last
    }
}

pub fn domain(text: &str) -> Domain {
    Domain::parse(text).unwrap()
}

/// Ann has a mailbox here; friends may send to anywhere.
fn policy() -> Policy {
    let accounts = [("ann".into(), Standing::Gets)].into();
    Policy {
        relay_from: vec!["10.0.0.0/8".parse().unwrap()],
        mailboxes: Mailboxes { names: Names::default(), accounts: Accounts::Listed(accounts) },
        postmaster: Postmaster::for_tests(),
        routes: Routes::new(
            [domain("local.test")].into(),
            NextHop::Local,
            domain("mx.test"),
            Vec::new(),
            false,
        ),
    }
}

fn listener() -> Listener {
    let server = Server::new(smtp::server::Settings::for_tests(domain("mx.test")));
    Listener {
        trusted: server.clone(),
        strangers: server,
        limits: ConnectionLimits {
            connections_max: 100,
            listener_connections: 100,
            connections_per_client: 50,
        },
        address: "[::]:25".into(),
        all_trusted: false,
        socket: Caller::Socket(Path::new("").into()),
    }
}
