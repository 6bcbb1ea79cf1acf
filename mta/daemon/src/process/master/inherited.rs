//! Listening sockets that the service manager passes to us (sd_listen_fds(3)). The manager keeps the ports open, so a
//! restart refuses no connection.
//!
//! Must never use a descriptor that was meant for another process.

use rustix::fs::OFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SocketAddrAny, getsockname};
use settings::ListenAddress;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The first descriptor that is passed.
const FIRST_FD: i32 = 3;
/// Upper bound on the descriptors that are used.
const SOCKETS_MAX: i32 = 64;

/// Takes over the sockets that the environment names. Must be called before anything else is opened.
pub fn take() {
    let _ = sockets();
}

/// Returns the socket for this address.
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

/// Takes ownership of a descriptor and closes it on exec, so that our children do not have it.
fn own(fd: i32) -> Option<OwnedFd> {
    // SAFETY: LISTEN_PID says that these descriptors are ours, and `take` is called before anything else in this process
    // could have opened one. A number that is not open fails below.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let made = fcntl_setfd(&fd, FdFlags::CLOEXEC).and_then(|()| {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
    });
    match made {
        Ok(()) => {
            // This fails for a Unix socket, which does not need it.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
            Some(fd)
        }
        Err(_) => {
            // The number is not open, so there is nothing to close.
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
