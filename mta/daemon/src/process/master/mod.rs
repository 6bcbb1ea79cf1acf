//! Master: binds the ports, keeps the settings, and starts, watches and restarts the other processes.
//!
//! Must never parse mail, the settings file, or anything that a child quotes from them. Must never obey a child that
//! sends a message that its role may not send ([`ToMaster::is_of`]): such a child is killed and restarted.

mod children;
mod inherited;
mod ports;
mod prepare;
mod signals;
mod spool_directory;
mod start;

use crate::log::Log;
pub use ports::is_group;

use children::{Children, FromChild};
use link::control::{FromMaster, Role, ToMaster};
use link::streams::Due;
use prepare::Prepared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signals::Signals;
use start::Resources;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The stages of a shutdown and the longest time for each: clients, then next hops, then the spool. A service manager
/// may kill the mailer ten seconds after SIGTERM.
const DRAIN: [(&[Role], Duration); 3] = [
    (&[Role::Receive], Duration::from_secs(4)),
    (&[Role::Send, Role::Local], Duration::from_secs(3)),
    (&[Role::Queue], Duration::from_secs(2)),
];

/// How long master sleeps at most.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// How long a reload waits until all children have taken over the previous one. Signals that come faster than settings
/// can be read must not fill the sockets to the children.
const RELOAD_WAIT: Duration = Duration::from_secs(2);
/// Messages of one child that are handled before the next child's turn.
const HEARD_MAX: usize = 64;

/// Runs the mailer until a signal stops it.
pub fn run(file: PathBuf, log_format: Option<settings::LogFormat>) -> ExitCode {
    inherited::take();
    crate::jail::ignore(Role::Master);
    match Master::begin(file, log_format) {
        Ok(mut master) => master.serve(),
        Err(error) => {
            crate::log::complain(&format!("{error:#}"));
            ExitCode::from(78) // EX_CONFIG
        }
    }
}

struct Master {
    file: PathBuf,
    log_format: Option<settings::LogFormat>,
    log: Log,
    signals: Signals,
    prepared: Prepared,
    resources: Resources,
    children: Children,
    ports_open: bool,
    announced: bool,
    /// The current stage of the shutdown, and when it ends.
    draining: Option<(usize, Instant)>,
    /// A signal has asked for a reload.
    reload_wanted: bool,
    /// When the last reload began.
    reloaded: Option<Instant>,
    /// Why queue cannot run, even after a restart.
    fatal: Option<Box<str>>,
    /// The lock that keeps other mailers from this state directory.
    _lock: OwnedFd,
}

impl Master {
    fn begin(
        file: PathBuf,
        log_format: Option<settings::LogFormat>,
    ) -> Result<Master, anyhow::Error> {
        let signals = Signals::open()?;
        let prepared = Prepared::read(&file, log_format)?;
        let lock = prepared.lock_state()?;
        let resources = prepared.resources()?;
        let log = Log::start("master", prepared.log())?;
        Ok(Master {
            children: Children::new(prepared.receivers(), prepared.senders(), Instant::now()),
            file,
            log_format,
            log,
            signals,
            prepared,
            resources,
            ports_open: false,
            announced: false,
            draining: None,
            reload_wanted: false,
            reloaded: None,
            fatal: None,
            _lock: lock,
        })
    }

    fn start(&mut self, at: usize) {
        let now = Instant::now();
        if let Err(error) = self.children.start(at, &self.resources) {
            let slot = &self.children.slots[at];
            self.log.warn(&format!("cannot start {}: {error}", slot.role.name()));
            self.children.postpone(at, now);
        }
    }

