//! Addresses on the command line, and the sockets behind them: TCP or Unix.
//!
//! Must never know what is said over them.

use anyhow::{Context, Result};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{self, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// Length of the accept queue.
const BACKLOG: u32 = 4096;

/// Connections will come from this address; the port is left to `connect`. A port chosen by `bind` is taken for connections
/// from every other address, too, and for a minute after its end: three times ten thousand, and nobody has one left.
pub fn come_from(socket: &TcpSocket, address: IpAddr) -> std::io::Result<()> {
    let yes: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option is an int that lives as long as the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(std::io::Error::last_os_error());
    }
    socket.bind(SocketAddr::new(address, 0))
}

/// `host:port`, `[v6]:port` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// One connection of either kind.
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// A socket that takes connections of either kind.
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a Unix socket.
    Unix(UnixListener),
}

impl FromStr for Place {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Place> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Place::Unix(path.into()));
        }
        let text = text.replace("localhost:", "127.0.0.1:");
        Ok(Place::Tcp(text.parse().with_context(|| format!("{text}: not ADDRESS:PORT"))?))
    }
}

impl Place {
    /// Opens the port. With `shared`, several threads may each open the same one.
    pub fn listen(&self, shared: bool) -> Result<Listener> {
        match self {
            Place::Unix(path) => {
                let _ = std::fs::remove_file(path); // one that an earlier sink left behind
                Ok(Listener::Unix(UnixListener::bind(path)?))
            }
            Place::Tcp(address) => {
                let socket = new_socket(address)?;
                socket.set_reuseaddr(true)?;
                socket.set_reuseport(shared)?;
                socket.set_nodelay(true)?; // what it accepts inherits this
                socket.bind(*address).with_context(|| format!("{address}"))?;
                Ok(Listener::Tcp(socket.listen(BACKLOG)?))
            }
        }
    }

    /// Connects, from the given address of this machine if there is one.
    pub async fn connect(&self, from: Option<IpAddr>) -> std::io::Result<Stream> {
        match self {
            Place::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
            Place::Tcp(address) => {
                let socket = new_socket(address)?;
                if let Some(from) = from {
                    come_from(&socket, from)?;
                }
                let stream = socket.connect(*address).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

/// Raises the limit of descriptors to its maximum: many sessions need more than the default.
pub fn allow_many_sockets() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit); // what is refused shows where a socket cannot be had
}

fn new_socket(address: &SocketAddr) -> std::io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

impl Listener {
    /// Accepts the next connection.
    pub async fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Listener::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
            Listener::Tcp(listener) => Ok(Stream::Tcp(listener.accept().await?.0)),
        }
    }

    /// Returns the address, with the port that the kernel chose for 0.
    pub fn place(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "?".into(), |address| address.to_string())
            }
            Listener::Unix(_) => "a Unix socket".into(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
