//! The lock of an mbox: first a lock of the file by fcntl(2), then a dotlock beside it (Debian policy 11.6).
//!
//! Must never wait, and never remove a lock that is held.

use super::place::unique_name;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};

/// A dotlock of another program that is older than this is stale.
const STALE_AFTER: Duration = Duration::from_secs(500);
/// Upper bound on stale dotlocks that are removed in one try.
const TRIES_MAX: usize = 2;
/// The second line of our dotlocks. While we hold the fcntl lock, a dotlock with this line has no owner: another process
/// of ours would hold the fcntl lock too. A dotlock that `kill -9` left behind therefore blocks nobody.
const OURS: &[u8] = b"\nposthaste\n";

/// A held lock. Dropping it removes the dotlock. The fcntl lock is released when `file` is closed, which must come later.
#[derive(Debug)]
pub struct MboxLock<'a> {
    dotlock: Option<(&'a File, String)>,
}

/// Why the lock could not be taken.
#[derive(Debug)]
pub enum LockError {
    /// Another program holds the lock.
    Busy,
    /// A system call failed.
    Io(io::Error),
}

impl From<Errno> for LockError {
    fn from(error: Errno) -> Self {
        LockError::Io(error.into())
    }
}

/// Locks `file`, which is `name` in `directory`.
pub fn lock<'a>(directory: &'a File, name: &str, file: &File) -> Result<MboxLock<'a>, LockError> {
    lock_file(file)?;
    let dotlock = format!("{name}.lock");
    for _ in 0..TRIES_MAX {
        match create(directory, &dotlock) {
            Ok(()) => return Ok(MboxLock { dotlock: Some((directory, dotlock)) }),
            Err(Errno::EXIST) => remove_if_stale(directory, &dotlock)?,
            // We may not create files in this directory. The fcntl lock must suffice, as for other mailers.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                return Ok(MboxLock { dotlock: None });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(LockError::Busy)
}

impl Drop for MboxLock<'_> {
    fn drop(&mut self) {
        if let Some((directory, name)) = self.dotlock.take() {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}

/// Locks the whole file by fcntl(2). The lock belongs to the open file and not to the process (`F_OFD_SETLK`): the classic
/// kind is lost when any descriptor of the file is closed. The two kinds exclude each other.
fn lock_file(file: &File) -> Result<(), LockError> {
    // SAFETY: all zeroes is a valid `flock`.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and `whole` is valid during the call, which only reads it.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &whole) } {
        0 => Ok(()),
        _ => Err(match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                LockError::Busy
            }
            error => LockError::Io(error),
        }),
    }
}

/// Makes the dotlock together with its text. If we were killed between the two steps, an empty dotlock would have no known
/// owner and would block us until it is stale.
fn create(directory: &File, name: &str) -> Result<(), Errno> {
    // Names of mailboxes have no capital letters, so this is not a mailbox.
    let staged = format!("{name}.{}", unique_name());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let mut file = File::from(rustix::fs::openat(directory, &staged, flags, mode)?);
    // The disk may be full. An empty dotlock locks too; it only takes longer until it counts as stale.
    let _ = file.write_all(format!("{}\nposthaste\n", std::process::id()).as_bytes());
    let put = match renameat_with(directory, &staged, directory, name, RenameFlags::NOREPLACE) {
        // NFS does not support renaming without replacing.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(directory, &staged, directory, name, AtFlags::empty())
        }
        Ok(()) => return Ok(()),
        Err(error) => Err(error),
    };
    let _ = rustix::fs::unlinkat(directory, &staged, AtFlags::empty());
    put
}

fn remove_if_stale(directory: &File, name: &str) -> Result<(), LockError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(()),
        // We may not read the dotlock, so only its age counts.
        Err(_) => return remove_if_old(directory, name),
    };
    let mut head = Vec::new();
    (&file).take(64).read_to_end(&mut head).map_err(LockError::Io)?;
    if head.ends_with(OURS) {
        return unlink(directory, name);
    }
    remove_if_old(directory, name)
}

fn remove_if_old(directory: &File, name: &str) -> Result<(), LockError> {
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let made = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    match now.saturating_sub(made) > STALE_AFTER {
        true => unlink(directory, name),
        false => Err(LockError::Busy),
    }
}

fn unlink(directory: &File, name: &str) -> Result<(), LockError> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> (tempfile::TempDir, File, File) {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("box")).unwrap();
        let directory = File::open(dir.path()).unwrap();
        (dir, directory, file)
    }

    fn busy(result: Result<MboxLock<'_>, LockError>) -> bool {
        matches!(result, Err(LockError::Busy))
    }

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let (dir, directory, file) = scene();
        let other = File::options().write(true).open(dir.path().join("box")).unwrap();
        let held = lock(&directory, "box", &file).unwrap();
        assert!(dir.path().join("box.lock").exists());
        assert!(busy(lock(&directory, "box", &other)));
        drop(held);
        drop(file);
        assert!(!dir.path().join("box.lock").exists());
        assert!(lock(&directory, "box", &other).is_ok());
    }

    #[test]
    fn a_dotlock_of_another_program_is_kept_until_it_is_stale() {
        let (dir, directory, file) = scene();
        let dotlock = dir.path().join("box.lock");
        std::fs::write(&dotlock, "123\n").unwrap();
        assert!(busy(lock(&directory, "box", &file)));
        assert!(dotlock.exists());
        let old = SystemTime::now() - STALE_AFTER - Duration::from_secs(10);
        File::options().write(true).open(&dotlock).unwrap().set_modified(old).unwrap();
        assert!(lock(&directory, "box", &file).is_ok());
        assert!(!dotlock.exists());
    }

    #[test]
    fn a_dotlock_left_by_a_killed_process_of_ours_stops_nobody() {
        let (dir, directory, file) = scene();
        std::fs::write(dir.path().join("box.lock"), "99999\nposthaste\n").unwrap();
        assert!(lock(&directory, "box", &file).is_ok());
    }
}
