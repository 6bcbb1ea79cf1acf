//! The local process: the machine is the one that the daemon has; accounts, staging, workers and
//! mailboxes are played here.
//!
//! Stands where `daemon/src/process/local` stands. Must never decide what becomes of a recipient,
//! except as that recipient's mailbox.

use crate::ledger::parse_address;
use crate::lie;
use crate::net::{Segment, StreamId};
use crate::plan::{Fate, Lie, Station};
use crate::receive::BUILD;
use crate::stage::{Event, Given, World};
use bytes::BytesMut;
use link::LinkError;
use link::send::{SenderEnd, SenderEvent};
use link::streams::Loss;
use local::{
    DeliveryBatch, DeliveryItem, DeliveryUser, Input, LocalDelivery, LocalEvent, Output, WorkerId,
};
use mail::{Enhanced, Instant, Outcome, Reply};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use world::Rng as _;

/// Something that the local process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalStep {
    /// A piece of this attempt's message is on the disk, or cannot be.
    Staged(u64),
    /// An account has been looked up.
    Home(u64),
    /// A worker has come to the end of its batch.
    Delivered(WorkerId),
    /// A worker dies.
    Dies(WorkerId),
}

type Message = Arc<Vec<u8>>;

/// The local process.
pub struct Local {
    /// The last one of the sending stations.
    pub station: Station,
    /// The number of this start, counted over all processes.
    pub start: u64,
    /// The stream to queue.
    pub link: Option<StreamId>,
    machine: LocalDelivery<Message>,
    input: BytesMut,
    /// Hears what the machine hears, so that the books know the attempts, and what is recorded.
    tap: SenderEnd,
    attempts: BTreeMap<u64, Taken>,
    /// Messages of which pieces have come, and whether the last piece is among them.
    staging: BTreeMap<u64, (Vec<u8>, bool)>,
    workers: BTreeMap<WorkerId, Worker>,
    wake_at: Option<Instant>,
    /// The process is told to end as soon as a batch is under way.
    drains_in_batch: bool,
}

/// An attempt that is not recorded.
struct Taken {
    began: Instant,
    /// The recipients whose delivery the machine has been told.
    delivered: Vec<(u32, usize)>,
}

/// A worker process, or the thread of this process.
struct Worker {
    user: DeliveryUser,
    batch: Option<(DeliveryBatch<Message>, Manner)>,
}

/// How a worker treats a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It delivers the batch.
    Well,
    /// It dies after this many deliveries.
    Dies(usize),
    /// It delivers this many, and never answers.
    Hangs(usize),
    /// It delivers the batch, and leaves one outcome out of its answer.
    ShortAnswer,
}

impl Local {
    /// Starts the process.
    pub fn new(station: Station, start: u64, world: &mut World) -> Local {
        let incarnation = world.chance.u64();
        let settings = world.plan.settings.local.settings();
        Local {
            station,
            start,
            link: None,
            tap: SenderEnd::new(BUILD, incarnation, settings.limits.attempts_max),
            machine: LocalDelivery::new(settings, BUILD, incarnation),
            input: BytesMut::new(),
            attempts: BTreeMap::new(),
            staging: BTreeMap::new(),
            workers: BTreeMap::new(),
            wake_at: None,
            drains_in_batch: false,
        }
    }

    /// A stream to a queue process is there.
    pub fn connected(&mut self, stream: StreamId, world: &mut World) {
        self.link = Some(stream);
        self.input.clear();
        self.tap.connected();
        self.handle(Input::Connected, world);
    }

    /// Something has come over the stream.
    pub fn hear(&mut self, stream: StreamId, segment: Segment, world: &mut World) {
        if self.link != Some(stream) {
            return;
        }
        match segment {
            Segment::Bytes(bytes) => {
                self.listen(&bytes, world);
                let mut input = std::mem::take(&mut self.input);
                input.extend_from_slice(&bytes);
                self.machine.handle(Input::Received(&mut input), world.now());
                self.input = input;
                self.act(world);
            }
            Segment::Fin | Segment::Reset => self.lost(None, world),
        }
    }

    /// Writes into the books what queue says.
    fn listen(&mut self, bytes: &[u8], world: &mut World) {
        // What the machine refuses is refused here as well, and reported there.
        let _ = self.tap.handle(&mut BytesMut::from(bytes));
        self.tap.transmit().clear();
        while let Some(event) = self.tap.poll() {
            let SenderEvent::Attempt { attempt, .. } = event else { continue };
            world.log(|| {
                let to = attempt.recipients.iter().map(|(_, r)| r.address.to_string());
                let to: Vec<String> = to.collect();
                format!("local: attempt {} of {} {to:?}", attempt.id, attempt.message)
            });
            world.gave(Given {
                to: self.station,
                attempt: attempt.id,
                message: attempt.message,
                recipients: attempt.recipients.iter().map(|(index, _)| *index).collect(),
            });
            let began = world.now().monotonic;
            self.attempts.insert(attempt.id, Taken { began, delivered: Vec::new() });
        }
        let now = world.now().monotonic;
        let (tap, ledger) = (&self.tap, &mut world.ledger);
        self.attempts.retain(|attempt, taken| {
            let is_open = tap.is_open(*attempt);
            if !is_open {
                taken.delivered.iter().for_each(|(mail, index)| ledger.settled(*mail, *index, now));
            }
            is_open
        });
    }

