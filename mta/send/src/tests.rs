//! The pool and its connections against a queue process and next hops that the test plays.

use crate::*;
use bytes::BytesMut;
use delivery::{Limits, Rules};
use link::send::{Attempt, INLINE_BYTES_MAX, QueueEnd, QueueEvent};
use mail::{Host, Instant, NextHop, Now, Outcome, Stage};
use smtp::client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Seconds until an idle connection ends.
const IDLE: u64 = 5;

/// A connection as its driver has it.
struct Open {
    connection: Box<PooledConnection>,
    /// The port of the next hop that it was opened to; none before.
    port: Option<u16>,
    is_finished: bool,
}

/// The driver, the queue process and the next hops.
struct Rig {
    pool: ConnectionPool,
    queue: QueueEnd,
    open: BTreeMap<ConnectionId, Open>,
    /// Next hops that refuse connections.
    refusing: Vec<u16>,
    /// Next hops that say nothing after the envelope.
    silent: Vec<u16>,
    /// Connections to a next hop are not answered, and the port is waited for.
    slow: Vec<u16>,
    /// What next hops heard: the port and the message's recipient.
    heard: Vec<(u16, String)>,
    /// Fetches that queue has been asked for.
    fetches: Vec<(u64, u64)>,
    results: Vec<(u64, char, Stage)>,
    logged: Vec<u64>,
    now: Now,
    next: u64,
}

fn rig(connections_max: usize) -> Rig {
    let settings = Settings {
        build: 1,
        incarnation: 7,
        attempts_max: 100,
        connections_max,
        idle: Duration::from_secs(IDLE),
        client: Arc::new(client::Settings { chunking: false, ..client::Settings::for_tests() }),
        rules: Arc::new(Rules::for_tests()),
        limits: Limits::for_tests(),
    };
    let mut rig = Rig {
        pool: ConnectionPool::new(settings),
        queue: QueueEnd::new(1),
        open: BTreeMap::new(),
        refusing: Vec::new(),
        silent: Vec::new(),
        slow: Vec::new(),
        heard: Vec::new(),
        fetches: Vec::new(),
        results: Vec::new(),
        logged: Vec::new(),
        now: Now::default(),
        next: 0,
    };
    rig.connect();
    rig
}

impl Rig {
    /// A new queue process.
    fn connect(&mut self) {
        self.queue = QueueEnd::new(1);
        self.pool.handle(Input::Connected, self.now).unwrap();
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.settle();
    }

    /// An attempt for one recipient at the next hop with this port.
    fn give(&mut self, port: u16) -> u64 {
        self.give_with(port, 10, 10)
    }

    fn give_with(&mut self, port: u16, connections_max: u32, messages_max: u32) -> u64 {
        self.next += 1;
        let mut attempt = Attempt::sample(self.next, &[&format!("m{}@d{port}.test", self.next)]);
        attempt.route.hop = NextHop::Smtp(Host::Address("192.0.2.1".parse().unwrap()), port);
        attempt.route.connections_max = connections_max;
        attempt.route.messages_per_connection_max = messages_max;
        self.queue.attempt(attempt, Some(b"a\r\n")).unwrap();
        self.settle();
        self.next
    }

    /// An attempt whose message is fetched.
    fn give_large(&mut self, port: u16) -> u64 {
        self.next += 1;
        let mut attempt = Attempt::sample(self.next, &["large@d.test"]);
        attempt.route.hop = NextHop::Smtp(Host::Address("192.0.2.1".parse().unwrap()), port);
        attempt.body.bytes = INLINE_BYTES_MAX + 2;
        self.queue.attempt(attempt, None).unwrap();
        self.settle();
        self.next
    }

