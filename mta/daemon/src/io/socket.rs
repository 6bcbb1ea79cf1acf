//! A connection to a client or a next hop, over TCP or a Unix socket.
//!
//! Must never hold a buffer: ten thousand idle connections need little memory.

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

/// A socket that accepts connections.
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

    /// Waits for the next connection. A client of a Unix socket has no address.
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

/// Returns the address of a client, as IPv4 if it is an IPv4 address mapped into IPv6.
pub fn canonical(client: SocketAddr) -> IpAddr {
    client.ip().to_canonical()
}

impl Socket {
    /// Reads what is available, or wakes the task when there is something. After a read that did not fill the buffer, the next
    /// call waits for the kernel to report more, which saves a system call.
    pub fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        let mut into = ReadBuf::new(into);
        let read = match self {
            Socket::Tcp(socket) => Pin::new(socket).poll_read(context, &mut into),
            Socket::Unix(socket) => Pin::new(socket).poll_read(context, &mut into),
        };
        read.map_ok(|()| into.filled().len())
    }

    /// Writes what the socket accepts at once, even before the runtime knows its readiness. `last` means that the socket is
    /// closed next, so that the bytes may go out together with the end.
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

    /// Does the same, or wakes the task when the socket accepts more.
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

    /// Writes what the socket accepts at once, as far as the runtime knows its readiness.
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

    /// Closes the connection for writing.
    pub fn shut(&self) {
        let how = rustix::net::Shutdown::Write;
        let _ = match self {
            Socket::Tcp(socket) => rustix::net::shutdown(socket, how),
            Socket::Unix(socket) => rustix::net::shutdown(socket, how),
        };
    }
}
