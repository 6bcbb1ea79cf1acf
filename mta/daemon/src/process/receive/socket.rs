//! A client's connection, over TCP or a Unix socket.
//!
//! Must never hold a buffer while nothing is read: ten thousand idle clients cost next to nothing.

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A connection.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

/// Where connections come from.
#[derive(Debug)]
pub enum ListeningSocket {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl ListeningSocket {
    /// Takes over a listening, non-blocking descriptor.
    pub fn new(fd: OwnedFd, unix: bool) -> Result<ListeningSocket> {
        if unix {
            return Ok(ListeningSocket::Unix(UnixListener::from_std(fd.into())?));
        }
        Ok(ListeningSocket::Tcp(TcpListener::from_std(fd.into())?))
    }

    /// The next connection, and its client's address where it has one.
    pub async fn accept(&self) -> Result<(Socket, Option<SocketAddr>)> {
        match self {
            ListeningSocket::Tcp(listener) => {
                let (socket, client) = listener.accept().await?;
                Ok((Socket::Tcp(socket), Some(client)))
            }
            ListeningSocket::Unix(listener) => {
                let (socket, _) = listener.accept().await?;
                Ok((Socket::Unix(socket), None))
            }
        }
    }
}

/// IPv4 addresses mapped into IPv6 are the IPv4 addresses they stand for.
pub fn canonical(client: SocketAddr) -> IpAddr {
    client.ip().to_canonical()
}

impl Socket {
    /// Reads what is there, or has the task woken when something is. A read that did not fill
    /// the buffer counts as the last one: the kernel tells of more, and is not asked for nothing.
    pub fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        let mut into = ReadBuf::new(into);
        let read = match self {
            Socket::Tcp(socket) => Pin::new(socket).poll_read(context, &mut into),
            Socket::Unix(socket) => Pin::new(socket).poll_read(context, &mut into),
        };
        read.map_ok(|()| into.filled().len())
    }

    /// Writes what goes at once, also before the runtime has looked at the socket. `last`: the
    /// socket is closed next, and what is written may go out together with its end.
    pub fn send(&self, from: &[u8], last: bool) -> Result<usize> {
        let more = if last { SendFlags::MORE } else { SendFlags::empty() };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | more;
        let sent = match self {
            Socket::Tcp(socket) => send(socket, from, flags),
            Socket::Unix(socket) => send(socket, from, flags),
        };
        match sent {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Writes what goes at once, or has the task woken when something goes. `last` is as in [`Socket::send`].
    pub fn poll_send(
        &self,
        context: &mut Context<'_>,
        from: &[u8],
        last: bool,
    ) -> Poll<Result<usize>> {
        match self.send(from, last) {
            Ok(0) => {}
            sent => return Poll::Ready(sent),
        }
        loop {
            ready!(self.poll_writable(context))?;
            match self.try_write(from) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Writes what goes at once.
    pub fn try_write(&self, from: &[u8]) -> Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.try_write(from),
            Socket::Unix(socket) => socket.try_write(from),
        }
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Socket::Tcp(socket) => socket.poll_write_ready(context),
            Socket::Unix(socket) => socket.poll_write_ready(context),
        }
    }

    /// Says that nothing more will be written.
    pub fn shut(&self) {
        let how = rustix::net::Shutdown::Write;
        let _ = match self {
            Socket::Tcp(socket) => rustix::net::shutdown(socket, how),
            Socket::Unix(socket) => rustix::net::shutdown(socket, how),
        };
    }
}
