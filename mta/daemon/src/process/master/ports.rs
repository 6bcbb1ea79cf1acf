//! The listening sockets: bound by master, opened when queue is ready, and kept for ever.
//!
//! Must never accept a connection: receive does.

use crate::jail;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use settings::{Listen, ListenAddress};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long master tries to bind a port. The children of a master that was killed hold its ports a moment longer.
const PORT_WAIT: Duration = Duration::from_secs(1);
/// The time between two tries.
const PORT_REST: Duration = Duration::from_millis(10);
/// Connections that may wait to be accepted. The kernel lowers this to its own bound (`net.core.somaxconn`).
const BACKLOG: i32 = 65_535;

/// Why an address cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The address could not be bound.
    #[error("cannot listen at {address}: {advice}")]
    Bind {
        /// The address as in the settings.
        address: String,
        /// The cause, and what to do.
        advice: String,
        /// True if another process uses the address.
        in_use: bool,
    },
    /// The settings name a group that the system does not have.
    #[error("there is no group `{0}`, which a [[listen]] names; `getent group` lists the groups")]
    NoGroup(Box<str>),
    /// The path of a Unix socket holds something else.
    #[error("cannot listen at {0}: this path is not a socket; remove it or choose another path")]
    NotASocket(PathBuf),
}

/// Binds an address of the settings without listening yet, or takes the socket that the service manager passed for it.
pub fn bind_at(listen: &Listen) -> Result<OwnedFd, PortError> {
    if let Some(socket) = super::inherited::at(&listen.address) {
        return Ok(socket);
    }
    match &listen.address {
        ListenAddress::Tcp(address) => tcp(*address).map_err(|error| PortError::Bind {
            address: address.to_string(),
            advice: advice(error, address.port()),
            in_use: error == Errno::ADDRINUSE,
        }),
        ListenAddress::Unix(path) => {
            // Without permissions, so that nobody can connect before the socket has its group.
            let socket = unix(path, Mode::empty())?;
            permit(listen)?;
            Ok(socket)
        }
    }
}

/// Gives our Unix socket the group and the mode of the settings.
pub fn permit(listen: &Listen) -> Result<(), PortError> {
    let ListenAddress::Unix(path) = &listen.address else { return Ok(()) };
    let failed = |advice: String| unix_failed(path, advice);
    let socket = socket_at(path)?;
    if let Some(group) = group_of(listen)? {
        let gid = Some(Gid::from_raw(group));
        rustix::fs::chownat(&socket, "", None, gid, AtFlags::EMPTY_PATH)
            .map_err(|error| failed(format!("it cannot be of group {group}: {error}")))?;
    }
    let mode = Mode::from_raw_mode(listen.mode.0);
    set_mode(&socket, mode).map_err(|error| failed(error.to_string()))
}

/// Opens the socket at this path. Group and mode are set through the descriptor, so that nobody who may write to the
/// directory can replace the socket by a link to another file between two of our calls.
fn socket_at(path: &Path) -> Result<OwnedFd, PortError> {
    let failed = |error: Errno| unix_failed(path, error.to_string());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let found = rustix::fs::fstat(&socket).map_err(failed)?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    is_socket.then_some(socket).ok_or_else(|| PortError::NotASocket(path.to_owned()))
}

fn unix_failed(path: &Path, advice: String) -> PortError {
    PortError::Bind { address: format!("unix:{}", path.display()), advice, in_use: false }
}

/// Sets the mode through `/proc`. chmod(2) would follow links, and fchmod(2) refuses a descriptor that was opened with
/// `O_PATH`.
fn set_mode(socket: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", socket.as_raw_fd()), mode)
}

/// Returns the number of the group in the settings.
pub fn group_of(listen: &Listen) -> Result<Option<u32>, PortError> {
    let Some(group) = &listen.group else { return Ok(None) };
    let name = &group.value;
    group_number(name).map(Some).ok_or_else(|| PortError::NoGroup(name.clone()))
}

/// Returns whether this is the name of a group of the system, or a number.
pub fn is_group(name: &str) -> bool {
    group_number(name).is_some()
}

fn group_number(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| jail::group(name))
}

/// Binds an address like [`bind_at`] and waits while it is in use: the children of a former master may still be exiting.
pub fn bind_patiently(listen: &Listen) -> Result<OwnedFd, PortError> {
    let until = Instant::now() + PORT_WAIT;
    loop {
        match bind_at(listen) {
            Err(PortError::Bind { in_use: true, .. }) if Instant::now() < until => {
                std::thread::sleep(PORT_REST);
            }
            other => return other,
        }
    }
}

