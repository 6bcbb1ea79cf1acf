//! The start of one child: its process, and the descriptors that it is given before it begins.
//!
//! Must never pass a child a descriptor that its role does not need.

use crate::io::control::Control;
use crate::process::child::CONTROL_FD;
use link::control::{FromMaster, Purpose, Role};
use std::io::Result;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long master waits for a starting child to read its messages. With many processes there are more messages than the
/// socket holds.
const START_WAIT_MAX: Duration = Duration::from_secs(2);

/// What children are given besides streams to their peers.
#[derive(Debug)]
pub struct Resources {
    /// The sealed settings, for all.
    pub settings: OwnedFd,
    /// The listening sockets, for receive.
    pub listeners: Vec<OwnedFd>,
    /// The listening socket of the command line, for queue.
    pub admin: Option<OwnedFd>,
    /// The spool's directory, for queue.
    pub spool: OwnedFd,
    /// The state directory, for local.
    pub state: OwnedFd,
    /// An empty directory, for all.
    pub empty: OwnedFd,
}

impl Resources {
    /// Gives a child what its role needs.
    pub(super) fn give(&self, child: &StartingChild, role: Role) -> Result<()> {
        child.tell(&FromMaster::Settings, Some(self.settings.as_fd()))?;
        let directory = |purpose, fd: &OwnedFd| {
            child.tell(&FromMaster::Directory { purpose }, Some(fd.as_fd()))
        };
        directory(Purpose::EmptyRoot, &self.empty)?;
        match role {
            Role::Receive => {
                for (index, listener) in self.listeners.iter().enumerate() {
                    let index = u16::try_from(index).expect("settings bound the listeners");
                    child.tell(&FromMaster::Listener { index }, Some(listener.as_fd()))?;
                }
                Ok(())
            }
            Role::Queue => {
                directory(Purpose::Spool, &self.spool)?;
                match &self.admin {
                    Some(admin) => child.tell(&FromMaster::AdminListener, Some(admin.as_fd())),
                    None => Ok(()),
                }
            }
            Role::Local => directory(Purpose::State, &self.state),
            Role::Master | Role::Config | Role::Send | Role::Mailbox => Ok(()),
        }
    }
}

/// A child that has not been told to begin, and the time until which master waits for it.
pub(super) struct StartingChild {
    control: Control,
    by: Instant,
}

impl StartingChild {
    pub(super) fn new(control: Control) -> StartingChild {
        StartingChild { control, by: Instant::now() + START_WAIT_MAX }
    }

    /// Sends a message, and waits while the socket is full.
    pub(super) fn tell(&self, message: &FromMaster, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.control.send_by(message, fd, self.by)
    }
}

/// Starts a process from the file that master itself runs. Returns it with master's end of its control socket.
pub(super) fn spawn(role: Role) -> Result<(Child, Control)> {
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