    fn serve(&mut self) -> ExitCode {
        while self.draining.is_none_or(|_| self.children.any_running(&all_roles())) {
            self.wait();
            self.read_signals();
            self.read_children();
            self.reap();
            self.renew_streams();
            self.reload();
            self.restart();
            if !self.drain() {
                break;
            }
        }
        self.children.kill_all();
        self.prepared.remove_sockets();
        match &self.fatal {
            Some(text) => {
                crate::log::complain(text);
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        }
    }

    /// Waits for a signal, a message of a child, or the next deadline.
    fn wait(&self) {
        let now = Instant::now();
        let stream = self.children.stream_wait().map(|wait| now + wait);
        let by = [self.children.next_restart(), self.draining.map(|(_, by)| by), stream];
        let wait = by.into_iter().flatten().map(|by| by.saturating_duration_since(now)).min();
        let wait = wait.unwrap_or(IDLE_WAIT).min(IDLE_WAIT);
        let mut fds: Vec<PollFd<'_>> = std::iter::once(self.signals.as_fd())
            .chain(self.children.running().map(|running| running.control.as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let wait = Timespec::try_from(wait).unwrap_or_default();
        let _ = poll(&mut fds, Some(&wait));
    }

    fn read_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal {
                libc::SIGTERM | libc::SIGINT => self.begin_drain(),
                libc::SIGHUP => self.reload_wanted = true,
                _ => {}
            }
        }
    }

    fn begin_drain(&mut self) {
        if self.draining.is_none() {
            self.log.info("stopping");
            self.children.tell(DRAIN[0].0, &FromMaster::Drain, None);
            self.draining = Some((0, Instant::now() + DRAIN[0].1));
        }
    }

    /// Goes on to the next stage of the shutdown when the current one has ended. Returns `false` after the last stage.
    fn drain(&mut self) -> bool {
        let Some((stage, by)) = self.draining else { return true };
        let now = Instant::now();
        if now < by && self.children.any_running(DRAIN[stage].0) {
            return true;
        }
        let Some((roles, longest)) = DRAIN.get(stage + 1) else { return false };
        self.children.tell(roles, &FromMaster::Drain, None);
        self.draining = Some((stage + 1, now + *longest));
        true
    }

    fn read_children(&mut self) {
        for at in 0..self.children.slots.len() {
            self.read_child(at, HEARD_MAX);
        }
    }

    fn read_child(&mut self, at: usize, messages_max: usize) {
        for _ in 0..messages_max {
            let ready = self.children.is_ready(at);
            match self.children.receive(at) {
                Some(FromChild::Message(message))
                    if message.is_of(self.children.slots[at].role, ready) =>
                {
                    self.handle(at, message);
                }
                Some(FromChild::Message(message)) => self.expel(at, &format!("sent {message:?}")),
                Some(FromChild::Malformed) => self.expel(at, "sent a malformed message"),
                None => return,
            }
        }
    }

    /// Kills a child that may be compromised. It is restarted like a child that exited.
    fn expel(&mut self, at: usize, why: &str) {
        let slot = &self.children.slots[at];
        let name = slot.role.name();
        self.log.error(&format!("{name} {} {why}: it is killed and restarted", slot.instance));
        self.children.expel(at);
    }

    /// Replaces lost streams. The restart of a process replaces its streams too, and takes precedence.
    fn renew_streams(&mut self) {
        if self.draining.is_some() {
            return;
        }
        while let Some(due) = self.children.stream_due() {
            match due {
                Due::Renew { peer, renewals, loss } => {
                    let (role, instance) = peer;
                    let renewed = FromMaster::Renewed { role, instance, renewals, loss };
                    let name = role.name();
                    match self.children.renew(peer, &renewed) {
                        Ok(true) => self.log.warn(&format!(
                            "the stream between queue and {name} {instance} was lost ({loss}) and \
                             replaced, {renewals} times so far"
                        )),
                        Ok(false) => {}
                        Err(error) => self.log.error(&format!(
                            "no stream between queue and {name} {instance}: {error}"
                        )),
                    }
                }
                Due::Restart { peer, loss } => {
                    if let Some(at) = self.children.slot_of(peer) {
                        self.expel(at, &format!("ended its stream to queue ({loss})"));
                    }
                }
            }
        }
    }

    fn handle(&mut self, at: usize, message: ToMaster) {
        match message {
            ToMaster::Ready => {
                self.children.set_ready(at);
                if self.children.slots[at].role == Role::Queue {
                    self.prepared.note_spool();
                    self.open_ports();
                }
                if !self.announced && self.children.all_ready() {
                    self.announced = true;
                    self.log.info(&format!("ready: {}", self.prepared.addresses()));
                }
            }
            ToMaster::Reloaded => self.children.reloaded(at),
            lost @ ToMaster::StreamLost { .. } => self.children.stream_lost(at, &lost),
            ToMaster::Fatal { text } => {
                self.fatal.get_or_insert(text);
                self.begin_drain();
            }
        }
    }

    /// Listens on the ports. Called when queue has recovered its spool.
    fn open_ports(&mut self) {
        if std::mem::replace(&mut self.ports_open, true) {
            return;
        }
        for listener in &self.resources.listeners {
            if let Err(error) = ports::open(listener) {
                self.log.warn(&format!("cannot listen: {error}"));
            }
        }
    }

    /// Reaps children that have exited. Reads their last messages first: one may say why a restart cannot help.
    fn reap(&mut self) {
        while let Some(at) = self.children.exited() {
            self.read_child(at, usize::MAX);
            let exit = self.children.reap(at, Instant::now());
            if let Some(exit) = exit.filter(|_| self.draining.is_none()) {
                self.log.warn(&exit.to_string());
            }
        }
    }

    /// Starts one child that is due. A start takes some milliseconds: with many processes, signals and the children that
    /// already run must not wait until all others are started.
    fn restart(&mut self) {
        let due = self.children.due(Instant::now());
        if let Some(at) = due.filter(|_| self.draining.is_none()) {
            self.start(at);
        }
    }

    /// Reloads the settings if a signal has asked for it. A bad file changes nothing. All signals that come during a
    /// reload cause one further reload.
    fn reload(&mut self) {
        let waited = self.reloaded.is_none_or(|began| began.elapsed() >= RELOAD_WAIT);
        let busy = self.children.any_reloading() && !waited;
        if !self.reload_wanted || busy || self.draining.is_some() {
            return;
        }
        self.reload_wanted = false;
        self.reloaded = Some(Instant::now());
        match self.reread() {
            Ok(()) => self.log.info("settings reloaded"),
            Err(error) => {
                self.log.warn(&format!("settings not reloaded, the old ones stay: {error:#}"))
            }
        }
    }

    fn reread(&mut self) -> Result<(), anyhow::Error> {
        let next = Prepared::read(&self.file, self.log_format)?;
        let resources = next.resources_after(&self.prepared, &self.resources)?;
        self.prepared = next;
        self.resources = resources;
        if std::mem::take(&mut self.ports_open) {
            self.open_ports();
        }
        let everyone = all_roles();
        self.children.tell(&everyone, &FromMaster::Settings, Some(&self.resources.settings));
        for (index, listener) in self.resources.listeners.iter().enumerate() {
            let index = u16::try_from(index).expect("settings bound the listeners");
            self.children.tell(&[Role::Receive], &FromMaster::Listener { index }, Some(listener));
        }
        self.children.tell(&[Role::Receive], &FromMaster::Begin, None);
        self.children.expect_reload();
        Ok(())
    }
}

fn all_roles() -> [Role; 4] {
    [Role::Receive, Role::Send, Role::Local, Role::Queue]
}

fn clone_fd(fd: &OwnedFd) -> std::io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}
