//! The queue process: `queue::Queue` on a simulated disk, with the threads that serve it.
//!
//! Stands where `daemon/src/process/queue` stands. Must never do a disk's work in another order
//! than the daemon's threads could.

use crate::ledger::Check;
use crate::net::{Segment, StreamId};
use crate::plan::{Act, Station};
use crate::receive::BUILD;
use crate::stage::{Event, World, postmaster};
use bytes::BytesMut;
use link::admin::{Action, Answer, Filter, State};
use link::control::Role;
use link::streams::Loss;
use mail::{Instant, MessageId};
use queue::{LogEvent, Output, Queue, Read, Restore, SenderKey, Settings};
use scheduler::Scheduler;
use spool::{Class, Io, IoWork};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use world::{DiskError, Errno, Rng as _};

/// Reads under way at once, as in the daemon.
const READERS: usize = 2;

enum Job {
    Io(Io),
    Read(Read),
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<u64>,
    free: usize,
}

/// What an operator waits for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    act: Act,
    number: u32,
}

/// The queue process.
pub struct QueueStation {
    /// The number of this start, counted over all processes.
    pub start: u64,
    queue: Queue,
    lanes: [Lane; 4],
    jobs: BTreeMap<u64, (usize, Job)>,
    running: Vec<u64>,
    next_job: u64,
    links: BTreeMap<Station, StreamId>,
    input: BTreeMap<Station, BytesMut>,
    asked: BTreeMap<u64, Asked>,
    next_question: u64,
    wake_at: Option<Instant>,
    senders: u16,
}

/// What is in a spool, as recovery sees it: each message with its unfinished recipients.
pub type Contents = Vec<(MessageId, u32, bool)>;

fn settings(world: &World) -> Settings {
    let drawn = &world.plan.settings;
    Settings {
        hostname: "mx.test".into(),
        postmaster: postmaster(),
        routes: world.routes.clone(),
        scheduler: drawn.scheduler.clone(),
        original_bytes_max: 5_000,
        message_cache_bytes_max: drawn.message_cache_bytes_max,
        credit_bytes: drawn.credit_bytes,
        receivers: drawn.receivers,
    }
}

/// Opens a spool the way the daemon does.
fn open(
    world: &World,
    disk: &world::sim::Disk,
    chance: &mut world::sim::Rng,
) -> Result<(Queue, spool::OpenReport), spool::OpenError> {
    let (settings, now) = (settings(world), world.now());
    let mut scheduler = Scheduler::new(settings.scheduler.clone(), chance.u64(), now);
    let mut restore = Restore::new(&settings.routes);
    let drawn = &world.plan.settings;
    let (spool, report) = spool::open(disk, drawn.spool.clone(), chance.u64(), &mut |replay| {
        restore.replay(&mut scheduler, replay, now);
    })?;
    if !restore.lost().is_empty() {
        let lost = restore.lost().iter().map(MessageId::to_string).collect::<Vec<_>>();
        return Err(spool::OpenError::Settings(Box::leak(lost.join(" ").into_boxed_str())));
    }
    let senders = usize::from(drawn.senders) + 1;
    let queue = Queue::new(BUILD, chance.u64(), settings, spool, scheduler, senders, now)
        .sealed_with([world.plan.seed, 1]);
    Ok((queue, report))
}

fn contents(queue: &Queue, world: &World) -> Contents {
    let answer = queue.admin_list(&Filter::default(), None, link::admin::ROWS_MAX, world.now());
    let Answer::Page(page) = answer else { return Vec::new() };
    page.rows.iter().map(|row| (row.message, row.recipients, row.state == State::Held)).collect()
}

