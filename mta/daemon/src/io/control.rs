//! The control socket between master and a child: each datagram is one message with at most one descriptor.
//!
//! Must never block for longer than the caller allows: master serves all children in one thread.

use link::control::CONTROL_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// One end of a control socket.
#[derive(Debug)]
pub struct Control(OwnedFd);

/// What was received.
#[derive(Debug)]
pub enum Received<M> {
    /// A message and its descriptor.
    Message(M, Option<OwnedFd>),
    /// Nothing yet. Only a non-blocking end returns this.
    Nothing,
    /// The other end is closed.
    End,
}

impl Control {
    /// Makes a socket with two ends, both blocking.
    pub fn pair() -> Result<(Control, Control)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Control(one), Control(other)))
    }

    /// Wraps an end that was inherited.
    pub fn from_fd(fd: OwnedFd) -> Control {
        Control(fd)
    }

    /// Returns the descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Makes the end non-blocking.
    pub fn set_nonblocking(&self) -> Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.0, true)?)
    }

    /// Sends one message.
    pub fn send<M: Serialize>(&self, message: &M, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        let bytes = postcard::to_stdvec(message).expect("our own messages always encode");
        debug_assert!(bytes.len() <= CONTROL_BYTES_MAX);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::NOBUFS.into());
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return other.map(drop).map_err(Into::into),
            }
        }
    }

    /// Sends one message, and waits for room until `by`. The process at the other end may not have started to read.
    pub fn send_by<M: Serialize>(
        &self,
        message: &M,
        fd: Option<BorrowedFd<'_>>,
        by: Instant,
    ) -> Result<()> {
        loop {
            match self.send(message, fd) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let wait = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives one message.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<Received<M>> {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            let mut iov = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut iov, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Received::End),
                other => break other?.bytes,
            }
        };
        if length == 0 {
            return Ok(Received::End);
        }
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let message = postcard::from_bytes(&bytes[..length])
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
        Ok(Received::Message(message, fd))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Control {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

/// Makes a stream between two of our processes.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    for end in [&pair.0, &pair.1] {
        rustix::net::sockopt::set_socket_send_buffer_size(end, STREAM_BUFFER_BYTES)?;
    }
    Ok(pair)
}

/// Size in bytes of the kernel's buffer of a stream between our processes. A group of small messages fits in one write.
const STREAM_BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use link::control::{FromMaster, Purpose, Role};

    #[test]
    fn a_message_crosses_with_its_descriptor_and_the_end_is_seen() {
        let (master, child) = Control::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let said = FromMaster::Directory { purpose: Purpose::Spool };
        master.send(&said, Some(file.as_fd())).unwrap();
        let peer = FromMaster::Peer { role: Role::Queue, instance: 3, stream: 1 };
        master.send(&peer, None).unwrap();
        let Ok(Received::Message(heard, Some(_))) = child.receive::<FromMaster>() else { panic!() };
        assert_eq!(heard, said);
        assert!(matches!(
            child.receive::<FromMaster>().unwrap(),
            Received::Message(FromMaster::Peer { .. }, None)
        ));
        drop(master);
        assert!(matches!(child.receive::<FromMaster>().unwrap(), Received::End));
    }

    #[test]
    fn who_waits_for_room_sends_more_than_a_socket_holds_and_gives_up_at_its_time() {
        use std::time::Duration;
        const MESSAGES: usize = 1_000;
        let (master, child) = Control::pair().unwrap();
        master.set_nonblocking().unwrap();
        let begin = FromMaster::Begin;
        let held = (0..MESSAGES).take_while(|_| master.send(&begin, None).is_ok()).count();
        assert!(held < MESSAGES, "the socket is full");
        let late = master.send_by(&begin, None, Instant::now()).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let listener = std::thread::spawn(move || {
            let message = || matches!(child.receive(), Ok(Received::Message(FromMaster::Begin, _)));
            (0..).take_while(|_| message()).count()
        });
        let by = Instant::now() + Duration::from_secs(60);
        for _ in held..MESSAGES {
            master.send_by(&begin, None, by).unwrap();
        }
        drop(master);
        assert_eq!(listener.join().unwrap(), MESSAGES);
    }
}
