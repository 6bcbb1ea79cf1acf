//! Switching to a user with fewer rights, with a check that the switch took effect, and ending with our parent.
//!
//! Must never report success for a switch that did not take effect (X202).

use super::{JailError, Privilege, Role};
use std::io::Error;

/// The first of the numeric ids for roles without an account `posthaste-ROLE`. The number of the role is added. Debian
/// reserves 60000 to 64999 for packages on demand, and systemd does not use 60706 to 61183.
pub const IDS_FIRST: u32 = 60800;

/// The user that a process becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user id, never 0.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

/// Returns the privilege that a role runs with. Root becomes the role's user, and any other user stays the same.
pub fn privilege(role: Role, ids_first: u32) -> Privilege {
    match rustix::process::geteuid().is_root() {
        true => Privilege::Root(user_of(role, ids_first, account)),
        false => Privilege::Ordinary,
    }
}

/// Returns the user of a role: the account `posthaste-ROLE` if `account` finds it, otherwise numeric ids.
pub fn user_of(role: Role, ids_first: u32, account: impl Fn(&str) -> Option<(u32, u32)>) -> User {
    // Files belong to these numbers, so they must never change. 6 and 7 are reserved for submit and lookup.
    let place = match role {
        Role::Master => 0,
        Role::Config => 1,
        Role::Receive => 2,
        Role::Queue => 3,
        Role::Send => 4,
        Role::Local | Role::Mailbox => 5,
    };
    let role = if role == Role::Mailbox { Role::Local } else { role };
    let numeric = (ids_first + place, ids_first + place);
    let (uid, gid) = account(&format!("posthaste-{role}")).unwrap_or(numeric);
    User { uid, gid, groups: Vec::new() }
}

/// Returns the ids of an account of the system, by getpwnam_r(3).
pub fn account(name: &str) -> Option<(u32, u32)> {
    let name = std::ffi::CString::new(name).ok()?;
    let mut buffer = vec![0; 16 << 10];
    // SAFETY: passwd is plain data for which zero is valid. All pointers are valid during the call, and the length is
    // that of the buffer.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let (text, length) = (buffer.as_mut_ptr(), buffer.len());
        libc::getpwnam_r(name.as_ptr(), &mut entry, text, length, &mut found);
        (!found.is_null()).then_some((entry.pw_uid, entry.pw_gid))
    }
}

/// Returns the id of a group of the system, by getgrnam_r(3).
pub fn group(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // The members of the group are returned as well, and there may be many.
    let mut buffer = vec![0; 1 << 20];
    // SAFETY: group is plain data for which zero is valid. All pointers are valid during the call, and the length is that
    // of the buffer.
    unsafe {
        let mut entry: libc::group = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let (text, length) = (buffer.as_mut_ptr(), buffer.len());
        libc::getgrnam_r(name.as_ptr(), &mut entry, text, length, &mut found);
        (!found.is_null()).then_some(entry.gr_gid)
    }
}

/// Converts the result of a libc function.
fn check(step: &'static str, result: libc::c_int) -> Result<(), JailError> {
    if result == 0 { Ok(()) } else { Err(JailError::last(step)) }
}

/// Switches the user and the groups, and drops all capabilities. Trusted roles (`Master`, `Local`) keep theirs.
pub(super) fn become_user(role: Role, privilege: &Privilege) -> Result<(), JailError> {
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    if matches!(role, Role::Master | Role::Local) {
        return Ok(());
    }
    match privilege {
        Privilege::Root(user) if user.uid == 0 || user.gid == 0 => Err(JailError::StillRoot(role)),
        Privilege::Root(user) => switch(user),
        Privilege::Ordinary if root => Err(JailError::StillRoot(role)),
        Privilege::Ordinary => Ok(()),
    }?;
    drop_capabilities()
}

fn switch(user: &User) -> Result<(), JailError> {
    let (uid, gid) = (user.uid, user.gid);
    // SAFETY: pointer and length belong to the same vector. glibc applies each of the three calls to all threads.
    unsafe {
        let groups = user.groups.as_ptr();
        check("give up groups", libc::setgroups(user.groups.len(), groups))?;
        check("switch group", libc::setresgid(gid, gid, gid))?;
        check("switch user", libc::setresuid(uid, uid, uid))?;
    }
    let not = |found| Err(JailError::NotSwitched { wanted: uid, found });
    let (mut users, mut groups) = ([0; 3], [0; 3]);
    // SAFETY: six valid pointers to ids.
    unsafe {
        let ([a, b, c], [d, e, f]) = (&mut users, &mut groups);
        check("ask for the user", libc::getresuid(a, b, c))?;
        check("ask for the group", libc::getresgid(d, e, f))?;
    }
    if users != [uid; 3] || groups != [gid; 3] {
        return not("the ids are different");
    }
    // SAFETY: setresuid has no preconditions. Success would be the error that this checks for.
    if unsafe { libc::setresuid(0, 0, 0) } == 0 {
        return not("the process can become root again");
    }
    Ok(())
}

/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

fn drop_capabilities() -> Result<(), JailError> {
    let header = [CAPABILITY_VERSION_3, 0];
    let none = [0u32; 6];
    // SAFETY: capset(2) reads a header of two words and two times three words of sets.
    let done = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr())
    };
    check("give up capabilities", done as libc::c_int)
}

/// Makes the process end with `parent`, dump no core, and not be traceable by other processes of its user. Must be called
/// after the switch of the user, which undoes all three.
pub(super) fn follow(parent: Option<i32>) -> Result<(), JailError> {
    // SAFETY: prctl with constant arguments; getppid has no preconditions.
    unsafe {
        check("hide memory", libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        check("give up privileges", libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        let Some(parent) = parent else { return Ok(()) };
        check("follow the parent", libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        // The parent may have ended before the call above.
        if libc::getppid() == parent { Ok(()) } else { Err(JailError::Orphan) }
    }
}

/// Ignores the signals that mean nothing to this role (X190). For a full disk and a closed pipe, the call returns an
/// error. Signals that a terminal sends to the whole process group concern master, which tells the others.
pub fn ignore(role: Role) {
    let of_terminal: &[libc::c_int] = match role {
        Role::Master => &[],
        _ => &[libc::SIGINT, libc::SIGHUP],
    };
    let of_all = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGUSR1, libc::SIGUSR2];
    for signal in of_all.iter().chain(of_terminal) {
        // SAFETY: ignoring a signal that can be ignored cannot fail.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Raises the limit of descriptors to `open_files` or as far as the system allows, and forbids core dumps. Returns the
/// limit. File sizes are not limited, because the log may be a file. Processes are not limited, because that limit counts
/// all processes of a user.
pub(super) fn limit(open_files: u64) -> Result<u64, JailError> {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to valid limits.
    unsafe {
        check("forbid cores", libc::setrlimit(libc::RLIMIT_CORE, &none))?;
        check("ask for limits", libc::getrlimit(libc::RLIMIT_NOFILE, &mut files))?;
        let wanted = libc::rlimit {
            rlim_cur: open_files.max(files.rlim_cur),
            rlim_max: open_files.max(files.rlim_max),
        };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) == 0 {
            return Ok(wanted.rlim_cur);
        }
        let all = libc::rlimit { rlim_cur: files.rlim_max, rlim_max: files.rlim_max };
        match libc::setrlimit(libc::RLIMIT_NOFILE, &all) {
            0 => Ok(all.rlim_cur),
            _ => Err(JailError::Step { step: "raise limits", cause: Error::last_os_error() }),
        }
    }
}
