//! Master: binds the ports, keeps the settings, starts, watches and restarts the others.
//!
//! Must never parse anything: neither mail nor the settings file nor what a child relays of it. Must
//! never do what a child asks for that is not its to ask ([`ToMaster::is_of`]): such a child is
//! started again.

mod children;
mod inherited;
mod place;
mod ports;
mod prepare;
mod signals;

use crate::log::Log;
pub use ports::is_group;

use children::{Children, Heard, Supplies};
use link::control::{FromMaster, Role, ToMaster};
use link::streams::Due;
use prepare::Prepared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signals::Signals;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// SIGTERM ends within ten seconds: so long for clients, then for next hops, then for the spool.
const DRAIN: [(&[Role], Duration); 3] = [
    (&[Role::Receive], Duration::from_secs(4)),
    (&[Role::Send, Role::Local], Duration::from_secs(3)),
    (&[Role::Queue], Duration::from_secs(2)),
];

/// How often master looks around when nothing happens.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// The next reload waits for the children to have taken over the last one, but no longer: signals
/// that come faster than settings can be read must not fill the sockets to the children.
const RELOAD_WAIT: Duration = Duration::from_secs(2);
/// Messages of one child that are heard before the next child's turn.
const HEARD_MAX: usize = 64;

/// Runs the mailer until it is told to stop.
pub fn run(file: PathBuf, log_format: Option<crate::settings::LogFormat>) -> ExitCode {
    inherited::take();
    crate::jail::ignore(Role::Master);
    match Master::begin(file, log_format) {
        Ok(mut master) => master.attend(),
        Err(error) => {
            crate::log::complain(&format!("{error:#}"));
            ExitCode::from(78) // EX_CONFIG
        }
    }
}

struct Master {
    file: PathBuf,
    log_format: Option<crate::settings::LogFormat>,
    log: Log,
    signals: Signals,
    prepared: Prepared,
    supplies: Supplies,
    children: Children,
    ports_open: bool,
    announced: bool,
    draining: Option<(usize, Instant)>,
    /// A signal asked for it.
    reload_wanted: bool,
    /// When the last one began.
    reloaded: Option<Instant>,
    fatal: Option<Box<str>>,
    /// Keeps a second mailer from this state directory.
    _lock: OwnedFd,
}