    /// Runs until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut moved = self.talk();
            moved |= self.pool_outputs();
            let ids: Vec<_> = self.open.keys().copied().collect();
            ids.into_iter().for_each(|id| moved |= self.turn(id));
            moved |= self.pool.queue().has_output();
            if self.pool.next_wakeup().is_some_and(|due| due <= self.now.monotonic) {
                self.pool.handle(Input::Timeout, self.now).unwrap();
                moved |= self.pool_outputs();
            }
            if !moved {
                return;
            }
        }
    }

    fn talk(&mut self) -> bool {
        let mut moved = false;
        let mut to_queue: BytesMut = self.pool.transmit().drain(..).flatten().collect();
        self.queue.handle(&mut to_queue).unwrap();
        while let Some(event) = self.queue.poll() {
            moved = true;
            match event {
                QueueEvent::Result(result) => {
                    let outcome = &result.outcomes[0].1;
                    let kind = match outcome {
                        Outcome::Delivered { .. } => 'D',
                        Outcome::Deferred(_) => 'T',
                        Outcome::Failed(_) => 'F',
                    };
                    self.results.push((result.attempt, kind, outcome.report().stage));
                    self.queue.recorded(vec![result.attempt]);
                }
                QueueEvent::Fetch { attempt, offset, .. } => self.fetches.push((attempt, offset)),
                _ => {}
            }
        }
        let mut from_queue: BytesMut = self.queue.transmit().drain(..).flatten().collect();
        moved |= !from_queue.is_empty();
        self.pool.handle(Input::Received(&mut from_queue), self.now).unwrap();
        moved
    }

    fn pool_outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.pool.poll() {
            moved = true;
            match output {
                Output::Open(connection) => {
                    let open = Open { connection, port: None, is_finished: false };
                    self.open.insert(open.connection.id(), open);
                }
                Output::Wake(_) => {}
                Output::Ended(ended) => self.logged.push(ended.attempt.id),
            }
        }
        moved
    }

    fn turn(&mut self, id: ConnectionId) -> bool {
        let Some(mut open) = self.open.remove(&id) else { return false };
        let mut moved = false;
        if open.connection.next_wakeup().is_some_and(|due| due <= self.now.monotonic) {
            open.connection.handle(ConnectionInput::Timeout, self.now);
        }
        while let Some(output) = open.connection.poll(&mut self.pool, self.now) {
            moved = true;
            self.connection_output(&mut open, output);
        }
        let said = open.connection.transmit().to_vec();
        open.connection.transmitted(said.len(), self.now);
        if let Some(port) = open.port {
            for line in String::from_utf8(said).unwrap().split_inclusive("\r\n") {
                moved |= self.answer(&mut open, port, line);
            }
        }
        match open.is_finished {
            true => open.connection.close(&mut self.pool, self.now),
            false => _ = self.open.insert(id, open),
        }
        moved
    }

    fn connection_output(&mut self, open: &mut Open, output: ConnectionOutput) {
        match output {
            ConnectionOutput::Ask(question) => panic!("an address needs no lookup: {question:?}"),
            ConnectionOutput::Connect(target) => {
                let delivery::Where::Tcp(at) = target.place else { panic!("{target:?}") };
                if self.refusing.contains(&at.port()) {
                    let refused = ConnectionInput::ConnectFailed("connection refused");
                    open.connection.handle(refused, self.now);
                } else if !self.slow.contains(&at.port()) {
                    open.port = Some(at.port());
                    open.connection.handle(ConnectionInput::Connected, self.now);
                    open.connection.handle(ConnectionInput::Received(b"220 hop\r\n"), self.now);
                }
            }
            ConnectionOutput::CloseStream => open.port = None,
            ConnectionOutput::Finished => open.is_finished = true,
        }
    }

    /// What the next hop says to a line. One without an answer is a line of a message.
    fn answer(&mut self, open: &mut Open, port: u16, line: &str) -> bool {
        let reply = match line.get(..4).unwrap_or_default() {
            "DATA" if self.silent.contains(&port) => return false,
            "DATA" => "354 go on\r\n",
            "RCPT" => {
                let to = line.split(['<', '>']).nth(1).unwrap();
                self.heard.push((port, to.to_string()));
                "250 ok\r\n"
            }
            "EHLO" | "MAIL" => "250 ok\r\n",
            _ if line == ".\r\n" => "250 taken\r\n",
            _ => return false,
        };
        open.connection.handle(ConnectionInput::Received(reply.as_bytes()), self.now);
        true
    }

    fn ports(&self) -> Vec<Option<u16>> {
        self.open.values().map(|open| open.port).collect()
    }

    fn ends(&mut self) -> Vec<(u64, char)> {
        self.results.drain(..).map(|(attempt, kind, _)| (attempt, kind)).collect()
    }
}

