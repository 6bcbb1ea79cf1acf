//! What the spool asks of the disk, as values, and the one function that does it.
//!
//! Must never decide anything, nor try again what failed.

use std::fmt;
use std::sync::LazyLock;
use world::{Disk, DiskError, Errno};

/// A file of the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum File {
    /// A segment of the log or for bulk, by its slot.
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
    /// The file of this name, if it is one of ours.
    pub fn parse(name: &str) -> Option<File> {
        let file = match name.split_once('-')? {
            ("segment", slot) => File::Segment(slot.parse().ok()?),
            ("snapshot", which) => File::Snapshot(which.parse().ok().filter(|w| *w < 2)?),
            _ => return None,
        };
        (file.to_string() == name).then_some(file)
    }
}

/// Where a driver may run an [`Io`]. Within a class several may be under way at once, except in
/// `Background`, where there is one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody waits for a `250`: first, each on a thread with descriptors of its own.
    Commit,
    /// Large bodies: must not stand before commits.
    Bulk,
    /// Zeroing, snapshots, copying: whenever there is time.
    Background,
}

/// One thing to be done to the disk.
#[derive(Debug)]
#[must_use]
pub struct Io {
    /// Names it in [`IoDone`].
    pub id: u64,
    /// Where it may run.
    pub class: Class,
    /// What it is.
    pub work: Work,
}

/// The kinds of things that can be done.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are what the sentences above them say
pub enum Work {
    /// Makes the file, unless less than `keep_free` would be left, and gives it blocks for
    /// `bytes`; syncs file and directory. One that exists only gets its blocks.
    Create { file: File, bytes: u64, keep_free: u64 },
    /// Writes the buffer; then, with `sync`, syncs. A commit is exactly this, in one hop.
    Write { file: File, offset: u64, buffer: Vec<u8>, sync: bool },
    /// Writes zeros; then, with `sync`, syncs.
    Zero { file: File, offset: u64, bytes: u32, sync: bool },
    /// Extends the file to `bytes` by allocated blocks, and syncs.
    Grow { file: File, bytes: u64 },
    /// Syncs.
    Sync { file: File },
    /// Removes the file and syncs the directory.
    Remove { file: File },
    /// Fills the buffer, whose length says how much.
    Read { file: File, offset: u64, buffer: Vec<u8> },
}

/// What came of an [`Io`]; buffers come back in `work`.
#[derive(Debug)]
pub struct IoDone {
    /// As in the [`Io`].
    pub id: u64,
    /// As in the [`Io`]; a `Read`'s buffer is filled.
    pub work: Work,
    /// Whether all of it was done.
    pub result: Result<(), DiskError>,
}

/// Does it. The daemon's threads and the simulator call this alike.
pub fn execute(disk: &dyn Disk, io: Io) -> IoDone {
    let Io { id, mut work, .. } = io;
    let result = perform(disk, &mut work);
    IoDone { id, work, result }
}

fn perform(disk: &dyn Disk, work: &mut Work) -> Result<(), DiskError> {
    match work {
        Work::Create { file, bytes, keep_free } => create(disk, *file, *bytes, *keep_free),
        Work::Write { file, offset, buffer, sync } => {
            let name = file.to_string();
            disk.write_at(&name, *offset, buffer)?;
            if *sync { disk.sync(&name) } else { Ok(()) }
        }
        Work::Zero { file, offset, bytes, sync } => {
            let name = file.to_string();
            write_zeros(disk, &name, *offset, *bytes as usize)?;
            if *sync { disk.sync(&name) } else { Ok(()) }
        }
        Work::Grow { file, bytes } => {
            let name = file.to_string();
            disk.allocate(&name, *bytes, true)?;
            disk.sync(&name)
        }
        Work::Sync { file } => disk.sync(&file.to_string()),
        Work::Remove { file } => {
            match disk.remove(&file.to_string()) {
                Err(error) if error.errno != Errno::MISSING => return Err(error),
                _ => {}
            }
            disk.sync_dir()
        }
        Work::Read { file, offset, buffer } => disk.read_at(&file.to_string(), *offset, buffer),
    }
}

/// Kept, because a new buffer of zeros for each write costs more than the write: its pages come one by one.
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

/// A new file that could not get its blocks is taken away again, so that a full disk is not left
/// with empty names. An existing one only gets its blocks.
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
        Ok(()) => disk.sync_dir(),
        Err(error) => {
            if !exists {
                // The first error is the one that counts; a name left behind is found at the
                // next start.
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
