//! How each child begins: master's messages up to `Begin`, and the control socket after that.
//!
//! Must never parse anything that a stranger sent.

use crate::io::control::{Control, Received};
use link::control::{FromMaster, Purpose, Role, ToMaster};
use link::streams::Loss;
use settings::ProcessConfig;
use std::io::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{LocalOptions, LocalRuntime};

/// The descriptor of a child's control socket.
pub const CONTROL_FD: i32 = 3;

/// What a child has been given when it begins.
#[derive(Debug)]
pub struct ChildStart {
    /// The control socket.
    pub control: Control,
    /// The settings and the host's environment.
    pub config: ProcessConfig,
    /// The listening sockets, with their index in the settings.
    pub listeners: Vec<(u16, OwnedFd)>,
    /// The listening socket for the command line.
    pub admin: Option<OwnedFd>,
    /// The directories.
    pub directories: Vec<(Purpose, OwnedFd)>,
    /// The streams to peers.
    pub peers: Vec<PeerStream>,
    /// Messages to queue about processes that are running, and about streams that were replaced.
    pub processes: Vec<FromMaster>,
    /// The key with which queue seals attempts.
    pub seal_key: [u64; 2],
}

/// A stream to a peer.
#[derive(Debug)]
pub struct PeerStream {
    /// The peer's role.
    pub role: Role,
    /// The peer's number among the processes of its role.
    pub instance: u16,
    /// The id of the stream.
    pub stream: u64,
    /// Our end of the stream.
    pub fd: OwnedFd,
}

fn unwanted(role: Role, message: &FromMaster) -> Error {
    Error::other(format!("master sent what {} does not accept: {message:?}", role.name()))
}

fn lost(what: &str) -> Error {
    Error::other(format!("master did not pass {what}"))
}

impl ChildStart {
    /// Reads master's messages to a child of this role up to `Begin`. Returns `Ok(None)` if master has ended.
    pub fn read(role: Role) -> Result<Option<ChildStart>> {
        // The first reading of a clock looks up where the kernel mapped it. That may need system calls and files that
        // are not available in the jail.
        let _ = world::Clock::now(&world::real::Clock);
        // SAFETY: master starts a role with its control socket at this descriptor, and nothing else in this process owns
        // it.
        let control = Control::from_fd(unsafe { OwnedFd::from_raw_fd(CONTROL_FD) });
        rustix::io::fcntl_setfd(&control, rustix::io::FdFlags::CLOEXEC)?;
        let (mut config, mut admin) = (None, None);
        let (mut listeners, mut directories, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut processes, mut seal_key) = (Vec::new(), [0; 2]);
        loop {
            let (message, fd) = match control.receive::<FromMaster>()? {
                Received::Message(message, fd) => (message, fd),
                Received::Nothing => continue,
                Received::End => return Ok(None),
            };
            if !message.is_for(role) {
                return Err(unwanted(role, &message));
            }
            let fd = || fd.ok_or_else(|| lost("a descriptor"));
            match message {
                FromMaster::Settings => {
                    config =
                        Some(crate::process::sealed_config::open(fd()?).map_err(Error::other)?);
                }
                FromMaster::Listener { index } => listeners.push((index, fd()?)),
                FromMaster::AdminListener => admin = Some(fd()?),
                FromMaster::Directory { purpose } => directories.push((purpose, fd()?)),
                FromMaster::Peer { role, instance, stream } => {
                    peers.push(PeerStream { role, instance, stream, fd: fd()? });
                }
                told @ (FromMaster::Process { .. } | FromMaster::Renewed { .. }) => {
                    processes.push(told);
                }
                FromMaster::SealKey { key } => seal_key = key,
                FromMaster::Drain => return Ok(None),
                FromMaster::Begin => break,
            }
        }
        let config = config.ok_or_else(|| lost("the settings"))?;
        let start = ChildStart {
            control,
            config,
            listeners,
            admin,
            directories,
            peers,
            processes,
            seal_key,
        };
        Ok(Some(start))
    }

    /// Takes the directory for `purpose`.
    pub fn directory(&mut self, purpose: Purpose) -> Result<OwnedFd> {
        let at = self.directories.iter().position(|(found, _)| *found == purpose);
        at.map(|at| self.directories.swap_remove(at).1).ok_or_else(|| lost("a directory"))
    }
}

/// The control socket after `Begin`, under tokio.
#[derive(Debug)]
pub struct Orders {
    control: AsyncFd<Control>,
    role: Role,
}

impl Orders {
    /// Takes over the control socket of a child of this role. Must be called within a tokio runtime.
    pub fn new(control: Control, role: Role) -> Result<Orders> {
        control.set_nonblocking()?;
        // SAFETY: `Control` owns its descriptor, always returns the same one, and closes it only when it is dropped.
        Ok(Orders { control: unsafe { AsyncFd::register(control)? }, role })
    }

    /// Sends a message to master.
    pub fn say(&self, message: &ToMaster) -> Result<()> {
        self.control.get_ref().send(message, None)
    }

    /// Asks master to replace a stream to this peer that has ended. The peer asks too, so one of the two messages may be
    /// lost.
    pub fn say_lost(&self, role: Role, instance: u16, stream: u64, loss: Loss) {
        let _ = self.say(&ToMaster::StreamLost { role, instance, stream, loss });
    }

    /// Waits for the next message. Returns `None` if master has ended.
    pub async fn next(&self) -> Result<Option<(FromMaster, Option<OwnedFd>)>> {
        loop {
            let mut ready = self.control.readable().await?;
            match self.control.get_ref().receive::<FromMaster>()? {
                Received::Message(message, fd) if message.is_for(self.role) => {
                    return Ok(Some((message, fd)));
                }
                Received::Message(message, _) => return Err(unwanted(self.role, &message)),
                Received::Nothing => ready.clear_ready(),
                Received::End => return Ok(None),
            }
        }
    }
}

/// The tokio runtime of a process: one thread with timers and sockets.
#[derive(Debug)]
pub struct Runtime(LocalRuntime);

/// Makes the runtime. Must be called before the process enters its jail.
pub fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build_local(LocalOptions::default()).map(Runtime)
}

impl Runtime {
    /// Runs a process's work to its end as a task. Waking a task needs no system call, unlike waking the future that
    /// `block_on` runs.
    pub fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.0.block_on(async {
            match tokio::task::spawn_local(work).await {
                Ok(ended) => ended,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => panic!("the process's own task was cancelled: {error}"),
                },
            }
        })
    }
}
