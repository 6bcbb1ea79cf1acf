//! The children: started, wired to each other, watched, started again with back-off.
//!
//! Must never read anything from a child but `ToMaster`, nor more of one child than of the others.

use crate::io::control::{Control, Received, stream_pair};
use crate::process::child::CONTROL_FD;
use link::control::{FromMaster, Purpose, Role, ToMaster};
use link::streams::{Due, Peer, Streams};
use std::io::{ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use world::{Chance as _, Clock as _};

/// First wait before a child is started again; doubles with each death in a row.
const RESTART_WAIT_FIRST: Duration = Duration::from_millis(50);
/// Longest wait.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long master waits for a child that begins to take what it is told: with many processes that is
/// more than its socket holds.
const START_WAIT_MAX: Duration = Duration::from_secs(2);
/// A child that was at work for so long has not died "in a row": its work flows again at once.
const LIVED_LONG: Duration = Duration::from_secs(1);
/// A peer can only be reached once a child has begun; its socket is made before.
const QUEUE: (Role, u16) = (Role::Queue, 0);

/// What a child is given besides its peers.
#[derive(Debug)]
pub struct Supplies {
    /// The sealed settings.
    pub settings: OwnedFd,
    /// Listening sockets, for receive.
    pub listeners: Vec<OwnedFd>,
    /// For the command line, for queue.
    pub admin: Option<OwnedFd>,
    /// The spool's directory, for queue.
    pub spool: OwnedFd,
    /// The state directory, for local.
    pub state: OwnedFd,
    /// A directory with nothing in it, for all.
    pub empty: OwnedFd,
}

/// One place for a child.
#[derive(Debug)]
pub struct Slot {
    /// Its role.
    pub role: Role,
    /// Its number among those of its role.
    pub instance: u16,
    /// The child while it lives.
    pub life: Option<Life>,
    restart_wait: Duration,
    restart_at: Option<Instant>,
    restarts: u32,
}

/// One life of a child.
#[derive(Debug)]
pub struct Life {
    process: Child,
    started: Instant,
    /// To and from it.
    pub control: Control,
    /// Since when it has been at work: it said so.
    pub ready: Option<Instant>,
    /// It has been told of new settings and has not said that it took them.
    pub reloading: bool,
    /// It has said what it must not: it is being ended, and not heard any more.
    disowned: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Children {
    /// In the order in which they are started.
    pub slots: Vec<Slot>,
    /// Between queue and each of the others.
    streams: Streams,
    /// What queue seals attempts with: drawn once, so that a queue process knows what a former one
    /// gave out.
    seal_key: [u64; 2],
}

/// What a child has said.
#[derive(Debug)]
pub enum Heard {
    /// A message, not judged yet.
    Message(ToMaster),
    /// Something that is no message.
    Garbage,
}

/// A child died.
#[derive(Debug)]
pub struct Death {
    /// Who.
    pub role: Role,
    /// Which of them.
    pub instance: u16,
    /// Its process id.
    pub pid: u32,
    /// How.
    pub status: ExitStatus,
    /// When it is started again.
    pub restart_in: Duration,
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} (pid {}) ", self.role.name(), self.instance, self.pid)?;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "ended with status {code}")?,
            (None, Some(signal)) => write!(f, "was killed by signal {signal}")?,
            (None, None) => f.write_str("ended")?,
        }
        write!(f, "; started again in {} ms", self.restart_in.as_millis())
    }
}

impl Slot {
    fn lives(&self) -> Option<FromMaster> {
        let life = self.life.as_ref()?;
        Some(FromMaster::Lives {
            role: self.role,
            instance: self.instance,
            pid: life.process.id(),
            restarts: self.restarts,
            up_seconds: life.started.elapsed().as_secs(),
        })
    }
}