impl QueueStation {
    /// Starts one: recovery, and the checks that go with it.
    pub fn start(start: u64, world: &mut World) -> Result<QueueStation, spool::OpenError> {
        let mut chance = crate::plan::chance(world.plan.seed, 0x0071_0000 + start);
        let twice = (world.chance.below(6) == 0).then(|| world.disk.forked(chance.u64()));
        let disk = world.disk.clone();
        let (queue, report) = open(world, &disk, &mut chance)?;
        if disk.is_off() {
            return Err(DiskError::new("open", "spool", Errno::OFF).into());
        }
        world.counts.opened += 1;
        let found = contents(&queue, world);
        world.log(|| format!("queue opens at start {start}: {report:?}, {} messages", found.len()));
        // A sync that fails by plan is found out at the start, too, and said.
        let unplanned = |damage: &&spool::Damage| damage.what != "the file cannot be synced";
        let damage: Vec<_> = report.damage.iter().filter(unplanned).collect();
        if !damage.is_empty() {
            let text = format!("damage where nothing was damaged: {damage:?}");
            world.ledger.find(Check::Recovery, text);
        }
        if let Some(other) = twice {
            again(world, &other, &found, &mut chance);
        }
        let drawn = &world.plan.settings;
        let lane = |free| Lane { free, ..Lane::default() };
        let commits = drawn.spool.commits_in_flight;
        let senders = drawn.senders;
        Ok(QueueStation {
            start,
            queue,
            lanes: [lane(commits), lane(1), lane(1), lane(READERS)],
            jobs: BTreeMap::new(),
            running: Vec::new(),
            next_job: 0,
            links: BTreeMap::new(),
            input: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_question: 0,
            wake_at: None,
            senders,
        })
    }

    fn key(&self, number: u16) -> SenderKey {
        match number == self.senders {
            true => SenderKey(Role::Local, 0),
            false => SenderKey(Role::Send, number),
        }
    }

    /// A stream to one of our processes is there.
    pub fn connected(&mut self, station: Station, stream: StreamId, world: &mut World) {
        self.links.insert(station, stream);
        self.input.insert(station, BytesMut::new());
        match station {
            Station::Receive(instance) => self.queue.receiver_connected(instance),
            Station::Send(number) => {
                let key = self.key(number);
                self.queue.sender_connected(key, world.now());
            }
            Station::Queue => {}
        }
        self.pump(world);
    }

    /// Something has arrived.
    pub fn hear(&mut self, stream: StreamId, from: Station, segment: Segment, world: &mut World) {
        if self.links.get(&from) != Some(&stream) {
            return;
        }
        let heard = match segment {
            Segment::Bytes(bytes) => {
                let heard = self.take_in(from, &bytes, world);
                if heard.is_ok() && world.is_lie(stream, &bytes) {
                    let text = format!("queue believed what {from:?} was not given");
                    world.ledger.find(Check::Order, text);
                }
                heard
            }
            Segment::Fin | Segment::Reset => Err(None),
        };
        if let Err(error) = heard {
            if let Some(error) = error {
                world.broken(stream, &format!("queue with {from:?}"), error);
            }
            world.lost(from, stream, error.map_or(Loss::Ended, Loss::Link));
            self.links.remove(&from);
            world.hang_up(stream, 0, Segment::Fin);
            match from {
                Station::Receive(instance) => self.queue.receiver_gone(instance),
                Station::Send(number) => {
                    let key = self.key(number);
                    self.queue.sender_gone(key, world.now());
                }
                Station::Queue => {}
            }
        }
        self.pump(world);
    }

    fn take_in(
        &mut self,
        from: Station,
        bytes: &[u8],
        world: &World,
    ) -> Result<(), Option<link::LinkError>> {
        let mut input = self.input.remove(&from).unwrap_or_default();
        input.extend_from_slice(bytes);
        let heard = match from {
            Station::Receive(instance) => {
                self.queue.receiver_input(instance, &mut input, world.now())
            }
            Station::Send(number) => {
                let key = self.key(number);
                self.queue.sender_input(key, &mut input, world.now())
            }
            Station::Queue => Ok(()),
        };
        self.input.insert(from, input);
        heard.map_err(Some)
    }

    /// A clock has rung.
    pub fn wake(&mut self, world: &mut World) {
        self.wake_at.take_if(|at| *at <= world.now().monotonic);
        self.pump(world);
    }