#[test]
fn a_connection_carries_what_waits_for_its_next_hop_and_nothing_else() {
    let mut rig = rig(10);
    for port in [25, 26, 25, 26, 26] {
        rig.give(port);
    }
    assert_eq!(rig.ports(), [Some(25), Some(26)], "both are kept");
    let wrong = rig.heard.iter().find(|(port, to)| !to.ends_with(&format!("@d{port}.test")));
    assert_eq!((rig.heard.len(), wrong), (5, None));
    assert_eq!(rig.ends(), [(1, 'D'), (2, 'D'), (3, 'D'), (4, 'D'), (5, 'D')]);
    assert_eq!(rig.logged, [1, 2, 3, 4, 5]);
    rig.pass(Duration::from_secs(IDLE));
    assert_eq!((rig.ports(), rig.pool.connections(), rig.pool.hops()), (vec![], 0, 0));
}

#[test]
fn a_connection_ends_after_the_messages_that_it_may_carry() {
    let mut rig = rig(10);
    (0..5).for_each(|_| _ = rig.give_with(25, 1, 2));
    assert_eq!(rig.ends().len(), 5);
    assert_eq!(rig.open.keys().copied().collect::<Vec<_>>(), [ConnectionId(2)], "the third");
}

#[test]
fn no_more_connections_are_opened_than_the_next_hop_may_have() {
    let mut rig = rig(10);
    rig.silent.push(25);
    (0..5).for_each(|_| _ = rig.give_with(25, 2, 10));
    assert_eq!((rig.open.len(), rig.heard.len()), (2, 2));
}

#[test]
fn what_waits_for_a_next_hop_that_nobody_reached_fails_with_the_first() {
    let mut rig = rig(10);
    rig.slow.push(25);
    (0..4).for_each(|_| _ = rig.give_with(25, 1, 10));
    let other = rig.give(26);
    assert_eq!(rig.ends(), [(other, 'D')]);
    rig.pass(Limits::for_tests().connect);
    let failed: Vec<_> = rig.results.iter().map(|(id, kind, stage)| (*id, *kind, *stage)).collect();
    let connect = |id| (id, 'T', Stage::Connect);
    assert_eq!(failed, [2, 3, 4, 1].map(connect), "and not what went to another");
    assert_eq!(rig.pool.hops(), 0);
}

#[test]
fn what_waits_is_tried_while_another_connection_to_the_next_hop_was_greeted() {
    let mut rig = rig(10);
    rig.silent.push(25);
    rig.give_with(25, 2, 1);
    rig.refusing.push(25);
    let second = rig.give_with(25, 2, 1);
    assert_eq!(rig.ends(), [(second, 'T')], "it fails alone");
    let waits = [rig.give_with(25, 1, 1), rig.give_with(25, 1, 1)];
    assert_eq!(rig.ends(), [], "one connection is what the next hop may have");
    rig.refusing.clear();
    rig.silent.clear();
    let first = rig.open.values_mut().next().unwrap();
    first.connection.handle(ConnectionInput::Lost, rig.now);
    rig.settle();
    assert_eq!(rig.ends(), [(1, 'T'), (waits[0], 'D'), (waits[1], 'D')]);
}

