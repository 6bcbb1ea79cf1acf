//! The spool's requests to the disk, as values, and the one function that executes them.
//!
//! Must never decide anything, nor retry what failed.

use std::fmt;
use std::sync::LazyLock;
use world::{Disk, DiskError, Errno, Synced};

/// The name of one file of the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum File {
    /// A segment, by its slot.
    Segment(u32),
    /// One of the two snapshots.
    Snapshot(u8),
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            File::Segment(slot) => write!(f, "segment-{slot:08}"),
            File::Snapshot(which) => write!(f, "snapshot-{which}"),
        }
    }
}

impl File {
    /// Parses a file name; `None` if it names no file of a spool.
    pub fn parse(name: &str) -> Option<File> {
        let file = match name.split_once('-')? {
            ("segment", slot) => File::Segment(slot.parse().ok()?),
            ("snapshot", which) => File::Snapshot(which.parse().ok().filter(|w| *w < 2)?),
            _ => return None,
        };
        (file.to_string() == name).then_some(file)
    }
}

/// The thread on which a driver may run an [`Io`]. Several I/Os of one class may run at once, except
/// in `Background`, which has one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A client waits for its `250`. Goes first; each thread has descriptors of its own.
    Commit,
    /// Large bodies, which must not delay commits.
    Bulk,
    /// Zeroing, snapshots and copying, whenever there is time.
    Background,
}

/// One request to the disk. Only the spool makes one, and the driver can only execute it or drop
/// it.
#[derive(Debug)]
#[must_use]
pub struct Io {
    pub(crate) id: u64,
    pub(crate) class: Class,
    pub(crate) work: IoWork,
}

impl Io {
    /// The number of the request, the same as in its [`IoDone`].
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The thread on which it may run.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What to do.
    pub fn work(&self) -> &IoWork {
        &self.work
    }
}

/// The kinds of requests.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are explained by the sentences above the variants
pub enum IoWork {
    /// Creates the file unless less than `keep_free` bytes would be left, allocates blocks for
    /// `bytes`, and syncs file and directory. An existing file only gets its blocks.
    Create { file: File, bytes: u64, keep_free: u64 },
    /// Writes the buffer and then, with `sync`, syncs. A commit is one such request.
    Write { file: File, offset: u64, buffer: Vec<u8>, sync: bool },
    /// Writes zeros and then, with `sync`, syncs.
    Zero { file: File, offset: u64, bytes: u32, sync: bool },
    /// Extends the file to `bytes` with allocated blocks, and syncs.
    Grow { file: File, bytes: u64 },
    /// Syncs the file.
    Sync { file: File },
    /// Removes the file and syncs the directory.
    Remove { file: File },
    /// Reads as many bytes as the buffer is long.
    Read { file: File, offset: u64, buffer: Vec<u8> },
}

impl IoWork {
    /// How many syncs it needs.
    pub(crate) fn syncs(&self) -> u64 {
        match self {
            IoWork::Create { .. } => 2,
            IoWork::Write { sync, .. } | IoWork::Zero { sync, .. } => u64::from(*sync),
            IoWork::Grow { .. } | IoWork::Sync { .. } | IoWork::Remove { .. } => 1,
            IoWork::Read { .. } => 0,
        }
    }
}

/// The end of an [`Io`]. Only [`execute`] and [`Unsynced::sync`] make one.
///
/// If the request was a write with a sync and succeeded, the result holds the [`Synced`] of that
/// sync, and the spool makes its promises of it. What this proves, and by which means:
///
/// - A sync came back without an error. The compiler: only the disks of crate `world` make a
///   `Synced`.
/// - It belongs to this request and to no other. The compiler: neither an `Io` nor an `IoDone` nor
///   a `Synced` can be copied, or made outside of the spool and the disks.
/// - It was a sync of the file that the buffer had been written to before, and the write had come
///   back without an error. Not the compiler: [`begin`] and [`Unsynced::sync`] must be read.
/// - No earlier sync of the file has failed since. Not proven here: `commit` keeps track of it.
/// - The disk told the truth. An assumption, see `docs/durability.md`.
///
/// ```compile_fail
/// // No driver can say that an I/O has ended without executing it.
/// fn forged(io: spool::Io) -> spool::IoDone {
///     spool::IoDone { id: io.id(), work: todo!(), result: Ok(None) }
/// }
/// ```
///
/// ```compile_fail
/// // No driver can end an I/O twice.
/// fn twice(disk: &dyn world::Disk, io: spool::Io) -> [spool::IoDone; 2] {
///     [spool::execute(disk, io), spool::execute(disk, io)]
/// }
/// ```
///
/// ```compile_fail
/// // The crate that makes a `Synced` is out of reach.
/// let synced = synced::sync_succeeded();
/// ```
///
/// ```
/// fn ended(disk: &dyn world::Disk, io: spool::Io) -> spool::IoDone {
///     spool::execute(disk, io)
/// }
/// ```
#[derive(Debug)]
pub struct IoDone {
    pub(crate) id: u64,
    /// Gives the buffer back.
    pub(crate) work: IoWork,
    /// The evidence of the sync that ended a `Write` or a `Zero`.
    pub(crate) result: Result<Option<Synced>, DiskError>,
}

