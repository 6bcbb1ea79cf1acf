//! The real disk: one directory, reached through its descriptor only.
//!
//! Must never follow a symbolic link, open anything but a regular file, or retry a failed sync.

mod calls;

use super::faults::{self, Point};
use crate::{DiskError, Entry, Errno, Synced};
use calls::{error, has_name, held, retried, write_whole};
use rustix::fs::{self, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno as Os;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Upper bound on the descriptors kept open; a spool of 100 GB has 1,600 segments.
const DESCRIPTORS_MAX: usize = 512;

/// One directory on a real file system.
///
/// The kernel reports a failed write-back once for each open file description. Two threads that sync
/// one file at the same time must therefore each have a `Disk` of their own ([`Disk::another`]);
/// otherwise one thread may receive the error that the other had to see.
pub struct Disk {
    directory: Arc<OwnedFd>,
    lock: Arc<Mutex<Option<OwnedFd>>>,
    open: Mutex<HashMap<String, Held>>,
    /// How many names the disks of this directory have removed.
    removals: Arc<AtomicU64>,
    read_only: bool,
    commits: bool,
}

/// An open file that still had its name when `removals` names were removed.
struct Held {
    fd: Arc<OwnedFd>,
    removals: u64,
}

impl Disk {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> Result<Disk, DiskError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty())
            .map_err(|os| error("open", &path.to_string_lossy(), os))?;
        Ok(Disk::from_fd(fd))
    }

    /// Uses an open directory; a jailed process receives its descriptor.
    pub fn from_fd(directory: OwnedFd) -> Disk {
        Disk {
            directory: Arc::new(directory),
            lock: Arc::default(),
            open: Mutex::default(),
            removals: Arc::default(),
            read_only: false,
            commits: false,
        }
    }

    /// Returns a disk with the same directory and lock and with its own descriptors, for another thread.
    pub fn another(&self) -> Disk {
        Disk {
            directory: self.directory.clone(),
            lock: self.lock.clone(),
            open: Mutex::default(),
            removals: self.removals.clone(),
            read_only: self.read_only,
            commits: false,
        }
    }

    /// Opens every file for reading only; for `spool check`.
    pub fn reading_only(mut self) -> Disk {
        self.read_only = true;
        self
    }

    /// Marks the disk as one that writes and syncs commits, where tests may stop or kill the process.
    pub fn for_commits(mut self) -> Disk {
        self.commits = true;
        self
    }

    fn reach(&self, point: Point) {
        if self.commits {
            faults::reach(point);
        }
    }

    /// Returns a file that still has its name: the `Disk` of another thread may have removed it and
    /// created it again. While no `Disk` has removed anything, this need not be checked; `sync`
    /// notices if another process removes a file.
    fn file(&self, call: &'static str, name: &str) -> Result<Arc<OwnedFd>, DiskError> {
        let removals = self.removals.load(Ordering::Acquire);
        if let Some(held) = held(&self.open).get_mut(name) {
            if held.removals == removals {
                return Ok(held.fd.clone());
            }
            if has_name(&held.fd).map_err(|os| error(call, name, os))? {
                held.removals = removals;
                return Ok(held.fd.clone());
            }
        }
        let access = if self.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        self.open_as(call, name, access)
    }

    fn cached(&self, name: &str) -> Option<Arc<OwnedFd>> {
        held(&self.open).get(name).map(|held| held.fd.clone())
    }

    fn count_removal(&self) {
        self.removals.fetch_add(1, Ordering::AcqRel);
    }

    fn open_as(
        &self,
        call: &'static str,
        name: &str,
        flags: OFlags,
    ) -> Result<Arc<OwnedFd>, DiskError> {
        // NONBLOCK, so that a pipe with this name cannot block the thread.
        let removals = self.removals.load(Ordering::Acquire);
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = retried(|| fs::openat(&*self.directory, name, flags, Mode::from(0o600)))
            .map_err(|os| error(call, name, os))?;
        let stat = fs::fstat(&fd).map_err(|os| error(call, name, os))?;
        if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::RegularFile {
            return Err(DiskError::new(call, name, Errno::NOT_A_FILE));
        }
        let fd = Arc::new(fd);
        let mut open = held(&self.open);
        if open.len() >= DESCRIPTORS_MAX {
            open.clear();
        }
        open.insert(name.into(), Held { fd: fd.clone(), removals });
        Ok(fd)
    }
}