    /// The stream is over.
    fn lost(&mut self, error: Option<LinkError>, world: &mut World) {
        let Some(stream) = self.link.take() else { return };
        if let Some(error) = error {
            world.broken(stream, "local", error);
        }
        world.lost(self.station, stream, error.map_or(Loss::Ended, Loss::Link));
        world.hang_up(stream, 1, Segment::Fin);
        self.handle(Input::Disconnected, world);
    }

    /// The process is told to end.
    pub fn drain(&mut self, world: &mut World) {
        self.handle(Input::Drain, world);
    }

    /// The process is told to end while a batch is under way: the next batch, if there is none now.
    pub fn drain_in_batch(&mut self, world: &mut World) {
        self.drains_in_batch = true;
        self.drain_if_in_batch(world);
    }

    fn drain_if_in_batch(&mut self, world: &mut World) {
        let is_busy = self.workers.values().any(|worker| worker.batch.is_some());
        if self.drains_in_batch && is_busy {
            self.drains_in_batch = false;
            self.drain(world);
        }
    }

    /// Whether the process ends now.
    pub fn is_drained(&mut self) -> bool {
        self.machine.is_drained()
    }

    /// The machine's time has come.
    pub fn wake(&mut self, world: &mut World) {
        if self.wake_at.is_some_and(|at| at <= world.now().monotonic) {
            self.wake_at = None;
        }
        self.handle(Input::Timeout, world);
    }

    /// Says what it must not say, as a process would that was taken over.
    pub fn lie(&mut self, kind: Lie, world: &mut World) {
        let Some(link) = self.link else { return };
        let tap = &self.tap;
        lie::tell(kind, self.station, link, |attempt| tap.is_under_way(attempt), world);
    }

    fn handle(&mut self, input: Input<'_, Message>, world: &mut World) {
        self.machine.handle(input, world.now());
        self.act(world);
    }

    fn act(&mut self, world: &mut World) {
        while let Some(output) = self.machine.poll(world.now()) {
            self.take(output, world);
        }
        let frames: Vec<u8> = match self.link {
            Some(_) => self.machine.transmit().drain(..).flatten().collect(),
            None => Vec::new(),
        };
        if let Some(link) = self.link.filter(|_| !frames.is_empty()) {
            world.put(link, 1, Segment::Bytes(frames), Duration::ZERO);
        }
        if let Some(at) = self.machine.next_wakeup()
            && self.wake_at.is_none_or(|before| at < before)
        {
            self.wake_at = Some(at);
            world.at(at, Event::Wake(self.station, self.start));
        }
        self.drain_if_in_batch(world);
    }

    fn take(&mut self, output: Output<Message>, world: &mut World) {
        match output {
            Output::HangUp(error) => self.lost(Some(error), world),
            Output::Stage { attempt, bytes, last, .. } => {
                let (message, is_whole) = self.staging.entry(attempt).or_default();
                message.extend_from_slice(&bytes);
                *is_whole = last;
                self.later(2_000, LocalStep::Staged(attempt), world);
            }
            Output::Unstage { attempt } => drop(self.staging.remove(&attempt)),
            Output::FindHome { lookup, .. } => self.later(2_000, LocalStep::Home(lookup), world),
            Output::StartWorker { worker, user } => self.start(worker, user, world),
            Output::Deliver { worker, batch } => self.deliver(worker, batch, world),
            Output::EndWorker { worker } => drop(self.workers.remove(&worker)),
            Output::Log(LocalEvent::Attempt(end)) => {
                world.log(|| format!("local: {} ended: {:?}", end.recipient, end.outcome));
            }
            Output::Log(LocalEvent::Alarm { .. }) => {}
        }
    }

    fn later(&self, micros: u64, step: LocalStep, world: &mut World) {
        let wait = world.delay(micros);
        world.after(wait, Event::Local(self.station, self.start, step));
    }

    /// Something has come about that the process waited for.
    pub fn step(&mut self, step: LocalStep, world: &mut World) {
        match step {
            LocalStep::Staged(attempt) => self.staged(attempt, world),
            LocalStep::Home(lookup) => {
                let home = Some(PathBuf::from("/home"));
                self.handle(Input::Home { lookup, home }, world);
            }
            LocalStep::Delivered(worker) => self.delivered(worker, world),
            LocalStep::Dies(worker) => self.dies(worker, world),
        }
    }

