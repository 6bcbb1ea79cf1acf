//! The machine of a send process: next hops with any bytes, connections that fail, few places, and a queue process that
//! comes, goes and fetches nothing twice.
//!
//! Must never poll a connection except after its own input or output, at its wake-up, or when the pool wakes it.

use crate::input::Input;
use ::send::{
    ConnectionId, ConnectionInput, ConnectionOutput, ConnectionPool, DRAIN_TIME_MAX, EndedAttempt,
    Input as PoolInput, Output, PooledConnection, Settings,
};
use bytes::BytesMut;
use delivery::{Answer, Answers, Limits, Question, Rules, Where};
use link::send::{Attempt, AttemptRoute, BodySize, INLINE_BYTES_MAX, QueueEnd, QueueEvent, Times};
use mail::{
    Address, Domain, Host, Instant, MailFrom, MessageId, NextHop, Notify, Now, Recipient,
    ReversePath,
};
use smtp::client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const BUILD: u64 = 5;
/// What the machine may hold at once in all.
const HELD_BYTES_MAX: usize = 32 << 20;
/// Upper bound on polls of one machine without any input: more is a machine that spins.
const POLLS_MAX: u32 = 100_000;
const ATTEMPTS_MAX: usize = 20;
const HOPS: u16 = 4;
/// The next hop with this number has a name instead of an address.
const NAMED_HOP: u16 = 3;
const FIRST_PORT: u16 = 25;
const LARGE_BYTES: u64 = 3 * (INLINE_BYTES_MAX / 3 + 1);

/// A connection, as its driver has it.
struct Connection {
    pooled: Box<PooledConnection>,
    question: Option<Question>,
    /// The port that is connected to, and whether the stream is open.
    port: Option<(u16, bool)>,
    /// What the next hop has heard and not answered.
    heard: Vec<u8>,
    in_data: bool,
    is_deaf: bool,
}

/// The pool, its connections, and the queue process at its other end.
struct Machine {
    pool: ConnectionPool,
    connections: BTreeMap<ConnectionId, Connection>,
    connections_max: usize,
    queue: Option<QueueEnd>,
    /// The sending process has told all that it has under way, and does not drain.
    takes_attempts: bool,
    next_attempt: u64,
    /// The recipients of each attempt without an outcome.
    open: BTreeMap<u64, usize>,
    /// Attempts with an outcome that the queue process was not told.
    ended: Vec<u64>,
    /// Attempts whose outcome the queue process knows and has not recorded.
    told: Vec<u64>,
    fetches: Vec<(u64, u64, u32)>,
    now: Now,
}

impl Machine {
    fn new(flags: u8) -> Machine {
        let connections_max = [1, 2, 3, 100][usize::from(flags % 4)];
        let settings = Settings {
            build: BUILD,
            incarnation: 7,
            attempts_max: ATTEMPTS_MAX as u32,
            connections_max,
            idle: Duration::from_millis(if flags & 4 != 0 { 30 } else { 5_000 }),
            client: Arc::new(client::Settings {
                helo: "c.test".into(),
                ..client::Settings::for_tests()
            }),
            rules: Arc::new(Rules::for_tests()),
            limits: Limits::for_tests(),
        };
        let mut machine = Machine {
            pool: ConnectionPool::new(settings),
            connections: BTreeMap::new(),
            connections_max,
            queue: None,
            takes_attempts: false,
            next_attempt: 0,
            open: BTreeMap::new(),
            ended: Vec::new(),
            told: Vec::new(),
            fetches: Vec::new(),
            now: Now { monotonic: Instant::from_nanos(1), ..Now::default() },
        };
        machine.connect_queue();
        machine
    }

    fn happen(&mut self, input: PoolInput<'_>) {
        self.pool.handle(input, self.now).expect("only bytes of queue can be wrong");
    }

    /// Does what the pool asks for, and carries frames both ways, until nothing moves.
    fn pump(&mut self) {
        for _ in 0..POLLS_MAX {
            let mut moved = false;
            while let Some(output) = self.pool.poll() {
                moved = true;
                match output {
                    Output::Open(pooled) => self.begin(pooled),
                    Output::Wake(id) => self.drive(id),
                    Output::Ended(ended) => self.note(&ended),
                }
            }
            if !self.exchange() && !moved {
                assert!(self.pool.connections() <= self.connections_max);
                assert_eq!(self.pool.connections(), self.connections.len());
                return;
            }
        }
        panic!("the pool without input is polled {POLLS_MAX} times");
    }

