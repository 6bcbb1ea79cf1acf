//! Opens a spool: takes the lock, checks the version, recovers, and returns the machine.
//!
//! Must never change anything before the lock is held and the version is known.

use crate::format::{LOCK, MARKER, marker, marker_version};
use crate::recover;
use crate::{File, OpenError, OpenReport, Replay, Settings, Spool};
use world::{Disk, Errno};

/// Upper bound on the bytes of a marker, which is one line.
const MARKER_BYTES_MAX: u64 = 64;

/// Takes the lock, recovers what the directory holds, and tells it to `replay`.
///
/// `secret` makes the nonces of this process and must be drawn at random. All reading happens before
/// this returns; what must be written comes out of the spool's first polls.
pub fn open(
    disk: &dyn Disk,
    settings: Settings,
    secret: u64,
    replay: &mut dyn FnMut(Replay<'_>),
) -> Result<(Spool, OpenReport), OpenError> {
    if let Some(problem) = settings.problem() {
        return Err(OpenError::Settings(problem));
    }
    match disk.lock(LOCK) {
        Err(error) if error.errno == Errno::LOCKED => return Err(OpenError::Locked),
        result => result?,
    }
    let created = check_marker(disk, settings.create)?;
    let mut loaded = recover::load(disk, settings.segment_bytes, true, replay)?;
    loaded.report.created = created;
    let report = loaded.report.clone();
    Ok((Spool::resume(loaded, settings, secret), report))
}

/// Checks the version of the directory, or makes a new spool; returns whether it was made.
fn check_marker(disk: &dyn Disk, may_create: bool) -> Result<bool, OpenError> {
    let entries = disk.list()?;
    let marked = entries.iter().find(|entry| entry.name == MARKER);
    if let Some(text) = marked.and_then(|entry| read_marker(disk, entry.bytes)) {
        return match marker_version(&text) {
            Some(version) if version > crate::format::VERSION => Err(OpenError::Newer(version)),
            // The process that wrote the marker may have been killed before it was synced, and
            // without a durable marker everything that follows would be useless.
            Some(_) => settle_marker(disk).map(|()| false),
            None => Err(OpenError::NoMarker),
        };
    }
    if entries.iter().any(|entry| File::parse(&entry.name).is_some()) {
        return Err(OpenError::NoMarker);
    }
    if !may_create {
        return Err(OpenError::Missing);
    }
    if marked.is_some() {
        // The file holds zeros, perhaps more of them than a marker has bytes. A marker written over
        // them could not be read.
        disk.remove(MARKER)?;
    }
    write_marker(disk)?;
    Ok(true)
}

/// Reads the marker. `None` also if it is empty, because the power went out while it was written.
pub(crate) fn read_marker(disk: &dyn Disk, bytes: u64) -> Option<Vec<u8>> {
    let mut text = vec![0; bytes.min(MARKER_BYTES_MAX) as usize];
    disk.read_at(MARKER, 0, &mut text).ok()?;
    let written = text.iter().any(|byte| *byte != 0);
    written.then_some(text)
}

fn write_marker(disk: &dyn Disk) -> Result<(), OpenError> {
    match disk.create(MARKER) {
        Err(error) if error.errno != Errno::EXISTS => return Err(error.into()),
        _ => {}
    }
    disk.write_at(MARKER, 0, marker().as_bytes())?;
    settle_marker(disk)
}

fn settle_marker(disk: &dyn Disk) -> Result<(), OpenError> {
    disk.sync(MARKER)?;
    Ok(disk.sync_dir()?)
}
