//! What a process gives up before it meets a stranger: user, root directory, files, system calls.
//! Must never go on half jailed: a step that a role relies on and that fails ends the process.
//!
//! `confine` gives up the user, the root directory and the files, while the process has one thread;
//! `Confined::seal` gives up system calls for all threads. `enter` does both at once.

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

/// As what the daemon was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// By root: the process becomes this user.
    Root(User),
    /// By an ordinary user, who all roles stay.
    Ordinary,
}

/// What the process still sees of the file tree.
#[derive(Debug)]
pub enum Root {
    /// All of it, as far as `Profile::files` lets it.
    Keep,
    /// Nothing: a directory that is deleted already, so that nothing can be made in it either.
    Empty,
    /// This directory only.
    At(OwnedFd),
}

/// Below which directories files may be touched; Landlock holds the process to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// Everywhere the user may.
    Any,
    /// Nowhere but below these, as named within the new root.
    Below(Vec<PathBuf>),
}

/// Everything one process gives up.
#[derive(Debug)]
pub struct Profile {
    /// Chooses the system calls.
    pub role: Role,
    /// As what we were started.
    pub privilege: Privilege,
    /// What is left of the file tree.
    pub root: Root,
    /// What is left of the files.
    pub files: Files,
    /// Descriptors at once; raised to it where the system lets us, never lowered below what is needed.
    pub open_files: u64,
    /// Process id of whoever started us and without whom we end; `None` for master.
    pub parent: Option<i32>,
}

/// What the kernel gave; goes to the log, since Landlock is more or less by its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The role.
    pub role: Role,
    /// Whom we are now.
    pub uid: u32,
    /// Landlock: in full, in part, or not there.
    pub landlock: &'static str,
    /// How many descriptors we may have.
    pub open_files: u64,
    /// How many system calls are left.
    pub calls: usize,
}

/// Why a process is not jailed, and therefore must end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JailError {
    /// The system refused a step.
    #[error("cannot {step}: {cause}")]
    Step {
        /// What was to be done.
        step: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Root is no user for this role (X202).
    #[error("the {0} process does not run as root: it has no user to become")]
    StillRoot(Role),
    /// The switch was reported to have worked and did not (X202).
    #[error("the switch to user {wanted} did not hold: {found}")]
    NotSwitched {
        /// The user we should be.
        wanted: u32,
        /// What we found.
        found: &'static str,
    },
    /// Whoever started us has ended already.
    #[error("the process that started this one has ended")]
    Orphan,
    /// Landlock's rules could not be made.
    #[error("cannot confine files: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The filter could not be made or installed.
    #[error("cannot filter system calls: {0}")]
    Filter(String),
}

impl JailError {
    /// With what the system has just said.
    fn last(step: &'static str) -> JailError {
        JailError::Step { step, cause: std::io::Error::last_os_error() }
    }

    /// With what it said.
    fn step(step: &'static str) -> impl Fn(std::io::Error) -> JailError {
        move |cause| JailError::Step { step, cause }
    }
}

/// A process that has given up all but system calls.
#[must_use = "the system calls are not given up yet"]
#[derive(Debug)]
pub struct Confined(Report);

/// Gives up everything at once. Threads may be started afterwards, or have been started already by
/// a process that has nothing but `Files::Any`.
pub fn enter(profile: &Profile) -> Result<Report, JailError> {
    confine(profile)?.seal()
}

/// Gives up the user, the root directory and the files. To be called while there is one thread:
/// Landlock holds for the thread that asks for it and for those that it starts.
pub fn confine(profile: &Profile) -> Result<Confined, JailError> {
    user::ignore(profile.role);
    let open_files = user::limit(profile.open_files)?;
    files::change_root(&profile.root)?;
    user::become_user(profile.role, &profile.privilege)?;
    user::follow(profile.parent)?;
    let landlock = files::restrict(profile.role, &profile.files)?;
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    Ok(Confined(Report { role: profile.role, uid, landlock, open_files, calls: 0 }))
}

impl Confined {
    /// Gives up the system calls that the role does not need, in all threads.
    pub fn seal(self) -> Result<Report, JailError> {
        let calls = calls::filter(self.0.role)?;
        Ok(Report { calls, ..self.0 })
    }
}

impl Profile {
    /// A role that needs no file: `Config`, `Receive` and `Send`; with the file tree as it is
    /// also `Master` and `Local`, which are to be trusted with it.
    pub fn new(role: Role, privilege: Privilege) -> Profile {
        let trusted = matches!(role, Role::Master | Role::Local | Role::Mailbox);
        let root = match privilege {
            Privilege::Root(_) if !trusted => Root::Empty,
            _ => Root::Keep,
        };
        let files = if trusted { Files::Any } else { Files::Below(Vec::new()) };
        Profile { role, privilege, root, files, open_files: OPEN_FILES, parent: None }
    }

    /// `Queue`, whose root is the spool's directory, given by a descriptor (`O_PATH` is enough) and
    /// its name. The second value is what that directory is called inside.
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

    /// `Mailbox`: as `user`, below these directories and nowhere else.
    pub fn mailbox(privilege: Privilege, directories: Vec<PathBuf>) -> Profile {
        let mut profile = Profile::new(Role::Mailbox, privilege);
        profile.files = Files::Below(directories);
        profile
    }

    /// Ends with the process of this id.
    pub fn ends_with(mut self, parent: i32) -> Profile {
        self.parent = Some(parent);
        self
    }

    /// With so many descriptors at once.
    pub fn open_files(mut self, count: u64) -> Profile {
        self.open_files = count;
        self
    }
}

/// Enough for a role whose connections are few.
const OPEN_FILES: u64 = 1024;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { role, uid, landlock, open_files, calls } = self;
        write!(
            f,
            "{role}: user {uid}, Landlock {landlock}, {open_files} descriptors, {calls} system calls"
        )
    }
}
