//! Signals as a descriptor, which master reads in its loop. No code runs in a signal handler.
//!
//! Must never be opened by a process that has more than one thread.

use std::io::{Error, Result};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals that master handles.
const SIGNALS: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD];

/// The descriptor, a signalfd.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals and opens the descriptor. `std::process::Command` unblocks them in children.
    pub fn open() -> Result<Signals> {
        // SAFETY: the set is initialized by sigemptyset before it is used, the calls only read
        // and write it, and the new descriptor is owned by nobody else.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut set);
            for signal in SIGNALS {
                libc::sigaddset(&mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(Error::last_os_error());
            }
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(Error::last_os_error()),
                fd => Ok(Signals(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// Returns the next pending signal.
    pub fn next(&self) -> Option<i32> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            Ok(length) if length == info.len() => {
                Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]]))
            }
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_from_the_descriptor() {
        // In a child process, so that the signal mask of the test's threads does not change.
        // SAFETY: the child calls only async-signal-safe functions and _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let good = Signals::open().is_ok_and(|signals| {
                // SAFETY: sends a blocked signal to ourselves.
                unsafe { libc::kill(libc::getpid(), libc::SIGHUP) };
                signals.next() == Some(libc::SIGHUP) && signals.next().is_none()
            });
            // SAFETY: ends the child without running the test harness again.
            unsafe { libc::_exit(if good { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0);
    }
}