    /// Runs the machines until nothing moves.
    pub fn pump(&mut self, world: &mut World) {
        loop {
            self.queue.advance(world.now());
            let mut moved = false;
            while let Some(output) = self.queue.poll() {
                moved = true;
                match output {
                    Output::Io(io) => {
                        let lane = match io.class() {
                            Class::Commit => 0,
                            Class::Bulk => 1,
                            Class::Background => 2,
                        };
                        self.enter(lane, Job::Io(io), world);
                    }
                    Output::Read(read) => self.enter(3, Job::Read(read), world),
                    Output::Log(logged) => {
                        match &logged {
                            LogEvent::Alarm(
                                spool::Alarm::CommitFailed(_) | spool::Alarm::Background(_),
                            ) => world.ledger.failure(),
                            LogEvent::Alarm(spool::Alarm::Broken(_)) => world.ledger.broken = true,
                            LogEvent::Damaged { message, text } if !world.disk.is_off() => {
                                world.ledger.unreadable(*message, text);
                            }
                            _ => {}
                        }
                        world.log(|| format!("queue: {logged:?}"));
                    }
                    Output::Answer(question, answer) => self.answered(question, &answer, world),
                }
            }
            if !moved {
                break;
            }
        }
        self.write(world);
        self.sleep(world);
    }

    fn write(&mut self, world: &mut World) {
        for (station, stream) in &self.links {
            let output = match *station {
                Station::Receive(instance) => self.queue.receiver_output(instance),
                Station::Send(number) => {
                    let local = number == self.senders;
                    let key = if local {
                        SenderKey(Role::Local, 0)
                    } else {
                        SenderKey(Role::Send, number)
                    };
                    self.queue.sender_output(key)
                }
                Station::Queue => None,
            };
            let frames: Vec<u8> =
                output.map(|o| o.drain(..).flatten().collect()).unwrap_or_default();
            if !frames.is_empty() {
                world.put(*stream, 0, Segment::Bytes(frames), Duration::ZERO);
            }
        }
    }

    fn sleep(&mut self, world: &mut World) {
        let Some(at) = self.queue.next_wakeup() else { return };
        let at = at.max(world.now().monotonic + Duration::from_micros(1));
        if self.wake_at.is_none_or(|before| at < before) {
            self.wake_at = Some(at);
            world.at(at, Event::Wake(Station::Queue, self.start));
        }
    }

    fn enter(&mut self, lane: usize, job: Job, world: &mut World) {
        self.next_job += 1;
        self.jobs.insert(self.next_job, (lane, job));
        self.lanes[lane].waiting.push_back(self.next_job);
        self.begin(lane, world);
    }

    fn begin(&mut self, lane: usize, world: &mut World) {
        while self.lanes[lane].free > 0 {
            let Some(job) = self.lanes[lane].waiting.pop_front() else { return };
            self.lanes[lane].free -= 1;
            self.running.push(job);
            let takes = world.delay(800) + world.slow;
            world.after(takes, Event::Job(self.start, job));
        }
    }

    /// The disk has done a job.
    pub fn job(&mut self, job: u64, world: &mut World) {
        let Some((lane, work)) = self.jobs.remove(&job) else { return };
        self.running.retain(|other| *other != job);
        self.lanes[lane].free += 1;
        let disk = world.disk.clone();
        match work {
            Job::Io(io) => {
                let what = what(&io);
                let done = spool::execute(&disk, io);
                world.log(|| format!("disk: {what}: {:?}", done.result()));
                if disk.is_off() {
                    return;
                }
                self.queue.io_done(done, world.now());
            }
            Job::Read(read) => {
                if let Some(left) = world.bad_reads.checked_sub(1) {
                    world.bad_reads = left;
                    disk.flip_nth_read(1);
                }
                let done = queue::perform(&disk, read);
                self.queue.read_done(done, world.now());
            }
        }
        self.begin(lane, world);
        self.pump(world);
    }

    /// The process is killed: what its threads were at may be done, in part or not.
    pub fn die(mut self, world: &mut World) {
        for job in std::mem::take(&mut self.running) {
            let Some((_, Job::Io(io))) = self.jobs.remove(&job) else { continue };
            let disk = world.disk.clone();
            match world.chance.below(3) {
                0 => {}
                1 => drop(spool::begin(&disk, io)),
                _ => drop(spool::execute(&disk, io)),
            }
        }
    }

    /// Whether nothing is queued, nor on its way to the disk.
    pub fn is_empty(&self, world: &World) -> bool {
        self.queue.summary(world.now()).messages == 0 && self.queue.is_settled()
    }

    /// What is still here, in words.
    pub fn leftovers(&self, world: &World) -> String {
        let left: Vec<String> = contents(&self.queue, world)
            .iter()
            .take(3)
            .map(|(id, ..)| format!("{:?}", self.queue.admin_explain(*id, 0, world.now())))
            .collect();
        format!("{:?} {left:?}", self.queue.summary(world.now()))
    }

