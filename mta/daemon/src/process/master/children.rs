//! The child processes: started, connected to each other, watched, and restarted with back-off.
//!
//! Must never read anything from a child except `ToMaster`, and never let one child occupy master longer than another.

use super::start::{Resources, StartingChild, spawn};
use crate::io::control::{Control, Received, stream_pair};
use link::control::{FromMaster, Role, ToMaster};
use link::streams::{Due, PeerId, Streams};
use std::io::{ErrorKind, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use world::{Clock as _, Rng as _};

/// First wait before a child is restarted. It doubles with each exit in a row.
const RESTART_WAIT_FIRST: Duration = Duration::from_millis(50);
/// Longest wait before a child is restarted.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(5);
/// A child that was ready for at least this long works: its exit does not count as one in a row.
const LIVED_LONG: Duration = Duration::from_secs(1);
/// The one queue process.
const QUEUE: (Role, u16) = (Role::Queue, 0);

/// A child that master keeps running: a role and its number.
#[derive(Debug)]
pub struct ChildSlot {
    /// The role.
    pub role: Role,
    /// The number among the children of this role.
    pub instance: u16,
    /// The running process, if there is one.
    pub running: Option<Incarnation>,
    restart_wait: Duration,
    restart_at: Option<Instant>,
    restarts: u32,
}

/// One incarnation of a child: a process from its start to its exit.
#[derive(Debug)]
pub struct Incarnation {
    process: Child,
    started: Instant,
    /// The control socket.
    pub control: Control,
    /// When the child reported that it is ready.
    pub ready: Option<Instant>,
    /// True from the announcement of new settings until the child confirms them.
    pub reloading: bool,
    /// The child broke the protocol: it has been killed, and its messages are ignored.
    is_expelled: bool,
}

/// All children.
#[derive(Debug)]
pub struct Children {
    /// The slots in the order in which their children are started.
    pub slots: Vec<ChildSlot>,
    /// The streams between queue and each of the others.
    streams: Streams,
    /// The key with which queue seals attempts. Chosen once, so that a queue process recognizes the attempts that its
    /// predecessor gave out.
    seal_key: [u64; 2],
}

/// What master read from a child.
#[derive(Debug)]
pub enum FromChild {
    /// A message. The caller must check that it is one of this role.
    Message(ToMaster),
    /// Something that is not a message.
    Malformed,
}

/// The exit of a child.
#[derive(Debug)]
pub struct Exit {
    /// The role.
    pub role: Role,
    /// The number among the children of this role.
    pub instance: u16,
    /// The process id.
    pub pid: u32,
    /// The exit status.
    pub status: ExitStatus,
    /// The time until the child is restarted.
    pub restart_in: Duration,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} (pid {}) ", self.role.name(), self.instance, self.pid)?;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "ended with status {code}")?,
            (None, Some(signal)) => write!(f, "was killed by signal {signal}")?,
            (None, None) => f.write_str("ended")?,
        }
        write!(f, "; it is restarted in {} ms", self.restart_in.as_millis())
    }
}

impl ChildSlot {
    /// The message that tells queue about this child.
    fn process_message(&self) -> Option<FromMaster> {
        let running = self.running.as_ref()?;
        Some(FromMaster::Process {
            role: self.role,
            instance: self.instance,
            pid: running.process.id(),
            restarts: self.restarts,
            up_seconds: running.started.elapsed().as_secs(),
        })
    }
}

impl Children {
    /// Makes the slots. All children are due to be started, queue first because the others need it.
    pub fn new(receive: u16, send: u16, now: Instant) -> Children {
        let several = |role, count| (0..count).map(move |instance| (role, instance));
        let slots = std::iter::once(QUEUE)
            .chain(several(Role::Send, send))
            .chain(several(Role::Local, 1))
            .chain(several(Role::Receive, receive))
            .map(|(role, instance)| ChildSlot {
                role,
                instance,
                running: None,
                restart_wait: RESTART_WAIT_FIRST,
                restart_at: Some(now),
                restarts: 0,
            })
            .collect();
        let (mut chance, streams) = (world::real::Rng, Streams::default());
        Children { slots, streams, seal_key: [chance.u64(), chance.u64()] }
    }

    /// Starts the child of this slot and connects it to its peers that are running. A child that cannot be given
    /// everything that it needs is killed.
    pub fn start(&mut self, at: usize, resources: &Resources) -> Result<()> {
        let started = self.try_start(at, resources);
        if started.is_err() {
            self.expel(at);
        }
        started
    }

