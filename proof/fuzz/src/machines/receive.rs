//! The machine of a receive process: several clients with any bytes, a queue process that answers, refuses, gives little
//! credit and goes away, and little memory.
//!
//! Must never poll a client except after its own input or output, at its wake-up, or when the gateway wakes it.

use crate::input::Input;
use crate::smtp::talk::settings as server_settings;
use ::receive::{
    Gateway, InboundSession, Input as GatewayInput, Listener, MESSAGE_BYTES_MIN, Output,
    READ_BYTES_MAX, SessionInput, SessionOutput, Settings,
};
use bytes::BytesMut;
use link::receive::{QueueEnd, QueueEvent};
use mail::{Domain, Durable, Instant, MessageId, NextHop, Now, Refusal, TransactionId};
use policy::{
    Accounts, Caller, ConnectionLimits, Mailboxes, Names, Policy, Postmaster, Routes, Standing,
};
use smtp::server::Server;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

const BUILD: u64 = 5;
/// What the machine may hold at once in all.
const HELD_BYTES_MAX: usize = 16 << 20;
/// What sessions may hold above their limit: a read that began while there was room, and one message on its way.
const MEMORY_SLACK_BYTES: u64 = 3 * READ_BYTES_MAX as u64;
/// Upper bound on polls of one client without any input: more is a machine that spins.
const POLLS_MAX: u32 = 100_000;
const CONNECTIONS_MAX: u32 = 6;
const COMMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// One client, as its driver has it.
struct Client {
    session: InboundSession,
    /// What it has sent and nobody has read.
    unread: Vec<u8>,
    /// How its side has ended.
    end: Option<End>,
    /// It takes no replies.
    is_deaf: bool,
    /// Replies that waited when a message was handed over: until the answer there are no more of them.
    replies_at_hand_over: Option<usize>,
}

#[derive(Clone, Copy)]
enum End {
    Eof,
    Lost,
}

/// The gateway, its clients, and the queue process at its other end.
struct Machine {
    gateway: Gateway,
    listener: Listener,
    settings: Settings,
    clients: BTreeMap<usize, Client>,
    queue: Option<QueueEnd>,
    to_queue: BytesMut,
    /// The queue process reads nothing.
    is_queue_silent: bool,
    /// Pieces of bodies that the queue process has not taken.
    staged: Vec<(TransactionId, u64)>,
    /// Messages that the queue process has not answered.
    accepted: Vec<TransactionId>,
    /// Messages that the queue process keeps, and whether their client was told.
    kept: BTreeMap<u64, (TransactionId, bool)>,
    now: Now,
}

impl Machine {
    fn new(flags: u8, limits: u8) -> Machine {
        let now = Now { monotonic: Instant::from_nanos(1), ..Now::default() };
        let memory = MESSAGE_BYTES_MIN as u64 * [1, 2, 3, 100][usize::from(limits % 4)];
        let settings = Settings {
            session_memory_bytes_max: memory,
            recipients_bytes_max: if limits & 4 != 0 { 200 } else { 1 << 20 },
            commit_timeout: COMMIT_TIMEOUT,
        };
        Machine {
            gateway: Gateway::new((BUILD, 9), policy(), settings, now.monotonic),
            listener: listener(flags),
            settings,
            clients: BTreeMap::new(),
            queue: None,
            to_queue: BytesMut::new(),
            is_queue_silent: false,
            staged: Vec::new(),
            accepted: Vec::new(),
            kept: BTreeMap::new(),
            now,
        }
    }

    fn connect(&mut self, which: u8) {
        let address: Option<IpAddr> = match which % 4 {
            0 => None,
            1 => Some([10, 0, 0, 1].into()),
            other => Some([192, 0, 2, other].into()),
        };
        // A stranger may be turned away before all places are taken.
        let Ok(session) = self.gateway.admit(&self.listener, address, self.now) else { return };
        let index = session.id().index();
        let (unread, end) = (Vec::new(), None);
        let client = Client { session, unread, end, is_deaf: false, replies_at_hand_over: None };
        assert!(self.clients.insert(index, client).is_none(), "the number is free");
        assert!(self.clients.len() <= CONNECTIONS_MAX as usize);
        self.drive(index);
        self.pump();
    }

    /// The number of a client that is there.
    fn choose(&self, which: u8) -> Option<usize> {
        let count = self.clients.len().max(1);
        self.clients.keys().nth(usize::from(which) % count).copied()
    }

    fn hear(&mut self, which: u8, bytes: &[u8]) {
        let Some(index) = self.choose(which) else { return };
        let client = self.clients.get_mut(&index).expect("it was chosen");
        if client.end.is_none() {
            client.unread.extend_from_slice(bytes);
        }
        self.drive(index);
        self.pump();
    }

