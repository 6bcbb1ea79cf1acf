//! The local process: delivers into the mailboxes of this machine.
//! Must never write outside the mailboxes' directory, run as root past its start, or say `Delivered` of
//! what is not durable.
//!
//! Who I am: local's own user, with the directory of the mailboxes and nothing else. Where mail belongs
//! to the system's users, or goes to a program, a fork server stays behind that keeps the privileges,
//! parses nothing but a user's name, and starts a worker for each user ([`forks`]).
//!
//! Whom I talk to: master (orders), queue (attempts and bodies in, outcomes out), my workers.
//!
//! | from queue (`link::send`) | then |
//! |---|---|
//! | `Attempt` | each recipient waits for its lane; a large body is fetched first |
//! | `Chunk`, `ChunkBad` | the fetch goes on, or ends |
//! | `Recorded` | the result need not be said again |
//!
//! Group delivery without a timer: while one batch is written and synced on a thread of its own, what
//! arrives gathers into the next.

mod crew;
mod fetch;
mod forks;
mod gather;
mod pipe;
mod target;
#[cfg(test)]
mod tests;
mod worker;

use crate::io::BUILD;
use crate::io::control::Control;
use crate::io::stream::{Stream, loss};
use crate::jail::{self, Privilege, Profile, Root};
use crate::log::{EventKind, Log};
use crate::mailbox::{
    Alarm, Delivery, Fault, LOCK_WAIT_MAX, Message, SLICE_FILES_MAX, Scene, deliver_batch,
};
use crate::process::child::{Orders, Peer, Start, runtime};
use crate::process::wiring;
use crate::settings::Deliver;
use crew::{Crew, Done, WORKERS_MAX};
use fetch::{Fetched, Fetches};
use forks::{Forks, Whom};
use gather::{Batch, Gather, Item, Times};
use link::control::{FromMaster, Role, ToMaster};
use link::send::{Attempt, SenderEnd, SenderEvent};
use mail::{Address, Enhanced, MessageId, Outcome, ReversePath};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;
use target::{Lane, Place, Targets, Wanted};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use world::real::faults::{self, Point};

/// Attempts that queue may give us at once: two batches and a half, so that one gathers while one syncs.
/// With bodies of at most `link::send::INLINE_BYTES_MAX`, and one copy, that bounds the memory.
const ATTEMPTS_MAX: u32 = 512;
/// Each message of a batch is an open file, and so are its mailbox's two directories; workers have a
/// socket each.
const OPEN_FILES_MAX: u64 = 2048;
const _: () = assert!(3 * SLICE_FILES_MAX + WORKERS_MAX + 64 <= OPEN_FILES_MAX as usize);
const _: () = assert!(ATTEMPTS_MAX as u64 * link::send::INLINE_BYTES_MAX <= 32 << 20);
/// How long a drain waits for the batches under way.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);

/// Runs until master is gone or says that it is enough.
pub fn run(start: Start) -> io::Result<()> {
    let wanted = Wanted::of(&start.config);
    let privilege = wiring::privilege(Role::Local, &start.config.settings);
    // A mailbox that may not grow is an error to be told, not a death (EFBIG).
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let forks = start_forks(&wanted, &privilege)?;
    let targets = Targets::open(wanted, owner(&privilege))?;
    let jail = jail::confine(&profile(privilege, &targets)?).map_err(io::Error::other)?;
    let log = Log::start("local", wiring::log_style(&start.config.settings))?;
    let report = jail.seal().map_err(io::Error::other)?;
    log.info(&report.to_string());
    begin(start.control, start.peers, targets, forks, log)
}

fn owner(privilege: &Privilege) -> Option<(u32, u32)> {
    match privilege {
        Privilege::Root(user) => Some((user.uid, user.gid)),
        Privilege::Ordinary => None,
    }
}

/// What is left to us: one directory.
fn profile(privilege: Privilege, targets: &Targets) -> io::Result<Profile> {
    let inside = match privilege {
        Privilege::Root(_) => "/".into(),
        Privilege::Ordinary => targets.stage_path().to_owned(),
    };
    let mut profile = Profile::mailbox(privilege, vec![inside])
        .ends_with(wiring::parent())
        .open_files(OPEN_FILES_MAX);
    if let Privilege::Root(_) = profile.privilege {
        profile.root = Root::At(targets.stage()?);
    }
    Ok(profile)
}

