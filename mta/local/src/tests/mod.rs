//! The machine against a queue process's end of the conversation and a driver that a test holds in its
//! hands. Must never answer for a worker: each test says what becomes of a batch.

mod drain;
mod fetching;
mod places;
mod results;
mod workers;

use crate::{
    Deliver, DeliveryBatch, DeliveryUser, Input, LocalDelivery, LocalEvent, LocalLimits,
    MailboxAlarm, Output, Piece, Settings, Template, Users, WorkerId, outcome,
};
use bytes::{Bytes, BytesMut};
use link::send::{Attempt, INLINE_BYTES_MAX, QueueEnd, QueueEvent, Result as AttemptResult};
use mail::{Enhanced, Instant, NextHop, Now, Outcome, Reply, Timestamp};
use policy::{Accounts, Mailboxes, Names};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

const BUILD: u64 = 7;

const LIMITS: LocalLimits = LocalLimits {
    attempts_max: 100,
    fetches_max: 2,
    batch_items_max: 3,
    workers_max: 2,
    worker_idle_max: Duration::from_secs(60),
    batch_time_max: Duration::from_secs(3600),
    drain_time_max: Duration::from_secs(8),
};

/// The machine, and what it asks for.
struct Bench {
    machine: LocalDelivery<Bytes>,
    queue: QueueEnd,
    now: Now,
    /// Whether pieces are staged as soon as the machine asks for it.
    stages: bool,
    /// Pieces that wait to be staged: attempt, and whether it is the last.
    to_stage: VecDeque<(u64, bool)>,
    staged: BTreeMap<u64, Vec<u8>>,
    /// Workers that have not ended.
    workers: BTreeMap<WorkerId, DeliveryUser>,
    /// Batches without outcomes.
    batches: BTreeMap<WorkerId, DeliveryBatch<Bytes>>,
    /// Fetches without an answer: attempt, offset and bytes.
    fetches: Vec<(u64, u64, u32)>,
    /// What a new queue process was told to be under way.
    under_way: Vec<u64>,
    results: Vec<AttemptResult>,
    ends: Vec<(String, Outcome)>,
    alarms: Vec<(String, MailboxAlarm)>,
    drains_told: bool,
}

fn mailboxes() -> Deliver {
    Deliver::Maildir(Template(vec![Piece::Text("/m/".into()), Piece::User]))
}

fn settings(users: Users, limits: LocalLimits) -> Settings {
    let mailboxes_rule = Mailboxes { names: Names::default(), accounts: Accounts::Any };
    let state = "/state".to_owned();
    Settings { state, deliver: mailboxes(), users, mailboxes: mailboxes_rule, limits }
}

/// Delivered by this process.
fn own() -> Bench {
    Bench::new(settings(Users::Any, LIMITS))
}

/// Delivered by workers. Each account exists whose name does not begin with `no`.
fn accounts() -> Bench {
    Bench::new(settings(Users::System, LIMITS))
}