    fn end(&mut self, which: u8, end: End) {
        let Some(index) = self.choose(which) else { return };
        self.clients.get_mut(&index).expect("it was chosen").end = Some(end);
        self.drive(index);
        self.pump();
    }

    fn set_deaf(&mut self, which: u8, is_deaf: bool) {
        let Some(index) = self.choose(which) else { return };
        self.clients.get_mut(&index).expect("it was chosen").is_deaf = is_deaf;
        self.drive(index);
        self.pump();
    }

    /// Runs a client until it waits.
    fn drive(&mut self, index: usize) {
        for _ in 0..POLLS_MAX {
            let Some(client) = self.clients.get_mut(&index) else { return };
            while let Some(output) = client.session.poll(&mut self.gateway, self.now) {
                client.judge(&output, &mut self.kept);
                if output == SessionOutput::Close {
                    client.session.release(&mut self.gateway);
                    assert_eq!(client.session.poll(&mut self.gateway, self.now), None);
                    self.clients.remove(&index);
                    return;
                }
            }
            if !client.write() && !client.read(&mut self.gateway, self.now) {
                return;
            }
        }
        panic!("a client without input is polled {POLLS_MAX} times");
    }

    /// Does what the gateway asks for, and carries frames both ways, until nothing moves.
    fn pump(&mut self) {
        for _ in 0..POLLS_MAX {
            let mut moved = false;
            while let Some(output) = self.gateway.poll(self.now.monotonic) {
                moved = true;
                match output {
                    Output::Wake(client) => self.drive(client.index()),
                    Output::WakeAll => {
                        for index in self.clients.keys().copied().collect::<Vec<_>>() {
                            self.drive(index);
                        }
                    }
                    Output::QueueAbsent(_) | Output::MemoryShort(_) => {}
                }
            }
            if !self.exchange() && !moved {
                return self.check_memory();
            }
        }
        panic!("the gateway without input is polled {POLLS_MAX} times");
    }

    /// Returns whether there were frames.
    fn exchange(&mut self) -> bool {
        let Some(queue) = self.queue.as_mut().filter(|_| !self.is_queue_silent) else {
            return false;
        };
        let before = self.to_queue.len();
        self.gateway.transmit().drain(..).for_each(|frame| self.to_queue.extend_from_slice(&frame));
        let mut moved = self.to_queue.len() > before;
        queue.handle(&mut self.to_queue).expect("the machine keeps to the protocol");
        while let Some(event) = queue.poll() {
            match event {
                QueueEvent::Stage { transaction, bytes } => {
                    self.staged.push((transaction, bytes.len() as u64));
                }
                QueueEvent::Accept { transaction, .. } => self.accepted.push(transaction),
                QueueEvent::Unstage { transaction } => {
                    self.staged.retain(|(of, _)| *of != transaction);
                }
                QueueEvent::Question { transaction } => {
                    let kept = self.kept.iter().find(|(_, (of, _))| *of == transaction);
                    match kept {
                        Some((message, _)) => queue.known(transaction, MessageId(*message)),
                        None if self.accepted.contains(&transaction) => queue.asked(transaction),
                        None => queue.unknown(transaction),
                    }
                }
            }
        }
        let from_queue: Vec<u8> = queue.transmit().drain(..).flatten().collect();
        moved |= !from_queue.is_empty();
        let mut input = BytesMut::new();
        let (first, rest) = from_queue.split_at(from_queue.len() / 2);
        for piece in [first, rest] {
            input.extend_from_slice(piece);
            let received = GatewayInput::Received(&mut input);
            self.gateway.handle(received, self.now.monotonic).expect("queue is honest");
        }
        moved
    }

    /// The sum is made of what each session says, as the simulator makes it.
    fn check_memory(&self) {
        let sessions = self.clients.values().map(|client| client.session.memory_bytes() as u64);
        let held = sessions.sum::<u64>() + self.gateway.in_transit_bytes();
        let limit = self.settings.session_memory_bytes_max;
        assert!(held <= limit + MEMORY_SLACK_BYTES, "{held} bytes of {limit}");
    }
}

/// What the queue process does.
impl Machine {
    fn connect_queue(&mut self, credit_bytes: u64) {
        self.queue = Some(QueueEnd::new(BUILD, credit_bytes));
        (self.to_queue, self.is_queue_silent) = (BytesMut::new(), false);
        self.staged.clear();
        let connected = self.gateway.handle(GatewayInput::Connected, self.now.monotonic);
        connected.expect("a new stream says nothing");
        self.pump();
    }