/// Starts to listen.
pub fn open(socket: &OwnedFd) -> std::io::Result<()> {
    Ok(listen(socket, BACKLOG)?)
}

fn advice(error: Errno, port: u16) -> String {
    match error {
        Errno::ADDRINUSE => format!(
            "port {port} is in use; `ss -ltnp sport = :{port}` shows which process uses it; choose another in [[listen]] address"
        ),
        Errno::ACCESS => format!(
            "port {port} is below 1024: start as root or with CAP_NET_BIND_SERVICE, or choose a higher one in [[listen]] address"
        ),
        Errno::ADDRNOTAVAIL => "no interface of this machine has this address".to_owned(),
        other => other.to_string(),
    }
}

fn tcp(address: SocketAddr) -> Result<OwnedFd, Errno> {
    // An IPv4-mapped IPv6 address means the IPv4 address.
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    // Connections inherit this. Without it, a reply could wait for the acknowledgement of the previous one.
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// Binds a Unix socket. Replaces a socket that an earlier incarnation left behind.
pub fn unix(path: &Path, mode: Mode) -> Result<OwnedFd, PortError> {
    use std::os::unix::fs::FileTypeExt;
    let failed = |error: Errno| unix_failed(path, error.to_string());
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(PortError::NotASocket(path.to_owned()));
        }
        Ok(_) => rustix::fs::unlink(path).map_err(failed)?,
        Err(_) => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    bind(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
    set_mode(&socket_at(path)?, mode).map_err(failed)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Placed, SettingOrigin, SocketMode, System};

    fn placed(name: &str) -> Placed<Box<str>> {
        Placed { value: name.into(), origin: SettingOrigin::default() }
    }

    fn at(address: ListenAddress) -> Listen {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        let mut settings = settings::load(b"", "f", &system).unwrap();
        Listen { address, ..settings.listen.remove(0) }
    }

    #[test]
    fn r221_a_unix_socket_has_the_mode_and_group_of_the_settings() {
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("mail");
        let mut listen = at(ListenAddress::Unix(path.clone()));
        let _socket = bind_at(&listen).unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o660);
        let own = rustix::process::getegid().as_raw();
        let group = if rustix::process::geteuid().is_root() { 61_010 } else { own };
        listen.mode = SocketMode(0o606);
        listen.group = Some(placed(&group.to_string()));
        permit(&listen).unwrap();
        assert_eq!((mode(), std::fs::metadata(&path).unwrap().gid()), (0o606, group));
        listen.group = Some(placed("root"));
        assert_eq!(group_of(&listen).unwrap(), Some(0));
        listen.group = Some(placed("no such group"));
        let error = permit(&listen).unwrap_err().to_string();
        assert!(error.contains("no group `no such group`"), "{error}");
    }

    #[test]
    fn r221_permissions_are_given_to_a_socket_and_never_to_what_a_link_names() {
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().unwrap();
        let (path, secret) = (place.path().join("mail"), place.path().join("secret"));
        std::fs::write(&secret, "precious").unwrap();
        rustix::fs::chmod(&secret, Mode::RUSR).unwrap();
        let listen = at(ListenAddress::Unix(path.clone()));
        let _socket = bind_at(&listen).unwrap();
        // At a reload, the owner of the directory may have replaced the socket.
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(matches!(permit(&listen), Err(PortError::NotASocket(_))));
        assert_eq!(std::fs::metadata(&secret).unwrap().mode() & 0o777, 0o400);
    }

    #[test]
    fn n106_a_port_in_use_is_said_with_the_setting_that_chooses_another() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ListenAddress::Tcp(taken.local_addr().unwrap());
        let error = bind_at(&at(address)).unwrap_err().to_string();
        assert!(error.contains("is in use") && error.contains("[[listen]]"), "{error}");
    }

    #[test]
    fn a_file_in_the_place_of_a_socket_is_not_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("mail");
        std::fs::write(&path, "precious").unwrap();
        let error = bind_at(&at(ListenAddress::Unix(path.clone()))).unwrap_err();
        assert!(matches!(error, PortError::NotASocket(_)));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_socket_that_an_earlier_incarnation_left_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let address = at(ListenAddress::Unix(place.path().join("mail")));
        drop(bind_at(&address).unwrap());
        open(&bind_at(&address).unwrap()).unwrap();
    }
}
