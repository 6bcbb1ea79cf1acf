//! The fork server: starts workers, each of which becomes one user for good. It keeps the privileges that local gives up, so
//! it parses nothing but the name of a user, which it looks up in its own list.
//!
//! Must never start a worker as root, or do anything else.

use super::worker::{self, STAGE_DIRECTORY};
use crate::io::control::{Control, Received};
use crate::jail::{self, Files, Privilege, Profile, Role, User};
use serde::{Deserialize, Serialize};
use settings::{HostEnvironment, UserAccount};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The only request. The stream for the worker comes with it.
#[derive(Debug, Serialize, Deserialize)]
struct Start {
    /// The name of an account; the empty name is local's own user id.
    user: String,
}

/// The connection to the fork server, which ends when the connection is closed.
#[derive(Debug)]
pub struct Forks(Control);

/// What workers may become and touch.
#[derive(Debug)]
pub struct WorkerRights {
    /// Local's own user, if this process is root.
    pub privilege: Privilege,
    /// The directory of all mailboxes, if they are not in homes. If its group may write to it, as to
    /// Debian's `/var/mail`, workers get that group for the dotlock.
    pub shared: Option<PathBuf>,
    /// Workers run programs. Which files and system calls these need is not known.
    pub runs_programs: bool,
}

impl Forks {
    /// Starts the fork server. The caller has one thread, and its privileges.
    pub fn start(environment: &HostEnvironment, rights: WorkerRights) -> io::Result<Forks> {
        let (ours, theirs) = Control::pair()?;
        // SAFETY: this process has one thread (see above), so the child may call any function.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let control = keep_only(theirs);
                let served = control.and_then(|control| {
                    let profile = Profile::new(Role::Local, rights.privilege.clone());
                    jail::enter(&profile).map_err(io::Error::other)?;
                    serve(&control, environment, &rights)
                });
                // SAFETY: ends this process at once, without the exit handlers of its parent.
                unsafe { libc::_exit(i32::from(served.is_err())) }
            }
            _ => Ok(Forks(ours)),
        }
    }

    /// Asks for a worker that runs as `user` and serves `stream`. If there can be none, the stream is
    /// closed.
    pub fn worker(&self, user: &str, stream: OwnedFd) -> io::Result<()> {
        self.0.send(&Start { user: user.to_owned() }, Some(stream.as_fd()))
    }
}

/// Closes all inherited descriptors but the standard ones and `control`.
fn keep_only(control: Control) -> io::Result<Control> {
    const FIRST: i32 = 3;
    let old = control.into_fd();
    if old.as_raw_fd() != FIRST {
        // SAFETY: the descriptor at FIRST belongs to a value of the parent, which this process no
        // longer uses.
        if unsafe { libc::dup3(old.as_raw_fd(), FIRST, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    std::mem::forget(old);
    // SAFETY: as above; this process uses no descriptor above FIRST.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST + 1, u32::MAX, 0) };
    // SAFETY: FIRST is open, and no other value of this process owns it.
    Ok(Control::from_fd(unsafe { std::os::fd::FromRawFd::from_raw_fd(FIRST) }))
}

fn serve(
    control: &Control,
    environment: &HostEnvironment,
    rights: &WorkerRights,
) -> io::Result<()> {
    quiet_signals();
    loop {
        let (request, stream) = match control.receive::<Start>()? {
            Received::Message(request, Some(stream)) => (request, stream),
            Received::Message(_, None) | Received::Nothing => continue,
            Received::End => return Ok(()),
        };
        // SAFETY: this process has one thread.
        if unsafe { libc::fork() } == 0 {
            let served = become_user(&request.user, environment, rights).and_then(|()| {
                worker::run(stream, environment.groups(environment.account(&request.user)))
            });
            // SAFETY: ends the worker at once.
            unsafe { libc::_exit(i32::from(served.is_err())) }
        }
    }
}

/// Ignores the signals of a terminal: the end of the streams ends this process. Workers that have
/// ended need not be waited for.
fn quiet_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGXFSZ, libc::SIGCHLD] {
        // SAFETY: SIG_IGN is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Gives up all rights but the user's, for good (X202 in `jail`).
fn become_user(user: &str, environment: &HostEnvironment, rights: &WorkerRights) -> io::Result<()> {
    // SAFETY: both calls only change this process. Waiting for programs needs the default SIGCHLD.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::umask(0o077);
    }
    rustix::process::chdir("/")?;
    let account = match user {
        "" => None,
        name => Some(environment.account(name).ok_or(io::ErrorKind::NotFound)?),
    };
    let mut profile = Profile::mailbox(privilege(account, rights)?, Vec::new());
    profile.files = match (account, &rights.shared, rights.runs_programs) {
        (_, _, true) => Files::Any,
        (_, Some(shared), _) => Files::Below(vec![shared.clone(), STAGE_DIRECTORY.into()]),
        (Some(account), None, _) => {
            Files::Below(vec![account.home.clone(), STAGE_DIRECTORY.into()])
        }
        (None, None, _) => Files::Below(vec![STAGE_DIRECTORY.into()]),
    };
    let confined = jail::confine(&profile).map_err(io::Error::other)?;
    if !rights.runs_programs {
        confined.seal().map_err(io::Error::other)?;
    }
    Ok(())
}

/// Returns the user that the worker becomes. `jail` refuses root. Without root, every user but this
/// process's own is refused here.
fn privilege(account: Option<&UserAccount>, rights: &WorkerRights) -> io::Result<Privilege> {
    let Some(account) = account else { return Ok(rights.privilege.clone()) };
    match rights.privilege {
        Privilege::Root(_) => {
            let groups = rights.shared.as_deref().and_then(shared_group).into_iter().collect();
            Ok(Privilege::Root(User { uid: account.uid, gid: account.gid, groups }))
        }
        Privilege::Ordinary if rustix::process::geteuid().as_raw() == account.uid => {
            Ok(Privilege::Ordinary)
        }
        Privilege::Ordinary => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Returns the group of a directory that its group may write to, but not everybody.
fn shared_group(directory: &Path) -> Option<u32> {
    let stat = std::fs::metadata(directory).ok()?;
    (stat.mode() & 0o022 == 0o020 && stat.gid() != 0).then(|| stat.gid())
}