fn attempt(id: u64, to: &[&str], body_bytes: u64) -> Attempt {
    let addresses: Vec<String> = to.iter().map(|local| format!("{local}@l.test")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut attempt = Attempt::sample(id, &addresses);
    attempt.body.bytes = body_bytes;
    attempt
}

fn delivered() -> Outcome {
    outcome(Reply::new(250, Enhanced(2, 0, 0), "delivered"), "/m")
}

fn code(outcome: &Outcome) -> String {
    outcome.report().reply.enhanced.unwrap().to_string()
}

impl Bench {
    fn new(settings: Settings) -> Bench {
        let start = Instant::from_nanos(1_000_000_000_000);
        let mut bench = Bench {
            machine: LocalDelivery::new(settings, BUILD, 1),
            queue: QueueEnd::new(BUILD),
            now: Now { monotonic: start, wall: Timestamp::default() },
            stages: true,
            to_stage: VecDeque::new(),
            staged: BTreeMap::new(),
            workers: BTreeMap::new(),
            batches: BTreeMap::new(),
            fetches: Vec::new(),
            under_way: Vec::new(),
            results: Vec::new(),
            ends: Vec::new(),
            alarms: Vec::new(),
            drains_told: false,
        };
        bench.connect();
        bench
    }

    /// A new queue process takes the place of the former one.
    fn connect(&mut self) {
        self.queue = QueueEnd::new(BUILD);
        (self.fetches, self.under_way) = (Vec::new(), Vec::new());
        self.handle(Input::Connected);
    }

    fn handle(&mut self, input: Input<'_, Bytes>) {
        self.machine.handle(input, self.now);
        self.run();
    }

    /// Until nothing moves any more.
    fn run(&mut self) {
        loop {
            while let Some(output) = self.machine.poll(self.now) {
                self.act(output);
            }
            let mut moved = false;
            let mut heard: BytesMut = self.machine.transmit().drain(..).flatten().collect();
            moved |= !heard.is_empty();
            self.queue.handle(&mut heard).unwrap();
            while let Some(event) = self.queue.poll() {
                self.hear(event);
            }
            let mut said: BytesMut = self.queue.transmit().drain(..).flatten().collect();
            moved |= !said.is_empty();
            self.machine.handle(Input::Received(&mut said), self.now);
            if !moved {
                return;
            }
        }
    }

    fn hear(&mut self, event: QueueEvent) {
        match event {
            QueueEvent::Fetch { attempt, offset, bytes, .. } => {
                self.fetches.push((attempt, offset, bytes));
            }
            QueueEvent::Result(result) => self.results.push(result),
            QueueEvent::UnderWay(one) => self.under_way.push(one.attempt),
            QueueEvent::Drains => self.drains_told = true,
            QueueEvent::Hello { .. } | QueueEvent::AllTold => {}
        }
    }

    fn act(&mut self, output: Output<Bytes>) {
        match output {
            Output::HangUp(error) => panic!("{error}"),
            Output::Stage { attempt, bytes, last, .. } => {
                self.staged.entry(attempt).or_default().extend_from_slice(&bytes);
                self.to_stage.push_back((attempt, last));
                if self.stages {
                    self.stage_next();
                }
            }
            Output::Unstage { attempt } => drop(self.staged.remove(&attempt)),
            Output::FindHome { lookup, account } => {
                let there = !account.starts_with("no");
                let home = there.then(|| PathBuf::from(format!("/home/{account}")));
                self.machine.handle(Input::Home { lookup, home }, self.now);
            }
            Output::StartWorker { worker, user } => {
                assert!(!self.workers.values().any(|known| *known == user));
                self.workers.insert(worker, user);
            }
            Output::Deliver { worker, batch } => {
                assert!(self.workers.contains_key(&worker));
                assert!(self.batches.insert(worker, batch).is_none(), "one batch at a time");
            }
            Output::EndWorker { worker } => {
                self.workers.remove(&worker).unwrap();
                self.batches.remove(&worker);
            }
            Output::Log(LocalEvent::Attempt(end)) => {
                self.ends.push((end.recipient.local().to_owned(), end.outcome));
            }
            Output::Log(LocalEvent::Alarm { mailbox, alarm }) => {
                self.alarms.push((mailbox.into(), alarm));
            }
        }
    }

    fn stage_next(&mut self) {
        let (attempt, last) = self.to_stage.pop_front().unwrap();
        let input = match last {
            false => Input::Staged { attempt },
            true => {
                let message = self.staged.remove(&attempt).unwrap().into();
                Input::StagedLast { attempt, message }
            }
        };
        self.machine.handle(input, self.now);
    }

    /// A small message for these local parts.
    fn small(&mut self, id: u64, to: &[&str]) {
        self.queue.attempt(attempt(id, to, 3), Some(b"x\r\n")).unwrap();
        self.run();
    }

    /// A message that has to be fetched.
    fn large(&mut self, id: u64, to: &[&str], bytes: u64) {
        assert!(bytes > INLINE_BYTES_MAX);
        self.queue.attempt(attempt(id, to, bytes), None).unwrap();
        self.run();
    }

    /// Answers the fetch of this attempt.
    fn answer(&mut self, id: u64) {
        let at = self.fetches.iter().position(|(attempt, ..)| *attempt == id).unwrap();
        let (attempt, offset, bytes) = self.fetches.remove(at);
        self.chunk(attempt, offset, bytes as usize);
    }

    fn chunk(&mut self, attempt: u64, offset: u64, bytes: usize) {
        self.queue.chunk(attempt, offset, &vec![b'x'; bytes]);
        self.run();
    }

    fn damage(&mut self, id: u64) {
        self.fetches.retain(|(attempt, ..)| *attempt != id);
        self.queue.chunk_bad(id);
        self.run();
    }

    /// The worker that has a batch with mail for this local part.
    fn worker_of(&self, user: &str) -> WorkerId {
        let has =
            |batch: &&DeliveryBatch<Bytes>| batch.iter().any(|item| item.recipient.local() == user);
        let found = self.batches.iter().find(|(_, batch)| has(batch));
        *found.unwrap_or_else(|| panic!("nobody delivers to {user}: {:?}", self.batches)).0
    }

    /// What is being delivered: attempt and local part, in order.
    fn delivering(&self) -> Vec<(u64, &str)> {
        let items = self.batches.values().flat_map(|batch| batch.iter());
        items.map(|item| (item.attempt, item.recipient.local())).collect()
    }

    /// The batch with mail for this local part is delivered.
    fn deliver(&mut self, user: &str) -> WorkerId {
        let worker = self.worker_of(user);
        let outcomes = vec![delivered(); self.batches[&worker].len()];
        self.done(worker, outcomes, vec![]);
        worker
    }

    fn done(&mut self, worker: WorkerId, outcomes: Vec<Outcome>, alarms: Vec<MailboxAlarm>) {
        self.batches.remove(&worker);
        self.handle(Input::BatchDone { worker, outcomes, alarms });
    }

    /// A worker dies.
    fn die(&mut self, worker: WorkerId) {
        self.workers.remove(&worker).unwrap();
        self.batches.remove(&worker);
        self.handle(Input::WorkerEnded { worker, why: "killed".into() });
    }

    /// Time passes until the machine wants to be woken.
    fn wait(&mut self) -> Duration {
        let at = self.machine.next_wakeup().unwrap();
        let waited = at.since(self.now.monotonic);
        self.now.monotonic = at;
        self.handle(Input::Timeout);
        waited
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
    }

    /// The results that were told since the last time: attempt, and the codes by recipient.
    fn told(&mut self) -> Vec<(u64, Vec<(u32, String)>)> {
        let codes = |mut result: AttemptResult| {
            result.outcomes.sort_by_key(|(index, _)| *index);
            let codes = result.outcomes.iter().map(|(index, outcome)| (*index, code(outcome)));
            (result.attempt, codes.collect())
        };
        self.results.drain(..).map(codes).collect()
    }
}

fn codes(id: u64, codes: &[&str]) -> (u64, Vec<(u32, String)>) {
    (id, (0..).zip(codes.iter().map(|code| (*code).to_owned())).collect())
}