/// The fork server has to start while there is one thread and every privilege.
fn start_forks(wanted: &Wanted, privilege: &Privilege) -> io::Result<Option<Forks>> {
    let whom = Whom {
        privilege: privilege.clone(),
        shared: wanted.shared_directory(),
        command: matches!(wanted.local.deliver, Deliver::Pipe(_)),
    };
    wanted.needs_workers().then(|| Forks::start(&wanted.environment, whom)).transpose()
}

/// In the jail.
fn begin(
    control: Control,
    peers: Vec<Peer>,
    targets: Targets,
    forks: Option<Forks>,
    log: Log,
) -> io::Result<()> {
    let hostname = targets.wanted().hostname.clone();
    let groups = targets.wanted().environment.groups(None);
    let (done, results) = unbounded_channel();
    let own = start_own(hostname.clone(), groups, done.clone())?;
    let runtime = runtime()?;
    runtime.run(async move {
        let crew = forks.map(|forks| Crew::new(forks, hostname, done));
        let mut local = Local::new(control, targets, own, crew, log)?;
        for Peer { stream, fd, .. } in peers {
            local.peer(stream, fd)?;
        }
        local.orders.say(&ToMaster::Ready)?;
        let ended = local.serve(results).await;
        local.log.flush(Log::LAST_LINES_WAIT_MAX);
        ended
    })
}