#[test]
fn a_message_that_an_idle_connection_did_not_take_is_put_back_and_goes_first() {
    let mut rig = rig(10);
    rig.give(25);
    rig.ends();
    // The peer closes as the next message comes: it has answered nothing of that message.
    rig.next += 1;
    let mut attempt = Attempt::sample(rig.next, &["late@d25.test"]);
    attempt.route.hop = NextHop::Smtp(Host::Address("192.0.2.1".parse().unwrap()), 25);
    attempt.route.messages_per_connection_max = 10;
    rig.queue.attempt(attempt, Some(b"a\r\n")).unwrap();
    let mut from_queue: BytesMut = rig.queue.transmit().drain(..).flatten().collect();
    rig.pool.handle(Input::Received(&mut from_queue), rig.now).unwrap();
    let open = rig.open.values_mut().next().unwrap();
    assert_eq!(open.connection.poll(&mut rig.pool, rig.now), None);
    assert!(open.connection.current().is_some());
    open.connection.handle(ConnectionInput::Lost, rig.now);
    rig.settle();
    assert_eq!(rig.ends(), [(2, 'D')]);
    assert_eq!(rig.open.keys().copied().collect::<Vec<_>>(), [ConnectionId(1)], "over a new one");
}

#[test]
fn a_next_hop_gets_the_place_of_the_connection_that_was_idle_for_longest_after_its_grace() {
    let mut rig = rig(2);
    rig.give(25);
    rig.pass(Duration::from_millis(5));
    rig.give(26);
    assert_eq!(rig.ends().len(), 2);
    rig.give(27);
    assert_eq!((rig.ports(), rig.ends()), (vec![Some(25), Some(26)], vec![]), "too early");
    let grace = rig.pool.next_wakeup().unwrap();
    assert_eq!(grace, Instant::ZERO + IDLE_GRACE, "the driver is to come back then");
    rig.pass(IDLE_GRACE - Duration::from_millis(5));
    assert_eq!((rig.ports(), rig.ends()), (vec![Some(26), Some(27)], vec![(3, 'D')]));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.ports(), [Some(26), Some(27)], "no more than were needed end");
    assert_eq!(rig.pool.next_wakeup(), None);
}

#[test]
fn a_next_hop_with_much_work_does_not_keep_its_place_from_one_that_waits() {
    let mut rig = rig(1);
    rig.silent.push(25);
    (0..3).for_each(|_| _ = rig.give_with(25, 1, 1));
    let other = rig.give(26);
    rig.silent.clear();
    let first = rig.open.values_mut().next().unwrap();
    first.connection.handle(ConnectionInput::Lost, rig.now);
    rig.settle();
    assert_eq!(rig.ends(), [(1, 'T'), (other, 'D')]);
    rig.pass(IDLE_GRACE);
    assert_eq!(rig.ends(), [(2, 'D'), (3, 'D')]);
}

#[test]
fn a_next_hop_that_waited_for_a_place_gets_each_place_that_is_free_and_not_only_the_first() {
    let mut rig = rig(2);
    rig.silent.extend([25, 26]);
    (0..2).for_each(|_| _ = rig.give_with(25, 10, 1));
    (0..3).for_each(|_| _ = rig.give_with(26, 10, 10));
    assert_eq!(rig.ports(), [Some(25), Some(25)]);
    for left in [1, 0] {
        let first = rig.open.values_mut().find(|open| open.port == Some(25)).unwrap();
        first.connection.handle(ConnectionInput::Lost, rig.now);
        rig.settle();
        let ports = rig.ports();
        assert_eq!(ports.iter().filter(|port| **port == Some(25)).count(), left);
        assert_eq!(ports.len(), 2, "no place is free while a message waits for one: {ports:?}");
    }
    assert_eq!(rig.ends(), [(1, 'T'), (2, 'T')]);
}

#[test]
fn a_chunk_that_comes_twice_counts_once_and_a_new_queue_process_is_asked_again() {
    let mut rig = rig(10);
    let large = rig.give_large(25);
    assert_eq!(rig.fetches, [(large, 0)]);
    rig.connect();
    assert_eq!(rig.fetches, [(large, 0), (large, 0)]);
    let chunk =
        [b"0123456789abcdef".repeat(INLINE_BYTES_MAX as usize / 16), b"\r\n".to_vec()].concat();
    for offset in [7, 0, 0] {
        rig.queue.chunk(large, offset, &chunk);
    }
    rig.queue.chunk_bad(large);
    rig.settle();
    assert_eq!((rig.ends(), rig.fetches.len()), (vec![(large, 'D')], 2));
}