    fn lose_queue(&mut self, forgets: bool) {
        self.queue = None;
        self.staged.clear();
        if forgets {
            self.accepted.clear();
        }
        let lost = self.gateway.handle(GatewayInput::Disconnected, self.now.monotonic);
        lost.expect("a lost stream says nothing");
        self.pump();
    }

    fn take_staged(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        self.staged.drain(..).for_each(|(of, bytes)| queue.taken(of, bytes));
        self.pump();
    }

    fn commit(&mut self, which: u8) {
        let Some(transaction) = self.take_accepted(which) else { return };
        let message = MessageId(self.kept.len() as u64 + 1);
        self.kept.insert(message.0, (transaction, false));
        if let Some(queue) = &mut self.queue {
            queue.committed(Durable::attested(message, transaction));
            queue.credit();
        }
        self.pump();
    }

    fn refuse(&mut self, which: u8) {
        let refusals = [Refusal::Full, Refusal::Busy, Refusal::Broken, Refusal::TooLarge];
        let refusal = refusals[usize::from(which) % 4];
        let at_random = self.staged.get(usize::from(which) / 4).map(|(of, _)| *of);
        let Some(transaction) = self.take_accepted(which / 4).or(at_random) else { return };
        self.staged.retain(|(of, _)| *of != transaction);
        if let Some(queue) = &mut self.queue {
            queue.refused(transaction, refusal);
            queue.credit();
        }
        self.pump();
    }

    fn take_accepted(&mut self, which: u8) -> Option<TransactionId> {
        let count = self.accepted.len();
        (count > 0).then(|| self.accepted.remove(usize::from(which) % count))
    }
}

/// Time, settings and the end.
impl Machine {
    fn pass(&mut self, time: Duration) {
        self.now = Now { monotonic: self.now.monotonic + time, wall: self.now.wall + time };
        // A client that takes no replies is polled twice: it then learns that its time is over.
        for _ in 0..2 {
            let now = self.now.monotonic;
            let due = self.clients.iter().filter(|(_, client)| client.is_due(now));
            for index in due.map(|(index, _)| *index).collect::<Vec<_>>() {
                self.drive(index);
            }
            self.pump();
        }
        let now = self.now.monotonic;
        assert!(self.gateway.next_wakeup().is_none_or(|at| at > now), "what is due was done");
        assert!(!self.clients.values().any(|client| client.is_due(now)), "what is due was done");
    }

    fn reload(&mut self, flags: u8) {
        let commit_timeout = COMMIT_TIMEOUT / (1 + u32::from(flags % 4));
        self.settings.commit_timeout = commit_timeout;
        self.gateway.reload(policy(), self.settings);
        self.pump();
    }

    fn shut_down(&mut self) {
        let told = self.gateway.handle(GatewayInput::Shutdown, self.now.monotonic);
        told.expect("a shutdown says nothing of queue");
        self.pump();
    }

    /// Every client ends by its own timeouts, and the queue process learns what became of all messages.
    fn finish(mut self) {
        self.shut_down();
        for _ in 0..40 {
            self.pass(Duration::from_secs(60));
        }
        assert!(self.clients.is_empty(), "a client without a wake-up was left over");
        assert_eq!(self.gateway.open_connections(), 0);
        self.connect_queue(1 << 20);
        while !self.accepted.is_empty() {
            self.commit(0);
        }
        self.take_staged();
        assert_eq!(self.gateway.in_transit_bytes(), 0, "every message was answered");
    }
}

impl Client {
    fn is_due(&self, now: Instant) -> bool {
        self.session.next_wakeup().is_some_and(|at| at <= now)
    }

    /// A `250` is said to the client of a message that is kept, once, and nothing is said before.
    fn judge(&mut self, output: &SessionOutput, kept: &mut BTreeMap<u64, (TransactionId, bool)>) {
        match output {
            SessionOutput::HandedOver => {
                let replies = self.session.transmit().len();
                assert!(self.replies_at_hand_over.replace(replies).is_none(), "two at once");
            }
            SessionOutput::Promised(promised) => {
                let (_, is_told) = kept.get_mut(&promised.message.0).expect("the message is kept");
                assert!(!std::mem::replace(is_told, true), "promised once");
                assert!(self.replies_at_hand_over.take().is_some(), "it was handed over");
            }
            SessionOutput::Refused { .. } | SessionOutput::Abandoned { .. } => {
                assert!(self.replies_at_hand_over.take().is_some(), "it was handed over");
            }
            SessionOutput::RecipientRefused { reply, .. }
            | SessionOutput::LoopRefused { reply, .. } => assert!(reply.code >= 400),
            SessionOutput::RecipientsRefused(_) | SessionOutput::CloseWrite => {}
            SessionOutput::Close => {}
        }
    }