/// The thread that writes and syncs: it ends when its sender is dropped.
fn start_own(
    hostname: String,
    groups: policy::Groups,
    done: UnboundedSender<Done>,
) -> io::Result<blocking::Sender<Batch>> {
    let (own, batches) = blocking::channel::<Batch>();
    let deliver = move || {
        for batch in batches {
            faults::reach(Point::Mailbox);
            let (hostname, now) = (hostname.clone(), worker::wall());
            let scene = Scene { hostname, now, lock_wait_max: LOCK_WAIT_MAX, groups };
            let deliveries: Vec<Delivery> = batch.iter().filter_map(Item::delivery).collect();
            let mut alarms = Vec::new();
            let outcomes = deliver_batch(&deliveries, &scene, &mut alarms);
            let outcomes = batch.into_iter().zip(outcomes).collect();
            if done.send(Done { lane: Lane::Own, outcomes, alarms }).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("deliver".into()).spawn(deliver)?;
    Ok(own)
}

impl Item {
    /// As `deliver_batch` takes it; `None` never comes up in the lane `Own`.
    fn delivery(&self) -> Option<Delivery> {
        let Place::Mailbox(mailbox) = &self.place else { return None };
        let (message, recipient) = (self.message.clone(), self.recipient.clone());
        Some(Delivery { message, recipient, mailbox: mailbox.clone() })
    }
}

struct Local {
    orders: Orders,
    end: SenderEnd,
    /// With its name.
    queue: Option<(u64, Stream)>,
    targets: Targets,
    fetches: Fetches,
    gather: Gather,
    own: blocking::Sender<Batch>,
    crew: Option<Crew>,
    log: Log,
    draining: bool,
}

enum Step {
    Order(Option<(FromMaster, Option<OwnedFd>)>),
    Queue(io::Result<()>),
    Done(Done),
    Late,
}

impl Local {
    fn new(
        control: Control,
        targets: Targets,
        own: blocking::Sender<Batch>,
        crew: Option<Crew>,
        log: Log,
    ) -> io::Result<Local> {
        Ok(Local {
            orders: Orders::new(control, Role::Local)?,
            end: SenderEnd::new(BUILD, rand::random(), ATTEMPTS_MAX),
            queue: None,
            fetches: Fetches::new(targets.stage()?),
            targets,
            gather: Gather::default(),
            own,
            crew,
            log,
            draining: false,
        })
    }

    async fn serve(&mut self, mut results: UnboundedReceiver<Done>) -> io::Result<()> {
        let mut late = None;
        loop {
            let written = self.write();
            if self.draining {
                let at = tokio::time::Instant::now() + DRAIN_TIME_MAX;
                late.get_or_insert(at);
                // What is not told is delivered again: a lost stream is waited for.
                let told = self.queue.is_some() || !self.end.has_results();
                if !self.gather.is_busy() && written && told {
                    return Ok(());
                }
            }
            match self.next(!written, &mut results, late).await? {
                Step::Order(None) | Step::Late => return Ok(()),
                Step::Order(Some((order, fd))) => self.order(order, fd)?,
                Step::Queue(ready) => self.read(ready),
                Step::Done(done) => {
                    self.done(done);
                    while let Ok(done) = results.try_recv() {
                        self.done(done);
                    }
                }
            }
            self.give();
        }
    }

    async fn next(
        &self,
        writing: bool,
        results: &mut UnboundedReceiver<Done>,
        late: Option<tokio::time::Instant>,
    ) -> io::Result<Step> {
        let ready = async {
            match &self.queue {
                Some((_, queue)) => queue.ready(writing).await,
                None => std::future::pending().await,
            }
        };
        let too_late = async {
            match late {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        Ok(tokio::select! {
            order = self.orders.next() => Step::Order(order?),
            ready = ready => Step::Queue(ready),
            Some(done) = results.recv() => Step::Done(done),
            () = too_late => Step::Late,
        })
    }

    fn order(&mut self, order: FromMaster, fd: Option<OwnedFd>) -> io::Result<()> {
        match (order, fd) {
            (FromMaster::Peer { stream, .. }, Some(fd)) => self.peer(stream, fd),
            (FromMaster::Drain, None) => {
                self.drain();
                Ok(())
            }
            (FromMaster::Settings, Some(fd)) => self.reload(fd),
            _ => Err(io::Error::other("an order of master that local does not take")),
        }
    }

    /// What a jailed process cannot change any more, the next life will: it ends, and master starts it
    /// again.
    fn reload(&mut self, fd: OwnedFd) -> io::Result<()> {
        let config = crate::settings::open(fd).map_err(io::Error::other)?;
        if Wanted::of(&config) != *self.targets.wanted() {
            self.drain();
        }
        self.orders.say(&ToMaster::Reloaded)
    }

    /// Takes no more attempts, and ends when those that it has have ended.
    fn drain(&mut self) {
        self.draining = true;
        self.end.drain();
    }

    fn peer(&mut self, stream: u64, fd: OwnedFd) -> io::Result<()> {
        self.queue = Some((stream, Stream::new(fd)?));
        self.end.connected();
        self.fetches.ask_again(&mut self.end);
        Ok(())
    }

    /// Writes what there is; whether all is gone.
    fn write(&mut self) -> bool {
        let Some((_, queue)) = &mut self.queue else { return true };
        match queue.write(self.end.output()) {
            Ok(gone) => gone,
            Err(error) => {
                self.lost(&error);
                true
            }
        }
    }

    /// The stream is over: master makes another, or starts a queue process that has died.
    fn lost(&mut self, error: &io::Error) {
        let Some((stream, _)) = self.queue.take() else { return };
        if error.kind() != io::ErrorKind::UnexpectedEof {
            self.log.warn(&format!("conversation with queue ended: {error}"));
        }
        self.orders.say_lost(Role::Queue, 0, stream, loss(error));
    }

    fn read(&mut self, ready: io::Result<()>) {
        let Some((_, queue)) = &mut self.queue else { return };
        let read = ready.and_then(|()| match queue.read()? {
            Some(input) => self.end.handle(input).map_err(io::Error::other),
            None => Ok(()),
        });
        while let Some(event) = self.end.poll() {
            self.event(event);
        }
        if let Err(error) = read {
            self.lost(&error);
        }
    }

    fn event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Attempt { attempt, body: Some(body) } => {
                self.gather.begin(&attempt, worker::wall());
                let message = self.fetches.small(&attempt, &body);
                self.fetched((attempt, message));
            }
            SenderEvent::Attempt { attempt, body: None } => {
                self.gather.begin(&attempt, worker::wall());
                self.fetches.begin(attempt, &mut self.end);
            }
            SenderEvent::Chunk { attempt, offset, bytes } => {
                let fetched = self.fetches.chunk(attempt, offset, &bytes, &mut self.end);
                fetched.into_iter().for_each(|fetched| self.fetched(fetched));
            }
            SenderEvent::ChunkBad { attempt } => {
                let fetched = self.fetches.bad(attempt, &mut self.end);
                fetched.into_iter().for_each(|fetched| self.fetched(fetched));
            }
        }
    }

    /// The message is here: each recipient waits for its lane, or has its outcome at once.
    fn fetched(&mut self, (attempt, message): Fetched) {
        let Attempt { id: attempt, recipients, from, .. } = *attempt;
        for (index, recipient) in recipients {
            let recipient = recipient.address;
            match self.find(&message, &recipient) {
                Ok((lane, place, message)) => {
                    self.gather.push(lane, Item { attempt, index, recipient, message, place });
                }
                Err(fault) => {
                    let outcome = fault.outcome("");
                    self.outcome(attempt, index, (&from.sender, &recipient), outcome);
                }
            }
        }
    }

    /// One recipient has its outcome: it is logged, and with the last one queue is told.
    fn outcome(
        &mut self,
        attempt: u64,
        index: u32,
        who: (&ReversePath, &Address),
        outcome: Outcome,
    ) {
        if let Some((message, times)) = self.gather.times(attempt) {
            log_outcome(&self.log, message, times, who, &outcome);
        }
        if let Some(result) = self.gather.outcome(attempt, index, outcome) {
            self.end.result(result);
        }
    }

    fn find(
        &self,
        message: &Result<Arc<Message>, Fault>,
        recipient: &Address,
    ) -> Result<(Lane, Place, Arc<Message>), Fault> {
        let message = message.clone()?;
        let (lane, place) = self.targets.find(recipient)?;
        Ok((lane, place, message))
    }

    /// Gives each free lane what has gathered for it.
    fn give(&mut self) {
        if self.draining {
            return;
        }
        for lane in self.gather.ready() {
            let batch = self.gather.take(&lane);
            match (&lane, &self.crew) {
                (Lane::Worker(user), Some(crew)) => crew.give(user, batch),
                (Lane::Own, _) => self.own.send(batch).expect("the thread ends after its sender"),
                (Lane::Worker(_), None) => {
                    let outcomes = without_crew(batch);
                    self.done(Done { lane: lane.clone(), outcomes, alarms: Vec::new() });
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        self.gather.free(&done.lane);
        for alarm in &done.alarms {
            let (_, outcome) = &done.outcomes[alarm.delivery];
            self.log.error(&told(alarm, &outcome.report().peer));
        }
        for (item, outcome) in done.outcomes {
            let who = (item.message.sender(), &item.recipient);
            self.outcome(item.attempt, item.index, who, outcome);
        }
    }
}

/// An alarm in words.
fn told(Alarm { why, found, .. }: &Alarm, mailbox: &str) -> String {
    format!(
        "mailbox {mailbox} {why}: its mail waits until it is its recipient's alone \
         (owner {}, group {}, mode {:04o})",
        found.uid,
        found.gid,
        found.mode & 0o7777
    )
}

/// The one line of an attempt for a recipient.
fn log_outcome(
    log: &Log,
    message: MessageId,
    times: Times,
    (sender, recipient): (&ReversePath, &Address),
    outcome: &Outcome,
) {
    let now = worker::wall();
    let (report, status) = match outcome {
        Outcome::Delivered { report, .. } => (report, "delivered"),
        Outcome::Deferred(report) => (report, "deferred"),
        Outcome::Failed(report) => (report, "failed"),
    };
    let waited = times.taken.since(times.due.max(times.arrived));
    let delays = [(EventKind::Schedule, waited), (EventKind::Attempt, now.since(times.taken))];
    let event = log.event(EventKind::Attempt).id(message).from(sender).to(recipient);
    let event = event.relay(&report.peer).delay(now.since(times.arrived)).delays(&delays);
    let dsn = report.reply.enhanced.unwrap_or(Enhanced((report.reply.code / 100) as u8, 0, 0));
    event.dsn(dsn).status(status).reply(&report.reply).emit();
}

fn without_crew(batch: Batch) -> Vec<(Item, Outcome)> {
    let fault = Fault::transient(Enhanced(4, 3, 5), "no worker can be started with these settings");
    batch.into_iter().map(|item| (item, fault.clone().outcome(""))).collect()
}
