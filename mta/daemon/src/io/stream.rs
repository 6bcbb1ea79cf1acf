//! A stream socket between two of our processes, under tokio. Reads many bytes at once, and writes all pending frames in
//! one call.
//!
//! Must never hold a `RefCell` borrow across an await.

use bytes::{Buf, Bytes, BytesMut};
use link::LinkError;
use link::streams::Loss;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Result};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Upper bound on bytes read from a stream that can no longer be written. It is more than a socket holds, so everything
/// that a process sent before it ended is read.
pub const REST_BYTES_MAX: usize = 4 << 20;
/// Upper bound on frames written at once.
const WRITE_FRAMES_MAX: usize = 128;

/// A stream, and the bytes read from it that have not been consumed.
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
    input: BytesMut,
}

impl Stream {
    /// Takes over a non-blocking descriptor.
    pub fn new(fd: OwnedFd) -> Result<Stream> {
        let socket = std::os::unix::net::UnixStream::from(fd);
        socket.set_nonblocking(true)?;
        Ok(Stream { socket: UnixStream::from_std(socket)?, input: BytesMut::new() })
    }

    /// Waits until there is something to read, or room to write if `writing`.
    pub async fn ready(&self, writing: bool) -> Result<()> {
        if writing {
            let either = tokio::io::Interest::READABLE | tokio::io::Interest::WRITABLE;
            self.socket.ready(either).await?;
        } else {
            self.socket.readable().await?;
        }
        Ok(())
    }

    /// Waits until there is room to write.
    pub async fn writable(&self) -> Result<()> {
        self.socket.writable().await
    }

    /// Reads what is available, or returns `None` if nothing is. The end of the stream is `UnexpectedEof`.
    pub fn read(&mut self) -> Result<Option<&mut BytesMut>> {
        self.input.reserve(READ_BYTES);
        // Unlike `try_read_buf`, this clears the readiness after a read that did not fill the buffer, which saves a
        // system call. The kernel reports when there is more, and `ready` waits for that.
        let read = pin!(self.socket.read_buf(&mut self.input));
        match read.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(0)) => Err(ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(_)) => Ok(Some(&mut self.input)),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(None),
        }
    }

    /// Reads what the other end sent before it ended, at most `most` bytes, and passes it to `hear` piece by piece.
    ///
    /// Reads from the kernel directly, because the runtime may not know yet that there is something to read. Without
    /// `most`, a peer that has only closed its reading side could keep us busy for ever.
    pub fn read_rest<E>(
        &mut self,
        most: usize,
        mut hear: impl FnMut(&mut BytesMut) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut room = vec![0; READ_BYTES.min(most)];
        let mut left = most;
        while left > 0 {
            let length = room.len().min(left);
            match rustix::io::read(&self.socket, &mut room[..length]) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    left -= length;
                    self.input.extend_from_slice(&room[..length]);
                    hear(&mut self.input)?;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Writes as much of `output` as the socket accepts. Returns `true` if everything was written.
    pub fn write(&mut self, output: &mut VecDeque<Bytes>) -> Result<bool> {
        while !output.is_empty() {
            let written = {
                let mut slices = [IoSlice::new(&[]); WRITE_FRAMES_MAX];
                let count = output.len().min(WRITE_FRAMES_MAX);
                for (slice, frame) in slices.iter_mut().zip(output.iter()) {
                    *slice = IoSlice::new(frame);
                }
                match self.socket.try_write_vectored(&slices[..count]) {
                    Ok(written) => written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            };
            advance(output, written);
        }
        Ok(true)
    }
}

/// Returns why a stream ended, for a message to master: the error of its machine, or the end of the other side.
pub fn loss(error: &std::io::Error) -> Loss {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<LinkError>());
    refused.map_or(Loss::Ended, |error| Loss::Link(*error))
}

fn advance(output: &mut VecDeque<Bytes>, mut written: usize) {
    while written > 0 {
        let first = output.front_mut().expect("no more is written than there was");
        let of_first = first.len().min(written);
        first.advance(of_first);
        written -= of_first;
        if first.is_empty() {
            output.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns what is read, at most `most` bytes, from an end that sent `said` and closed its reading side.
    async fn heard(said: &[u8], most: usize, ends: bool) -> Vec<u8> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stream = Stream::new(ours.into()).unwrap();
        (&theirs).write_all(said).unwrap();
        theirs.shutdown(std::net::Shutdown::Read).unwrap();
        let goes_on = (!ends).then_some(theirs);
        stream.writable().await.unwrap();
        let mut output = VecDeque::from([Bytes::from_static(b"x")]);
        assert_eq!(stream.write(&mut output).unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut heard = Vec::new();
        let ended: std::result::Result<(), LinkError> = stream.read_rest(most, |input| {
            heard.extend_from_slice(&input.split());
            Ok(())
        });
        assert_eq!(ended, Ok(()));
        drop(goes_on);
        heard
    }

    #[tokio::test]
    async fn what_the_other_end_said_before_it_ended_is_read_though_nothing_can_be_written() {
        let said = vec![7; 100_000];
        assert!(heard(&said, REST_BYTES_MAX, true).await == said);
        assert!(heard(&said, REST_BYTES_MAX, false).await == said);
    }

    #[tokio::test]
    async fn who_reads_nothing_is_not_heard_without_end() {
        let said: Vec<u8> = (0..100_000).map(|number| number as u8).collect();
        assert!(heard(&said, 70_000, false).await == said[..70_000]);
    }
}
