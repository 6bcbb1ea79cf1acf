//! Listening sockets that whoever started us holds (sd_listen_fds(3)): with them a restart refuses
//! no connection, for the port is never closed.
//!
//! Must never take a descriptor that was meant for another process.

use crate::settings::ListenAddress;
use rustix::fs::OFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SocketAddrAny, getsockname};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The first of them.
const FIRST_FD: i32 = 3;
/// More are not looked at.
const SOCKETS_MAX: i32 = 64;

/// Takes over what the environment names. To be called before anything else is opened.
pub fn take() {
    let _ = sockets();
}

/// The one for this address.
pub fn at(address: &ListenAddress) -> Option<OwnedFd> {
    let found = sockets().iter().find(|socket| is_at(socket, address))?;
    found.as_fd().try_clone_to_owned().ok()
}

fn sockets() -> &'static [OwnedFd] {
    static SOCKETS: OnceLock<Vec<OwnedFd>> = OnceLock::new();
    SOCKETS.get_or_init(|| {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
        if number("LISTEN_PID") != i32::try_from(std::process::id()).ok() {
            return Vec::new();
        }
        let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, SOCKETS_MAX);
        (FIRST_FD..FIRST_FD + count).filter_map(own).collect()
    })
}

/// Ours from now on, not our children's.
fn own(fd: i32) -> Option<OwnedFd> {
    // SAFETY: LISTEN_PID says that these descriptors are ours to own, and `take` is called before
    // anything else in this process could have opened one. A number that is not open fails below.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let made = fcntl_setfd(&fd, FdFlags::CLOEXEC).and_then(|()| {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
    });
    match made {
        Ok(()) => {
            // Not every socket is of TCP.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
            Some(fd)
        }
        Err(_) => {
            // It is not open: there is nothing to close.
            let _ = std::os::fd::IntoRawFd::into_raw_fd(fd);
            None
        }
    }
}

fn is_at(socket: &OwnedFd, address: &ListenAddress) -> bool {
    let Ok(name) = getsockname(socket) else { return false };
    match address {
        ListenAddress::Tcp(wanted) => {
            std::net::SocketAddr::try_from(name).is_ok_and(|name| name == *wanted)
        }
        ListenAddress::Unix(path) => {
            let name: Result<rustix::net::SocketAddrUnix, _> = SocketAddrAny::try_into(name);
            name.is_ok_and(|name| {
                use std::os::unix::ffi::OsStrExt;
                name.path_bytes() == Some(path.as_os_str().as_bytes())
            })
        }
    }
}