impl Children {
    /// The places, all due to be started; queue first: the others need it.
    pub fn new(receive: u16, send: u16, now: Instant) -> Children {
        let several = |role, count| (0..count).map(move |instance| (role, instance));
        let slots = std::iter::once(QUEUE)
            .chain(several(Role::Send, send))
            .chain(several(Role::Local, 1))
            .chain(several(Role::Receive, receive))
            .map(|(role, instance)| Slot {
                role,
                instance,
                life: None,
                restart_wait: RESTART_WAIT_FIRST,
                restart_at: Some(now),
                restarts: 0,
            })
            .collect();
        let (mut chance, streams) = (world::real::Chance, Streams::default());
        Children { slots, streams, seal_key: [chance.u64(), chance.u64()] }
    }

    /// Starts the child of this slot and wires it to the peers that live. One that cannot be given all
    /// is ended.
    pub fn start(&mut self, at: usize, supplies: &Supplies) -> Result<()> {
        let started = self.begin(at, supplies);
        if started.is_err() {
            self.disown(at);
        }
        started
    }

    fn begin(&mut self, at: usize, supplies: &Supplies) -> Result<()> {
        let (role, instance) = (self.slots[at].role, self.slots[at].instance);
        let control = spawn(role).map(|(process, control)| {
            let started = Instant::now();
            let life =
                Life { process, started, control, ready: None, reloading: false, disowned: false };
            let slot = &mut self.slots[at];
            slot.restart_at = None;
            slot.life.insert(life).control.as_fd().try_clone_to_owned()
        })??;
        let beginner = Beginner(Control::from_fd(control), Instant::now() + START_WAIT_MAX);
        supply(&beginner, role, supplies)?;
        let peers = self.slots.iter().filter(|slot| {
            let other = (slot.role, slot.instance);
            (role == Role::Queue) != (slot.role == Role::Queue) && other != (role, instance)
        });
        for peer in peers {
            let Some(life) = &peer.life else { continue };
            let (ours, theirs) = stream_pair()?;
            let other = (peer.role, peer.instance);
            let of_queue = if role == Role::Queue { other } else { (role, instance) };
            let stream = self.streams.made(of_queue, now());
            let to_ours = FromMaster::Peer { role: other.0, instance: other.1, stream };
            beginner.tell(&to_ours, Some(ours.as_fd()))?;
            // A peer that dies now is started and wired again by its own death.
            let to_theirs = FromMaster::Peer { role, instance, stream };
            let _ = life.control.send(&to_theirs, Some(theirs.as_fd()));
        }
        self.tell_who_lives(at, &beginner)?;
        beginner.tell(&FromMaster::Begin, None)
    }

    /// A child has said that a stream of its own is over.
    pub fn stream_lost(&mut self, at: usize, message: &ToMaster) {
        let ToMaster::StreamLost { role, instance, stream, loss } = *message else { return };
        let speaker = (self.slots[at].role, self.slots[at].instance);
        let peer = if speaker == QUEUE { (role, instance) } else { speaker };
        self.streams.lost(peer, stream, loss, now());
    }

    /// The next lost stream to be begun again, or process to be started again for it.
    pub fn stream_due(&mut self) -> Option<Due> {
        self.streams.poll(now())
    }

    /// How long until then.
    pub fn stream_wait(&self) -> Option<Duration> {
        self.streams.next_wakeup().map(|at| at.since(now()))
    }

