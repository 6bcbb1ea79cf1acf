//! Directories of mailboxes below a base directory, and unique names of files.
//!
//! Must never follow a symbolic link below the base, or `..` out of it.

use super::Fault;
use policy::{Groups, Ownership};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that is held open, with its path for people. We need no permission for the path above it.
#[derive(Debug)]
pub struct Base {
    directory: OwnedFd,
    path: PathBuf,
}

/// A directory below a base, and the directories in which something was made to open it. New names are durable only after
/// those directories have been synced.
pub(super) struct OpenedDirectory {
    pub directory: File,
    pub made_in: Vec<File>,
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const OWNER_ONLY: Mode = Mode::RWXU;

impl Base {
    /// Makes a base from an open directory and its path for people.
    pub fn new(directory: OwnedFd, path: impl Into<PathBuf>) -> Base {
        Base { directory, path: path.into() }
    }

    /// Opens the directory at `path`. Follows links, because the administrator chose the path. With `create`, missing
    /// directories are made with mode 0700.
    pub fn open(path: impl Into<PathBuf>, create: bool) -> io::Result<Base> {
        let path = path.into();
        if create {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        }
        let directory = rustix::fs::open(&path, DIRECTORY, Mode::empty())?;
        Ok(Base { directory, path })
    }

    /// Returns the path for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Opens the directory `relative` below this one. Makes missing directories with mode 0700.
    pub(super) fn open_below(&self, relative: &str) -> io::Result<OpenedDirectory> {
        open_below(self.directory(), relative)
    }
}

/// Opens the directory `relative` below `from`. Makes missing directories with mode 0700.
pub(super) fn open_below(from: BorrowedFd<'_>, relative: &str) -> io::Result<OpenedDirectory> {
    match beneath(from, relative) {
        Ok(directory) => Ok(OpenedDirectory { directory, made_in: Vec::new() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_below(from, relative),
        Err(error) => Err(error),
    }
}

fn make_below(from: BorrowedFd<'_>, relative: &str) -> io::Result<OpenedDirectory> {
    let mut directory = beneath(from, ".")?;
    let mut made_in = Vec::new();
    for name in relative.split('/').filter(|name| !name.is_empty()) {
        match rustix::fs::mkdirat(&directory, name, OWNER_ONLY) {
            Ok(()) => made_in.push(directory.try_clone()?),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        directory = beneath(directory.as_fd(), name)?;
    }
    Ok(OpenedDirectory { directory, made_in })
}

/// Refuses an open file or directory that does not belong to its recipient alone. The recipient is the user of this
/// process: a worker has become the recipient's user, and mailboxes that are made when mail comes belong to our user.
pub(super) fn refuse_not_theirs(opened: &File, groups: Groups) -> Result<(), Fault> {
    let stat = rustix::fs::fstat(opened)
        .map_err(|error| Fault::io("cannot look at the mailbox", &error.into()))?;
    let found = Ownership { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode };
    let recipient = rustix::process::geteuid().as_raw();
    found.judge(recipient, groups).map_err(|why| Fault::not_theirs(why, found))
}

/// Opens the directory `relative` below `from`.
pub(super) fn beneath(from: BorrowedFd<'_>, relative: &str) -> io::Result<File> {
    let relative = if relative.is_empty() { "." } else { relative };
    Ok(rustix::fs::openat2(from, relative, DIRECTORY, Mode::empty(), BENEATH)?.into())
}

/// Returns `P<process>Q<number>R<random>`, a unique name even if clocks are set and process ids are reused.
pub(super) fn unique_name() -> String {
    static RANDOM: OnceLock<u64> = OnceLock::new();
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let random = RANDOM.get_or_init(rand::random);
    // A forked worker inherits `random`, but it has a different process id.
    format!("P{}Q{number}R{random:016x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbolic_link_below_the_base_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = Base::open(dir.path().join("mail"), true).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("mail/bob")).unwrap();
        for path in ["bob", "bob/x", "..", "a/../../x", "/etc"] {
            assert!(base.open_below(path).is_err(), "{path}");
        }
        let opened = base.open_below("eve/Maildir/new").unwrap();
        assert_eq!(opened.made_in.len(), 3);
        assert!(dir.path().join("mail/eve/Maildir/new").is_dir());
        assert_eq!(base.open_below("eve/Maildir").unwrap().made_in.len(), 0);
    }
}