    /// Returns whether anything was written.
    fn write(&mut self) -> bool {
        let replies = self.session.transmit();
        assert!(std::str::from_utf8(replies).is_ok(), "replies are text");
        let length = replies.len();
        if let Some(before) = &mut self.replies_at_hand_over {
            assert!(length <= *before, "a reply before the answer of the queue process");
            *before = length;
        }
        if length == 0 || self.is_deaf {
            return false;
        }
        self.session.transmitted(length);
        if let Some(before) = &mut self.replies_at_hand_over {
            *before = 0;
        }
        true
    }

    /// Returns whether the session read anything.
    fn read(&mut self, gateway: &mut Gateway, now: Now) -> bool {
        if matches!(self.end, Some(End::Lost)) {
            self.end = Some(End::Eof);
            self.unread.clear();
            self.session.handle(SessionInput::Lost, gateway, now);
            return true;
        }
        let bytes_max = self.session.read_bytes_max(gateway);
        assert!(bytes_max == 0 || self.replies_at_hand_over.is_none(), "read while it waits");
        let length = bytes_max.min(self.unread.len());
        if length > 0 {
            let bytes: Vec<u8> = self.unread.drain(..length).collect();
            self.session.handle(SessionInput::Received(&bytes), gateway, now);
            return true;
        }
        if bytes_max == 0 || !matches!(self.end, Some(End::Eof)) {
            return false;
        }
        self.end = None;
        self.session.handle(SessionInput::Eof, gateway, now);
        true
    }
}

/// Several clients with any bytes, and a queue process that does what it likes.
pub fn receive(data: &[u8]) {
    crate::memory::within(HELD_BYTES_MAX, || run(data));
}

fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut machine = Machine::new(input.byte(), input.byte());
    machine.connect_queue(1 << 20);
    machine.connect(1);
    while !input.is_over() {
        let op = input.byte();
        match op {
            0 => machine.pass(Duration::from_millis(u64::from(input.u16()))),
            1 => machine.pass(Duration::from_secs(u64::from(input.u16() % 1_000))),
            2 => machine.end(input.byte(), End::Eof),
            3 => machine.end(input.byte(), End::Lost),
            4 => machine.set_deaf(input.byte(), true),
            5 => machine.set_deaf(input.byte(), false),
            6 => machine.lose_queue(input.byte() & 1 != 0),
            7 => machine.connect_queue(u64::from(input.u16())),
            8 => machine.reload(input.byte()),
            9 => machine.shut_down(),
            10 => {
                machine.is_queue_silent = input.byte() & 1 != 0;
                machine.pump();
            }
            11..=20 => machine.connect(op),
            21..=30 => machine.take_staged(),
            31..=45 => machine.commit(input.byte()),
            46..=55 => machine.refuse(input.byte()),
            56..=70 => machine.hear(op, b"EHLO c.test\r\nMAIL FROM:<a@b.test>\r\n"),
            71..=80 => machine.hear(op, b"RCPT TO:<ann@local.test>\r\nDATA\r\n"),
            81..=85 => machine.hear(op, b"RCPT TO:<x@far.test>\r\nDATA\r\n"),
            86..=95 => machine.hear(op, b"A: b\r\n\r\nc\r\n.\r\n"),
            96..=105 => machine.hear(op, b"BDAT 5\r\nA: b\nBDAT 3 LAST\r\nc\r\n"),
            106..=110 => machine.hear(op, b"QUIT\r\n"),
            111..=115 => machine.hear(op, &[b'x'; 1_500]),
            _ => machine.hear(op, input.short()),
        }
    }
    machine.finish();
}

/// Ann has a mailbox here; 10.0.0.0/8 may send to anywhere.
fn policy() -> Policy {
    let local = Domain::parse("local.test").expect("a domain");
    let name = Domain::parse("mx.test").expect("a domain");
    let accounts = [("ann".into(), Standing::Gets)].into();
    Policy {
        relay_from: vec!["10.0.0.0/8".parse().expect("a network")],
        mailboxes: Mailboxes { names: Names::default(), accounts: Accounts::Listed(accounts) },
        postmaster: Postmaster::for_tests(),
        routes: Routes::new([local].into(), NextHop::Local, name, Vec::new(), false),
    }
}

fn listener(flags: u8) -> Listener {
    let server = Server::new(server_settings(flags));
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