    /// Gives queue and this peer a new stream; `false`: one of them does not live, and its start
    /// makes the stream. One that cannot be made or given is due again.
    pub fn renew(&mut self, peer: Peer, renewed: &FromMaster) -> Result<bool> {
        let made = self.give_stream(peer, renewed);
        match &made {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false), // it is ending
            Err(_) => {
                self.streams.not_made(peer, now());
                made
            }
            Ok(_) => made,
        }
    }

    fn give_stream(&mut self, peer: Peer, renewed: &FromMaster) -> Result<bool> {
        let life = |wanted: Peer| {
            let slot = self.slots.iter().find(|slot| (slot.role, slot.instance) == wanted);
            slot.and_then(|slot| slot.life.as_ref()).filter(|life| !life.disowned)
        };
        let (Some(queue), Some(other)) = (life(QUEUE), life(peer)) else { return Ok(false) };
        let (ours, theirs) = stream_pair()?;
        let stream = self.streams.made(peer, now());
        let to_queue = FromMaster::Peer { role: peer.0, instance: peer.1, stream };
        let to_peer = FromMaster::Peer { role: QUEUE.0, instance: QUEUE.1, stream };
        queue.control.send(renewed, None)?;
        queue.control.send(&to_queue, Some(ours.as_fd()))?;
        other.control.send(&to_peer, Some(theirs.as_fd()))?;
        Ok(true)
    }

    /// Ends a child that is to be started again, and hears nothing more of it.
    pub fn disown(&mut self, at: usize) {
        if let Some(life) = &mut self.slots[at].life {
            life.disowned = true;
            let _ = life.process.kill();
        }
    }

    /// The place of this process.
    pub fn place_of(&self, peer: Peer) -> Option<usize> {
        self.slots.iter().position(|slot| (slot.role, slot.instance) == peer)
    }

    /// Queue answers for all of us: it hears of everybody when it starts, then of each that does.
    fn tell_who_lives(&self, at: usize, beginner: &Beginner) -> Result<()> {
        if self.slots[at].role == Role::Queue {
            beginner.tell(&FromMaster::SealKey { key: self.seal_key }, None)?;
            let renewed = self.streams.renewals().map(|((role, instance), renewals, loss)| {
                FromMaster::Renewed { role, instance, renewals, loss }
            });
            let lives = self.slots.iter().filter_map(Slot::lives);
            return lives.chain(renewed).try_for_each(|it| beginner.tell(&it, None));
        }
        if let Some(lives) = self.slots[at].lives() {
            self.tell(&[Role::Queue], &lives, None);
        }
        Ok(())
    }

    /// A slot whose child has ended and is not buried yet; what it said last can still be heard.
    pub fn ended(&mut self) -> Option<usize> {
        let has_ended = |life: &mut Life| matches!(life.process.try_wait(), Ok(Some(_)));
        self.slots.iter_mut().position(|slot| slot.life.as_mut().is_some_and(has_ended))
    }

    /// Buries the child of this slot, which has ended, and says when another follows.
    pub fn bury(&mut self, at: usize, now: Instant) -> Option<Death> {
        let slot = &mut self.slots[at];
        let mut life = slot.life.take()?;
        let status = life.process.wait().ok()?;
        if life.ready.is_some_and(|ready| now.duration_since(ready) >= LIVED_LONG) {
            slot.restart_wait = RESTART_WAIT_FIRST;
        }
        let restart_in = slot.restart_wait;
        slot.restart_wait = (slot.restart_wait * 2).min(RESTART_WAIT_MAX);
        slot.restart_at = Some(now + restart_in);
        slot.restarts = slot.restarts.saturating_add(1);
        let (role, instance, pid) = (slot.role, slot.instance, life.process.id());
        for slot in &self.slots {
            let peer = (slot.role, slot.instance);
            if peer == (role, instance) || role == Role::Queue {
                self.streams.gone(peer);
            }
        }
        Some(Death { role, instance, pid, status, restart_in })
    }

    /// Slots whose child is to be started again by now.
    pub fn due(&self, now: Instant) -> Option<usize> {
        self.slots.iter().position(|slot| slot.restart_at.is_some_and(|at| at <= now))
    }

    /// Puts a start that failed off.
    pub fn put_off(&mut self, at: usize, now: Instant) {
        self.slots[at].restart_at = Some(now + RESTART_WAIT_MAX);
    }

    /// When the next one is to be started again.
    pub fn next_restart(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.restart_at).min()
    }

    /// Tells all children of these roles.
    pub fn tell(&self, roles: &[Role], message: &FromMaster, fd: Option<&OwnedFd>) {
        for slot in self.slots.iter().filter(|slot| roles.contains(&slot.role)) {
            if let Some(life) = &slot.life {
                let _ = life.control.send(message, fd.map(AsFd::as_fd));
            }
        }
    }

    /// All that live have new settings to take over.
    pub fn expect_reload(&mut self) {
        for life in self.slots.iter_mut().filter_map(|slot| slot.life.as_mut()) {
            life.reloading = true;
        }
    }

    /// Whether somebody has not taken them over yet.
    pub fn any_reloading(&self) -> bool {
        self.slots.iter().any(|slot| slot.life.as_ref().is_some_and(|life| life.reloading))
    }

    /// Whether one of these roles lives.
    pub fn any_alive(&self, roles: &[Role]) -> bool {
        self.slots.iter().any(|slot| roles.contains(&slot.role) && slot.life.is_some())
    }

    /// Ends what is left, at once.
    pub fn kill(&mut self) {
        for life in self.slots.iter_mut().filter_map(|slot| slot.life.as_mut()) {
            let _ = life.process.kill();
            let _ = life.process.wait();
        }
    }

    /// Reads what the child of this slot has said.
    pub fn hear(&mut self, at: usize) -> Option<Heard> {
        let life = self.slots[at].life.as_ref().filter(|life| !life.disowned)?;
        match life.control.receive::<ToMaster>() {
            Ok(Received::Message(message, _)) => Some(Heard::Message(message)),
            Err(error) if error.kind() == ErrorKind::InvalidData => Some(Heard::Garbage),
            _ => None,
        }
    }

    /// Whether the child of this slot has said that it is ready.
    pub fn is_ready(&self, at: usize) -> bool {
        self.slots[at].life.as_ref().is_some_and(|life| life.ready.is_some())
    }

    /// Everyone has said that it is ready.
    pub fn all_ready(&self) -> bool {
        self.slots.iter().all(|slot| slot.life.as_ref().is_some_and(|life| life.ready.is_some()))
    }
}