impl Master {
    fn begin(
        file: PathBuf,
        log_format: Option<crate::settings::LogFormat>,
    ) -> Result<Master, anyhow::Error> {
        let signals = Signals::open()?;
        let prepared = Prepared::read(&file, log_format)?;
        let lock = prepared.lock_state()?;
        let supplies = prepared.supplies()?;
        let log = Log::start("master", prepared.log())?;
        Ok(Master {
            children: Children::new(prepared.receivers(), prepared.senders(), Instant::now()),
            file,
            log_format,
            log,
            signals,
            prepared,
            supplies,
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
        if let Err(error) = self.children.start(at, &self.supplies) {
            let slot = &self.children.slots[at];
            self.log.warn(&format!("cannot start {}: {error}", slot.role.name()));
            self.children.put_off(at, now);
        }
    }

    fn attend(&mut self) -> ExitCode {
        while self.draining.is_none_or(|_| self.children.any_alive(&all_roles())) {
            self.wait();
            self.hear_signals();
            self.hear_children();
            self.bury();
            self.renew_streams();
            self.reload();
            self.restart();
            if !self.drain() {
                break;
            }
        }
        self.children.kill();
        self.prepared.tidy_up();
        match &self.fatal {
            Some(text) => {
                crate::log::complain(text);
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        }
    }

    /// Until a signal, a child's word, a restart that is due, or the end of patience.
    fn wait(&self) {
        let now = Instant::now();
        let stream = self.children.stream_wait().map(|wait| now + wait);
        let by = [self.children.next_restart(), self.draining.map(|(_, by)| by), stream];
        let wait = by.into_iter().flatten().map(|by| by.saturating_duration_since(now)).min();
        let wait = wait.unwrap_or(IDLE_WAIT).min(IDLE_WAIT);
        let lives = self.children.slots.iter().filter_map(|slot| slot.life.as_ref());
        let mut fds: Vec<PollFd<'_>> = std::iter::once(self.signals.as_fd())
            .chain(lives.map(|life| life.control.as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let wait = Timespec::try_from(wait).unwrap_or_default();
        let _ = poll(&mut fds, Some(&wait));
    }

    fn hear_signals(&mut self) {
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

    /// One stage after the other; `false` when the last one's time is over.
    fn drain(&mut self) -> bool {
        let Some((stage, by)) = self.draining else { return true };
        let now = Instant::now();
        if now < by && self.children.any_alive(DRAIN[stage].0) {
            return true;
        }
        let Some((roles, patience)) = DRAIN.get(stage + 1) else { return false };
        self.children.tell(roles, &FromMaster::Drain, None);
        self.draining = Some((stage + 1, now + *patience));
        true
    }

    fn hear_children(&mut self) {
        for at in 0..self.children.slots.len() {
            self.hear(at, HEARD_MAX);
        }
    }

    fn hear(&mut self, at: usize, messages_max: usize) {
        for _ in 0..messages_max {
            let ready = self.children.is_ready(at);
            match self.children.hear(at) {
                Some(Heard::Message(message))
                    if message.is_of(self.children.slots[at].role, ready) =>
                {
                    self.heard(at, message);
                }
                Some(Heard::Message(message)) => self.disown(at, &format!("said {message:?}")),
                Some(Heard::Garbage) => self.disown(at, "said what is no message"),
                None => return,
            }
        }
    }

    /// Ends a child that may have been taken over; it is started again like one that died.
    fn disown(&mut self, at: usize, why: &str) {
        let slot = &self.children.slots[at];
        let name = slot.role.name();
        let text = format!("{name} {} {why}: it is ended and started again", slot.instance);
        self.log.error(&text);
        self.children.disown(at);
    }

    /// Begins lost streams again. A restart of a process does it, too, and comes first.
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
                             begun again, {renewals} times so far"
                        )),
                        Ok(false) => {}
                        Err(error) => self.log.error(&format!(
                            "no stream between queue and {name} {instance}: {error}"
                        )),
                    }
                }
                Due::Restart { peer, loss } => {
                    if let Some(at) = self.children.place_of(peer) {
                        self.disown(at, &format!("ended its stream to queue ({loss})"));
                    }
                }
            }
        }
    }

    fn heard(&mut self, at: usize, message: ToMaster) {
        match message {
            ToMaster::Ready => {
                if let Some(life) = &mut self.children.slots[at].life {
                    life.ready = Some(Instant::now());
                }
                if self.children.slots[at].role == Role::Queue {
                    self.prepared.note_spool();
                    self.open_ports();
                }
                if !self.announced && self.children.all_ready() {
                    self.announced = true;
                    self.log.info(&format!("ready: {}", self.prepared.addresses()));
                }
            }
            ToMaster::Reloaded => {
                if let Some(life) = &mut self.children.slots[at].life {
                    life.reloading = false;
                }
            }
            lost @ ToMaster::StreamLost { .. } => self.children.stream_lost(at, &lost),
            ToMaster::Fatal { text } => {
                self.fatal.get_or_insert(text);
                self.begin_drain();
            }
        }
    }

    /// Clients are let in once the queue has recovered.
    fn open_ports(&mut self) {
        if std::mem::replace(&mut self.ports_open, true) {
            return;
        }
        for listener in &self.supplies.listeners {
            if let Err(error) = ports::open(listener) {
                self.log.warn(&format!("cannot listen: {error}"));
            }
        }
    }

    /// What a child said last counts: why a restart cannot help, for one.
    fn bury(&mut self) {
        while let Some(at) = self.children.ended() {
            self.hear(at, usize::MAX);
            let death = self.children.bury(at, Instant::now());
            if let Some(death) = death.filter(|_| self.draining.is_none()) {
                self.log.warn(&death.to_string());
            }
        }
    }

    /// One child at a time: a start takes some milliseconds, and with many processes the first ones and signals are
    /// not to wait for the last.
    fn restart(&mut self) {
        let due = self.children.due(Instant::now());
        if let Some(at) = due.filter(|_| self.draining.is_none()) {
            self.start(at);
        }
    }

    /// A bad file changes nothing. Signals that come meanwhile are one more reload.
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
        let supplies = next.supplies_after(&self.prepared, &self.supplies)?;
        self.prepared = next;
        self.supplies = supplies;
        if std::mem::take(&mut self.ports_open) {
            self.open_ports();
        }
        let everyone = all_roles();
        self.children.tell(&everyone, &FromMaster::Settings, Some(&self.supplies.settings));
        for (index, listener) in self.supplies.listeners.iter().enumerate() {
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
