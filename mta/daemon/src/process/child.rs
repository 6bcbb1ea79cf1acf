//! How each child begins: master's messages up to `Begin`, and the control socket after it.
//!
//! Must never parse anything a stranger said.

use crate::io::control::{Control, Received};
use crate::settings::Handed;
use link::control::{FromMaster, Purpose, Role, ToMaster};
use std::io::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{LocalOptions, LocalRuntime};

/// The descriptor at which a child finds its control socket.
pub const CONTROL_FD: i32 = 3;

/// What a child has been given when it begins.
#[derive(Debug)]
pub struct Start {
    /// To and from master.
    pub control: Control,
    /// The settings and what an empty root lacks.
    pub handed: Handed,
    /// Listening sockets by their index in the settings.
    pub listeners: Vec<(u16, OwnedFd)>,
    /// The socket for the command line.
    pub admin: Option<OwnedFd>,
    /// Directories.
    pub directories: Vec<(Purpose, OwnedFd)>,
    /// Streams to peers.
    pub peers: Vec<(Role, u16, OwnedFd)>,
    /// What queue is told of those that live.
    pub lives: Vec<FromMaster>,
}

fn lost(what: &str) -> Error {
    Error::other(format!("master did not hand over {what}"))
}

impl Start {
    /// Reads master's messages up to `Begin`. `Ok(None)`: master is gone.
    pub fn read() -> Result<Option<Start>> {
        // The first reading of a clock looks up where the kernel put it: by calls, and where these
        // fail by files, that the jail does not have.
        let _ = world::Clock::now(&world::real::Clock);
        // SAFETY: master starts a role with its control socket at this descriptor, and nothing
        // else in this process has been given it.
        let control = Control::from_fd(unsafe { OwnedFd::from_raw_fd(CONTROL_FD) });
        rustix::io::fcntl_setfd(&control, rustix::io::FdFlags::CLOEXEC)?;
        let (mut handed, mut admin) = (None, None);
        let (mut listeners, mut directories, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        let mut lives = Vec::new();
        loop {
            let (message, fd) = match control.receive::<FromMaster>()? {
                Received::Message(message, fd) => (message, fd),
                Received::Nothing => continue,
                Received::End => return Ok(None),
            };
            let fd = || fd.ok_or_else(|| lost("a descriptor"));
            match message {
                FromMaster::Settings => {
                    handed = Some(crate::settings::open(fd()?).map_err(Error::other)?);
                }
                FromMaster::Listener { index } => listeners.push((index, fd()?)),
                FromMaster::AdminListener => admin = Some(fd()?),
                FromMaster::Directory { purpose } => directories.push((purpose, fd()?)),
                FromMaster::Peer { role, instance } => peers.push((role, instance, fd()?)),
                told @ FromMaster::Lives { .. } => lives.push(told),
                FromMaster::Drain => return Ok(None),
                FromMaster::Begin => break,
            }
        }
        let handed = handed.ok_or_else(|| lost("the settings"))?;
        Ok(Some(Start { control, handed, listeners, admin, directories, peers, lives }))
    }

    /// The directory for `purpose`.
    pub fn directory(&mut self, purpose: Purpose) -> Result<OwnedFd> {
        let at = self.directories.iter().position(|(found, _)| *found == purpose);
        at.map(|at| self.directories.swap_remove(at).1).ok_or_else(|| lost("a directory"))
    }
}

/// Master's messages after `Begin`, under tokio.
#[derive(Debug)]
pub struct Orders(AsyncFd<Control>);

impl Orders {
    /// Takes over the control socket; needs a tokio runtime.
    pub fn new(control: Control) -> Result<Orders> {
        control.set_nonblocking()?;
        // SAFETY: `Control` owns its descriptor, always names the same one, and closes it only
        // when it is dropped.
        Ok(Orders(unsafe { AsyncFd::register(control)? }))
    }

    /// Tells master.
    pub fn say(&self, message: &ToMaster) -> Result<()> {
        self.0.get_ref().send(message, None)
    }

    /// The next message; `None` when master is gone.
    pub async fn next(&self) -> Result<Option<(FromMaster, Option<OwnedFd>)>> {
        loop {
            let mut ready = self.0.readable().await?;
            match self.0.get_ref().receive()? {
                Received::Message(message, fd) => return Ok(Some((message, fd))),
                Received::Nothing => ready.clear_ready(),
                Received::End => return Ok(None),
            }
        }
    }
}

/// What drives the tasks of a process: one thread, timers and sockets.
#[derive(Debug)]
pub struct Runtime(LocalRuntime);

/// To be called before the jail is shut.
pub fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build_local(LocalOptions::default()).map(Runtime)
}

impl Runtime {
    /// Runs a process's work to its end. It is a task like those that it starts: whoever wakes the
    /// future that `block_on` holds does so through the kernel, whoever wakes a task does not.
    pub fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.0.block_on(async {
            match tokio::task::spawn_local(work).await {
                Ok(ended) => ended,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => panic!("the process's own task was taken from it: {error}"),
                },
            }
        })
    }
}