impl IoDone {
    /// The number of the request.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The request; the buffer of a `Read` is filled.
    pub fn work(&self) -> &IoWork {
        &self.work
    }

    /// Whether all of it was done.
    pub fn result(&self) -> Result<(), &DiskError> {
        self.result.as_ref().map(|_| ())
    }
}

/// Executes the request. The threads of the daemon and the simulator both call this.
pub fn execute(disk: &dyn Disk, io: Io) -> IoDone {
    match begin(disk, io) {
        Begun::Unsynced(unsynced) => unsynced.sync(disk),
        Begun::Done(done) => done,
    }
}

/// What [`begin`] has come to.
#[derive(Debug)]
pub enum Begun {
    /// The sync at the end is missing.
    Unsynced(Unsynced),
    /// The request has ended.
    Done(IoDone),
}

/// A request whose writes have succeeded and whose sync is missing.
#[derive(Debug)]
#[must_use]
pub struct Unsynced {
    io: Io,
    /// The file that was written to.
    name: String,
}

impl Unsynced {
    /// The request.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// Syncs the file that was written to.
    pub fn sync(self, disk: &dyn Disk) -> IoDone {
        let Io { id, work, .. } = self.io;
        IoDone { id, work, result: disk.sync(&self.name).map(Some) }
    }
}

/// Executes the request up to the sync that ends a write. The simulator calls this to let other
/// things happen between the write and its sync, or to kill the process there.
pub fn begin(disk: &dyn Disk, mut io: Io) -> Begun {
    match perform(disk, &mut io.work) {
        Ok(Some(name)) => Begun::Unsynced(Unsynced { io, name }),
        Ok(None) => Begun::Done(IoDone { id: io.id, work: io.work, result: Ok(None) }),
        Err(error) => Begun::Done(IoDone { id: io.id, work: io.work, result: Err(error) }),
    }
}

/// Does all but the sync that ends a `Write` or a `Zero`; returns the file that needs it.
fn perform(disk: &dyn Disk, work: &mut IoWork) -> Result<Option<String>, DiskError> {
    let done = match work {
        IoWork::Create { file, bytes, keep_free } => create(disk, *file, *bytes, *keep_free),
        IoWork::Write { file, offset, buffer, sync } => {
            let name = file.to_string();
            disk.write_at(&name, *offset, buffer)?;
            return Ok(sync.then_some(name));
        }
        IoWork::Zero { file, offset, bytes, sync } => {
            let name = file.to_string();
            write_zeros(disk, &name, *offset, *bytes as usize)?;
            return Ok(sync.then_some(name));
        }
        IoWork::Grow { file, bytes } => {
            let name = file.to_string();
            disk.allocate(&name, *bytes, true)?;
            disk.sync(&name).map(drop)
        }
        IoWork::Sync { file } => disk.sync(&file.to_string()).map(drop),
        IoWork::Remove { file } => {
            match disk.remove(&file.to_string()) {
                Err(error) if error.errno != Errno::MISSING => return Err(error),
                _ => {}
            }
            disk.sync_dir()
        }
        IoWork::Read { file, offset, buffer } => disk.read_at(&file.to_string(), *offset, buffer),
    };
    done.map(|()| None)
}

/// Zeros to write. Kept, because a new buffer for each write costs more than the write itself: the
/// kernel hands out its pages one by one.
static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; 1 << 20]);

fn write_zeros(disk: &dyn Disk, name: &str, offset: u64, bytes: usize) -> Result<(), DiskError> {
    let mut done = 0;
    while done < bytes {
        let piece = &ZEROS[..ZEROS.len().min(bytes - done)];
        disk.write_at(name, offset + done as u64, piece)?;
        done += piece.len();
    }
    Ok(())
}

/// Creates a file with its blocks; an existing file only gets its blocks. A new file that could not
/// get them is removed, so that a full disk is not left with empty files.
fn create(disk: &dyn Disk, file: File, bytes: u64, keep_free: u64) -> Result<(), DiskError> {
    let name = file.to_string();
    let exists = match disk.list()?.iter().any(|entry| entry.name == name) {
        true => true,
        false if disk.free_bytes()? < bytes.saturating_add(keep_free) => {
            return Err(DiskError::new("create", &name, Errno::FULL));
        }
        false => disk.create(&name).map(|()| false)?,
    };
    let made = disk.allocate(&name, bytes, false).and_then(|()| disk.sync(&name));
    match made {
        Ok(_) => disk.sync_dir(),
        Err(error) => {
            if !exists {
                // The first error is the one to report. If the removal fails as well, the next
                // start finds the file.
                let _ = disk.remove(&name);
            }
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_if_exactly_what_it_takes_and_what_is_left_to_others_is_free() {
        let disk = world::sim::Disk::new(1);
        let (bytes, keep_free) = (64 << 10, 1 << 20);
        disk.set_room(bytes + keep_free - 1);
        let refused = create(&disk, File::Segment(1), bytes, keep_free);
        assert!(refused.is_err_and(|error| error.is_full()));
        disk.set_room(bytes + keep_free);
        assert!(create(&disk, File::Segment(1), bytes, keep_free).is_ok());
    }
}
