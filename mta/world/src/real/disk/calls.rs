//! System calls that are repeated after an interruption or a short write, and their errors.
//!
//! Must never repeat a sync that has failed.

use crate::{DiskError, Errno};
use rustix::fs::{self, AtFlags};
use rustix::io::Errno as Os;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the file has a name in some directory. Asks for nothing else: after a file's times were
/// read, Linux 6.13 and later update them at the next write, and each commit would then add them to
/// the journal.
pub(super) fn has_name(fd: &OwnedFd) -> Result<bool, Os> {
    match fs::statx(fd, c"", AtFlags::EMPTY_PATH, fs::StatxFlags::NLINK) {
        Ok(stat) => Ok(stat.stx_nlink > 0),
        // Linux before 4.11, and containers that forbid unknown system calls.
        Err(Os::NOSYS | Os::PERM) => Ok(fs::fstat(fd)?.st_nlink > 0),
        Err(os) => Err(os),
    }
}

/// Writes everything, in the pieces that the kernel accepts. A write of nothing counts as EIO, because
/// it would repeat forever.
pub(super) fn write_whole(
    from: &[u8],
    offset: u64,
    mut write: impl FnMut(&[u8], u64) -> Result<usize, Os>,
) -> Result<(), Os> {
    let mut done = 0;
    while done < from.len() {
        match write(&from[done..], offset + done as u64) {
            Ok(0) => return Err(Os::IO),
            Ok(bytes) => done += bytes,
            Err(Os::INTR) => {}
            Err(os) => return Err(os),
        }
    }
    Ok(())
}

/// Calls again while a signal interrupts. A sync that was interrupted has reported no failure.
pub(super) fn retried<T>(mut call: impl FnMut() -> Result<T, Os>) -> Result<T, Os> {
    loop {
        match call() {
            Err(Os::INTR) => {}
            other => return other,
        }
    }
}

pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn error(call: &'static str, name: &str, os: Os) -> DiskError {
    DiskError::new(call, name, Errno(os.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s126_short_and_interrupted_writes_are_carried_on_where_they_stopped() {
        let (mut file, mut calls) = (vec![0u8; 10], 0);
        write_whole(b"0123456789", 0, |bytes, at| {
            calls += 1;
            if calls % 2 == 0 {
                return Err(Os::INTR);
            }
            file[at as usize] = bytes[0];
            Ok(1)
        })
        .unwrap();
        assert_eq!(file, b"0123456789");
        assert_eq!(write_whole(b"x", 0, |_, _| Ok(0)), Err(Os::IO));
        assert_eq!(write_whole(b"x", 0, |_, _| Err(Os::NOSPC)), Err(Os::NOSPC));
    }
}
