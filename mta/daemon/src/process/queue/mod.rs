//! The queue process: owns the spool and decides which recipients are tried when. No other process opens segments.
//!
//! Must never parse a byte of mail, open a socket, or leave the spool's directory.
//!
//! | accepts from | messages |
//! |---|---|
//! | master | `Settings`, `Peer`, `Process`, `Renewed`, `SealKey`, `Drain` |
//! | receive | `Hello`, `Stage`, `Accept`, `Unstage`, `Question` |
//! | send, local | `Hello`, `UnderWay`, `AllTold`, `Drains`, `Result`, `Fetch` |
//! | command line | `admin::Request` |

mod admin;
mod disk;
mod events;
mod health;
mod opening;
mod pace;
mod peers;
mod replay;

use super::child::{ChildStart, Orders, PeerStream, runtime};
use super::wiring;
use crate::jail::{self, Profile};
use crate::log::Log;
use disk::{Done, Threads};
use health::Health;
use link::control::{FromMaster, Purpose, Role, ToMaster};
use mail::Now;
use pace::CommitPace;
use peers::Peers;
use queue::{Output, Queue, SenderKey};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use world::Clock;
use world::real::faults::{self, Point};

/// How long the process waits for the first segment at its start.
const SEGMENT_PATIENCE: Duration = Duration::from_secs(1);
/// How long the process waits for the last commits at its end.
const FINISH_PATIENCE: Duration = Duration::from_millis(1500);

/// The pause between two checks for missing streams.
const ALARM_LOOK: Duration = Duration::from_secs(1);
/// The state that the tasks of this process share.
pub struct Shared {
    queue: RefCell<Queue>,
    /// Wakes the task that runs the machines.
    moved: Notify,
    peers: Peers,
    questions: admin::Questions,
    health: Health,
    pace: RefCell<CommitPace>,
    /// Commits that this thread will make.
    commits: RefCell<VecDeque<spool::Io>>,
    clock: world::real::Clock,
    orders: Orders,
    log: Log,
}

impl Shared {
    fn now(&self) -> Now {
        self.clock.now()
    }
}

/// Runs the queue process.
pub fn run(mut start: ChildStart) -> Result<()> {
    let spool_settings = start.config.settings.spool();
    let directory = start.directory(Purpose::Spool)?;
    // If a file may not grow, the write must fail and be answered with 452; the signal must not end the process
    // (S119).
    // SAFETY: SIG_IGN is a valid disposition, and no thread has been started yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let settings = &start.config.settings;
    let privilege = wiring::privilege(Role::Queue, settings);
    let path = settings.state.join("spool");
    let (profile, _) = Profile::queue(privilege, directory.try_clone()?, &path);
    let confined = jail::confine(&profile.ends_with(wiring::parent())).map_err(Error::other)?;
    let log = Log::start("queue", wiring::log_style(settings))?;
    let disk = world::real::Disk::from_fd(directory);
    let threads = Threads::start(&disk, spool_settings.commits_in_flight)?;
    let runtime = runtime()?;
    confined.seal().map_err(Error::other)?;
    runtime.run(serve(start, log, disk, threads, spool_settings))
}

async fn serve(
    start: ChildStart,
    log: Log,
    disk: world::real::Disk,
    mut threads: Threads,
    spool_settings: spool::Settings,
) -> Result<()> {
    let ChildStart { control, config, admin, peers, processes, seal_key, .. } = start;
    let clock = world::real::Clock;
    let commits_in_flight = spool_settings.commits_in_flight;
    let orders = Orders::new(control, Role::Queue)?;
    let queue = match opening::open_patiently(&config, &disk, spool_settings, &log).await {
        Ok(queue) => queue.sealed_with(seal_key),
        Err(error) => {
            let path = config.settings.state.join("spool");
            let text = format!("the spool {}: {error}", path.display());
            log.error(&text);
            log.flush(FINISH_PATIENCE);
            orders.say(&ToMaster::Fatal { text: text.into() })?;
            return Ok(());
        }
    };
    let shared = Rc::new(Shared {
        queue: RefCell::new(queue),
        moved: Notify::new(),
        peers: Peers::default(),
        questions: admin::Questions::default(),
        health: Health::default(),
        pace: RefCell::new(CommitPace::new(commits_in_flight)),
        commits: RefCell::default(),
        clock,
        orders,
        log,
    });
    expected_peers(&config.settings, &shared);
    processes.iter().for_each(|told| shared.health.told(told, shared.now().monotonic));
    for peer in peers {
        peers::attend(&shared, peer)?;
    }
    if let Some(admin) = admin {
        tokio::task::spawn_local(admin::serve(shared.clone(), admin)?);
    }
    first_segment(&shared, &mut threads).await;
    shared.orders.say(&ToMaster::Ready)?;
    tokio::task::spawn_local(raise_alarms(shared.clone()));
    let work = work(shared.clone(), &mut threads);
    tokio::select! {
        ended = obey(&shared) => ended?,
        () = work => {}
    }
    finish(&shared, &mut threads).await;
    Ok(())
}

/// Waits for a segment to write, so that the first client need not wait. On a full disk there is no segment, and
/// clients are told so.
async fn first_segment(shared: &Shared, threads: &mut Threads) {
    let patience = tokio::time::sleep(SEGMENT_PATIENCE);
    tokio::pin!(patience);
    loop {
        run_machines(shared, threads, shared.now());
        if shared.queue.borrow().is_ready() {
            return;
        }
        tokio::select! {
            done = threads.done() => match done {
                Some(done) => take(shared, done),
                None => return,
            },
            () = &mut patience => return,
        }
    }
}

