//! The spool's directory: checks that it is ours and that its file system is mounted (S135, S145).
//!
//! Must never make a new spool if there was one before, nor use one that others may write to.

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file in the state directory that says that a spool has been made.
const NOTE: &str = "spool-was-made";
const NOTE_TEXT: &str = "A spool was made in the directory `spool` beside this file. While this file is here, a start\n\
     without that spool is refused, because its file system may not be mounted. Remove this\n\
     file to begin with an empty queue.\n";
/// The file in each spool that says which version it has.
const MARKER: &str = "format";

/// Opens the spool's directory below `state`. Makes it if there has never been one.
pub fn open(state: &Path, owner: Option<(u32, u32)>) -> Result<OwnedFd> {
    let path = state.join("spool");
    let shown = path.display();
    let noted = state.join(NOTE).exists();
    let missing = |what: &str| {
        let note = state.join(NOTE);
        anyhow!(
            "the spool {shown} is {what}, but there was one before: is its file system not mounted? \
             To begin with an empty queue, remove {}",
            note.display()
        )
    };
    let made = match std::fs::symlink_metadata(&path) {
        Ok(found) => {
            // Checked before it is opened, because this error explains a wrong mode better.
            if found.is_dir() {
                check(&found, &path, owner)?;
            }
            false
        }
        Err(_) if noted => return Err(missing("missing")),
        Err(_) => {
            std::fs::create_dir(&path).with_context(|| format!("cannot make {shown}"))?;
            true
        }
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let spool = rustix::fs::open(&path, flags, Mode::empty())
        .with_context(|| format!("cannot use the spool {shown}: it must be a directory of ours"))?;
    if made {
        rustix::fs::fchmod(&spool, Mode::from_raw_mode(0o700))?;
        if let Some((uid, gid)) = owner {
            rustix::fs::fchown(&spool, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
    }
    let marked = rustix::fs::statat(&spool, MARKER, AtFlags::SYMLINK_NOFOLLOW);
    if noted && marked.is_err_and(|error| error == Errno::NOENT) {
        return Err(missing("empty"));
    }
    Ok(spool)
}

fn check(found: &Metadata, path: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    let ours = owner.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid);
    let (shown, theirs, mode) = (path.display(), found.uid(), found.mode() & 0o777);
    if theirs != ours {
        bail!(
            "the spool {shown} belongs to user {theirs}, but the queue runs as user {ours}: if it is \
             the right one, chown -R {ours} {shown}"
        );
    }
    if mode & 0o700 != 0o700 || mode & 0o022 != 0 {
        bail!(
            "the spool {shown} has mode {mode:03o}: its owner must have all rights there, and nobody \
             else may write: chmod 700 {shown}"
        );
    }
    Ok(())
}

/// Notes that a queue has been opened in the spool. If the note cannot be written, only a later warning is lost.
pub fn note(state: &Path) {
    let _ = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(state.join(NOTE))
        .and_then(|mut file| std::io::Write::write_all(&mut file, NOTE_TEXT.as_bytes()));
}