fn now() -> mail::Instant {
    world::real::Clock.now().monotonic
}

/// The control socket of a child that begins, and until when master waits for it to take all.
struct Beginner(Control, Instant);

impl Beginner {
    fn tell(&self, message: &FromMaster, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.0.send_by(message, fd, self.1)
    }
}

fn supply(beginner: &Beginner, role: Role, supplies: &Supplies) -> Result<()> {
    beginner.tell(&FromMaster::Settings, Some(supplies.settings.as_fd()))?;
    let directory =
        |purpose, fd: &OwnedFd| beginner.tell(&FromMaster::Directory { purpose }, Some(fd.as_fd()));
    directory(Purpose::EmptyRoot, &supplies.empty)?;
    match role {
        Role::Receive => {
            for (index, listener) in supplies.listeners.iter().enumerate() {
                let index = u16::try_from(index).expect("settings bound the listeners");
                beginner.tell(&FromMaster::Listener { index }, Some(listener.as_fd()))?;
            }
            Ok(())
        }
        Role::Queue => {
            directory(Purpose::Spool, &supplies.spool)?;
            match &supplies.admin {
                Some(admin) => beginner.tell(&FromMaster::AdminListener, Some(admin.as_fd())),
                None => Ok(()),
            }
        }
        Role::Local => directory(Purpose::State, &supplies.state),
        Role::Master | Role::Config | Role::Send | Role::Mailbox => Ok(()),
    }
}

/// Starts one child from the very file that master runs.
fn spawn(role: Role) -> Result<(Child, Control)> {
    let (ours, theirs) = Control::pair()?;
    ours.set_nonblocking()?;
    let inherited = theirs.as_raw_fd();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("posthaste").args(["role", role.name()]);
    // SAFETY: dup2 and fcntl are async-signal-safe and touch nothing but descriptors of the
    // new process.
    unsafe {
        command.pre_exec(move || {
            if inherited == CONTROL_FD {
                // dup2 onto itself would leave close-on-exec set.
                match libc::fcntl(inherited, libc::F_SETFD, 0) {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                }
            } else {
                match libc::dup2(inherited, CONTROL_FD) {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                }
            }
        });
    }
    Ok((command.spawn()?, ours))
}