#[test]
fn a_message_that_cannot_be_read_is_deferred() {
    let mut rig = rig(10);
    let large = rig.give_large(25);
    rig.queue.chunk_bad(large);
    rig.settle();
    assert_eq!(rig.ends(), [(large, 'T')]);
}

#[test]
fn a_drain_ends_idle_connections_at_once_and_begins_nothing() {
    let mut rig = rig(10);
    rig.give(25);
    rig.silent.push(26);
    let begun = rig.give_with(26, 1, 10);
    let waits = rig.give_with(26, 1, 10);
    rig.ends();
    assert!(!rig.pool.is_drained(rig.now.monotonic));
    rig.pool.handle(Input::Drain, rig.now).unwrap();
    rig.settle();
    assert_eq!(rig.ports(), [Some(26)]);
    rig.give(27);
    assert_eq!((rig.ports(), rig.pool.is_drained(rig.now.monotonic)), (vec![Some(26)], false));
    let last = rig.open.values_mut().next().unwrap();
    last.connection.handle(ConnectionInput::Received(b"451 4.0.0 later\r\n"), rig.now);
    rig.settle();
    assert_eq!(rig.ends(), [(begun, 'T')]);
    assert!(rig.pool.is_drained(rig.now.monotonic));
    assert!(rig.pool.queue().is_under_way(waits), "another process makes it");
}

#[test]
fn a_drain_waits_for_a_stream_that_takes_its_results_and_no_longer_than_its_time() {
    for has_stream in [true, false] {
        let mut rig = rig(10);
        rig.silent.push(25);
        rig.give(25);
        rig.pool.handle(Input::Disconnected, rig.now).unwrap();
        rig.pool.handle(Input::Drain, rig.now).unwrap();
        let only = rig.open.values_mut().next().unwrap();
        only.connection.handle(ConnectionInput::Lost, rig.now);
        let id = *rig.open.first_key_value().unwrap().0;
        while rig.turn(id) {}
        rig.pool_outputs();
        assert_eq!(rig.pool.connections(), 0);
        assert!(!rig.pool.is_drained(rig.now.monotonic), "nobody has heard of its result");
        match has_stream {
            true => rig.connect(),
            false => rig.now.monotonic = rig.now.monotonic + DRAIN_TIME_MAX,
        }
        assert!(rig.pool.is_drained(rig.now.monotonic));
        assert_eq!(rig.results.len(), usize::from(has_stream));
    }
}

#[test]
fn a_drain_ends_at_its_time_whatever_is_left() {
    let mut rig = rig(10);
    rig.slow.push(25);
    rig.give(25);
    rig.pool.handle(Input::Drain, rig.now).unwrap();
    assert_eq!(rig.pool.next_wakeup(), Some(rig.now.monotonic + DRAIN_TIME_MAX));
    rig.now.monotonic = rig.now.monotonic + DRAIN_TIME_MAX;
    assert!(rig.pool.is_drained(rig.now.monotonic));
    assert!(rig.pool.queue().is_under_way(1), "queue makes it again");
}

#[test]
fn a_connection_whose_task_met_a_bug_gives_its_message_back_and_leaves_the_pool() {
    for state in ["connecting", "sending"] {
        let mut rig = rig(1);
        match state {
            "connecting" => rig.slow.push(25),
            _ => rig.silent.push(25),
        }
        rig.give(25);
        let (_, mut open) = rig.open.pop_first().unwrap();
        open.connection.close(&mut rig.pool, rig.now);
        open.connection.close(&mut rig.pool, rig.now);
        rig.settle();
        assert_eq!((rig.ends(), rig.logged.len()), (vec![(1, 'T')], 1), "{state}");
        assert_eq!((rig.pool.connections(), rig.pool.hops()), (0, 0), "{state}");
    }
}