    /// An operator acts on one message.
    pub fn operate(&mut self, act: Act, number: u32, id: MessageId, world: &mut World) {
        self.next_question += 1;
        let action = match act {
            Act::Hold => Action::Hold,
            Act::Release => Action::Release,
            Act::Retry => Action::Retry,
            Act::Delete => Action::Delete,
            Act::Priority => Action::Priority(7),
        };
        match act {
            Act::Delete => world.ledger.doomed(number),
            Act::Release => {
                self.forget_holds(|asked| asked.number == number);
                world.ledger.held(number, None);
            }
            _ => {}
        }
        world.log(|| format!("operator: {act:?} m{number} {id}"));
        self.asked.insert(self.next_question, Asked { act, number });
        let filter = Filter { ids: vec![id], ..Filter::default() };
        self.queue.admin_act(self.next_question, action, &filter, None, false, world.now());
        self.pump(world);
    }

    /// A hold whose answer comes after a release was asked for says nothing of what holds now.
    fn forget_holds(&mut self, released: impl Fn(&Asked) -> bool) {
        self.asked.retain(|_, asked| !(matches!(asked.act, Act::Hold) && released(asked)));
    }

    /// An operator releases everything.
    pub fn release_all(&mut self, world: &mut World) {
        self.forget_holds(|_| true);
        world.ledger.release_all();
        self.next_question += 1;
        let filter = Filter { state: Some(State::Held), ..Filter::default() };
        let question = self.next_question;
        self.queue.admin_act(question, Action::Release, &filter, None, false, world.now());
        self.pump(world);
    }

    fn answered(&mut self, question: u64, answer: &Answer, world: &mut World) {
        let Some(Asked { act, number }) = self.asked.remove(&question) else { return };
        world.log(|| format!("operator hears of m{number}: {answer:?}"));
        let Answer::Acted(acted) = answer else { return };
        if acted.messages == 0 {
            return;
        }
        let now = world.now().monotonic;
        match act {
            Act::Delete => world.ledger.deleted(number, now),
            Act::Hold => world.ledger.held(number, Some(now)),
            _ => {}
        }
    }
}

/// A job in a few words.
fn what(io: &Io) -> String {
    match io.work() {
        IoWork::Create { file, .. } => format!("create {file}"),
        IoWork::Write { file, offset, buffer, sync } => {
            let synced = if *sync { ", synced" } else { "" };
            format!("write {file} at {offset}, {} octets{synced}", buffer.len())
        }
        IoWork::Zero { file, offset, .. } => format!("zero {file} at {offset}"),
        IoWork::Grow { file, .. } => format!("grow {file}"),
        IoWork::Sync { file } => format!("sync {file}"),
        IoWork::Remove { file } => format!("remove {file}"),
        IoWork::Read { file, offset, .. } => format!("read {file} at {offset}"),
    }
}

/// Recovers a copy of the disk, lets what recovery wants to write be written, cuts the power
/// again and recovers once more: both must see the same.
fn again(
    world: &mut World,
    disk: &world::sim::Disk,
    found: &Contents,
    chance: &mut world::sim::Rng,
) {
    let wrong = match open(world, disk, chance) {
        Err(error) => Some(format!("a copy does not open: {error}")),
        Ok((mut queue, _)) => {
            let mut steps = chance.below(40);
            let mut jobs: VecDeque<Io> = VecDeque::new();
            loop {
                queue.advance(world.now());
                while let Some(output) = queue.poll() {
                    if let Output::Io(io) = output {
                        jobs.push_back(io);
                    }
                }
                let Some(io) = jobs.pop_front().filter(|_| steps > 0) else { break };
                steps -= 1;
                queue.io_done(spool::execute(disk, io), world.now());
            }
            disk.cut();
            disk.power_on();
            match open(world, disk, chance) {
                Err(error) => Some(format!("opened once, but not twice: {error}")),
                Ok((queue, report)) => {
                    let second = contents(&queue, world);
                    (second != *found).then(|| {
                        format!("twice is not once: {found:?} and then {second:?}, {report:?}")
                    })
                }
            }
        }
    };
    if let Some(text) = wrong {
        world.ledger.find(Check::Recovery, text);
    }
}
