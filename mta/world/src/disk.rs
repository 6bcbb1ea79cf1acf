//! A flat directory of files as the spool needs it, and the errors of a medium.
//!
//! Must never hide an error, nor make anything durable that no caller asked to sync.

use std::fmt;
use synced::Synced;

/// One directory. Callers name files instead of holding them open; an implementation may keep
/// descriptors. Nothing is durable before `sync` of the file, and `sync_dir` for its name.
pub trait Disk: Send + Sync {
    /// Lists all entries except `.` and `..`, in any order.
    fn list(&self) -> Result<Vec<Entry>, DiskError>;

    /// Creates an empty file; it is an error if the file exists.
    fn create(&self, name: &str) -> Result<(), DiskError>;

    /// Reserves blocks for the first `bytes` bytes. With `extend` the length grows to `bytes` and the
    /// new part reads as zeros; without it the length stays.
    fn allocate(&self, name: &str, bytes: u64, extend: bool) -> Result<(), DiskError>;

    /// Reads exactly `into.len()` bytes; it is an error if the file ends before.
    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `from` and grows the file if needed. After an error any part may be written.
    fn write_at(&self, name: &str, offset: u64, from: &[u8]) -> Result<(), DiskError>;

    /// Makes the file's bytes and length durable, and returns the evidence that a promise needs.
    /// After an error nothing written since the last success may be taken for durable, whatever a
    /// later call returns.
    ///
    /// Only the two disks of this crate make a [`Synced`]. A disk outside of it hands out what a
    /// disk of this crate returned:
    ///
    /// ```compile_fail
    /// let forged = world::Synced(());
    /// ```
    ///
    /// ```
    /// # fn same(disk: &world::sim::Disk) -> Result<world::Synced, world::DiskError> {
    /// use world::Disk as _;
    /// disk.sync("file")
    /// # }
    /// ```
    fn sync(&self, name: &str) -> Result<Synced, DiskError>;

    /// Makes creations, removals and renames durable.
    fn sync_dir(&self) -> Result<(), DiskError>;

    /// Removes a name.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Gives a file another name, and replaces a file that had that name.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Drops the cached bytes of a file, so that the next read shows what the medium holds.
    fn forget_cache(&self, name: &str) -> Result<(), DiskError>;

    /// Takes the directory's lock for this process, and creates the file if needed. The lock is held
    /// until the disk is dropped or the process ends. Fails with `Errno::LOCKED` if another process
    /// holds it.
    fn lock(&self, name: &str) -> Result<(), DiskError>;

    /// Returns the bytes that an ordinary user could still write.
    fn free_bytes(&self) -> Result<u64, DiskError>;
}

/// One name in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name; bytes that are not UTF-8 are shown replaced.
    pub name: String,
    /// Length in bytes; 0 if it is no regular file.
    pub bytes: u64,
    /// Whether it is a regular file, not a link, pipe or directory.
    pub regular: bool,
}

/// An error number of the operating system, with the classes that the spool tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// EIO.
    pub const IO: Errno = Errno(5);
    /// ENOENT.
    pub const MISSING: Errno = Errno(2);
    /// EEXIST.
    pub const EXISTS: Errno = Errno(17);
    /// EAGAIN: the lock is held by another process.
    pub const LOCKED: Errno = Errno(11);
    /// EINVAL: not a regular file.
    pub const NOT_A_FILE: Errno = Errno(22);
    /// EFBIG.
    pub const TOO_BIG: Errno = Errno(27);
    /// ENOSPC.
    pub const FULL: Errno = Errno(28);
    /// EROFS.
    pub const READ_ONLY: Errno = Errno(30);
    /// EDQUOT.
    pub const QUOTA: Errno = Errno(122);
    /// ENODATA: the file ends before the bytes asked for.
    pub const SHORT: Errno = Errno(61);
    /// ESHUTDOWN: the simulated machine has no power.
    pub const OFF: Errno = Errno(108);

    /// Whether there is no room: space, quota, inodes or a size limit. Becomes 452; others become 451.
    pub fn is_full(self) -> bool {
        [Errno::FULL, Errno::QUOTA, Errno::TOO_BIG].contains(&self)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

/// A failed call of the disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} {name}: {errno:?}")]
pub struct DiskError {
    /// The name of the method.
    pub call: &'static str,
    /// The file; `.` for the directory.
    pub name: String,
    /// The error number.
    pub errno: Errno,
}

impl DiskError {
    /// Returns the error of a call.
    pub fn new(call: &'static str, name: &str, errno: Errno) -> Self {
        DiskError { call, name: name.into(), errno }
    }

    /// Whether there is no room: becomes 452; other errors become 451.
    pub fn is_full(&self) -> bool {
        self.errno.is_full()
    }
}