    fn begin(&mut self, pooled: Box<PooledConnection>) {
        let id = pooled.id();
        let connection = Connection {
            pooled,
            question: None,
            port: None,
            heard: Vec::new(),
            in_data: false,
            is_deaf: false,
        };
        assert!(self.connections.insert(id, connection).is_none(), "a name is never given twice");
        self.drive(id);
    }

    /// An outcome for each recipient of an attempt, once.
    fn note(&mut self, ended: &EndedAttempt) {
        let recipients = self.open.remove(&ended.attempt.id).expect("it was open");
        let indices: Vec<u32> = ended.outcomes.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, (0..recipients as u32).collect::<Vec<_>>());
        self.ended.push(ended.attempt.id);
    }

    /// Runs a connection until it waits.
    fn drive(&mut self, id: ConnectionId) {
        for _ in 0..POLLS_MAX {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            match connection.pooled.poll(&mut self.pool, self.now) {
                Some(ConnectionOutput::Ask(question)) => connection.question = Some(question),
                Some(ConnectionOutput::Connect(target)) => {
                    let Where::Tcp(at) = target.place else { panic!("no hop has a path") };
                    connection.port = Some((at.port(), false));
                    (connection.heard, connection.in_data) = (Vec::new(), false);
                }
                Some(ConnectionOutput::CloseStream) => {
                    connection.write(self.now);
                    connection.port = None;
                }
                Some(ConnectionOutput::Finished) => {
                    connection.pooled.close(&mut self.pool, self.now);
                    self.connections.remove(&id);
                    return;
                }
                None if connection.write(self.now) => {}
                None => return,
            }
        }
        panic!("a connection without input is polled {POLLS_MAX} times");
    }

    fn tell(&mut self, id: ConnectionId, input: ConnectionInput<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.pooled.handle(input, self.now);
        self.drive(id);
        self.pump();
    }
}

/// What the queue process does.
impl Machine {
    fn connect_queue(&mut self) {
        self.queue = Some(QueueEnd::new(BUILD));
        self.takes_attempts = false;
        // What was told and not recorded is told again.
        self.ended.append(&mut self.told);
        self.fetches.clear();
        self.happen(PoolInput::Connected);
        self.pump();
    }

    fn lose_queue(&mut self) {
        self.queue = None;
        self.happen(PoolInput::Disconnected);
        self.pump();
    }

    /// Returns whether there were frames.
    fn exchange(&mut self) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let mut to_queue: BytesMut = self.pool.transmit().drain(..).flatten().collect();
        let mut moved = !to_queue.is_empty();
        queue.handle(&mut to_queue).expect("the machine keeps to the protocol");
        while let Some(event) = queue.poll() {
            match event {
                QueueEvent::AllTold => self.takes_attempts = !self.pool.is_draining(),
                QueueEvent::Drains => self.takes_attempts = false,
                QueueEvent::Result(result) => {
                    let at = self.ended.iter().position(|ended| *ended == result.attempt);
                    self.told.push(self.ended.remove(at.expect("it has ended and was not told")));
                }
                QueueEvent::Fetch { attempt, offset, bytes, .. } => {
                    assert!(self.open.contains_key(&attempt), "a fetch for an attempt that ended");
                    assert!(offset + u64::from(bytes) <= LARGE_BYTES && bytes > 0);
                    self.fetches.push((attempt, offset, bytes));
                }
                QueueEvent::Hello { .. } | QueueEvent::UnderWay(_) => {}
            }
        }
        let from_queue: Vec<u8> = queue.transmit().drain(..).flatten().collect();
        moved |= !from_queue.is_empty();
        let mut input = BytesMut::new();
        let (first, rest) = from_queue.split_at(from_queue.len() / 2);
        for piece in [first, rest] {
            input.extend_from_slice(piece);
            let received = PoolInput::Received(&mut input);
            self.pool.handle(received, self.now).expect("queue is honest");
        }
        moved
    }

    /// One attempt, as the byte says.
    fn give(&mut self, which: u8) {
        let busy = self.open.len() + self.ended.len() + self.told.len();
        let Some(queue) = &mut self.queue else { return };
        if !self.takes_attempts || busy >= ATTEMPTS_MAX {
            return;
        }
        self.next_attempt += 1;
        let recipients = 1 + usize::from(which >> 7);
        let is_large = which & 64 != 0;
        let attempt = attempt(self.next_attempt, which, recipients, is_large);
        self.open.insert(attempt.id, recipients);
        let body = (!is_large).then_some(&b"a\r\n"[..]);
        queue.attempt(attempt, body).expect("it fits into a frame");
        self.pump();
    }

    fn record(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        if !self.told.is_empty() {
            queue.recorded(std::mem::take(&mut self.told));
        }
        self.pump();
    }

    fn answer_fetches(&mut self, is_good: bool) {
        let Some(queue) = &mut self.queue else { return };
        for (attempt, offset, bytes) in std::mem::take(&mut self.fetches) {
            let body = b"a\r\n".iter().cycle().skip((offset % 3) as usize);
            let body: Vec<u8> = body.take(bytes as usize).copied().collect();
            match is_good {
                true => queue.chunk(attempt, offset, &body),
                false => queue.chunk_bad(attempt),
            }
        }
        self.pump();
    }
}