    fn try_start(&mut self, at: usize, resources: &Resources) -> Result<()> {
        let (role, instance) = (self.slots[at].role, self.slots[at].instance);
        let control = spawn(role).map(|(process, control)| {
            let started = Instant::now();
            let incarnation = Incarnation {
                process,
                started,
                control,
                ready: None,
                reloading: false,
                is_expelled: false,
            };
            let slot = &mut self.slots[at];
            slot.restart_at = None;
            slot.running.insert(incarnation).control.as_fd().try_clone_to_owned()
        })??;
        let child = StartingChild::new(Control::from_fd(control));
        resources.give(&child, role)?;
        let peers = self.slots.iter().filter(|slot| {
            let other = (slot.role, slot.instance);
            (role == Role::Queue) != (slot.role == Role::Queue) && other != (role, instance)
        });
        for peer in peers {
            let Some(running) = &peer.running else { continue };
            let (ours, theirs) = stream_pair()?;
            let other = (peer.role, peer.instance);
            let of_queue = if role == Role::Queue { other } else { (role, instance) };
            let stream = self.streams.made(of_queue, now());
            let to_ours = FromMaster::Peer { role: other.0, instance: other.1, stream };
            child.tell(&to_ours, Some(ours.as_fd()))?;
            // If the peer exits now, its own restart connects it again.
            let to_theirs = FromMaster::Peer { role, instance, stream };
            let _ = running.control.send(&to_theirs, Some(theirs.as_fd()));
        }
        self.introduce(at, &child)?;
        child.tell(&FromMaster::Begin, None)
    }

    /// Tells queue about processes, because queue answers questions of operators about all of them: about every running
    /// child when queue itself starts, otherwise about the child that starts.
    fn introduce(&self, at: usize, child: &StartingChild) -> Result<()> {
        if self.slots[at].role == Role::Queue {
            child.tell(&FromMaster::SealKey { key: self.seal_key }, None)?;
            let renewed = self.streams.renewals().map(|((role, instance), renewals, loss)| {
                FromMaster::Renewed { role, instance, renewals, loss }
            });
            let processes = self.slots.iter().filter_map(ChildSlot::process_message);
            return processes.chain(renewed).try_for_each(|message| child.tell(&message, None));
        }
        if let Some(process) = self.slots[at].process_message() {
            self.tell(&[Role::Queue], &process, None);
        }
        Ok(())
    }

    /// Notes that a child has reported the loss of one of its streams.
    pub fn stream_lost(&mut self, at: usize, message: &ToMaster) {
        let ToMaster::StreamLost { role, instance, stream, loss } = *message else { return };
        let speaker = (self.slots[at].role, self.slots[at].instance);
        let peer = if speaker == QUEUE { (role, instance) } else { speaker };
        self.streams.lost(peer, stream, loss, now());
    }

    /// Returns the next lost stream that is due to be replaced, or the process that is due to be restarted because of
    /// its streams.
    pub fn stream_due(&mut self) -> Option<Due> {
        self.streams.poll(now())
    }

    /// Returns the time until `stream_due` has something new.
    pub fn stream_wait(&self) -> Option<Duration> {
        self.streams.next_wakeup().map(|at| at.since(now()))
    }

