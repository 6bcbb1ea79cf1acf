//! The jail: what a process gives up before it meets a stranger. That is its user, root directory, files and system
//! calls.
//!
//! Must never continue half jailed: if a step fails that the role relies on, the process ends.
//!
//! `confine` gives up the user, the root directory and the files while the process has one thread. `Confined::seal` gives
//! up system calls in all threads. `enter` does both.

mod calls;
mod doc;
mod files;
mod names;
pub mod profiles;
#[cfg(test)]
mod tests;
mod user;

pub use calls::DENIED_EXIT_CODE;
pub use doc::markdown;
pub use link::control::Role;
pub use user::{IDS_FIRST, User, group, ignore, privilege, user_of};

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The user that the daemon was started by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Root. The process becomes this user.
    Root(User),
    /// An ordinary user. All processes keep running as this user.
    Ordinary,
}

/// What a process still sees of the file tree.
#[derive(Debug)]
pub enum Root {
    /// The whole tree, as far as `Profile::files` allows.
    Keep,
    /// An empty directory that has been deleted, so that nothing can be made in it.
    Empty,
    /// This directory.
    At(OwnedFd),
}

/// The directories in which files may be accessed. Landlock enforces this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// All files that the user may access.
    Any,
    /// Only files below these directories, named within the new root.
    Below(Vec<PathBuf>),
}

/// Everything that a process gives up.
#[derive(Debug)]
pub struct Profile {
    /// The role, which determines the system calls.
    pub role: Role,
    /// The user that the daemon was started by.
    pub privilege: Privilege,
    /// What remains of the file tree.
    pub root: Root,
    /// What remains of the files.
    pub files: Files,
    /// The number of descriptors that the process needs at once. The limit is raised to it if the system allows.
    pub open_files: u64,
    /// The process id of our parent. We end when it ends. `None` for master.
    pub parent: Option<i32>,
}

/// What the kernel enforces. It is logged, because the age of the kernel determines what Landlock can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JailReport {
    /// The role.
    pub role: Role,
    /// The user that the process runs as.
    pub uid: u32,
    /// How much of the rules Landlock enforces.
    pub landlock: &'static str,
    /// The limit of descriptors.
    pub open_files: u64,
    /// The number of system calls that remain.
    pub calls: usize,
}

/// Why a process could not enter its jail. The process must end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JailError {
    /// The system refused a step.
    #[error("cannot {step}: {cause}")]
    Step {
        /// The step.
        step: &'static str,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// The role must not run as root, and there is no user for it (X202).
    #[error("the {0} process must not run as root, and there is no user for it to become")]
    StillRoot(Role),
    /// The switch to another user reported success but was not effective (X202).
    #[error("the switch to user {wanted} did not take effect: {found}")]
    NotSwitched {
        /// The user that the process should have become.
        wanted: u32,
        /// What a check found.
        found: &'static str,
    },
    /// The parent has already ended.
    #[error("the process that started this one has ended")]
    Orphan,
    /// The rules of Landlock could not be made.
    #[error("cannot confine files: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The filter could not be made or installed.
    #[error("cannot filter system calls: {0}")]
    Filter(String),
}

impl JailError {
    /// Makes an error with `errno` as its cause.
    fn last(step: &'static str) -> JailError {
        JailError::Step { step, cause: std::io::Error::last_os_error() }
    }

    /// Returns a function that makes an error of this step.
    fn step(step: &'static str) -> impl Fn(std::io::Error) -> JailError {
        move |cause| JailError::Step { step, cause }
    }
}

/// A process that has given up everything except system calls.
#[must_use = "the system calls are not given up yet"]
#[derive(Debug)]
pub struct Confined(JailReport);

/// Gives up everything. Threads may be started afterwards. A process with `Files::Any` may have started threads before.
pub fn enter(profile: &Profile) -> Result<JailReport, JailError> {
    confine(profile)?.seal()
}

/// Gives up the user, the root directory and the files. Must be called while the process has one thread: Landlock applies
/// to the calling thread and to threads that it starts later.
pub fn confine(profile: &Profile) -> Result<Confined, JailError> {
    user::ignore(profile.role);
    let open_files = user::limit(profile.open_files)?;
    files::change_root(&profile.root)?;
    user::become_user(profile.role, &profile.privilege)?;
    user::follow(profile.parent)?;
    let landlock = files::restrict(profile.role, &profile.files)?;
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    Ok(Confined(JailReport { role: profile.role, uid, landlock, open_files, calls: 0 }))
}

impl Confined {
    /// Gives up the system calls that the role does not need, in all threads.
    pub fn seal(self) -> Result<JailReport, JailError> {
        let calls = calls::filter(self.0.role)?;
        Ok(JailReport { calls, ..self.0 })
    }
}

impl Profile {
    /// Makes the profile of a role that needs no files (`Config`, `Receive`, `Send`) or that keeps the whole file tree
    /// (`Master`, `Local`, which are trusted).
    pub fn new(role: Role, privilege: Privilege) -> Profile {
        let trusted = matches!(role, Role::Master | Role::Local | Role::Mailbox);
        let root = match privilege {
            Privilege::Root(_) if !trusted => Root::Empty,
            _ => Root::Keep,
        };
        let files = if trusted { Files::Any } else { Files::Below(Vec::new()) };
        Profile { role, privilege, root, files, open_files: OPEN_FILES, parent: None }
    }

    /// Makes the profile of `Queue`, whose root is the spool's directory. The directory is given by a descriptor
    /// (`O_PATH` suffices) and by its path. Also returns the path of that directory inside the jail.
    pub fn queue(privilege: Privilege, spool: OwnedFd, path: &Path) -> (Profile, PathBuf) {
        let inside = match privilege {
            Privilege::Root(_) => PathBuf::from("/"),
            Privilege::Ordinary => path.to_path_buf(),
        };
        let mut profile = Profile::new(Role::Queue, privilege);
        if let Privilege::Root(_) = profile.privilege {
            profile.root = Root::At(spool);
        }
        profile.files = Files::Below(vec![inside.clone()]);
        (profile, inside)
    }

    /// Makes the profile of `Mailbox`, which may access files below these directories only.
    pub fn mailbox(privilege: Privilege, directories: Vec<PathBuf>) -> Profile {
        let mut profile = Profile::new(Role::Mailbox, privilege);
        profile.files = Files::Below(directories);
        profile
    }

    /// Ends the process when this parent ends.
    pub fn ends_with(mut self, parent: i32) -> Profile {
        self.parent = Some(parent);
        self
    }

    /// Sets the number of descriptors that the process needs at once.
    pub fn open_files(mut self, count: u64) -> Profile {
        self.open_files = count;
        self
    }
}

/// Descriptors of a role with few connections.
const OPEN_FILES: u64 = 1024;

impl fmt::Display for JailReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JailReport { role, uid, landlock, open_files, calls } = self;
        write!(
            f,
            "{role}: user {uid}, Landlock {landlock}, {open_files} descriptors, {calls} system calls"
        )
    }
}