/// What next hops, the network and the DNS do.
impl Machine {
    /// A connection that is there.
    fn choose(&self, which: u8) -> Option<ConnectionId> {
        let count = self.connections.len().max(1);
        self.connections.keys().nth(usize::from(which) % count).copied()
    }

    fn reach(&mut self, which: u8, is_reached: bool) {
        let Some(id) = self.choose(which) else { return };
        let connection = self.connections.get_mut(&id).expect("it was chosen");
        let Some((port, false)) = connection.port else { return };
        connection.port = is_reached.then_some((port, true));
        match is_reached {
            true => self.tell(id, ConnectionInput::Connected),
            false => self.tell(id, ConnectionInput::ConnectFailed("connection refused")),
        }
    }

    fn hear(&mut self, which: u8, bytes: &[u8]) {
        let Some(id) = self.choose(which) else { return };
        if matches!(self.connections[&id].port, Some((_, true))) {
            self.tell(id, ConnectionInput::Received(bytes));
        }
    }

    fn lose(&mut self, which: u8) {
        let Some(id) = self.choose(which) else { return };
        let connection = self.connections.get_mut(&id).expect("it was chosen");
        if connection.port.take_if(|(_, is_open)| *is_open).is_some() {
            self.tell(id, ConnectionInput::Lost);
        }
    }

    /// The next hop answers each line as it should.
    fn serve(&mut self, which: u8) {
        let Some(id) = self.choose(which) else { return };
        let connection = self.connections.get_mut(&id).expect("it was chosen");
        let replies = connection.replies();
        if !replies.is_empty() {
            self.hear(which, &replies);
        }
    }

    fn resolve(&mut self, which: u8, how: u8) {
        let Some(id) = self.choose(which) else { return };
        let connection = self.connections.get_mut(&id).expect("it was chosen");
        let Some(question) = connection.question.take() else { return };
        let answer = match (&question, how % 4) {
            (Question::Mx(_), 0) => Answer::Mx(Answers::NoRecord),
            (Question::Mx(_), 1) => Answer::Mx(Answers::NoName),
            (Question::Mx(_), _) => Answer::Mx(Answers::Unknown("no resolver".into())),
            (Question::Addresses(_), 0) => Answer::Addresses(Answers::NoRecord),
            (Question::Addresses(_), 1) => Answer::Addresses(Answers::Unknown("later".into())),
            (Question::Addresses(_), _) => {
                Answer::Addresses(Answers::Found(vec![[198, 51, 100, how].into()]))
            }
        };
        self.tell(id, ConnectionInput::Answer { question, answer, chance: u64::from(how) });
    }

    fn set_deaf(&mut self, which: u8, is_deaf: bool) {
        let Some(id) = self.choose(which) else { return };
        self.connections.get_mut(&id).expect("it was chosen").is_deaf = is_deaf;
        self.drive(id);
        self.pump();
    }
}

/// Time and the end.
impl Machine {
    fn pass(&mut self, time: Duration) {
        self.now = Now { monotonic: self.now.monotonic + time, wall: self.now.wall + time };
        // What ends at its time may give its place to a connection whose time is over as well.
        for _ in 0..2 {
            if self.pool.next_wakeup().is_some_and(|at| at <= self.now.monotonic) {
                self.happen(PoolInput::Timeout);
                self.pump();
            }
            let due = self.connections.iter().filter(|(_, one)| one.is_due(self.now.monotonic));
            for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.tell(id, ConnectionInput::Timeout);
            }
        }
        let now = self.now.monotonic;
        assert!(!self.connections.values().any(|one| one.is_due(now)), "what is due was done");
    }

    fn drain(&mut self) {
        self.happen(PoolInput::Drain);
        self.pump();
    }

    /// Every attempt ends, by timeouts and lost connections alone, unless the process drains.
    fn finish(mut self) {
        if self.queue.is_none() {
            self.connect_queue();
        }
        if self.pool.is_draining() {
            self.pass(DRAIN_TIME_MAX);
            assert!(self.pool.is_drained(self.now.monotonic), "a drain ends in its time");
            return;
        }
        for _ in 0..400 {
            self.answer_fetches(false);
            self.pass(Duration::from_secs(400));
            self.record();
            if self.connections.is_empty() {
                break;
            }
        }
        assert!(self.connections.is_empty(), "a connection without a wake-up was left over");
        assert!(self.open.is_empty(), "attempts without an outcome: {:?}", self.open);
        self.record();
        assert!(self.ended.is_empty() && self.told.is_empty() && !self.pool.queue().has_results());
        assert_eq!(self.pool.queue().under_way(), 0);
    }
}