/// Tells the health which streams are expected.
fn expected_peers(settings: &settings::Settings, shared: &Shared) {
    let several = |role, count: u32| {
        (0..u16::try_from(count).unwrap_or(u16::MAX)).map(move |instance| (role, instance))
    };
    let now = shared.now().monotonic;
    several(Role::Receive, settings.processes.receive)
        .chain(several(Role::Send, settings.processes.send))
        .chain(several(Role::Local, 1))
        .for_each(|peer| shared.health.expect(peer, now));
}

/// Logs processes that have been without a stream for too long. Never ends.
async fn raise_alarms(shared: Rc<Shared>) {
    loop {
        tokio::time::sleep(ALARM_LOOK).await;
        for alarm in shared.health.alarms(shared.now().monotonic) {
            shared.log.error(&alarm);
        }
    }
}

async fn obey(shared: &Rc<Shared>) -> Result<()> {
    loop {
        match shared.orders.next().await? {
            None | Some((FromMaster::Drain, _)) => return Ok(()),
            Some((FromMaster::Peer { role, instance, stream }, Some(fd))) => {
                peers::attend(shared, PeerStream { role, instance, stream, fd })?;
            }
            Some((told @ (FromMaster::Process { .. } | FromMaster::Renewed { .. }), None)) => {
                shared.health.told(&told, shared.now().monotonic);
            }
            Some((FromMaster::Settings, Some(fd))) => reload(shared, fd)?,
            Some(_) => return Err(Error::other("master said what queue does not accept")),
        }
    }
}

fn reload(shared: &Shared, fd: OwnedFd) -> Result<()> {
    match crate::process::sealed_config::open(fd) {
        Ok(config) => {
            let settings = config.settings.queue(&config.environment);
            shared.queue.borrow_mut().reload(settings, shared.now());
            shared.moved.notify_one();
            shared.orders.say(&ToMaster::Reloaded)
        }
        Err(error) => {
            shared.log.warn(&format!("settings not taken over: {error}"));
            Ok(())
        }
    }
}

/// Runs the machines after each input, result and due time.
async fn work(shared: Rc<Shared>, threads: &mut Threads) {
    loop {
        let now = shared.now();
        run_machines(&shared, threads, now);
        let wakeup = shared.queue.borrow().next_wakeup();
        tokio::select! {
            done = threads.done() => {
                let Some(done) = done else { return };
                take(&shared, done);
                while let Some(done) = threads.try_done() {
                    take(&shared, done);
                }
            }
            () = shared.moved.notified() => {}
            () = until(wakeup, now) => {}
        }
    }
}

async fn until(wakeup: Option<mail::Instant>, now: Now) {
    match wakeup {
        Some(wakeup) => tokio::time::sleep(wakeup.since(now.monotonic)).await,
        None => std::future::pending().await,
    }
}

fn take(shared: &Shared, done: Done) {
    let now = shared.now();
    let mut queue = shared.queue.borrow_mut();
    match done {
        Done::Io(done, took) => {
            shared.health.answered(&done);
            if matches!(done.work(), spool::IoWork::Write { sync: true, .. }) {
                shared.pace.borrow_mut().took(took);
                faults::reach(Point::Committed);
            }
            queue.io_done(done, now);
        }
        Done::Read(done) => queue.read_done(*done, now),
    }
}

/// Runs the machines, with at most one commit on this thread. The answers to that commit are written before the next
/// one begins.
fn run_machines(shared: &Shared, threads: &Threads, now: Now) {
    advance(shared, threads, now);
    let commit = shared.commits.borrow_mut().pop_front();
    if let Some(commit) = commit {
        take(shared, threads.here(commit));
        advance(shared, threads, shared.now());
        if !shared.commits.borrow().is_empty() {
            shared.moved.notify_one();
        }
    }
    shared.peers.wake(&mut shared.queue.borrow_mut());
}

fn advance(shared: &Shared, threads: &Threads, now: Now) {
    let mut queue = shared.queue.borrow_mut();
    loop {
        queue.advance(now);
        let mut moved = false;
        while let Some(output) = queue.poll() {
            moved = true;
            match output {
                Output::Io(io) => begin(shared, threads, io, now),
                Output::Read(read) => threads.read(read),
                Output::Log(logged) => events::write(&shared.log, &logged),
                Output::Answer(question, answer) => shared.questions.answer(question, answer),
            }
        }
        if !moved {
            return;
        }
    }
}

fn begin(shared: &Shared, threads: &Threads, io: spool::Io, now: Now) {
    shared.health.asked(&io, now.monotonic);
    let is_commit = matches!(io.work(), spool::IoWork::Write { sync: true, .. });
    if is_commit && io.class() == spool::Class::Commit && shared.pace.borrow().is_here() {
        shared.commits.borrow_mut().push_back(io);
    } else {
        threads.io(io);
    }
}

/// Finishes what is under way. Receive and send have ended before, and what they said last is read to the end of
/// their streams.
async fn finish(shared: &Shared, threads: &mut Threads) {
    let patience = tokio::time::sleep(FINISH_PATIENCE);
    tokio::pin!(patience);
    loop {
        run_machines(shared, threads, shared.now());
        if shared.peers.all_gone() && shared.queue.borrow().is_settled() {
            return shared.log.flush(FINISH_PATIENCE);
        }
        let wakeup = shared.queue.borrow().next_wakeup();
        tokio::select! {
            done = threads.done() => match done {
                Some(done) => take(shared, done),
                None => return,
            },
            () = shared.moved.notified() => {}
            () = until(wakeup, shared.now()) => {}
            () = &mut patience => return shared.log.flush(FINISH_PATIENCE),
        }
    }
}

/// Returns the key of a sending process, or `None` for another role.
fn sender_key(role: Role, instance: u16) -> Option<SenderKey> {
    matches!(role, Role::Send | Role::Local).then_some(SenderKey(role, instance))
}