impl crate::Disk for Disk {
    fn list(&self) -> Result<Vec<Entry>, DiskError> {
        let failed = |os| error("list", ".", os);
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&*self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            match fs::statat(&*self.directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    let kind = fs::FileType::from_raw_mode(stat.st_mode);
                    let regular = kind == fs::FileType::RegularFile;
                    let bytes = if regular { stat.st_size as u64 } else { 0 };
                    entries.push(Entry { name, bytes, regular });
                }
                Err(Os::NOENT) => {} // removed between the two calls
                Err(os) => return Err(error("list", &name, os)),
            }
        }
        Ok(entries)
    }

    fn create(&self, name: &str) -> Result<(), DiskError> {
        self.open_as("create", name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).map(drop)
    }

    fn allocate(&self, name: &str, bytes: u64, extend: bool) -> Result<(), DiskError> {
        let fd = self.file("allocate", name)?;
        let flags = if extend { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
        match retried(|| fs::fallocate(&*fd, flags, 0, bytes)) {
            Ok(()) => Ok(()),
            // tmpfs before 3.5, NFS, some FUSE: the zeros that are written later allocate blocks.
            Err(Os::OPNOTSUPP | Os::NOSYS) if !extend => Ok(()),
            Err(Os::OPNOTSUPP | Os::NOSYS) => {
                retried(|| fs::ftruncate(&*fd, bytes)).map_err(|os| error("allocate", name, os))
            }
            Err(os) => Err(error("allocate", name, os)),
        }
    }

    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        // A file that has lost its name can still be read: the spool was deleted while it runs.
        let fd = match (self.file("read", name), self.cached(name)) {
            (Err(error), Some(fd)) if error.errno == Errno::MISSING => fd,
            (result, _) => result?,
        };
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&*fd, &mut into[done..], offset + done as u64) {
                Ok(0) => return Err(DiskError::new("read", name, Errno::SHORT)),
                Ok(bytes) => done += bytes,
                Err(Os::INTR) => {}
                Err(os) => return Err(error("read", name, os)),
            }
        }
        Ok(())
    }

    fn write_at(&self, name: &str, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        let fd = self.file("write", name)?;
        self.reach(Point::BeforeWrite);
        write_whole(from, offset, |bytes, at| rustix::io::pwrite(&*fd, bytes, at))
            .map_err(|os| error("write", name, os))?;
        self.reach(Point::AfterWrite);
        Ok(())
    }

    fn sync(&self, name: &str) -> Result<Synced, DiskError> {
        // Syncs the descriptor that was written with, whatever file has the name now: a new file
        // lacks what was written.
        let fd = self.cached(name).map_or_else(|| self.file("sync", name), Ok)?;
        self.reach(Point::BeforeSync);
        retried(|| fs::fdatasync(&*fd)).map_err(|os| error("sync", name, os))?;
        self.reach(Point::AfterSync);
        // A file that has lost its name is gone after a restart, although it was synced.
        match has_name(&fd) {
            Ok(true) => Ok(synced::sync_succeeded()),
            Ok(false) => Err(DiskError::new("sync", name, Errno::MISSING)),
            Err(os) => Err(error("sync", name, os)),
        }
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        retried(|| fs::fsync(&*self.directory)).map_err(|os| error("sync_dir", ".", os))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        held(&self.open).remove(name);
        fs::unlinkat(&*self.directory, name, AtFlags::empty())
            .map_err(|os| error("remove", name, os))?;
        self.count_removal();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut open = held(&self.open);
        open.remove(from);
        open.remove(to);
        fs::renameat(&*self.directory, from, &*self.directory, to)
            .map_err(|os| error("rename", from, os))?;
        self.count_removal();
        Ok(())
    }

    fn forget_cache(&self, name: &str) -> Result<(), DiskError> {
        let fd = self.file("forget_cache", name)?;
        match fs::fadvise(&*fd, 0, None, fs::Advice::DontNeed) {
            Ok(()) | Err(Os::NOSYS | Os::INVAL | Os::OPNOTSUPP) => Ok(()),
            Err(os) => Err(error("forget_cache", name, os)),
        }
    }

    fn lock(&self, name: &str) -> Result<(), DiskError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = fs::openat(&*self.directory, name, flags, Mode::from(0o600))
            .map_err(|os| error("lock", name, os))?;
        match retried(|| fs::flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => {
                *held(&self.lock) = Some(fd);
                Ok(())
            }
            Err(Os::WOULDBLOCK) => Err(DiskError::new("lock", name, Errno::LOCKED)),
            Err(os) => Err(error("lock", name, os)),
        }
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let stat = fs::fstatvfs(&*self.directory).map_err(|os| error("free_bytes", ".", os))?;
        // A file system without free inodes cannot take another segment either. Some file systems
        // (btrfs) count none at all and report 0 of 0.
        let no_inode = stat.f_files > 0 && stat.f_favail == 0;
        Ok(if no_inode { 0 } else { stat.f_bavail.saturating_mul(stat.f_frsize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk as _;

    fn disk() -> (tempfile::TempDir, Disk) {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        (directory, disk)
    }

    #[test]
    fn what_is_written_is_read_and_a_short_file_is_an_error() {
        let (_directory, disk) = disk();
        disk.create("a").unwrap();
        assert_eq!(disk.create("a").unwrap_err().errno, Errno::EXISTS);
        disk.write_at("a", 3, b"abc").unwrap();
        disk.sync("a").unwrap();
        disk.sync_dir().unwrap();
        disk.forget_cache("a").unwrap();
        let mut bytes = [9u8; 6];
        disk.read_at("a", 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\0abc");
        assert_eq!(disk.read_at("a", 1, &mut bytes).unwrap_err().errno, Errno::SHORT);
        disk.allocate("a", 4096, false).unwrap();
        assert_eq!(disk.list().unwrap()[0].bytes, 6);
        disk.allocate("a", 4096, true).unwrap();
        assert_eq!(disk.list().unwrap()[0].bytes, 4096);
        assert!(disk.free_bytes().unwrap() > 0);
    }

    #[test]
    fn s133_links_and_pipes_are_listed_as_strangers_and_never_opened() {
        let (directory, disk) = disk();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link")).unwrap();
        fs::mknodat(
            fs::CWD,
            directory.path().join("pipe"),
            fs::FileType::Fifo,
            Mode::from(0o600),
            0,
        )
        .unwrap();
        assert!(disk.list().unwrap().iter().all(|entry| !entry.regular));
        let mut byte = [0u8];
        assert!(disk.read_at("link", 0, &mut byte).is_err());
        assert_eq!(disk.read_at("pipe", 0, &mut byte).unwrap_err().errno, Errno::NOT_A_FILE);
    }

    #[test]
    fn s140_a_second_holder_of_the_lock_is_told_so_and_a_dropped_lock_is_free() {
        let (directory, disk) = disk();
        disk.lock("lock").unwrap();
        let second = Disk::open(directory.path()).unwrap();
        assert_eq!(second.lock("lock").unwrap_err().errno, Errno::LOCKED);
        drop(disk);
        second.lock("lock").unwrap();
    }

    #[test]
    fn a_file_that_another_thread_removed_and_made_anew_is_the_new_one() {
        let (_directory, disk) = disk();
        disk.create("a").unwrap();
        disk.write_at("a", 0, b"old").unwrap();
        let other = disk.another();
        other.remove("a").unwrap();
        assert_eq!(disk.write_at("a", 0, b"x").unwrap_err().errno, Errno::MISSING);
        disk.read_at("a", 0, &mut [0u8; 3]).unwrap();
        other.create("a").unwrap();
        disk.write_at("a", 0, b"new").unwrap();
        disk.sync("a").unwrap();
        let mut bytes = [0u8; 3];
        other.read_at("a", 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"new");
        // Between a write and its sync nothing may take the file's place.
        other.remove("a").unwrap();
        other.create("a").unwrap();
        assert_eq!(disk.sync("a").unwrap_err().errno, Errno::MISSING);
    }

    #[test]
    fn s141_a_file_deleted_under_us_cannot_be_synced() {
        let (directory, disk) = disk();
        disk.create("a").unwrap();
        disk.write_at("a", 0, b"x").unwrap();
        std::fs::remove_file(directory.path().join("a")).unwrap();
        assert_eq!(disk.sync("a").unwrap_err().errno, Errno::MISSING);
    }
}