impl Connection {
    fn is_due(&self, now: Instant) -> bool {
        self.pooled.next_wakeup().is_some_and(|at| at <= now)
    }

    /// Returns whether anything was written.
    fn write(&mut self, now: Now) -> bool {
        let bytes = self.pooled.transmit();
        let Some((port, true)) = self.port.filter(|_| !bytes.is_empty() && !self.is_deaf) else {
            return false;
        };
        self.heard.extend_from_slice(bytes);
        let own = format!("@d{port}.test>");
        for line in String::from_utf8_lossy(bytes).lines().filter(|line| line.starts_with("RCPT")) {
            assert!(line.contains(&own), "port {port} was given {line}");
        }
        let written = bytes.len();
        self.pooled.transmitted(written, now);
        true
    }

    /// The replies to what was heard.
    fn replies(&mut self) -> Vec<u8> {
        let mut replies = Vec::new();
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let reply: &[u8] = match (self.in_data, &line[..]) {
                (true, b".\r\n") => {
                    self.in_data = false;
                    b"250 taken\r\n"
                }
                (true, _) => b"",
                (false, b"DATA\r\n") => {
                    self.in_data = true;
                    b"354 go\r\n"
                }
                (false, _) => b"250 ok\r\n",
            };
            replies.extend_from_slice(reply);
        }
        replies
    }
}

fn attempt(id: u64, which: u8, recipients: usize, is_large: bool) -> Attempt {
    let number = u16::from(which) % HOPS;
    let port = FIRST_PORT + number;
    let host = match number {
        NAMED_HOP => Host::Name(Domain::parse("hop.test").expect("a domain")),
        _ => Host::Address([192, 0, 2, 1].into()),
    };
    let recipient = |index: u32| {
        let address = Address::parse(&format!("m{index}@d{port}.test"), false).expect("one");
        (index, Recipient { address, notify: Notify::DEFAULT, orcpt: None })
    };
    Attempt {
        id,
        seal: 0,
        message: MessageId(id),
        route: AttemptRoute {
            hop: NextHop::Smtp(host, port),
            connections_max: 1 + u32::from(which >> 4) % 2,
            messages_per_connection_max: 1 + u32::from(which >> 2) % 4,
        },
        from: MailFrom::new(ReversePath::Null),
        times: Times::default(),
        body: BodySize { bytes: if is_large { LARGE_BYTES } else { 3 }, prefix_bytes: 0 },
        recipients: (0..recipients as u32).map(recipient).collect(),
    }
}

/// Next hops with any bytes, and a queue process that comes and goes.
pub fn send(data: &[u8]) {
    crate::memory::within(HELD_BYTES_MAX, || run(data));
}

fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut machine = Machine::new(input.byte());
    while !input.is_over() {
        let op = input.byte();
        match op {
            0 => machine.pass(Duration::from_millis(u64::from(input.u16()))),
            1 => machine.pass(Duration::from_secs(u64::from(input.u16() % 1_000))),
            2 => machine.lose_queue(),
            3 => machine.connect_queue(),
            4 => machine.set_deaf(input.byte(), true),
            5 => machine.set_deaf(input.byte(), false),
            6 => machine.drain(),
            7..=15 => machine.lose(op),
            16..=25 => machine.reach(op, false),
            26..=65 => machine.reach(op, true),
            66..=75 => machine.record(),
            76..=85 => machine.answer_fetches(op != 76),
            86..=100 => machine.resolve(op, input.byte()),
            101..=120 => machine.hear(op, b"220 hop\r\n"),
            121..=160 => machine.serve(op),
            161..=220 => machine.give(input.byte()),
            _ => machine.hear(op, input.short()),
        }
    }
    machine.finish();
}