    /// Gives queue and this peer a new stream. Returns `false` if one of them is not running: its start makes the
    /// stream. A stream that cannot be made or passed on becomes due again.
    pub fn renew(&mut self, peer: PeerId, renewed: &FromMaster) -> Result<bool> {
        let made = self.give_stream(peer, renewed);
        match &made {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false), // the process is exiting
            Err(_) => {
                self.streams.not_made(peer, now());
                made
            }
            Ok(_) => made,
        }
    }

    fn give_stream(&mut self, peer: PeerId, renewed: &FromMaster) -> Result<bool> {
        let running = |wanted: PeerId| {
            let slot = self.slots.iter().find(|slot| (slot.role, slot.instance) == wanted);
            slot.and_then(|slot| slot.running.as_ref()).filter(|running| !running.is_expelled)
        };
        let (Some(queue), Some(other)) = (running(QUEUE), running(peer)) else { return Ok(false) };
        let (ours, theirs) = stream_pair()?;
        let stream = self.streams.made(peer, now());
        let to_queue = FromMaster::Peer { role: peer.0, instance: peer.1, stream };
        let to_peer = FromMaster::Peer { role: QUEUE.0, instance: QUEUE.1, stream };
        queue.control.send(renewed, None)?;
        queue.control.send(&to_queue, Some(ours.as_fd()))?;
        other.control.send(&to_peer, Some(theirs.as_fd()))?;
        Ok(true)
    }

    /// Kills a child and ignores its remaining messages. It is restarted like a child that exited.
    pub fn expel(&mut self, at: usize) {
        if let Some(running) = &mut self.slots[at].running {
            running.is_expelled = true;
            let _ = running.process.kill();
        }
    }

    /// Returns the slot of a child.
    pub fn slot_of(&self, peer: PeerId) -> Option<usize> {
        self.slots.iter().position(|slot| (slot.role, slot.instance) == peer)
    }

    /// Returns a slot whose child has exited and has not been reaped. Its last messages can still be read.
    pub fn exited(&mut self) -> Option<usize> {
        let has_exited =
            |running: &mut Incarnation| matches!(running.process.try_wait(), Ok(Some(_)));
        self.slots.iter_mut().position(|slot| slot.running.as_mut().is_some_and(has_exited))
    }

    /// Reaps the child of this slot, which has exited, and schedules its restart.
    pub fn reap(&mut self, at: usize, now: Instant) -> Option<Exit> {
        let slot = &mut self.slots[at];
        let mut incarnation = slot.running.take()?;
        let status = incarnation.process.wait().ok()?;
        if incarnation.ready.is_some_and(|ready| now.duration_since(ready) >= LIVED_LONG) {
            slot.restart_wait = RESTART_WAIT_FIRST;
        }
        let restart_in = slot.restart_wait;
        slot.restart_wait = (slot.restart_wait * 2).min(RESTART_WAIT_MAX);
        slot.restart_at = Some(now + restart_in);
        slot.restarts = slot.restarts.saturating_add(1);
        let (role, instance, pid) = (slot.role, slot.instance, incarnation.process.id());
        for slot in &self.slots {
            let peer = (slot.role, slot.instance);
            if peer == (role, instance) || role == Role::Queue {
                self.streams.gone(peer);
            }
        }
        Some(Exit { role, instance, pid, status, restart_in })
    }

    /// Returns a slot whose child is due to be started.
    pub fn due(&self, now: Instant) -> Option<usize> {
        self.slots.iter().position(|slot| slot.restart_at.is_some_and(|at| at <= now))
    }

    /// Postpones a start that failed.
    pub fn postpone(&mut self, at: usize, now: Instant) {
        self.slots[at].restart_at = Some(now + RESTART_WAIT_MAX);
    }

    /// Returns when the next child is due to be started.
    pub fn next_restart(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.restart_at).min()
    }

    /// Sends a message to all running children of these roles.
    pub fn tell(&self, roles: &[Role], message: &FromMaster, fd: Option<&OwnedFd>) {
        for slot in self.slots.iter().filter(|slot| roles.contains(&slot.role)) {
            if let Some(running) = &slot.running {
                let _ = running.control.send(message, fd.map(AsFd::as_fd));
            }
        }
    }

    /// Notes that all running children have been told to take over new settings.
    pub fn expect_reload(&mut self) {
        for running in self.slots.iter_mut().filter_map(|slot| slot.running.as_mut()) {
            running.reloading = true;
        }
    }

    /// Notes that a child has taken over the settings.
    pub fn reloaded(&mut self, at: usize) {
        if let Some(running) = &mut self.slots[at].running {
            running.reloading = false;
        }
    }

    /// Returns whether a child has not taken over the settings yet.
    pub fn any_reloading(&self) -> bool {
        self.running().any(|running| running.reloading)
    }

    /// Returns whether a child of these roles is running.
    pub fn any_running(&self, roles: &[Role]) -> bool {
        self.slots.iter().any(|slot| roles.contains(&slot.role) && slot.running.is_some())
    }

    /// Kills all children that are still running.
    pub fn kill_all(&mut self) {
        for running in self.slots.iter_mut().filter_map(|slot| slot.running.as_mut()) {
            let _ = running.process.kill();
            let _ = running.process.wait();
        }
    }

    /// Reads the next message of the child in this slot.
    pub fn receive(&mut self, at: usize) -> Option<FromChild> {
        let running = self.slots[at].running.as_ref().filter(|running| !running.is_expelled)?;
        match running.control.receive::<ToMaster>() {
            Ok(Received::Message(message, _)) => Some(FromChild::Message(message)),
            Err(error) if error.kind() == ErrorKind::InvalidData => Some(FromChild::Malformed),
            _ => None,
        }
    }

    /// Notes that a child has reported that it is ready.
    pub fn set_ready(&mut self, at: usize) {
        if let Some(running) = &mut self.slots[at].running {
            running.ready = Some(Instant::now());
        }
    }

    /// Returns whether the child of this slot has reported that it is ready.
    pub fn is_ready(&self, at: usize) -> bool {
        self.slots[at].running.as_ref().is_some_and(|running| running.ready.is_some())
    }

    /// Returns whether every child has reported that it is ready.
    pub fn all_ready(&self) -> bool {
        (0..self.slots.len()).all(|at| self.is_ready(at))
    }

    /// The running children.
    pub fn running(&self) -> impl Iterator<Item = &Incarnation> {
        self.slots.iter().filter_map(|slot| slot.running.as_ref())
    }
}

fn now() -> mail::Instant {
    world::real::Clock.now().monotonic
}