    fn staged(&mut self, attempt: u64, world: &mut World) {
        let Some((_, is_whole)) = self.staging.get(&attempt) else { return };
        if goes_wrong(world) {
            self.staging.remove(&attempt);
            let reply = Reply::new(452, Enhanced(4, 3, 1), "disk is full");
            return self.handle(Input::StageFailed { attempt, reply }, world);
        }
        if !is_whole {
            return self.handle(Input::Staged { attempt }, world);
        }
        let (message, _) = self.staging.remove(&attempt).unwrap_or_default();
        self.handle(Input::StagedLast { attempt, message: Arc::new(message) }, world);
    }

    fn start(&mut self, worker: WorkerId, user: DeliveryUser, world: &mut World) {
        let is_process = user != DeliveryUser::ThisProcess;
        self.workers.insert(worker, Worker { user, batch: None });
        // It cannot be started, or dies while it waits.
        if is_process && goes_wrong(world) {
            self.later(10_000_000, LocalStep::Dies(worker), world);
        }
    }

    fn deliver(&mut self, id: WorkerId, batch: DeliveryBatch<Message>, world: &mut World) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let is_own = worker.user == DeliveryUser::ThisProcess;
        let manner = if goes_wrong(world) && !is_own {
            let some = world.chance.below(batch.len() as u64 + 1) as usize;
            let manners = [Manner::Dies(some), Manner::Hangs(some), Manner::ShortAnswer];
            world.counts.workers_lost += 1;
            crate::plan::pick(&mut world.chance, &manners)
        } else {
            Manner::Well
        };
        worker.batch = Some((batch, manner));
        let micros = if goes_wrong(world) { 600_000_000 } else { 30_000 };
        self.later(micros, LocalStep::Delivered(id), world);
    }

    /// A worker has done with its batch what it does with it.
    fn delivered(&mut self, id: WorkerId, world: &mut World) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let Some((batch, manner)) = worker.batch.take() else { return };
        let count = match manner {
            Manner::Well | Manner::ShortAnswer => batch.len(),
            Manner::Dies(count) | Manner::Hangs(count) => count,
        };
        let items = batch.iter().take(count);
        let mut outcomes: Vec<Outcome> =
            items.map(|item| mailbox(item, self.attempts.get(&item.attempt), world)).collect();
        match manner {
            Manner::Hangs(_) => return,
            Manner::Dies(_) => return self.dies(id, world),
            Manner::ShortAnswer => drop(outcomes.pop()),
            Manner::Well => self.note(&batch, &outcomes),
        }
        let alarms = Vec::new();
        self.handle(Input::BatchDone { worker: id, outcomes, alarms }, world);
    }

    /// Notes which deliveries the machine is told of.
    fn note(&mut self, batch: &DeliveryBatch<Message>, outcomes: &[Outcome]) {
        for (item, outcome) in batch.iter().zip(outcomes) {
            let key = parse_address(item.recipient.as_str());
            let taken = self.attempts.get_mut(&item.attempt);
            if let (Outcome::Delivered { .. }, Some(key), Some(taken)) = (outcome, key, taken) {
                taken.delivered.push(key);
            }
        }
    }

    fn dies(&mut self, worker: WorkerId, world: &mut World) {
        if self.workers.remove(&worker).is_some() {
            let why = "it was killed".into();
            self.handle(Input::WorkerEnded { worker, why }, world);
        }
    }
}

/// Whether a worker, or the disk of the mailboxes, is in trouble now.
fn goes_wrong(world: &mut World) -> bool {
    let trouble = world.plan.settings.local.trouble;
    trouble > 0 && !world.is_quiet() && world.chance.below(1_000) < trouble
}

/// A mailbox takes a message, or says why it does not.
fn mailbox(item: &DeliveryItem<Message>, taken: Option<&Taken>, world: &mut World) -> Outcome {
    let peer = item.place.to_string();
    let refusal = |code, enhanced, text| local::outcome(Reply::new(code, enhanced, text), &*peer);
    let Some(key) = parse_address(item.recipient.as_str()) else {
        return refusal(550, Enhanced(5, 1, 1), "no such mailbox here");
    };
    match world.fate(key) {
        Some(Fate::Refused) => return refusal(550, Enhanced(5, 1, 1), "no such mailbox here"),
        Some(Fate::Never) => return refusal(452, Enhanced(4, 2, 2), "mailbox is full"),
        Some(Fate::Deferred(times)) if world.try_mailbox(key) < times => {
            return refusal(451, Enhanced(4, 2, 0), "mailbox is locked by another program");
        }
        _ => {}
    }
    let (number, index) = key;
    world.log(|| format!("mailbox takes m{number}r{index}"));
    world.ledger.delivered(number, index, &item.message, taken.map(|taken| taken.began));
    refusal(250, Enhanced(2, 0, 0), "delivered to the mailbox")
}
