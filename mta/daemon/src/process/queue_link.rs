//! The streams of a process to the queue process, one after another, around the process's machine.
//!
//! Must never hold a borrow of the machine across an await, or end what the process does because a stream has ended.

use crate::io::stream::Stream;
use bytes::BytesMut;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use tokio::sync::{Notify, mpsc};

/// Maximum number of streams that wait to be taken over.
pub const STREAMS_MAX: usize = 4;

/// New streams from master, each with its number. A newer stream replaces the current one.
pub type NewStreams = mpsc::Receiver<(u64, OwnedFd)>;

/// The side of the machine: what a process does for its streams to the queue process.
pub trait QueueLink {
    /// Begins a stream.
    fn connected(&self);
    /// Takes bytes of the queue process. An error ends the stream.
    fn received(&self, input: &mut BytesMut) -> Result<()>;
    /// Ends a stream.
    fn disconnected(&self);
    /// Writes frames as far as the stream accepts them. Returns true if all frames are written.
    fn write(&self, stream: &mut Stream) -> Result<bool>;
    /// Is notified when there are new frames.
    fn frames(&self) -> &Notify;
    /// Reports that a stream has ended and was not replaced.
    fn lost(&self, number: u64, error: &Error);
}

/// Serves one stream after another until the channel is closed.
pub async fn serve(process: impl QueueLink, mut streams: NewStreams) {
    let mut replacement = None;
    loop {
        let next = match replacement.take() {
            Some(next) => Some(next),
            None => streams.recv().await,
        };
        let Some((number, fd)) = next else { return };
        process.connected();
        let ended = tokio::select! {
            biased;
            Some(newer) = streams.recv() => {
                replacement = Some(newer);
                Ok(())
            }
            ended = converse(&process, fd) => ended,
        };
        process.disconnected();
        if let Err(error) = ended {
            process.lost(number, &error);
        }
    }
}

async fn converse(process: &impl QueueLink, fd: OwnedFd) -> Result<()> {
    let mut stream = Stream::new(fd)?;
    let mut is_written = false;
    loop {
        if !is_written {
            is_written = process.write(&mut stream)?;
        }
        tokio::select! {
            ready = stream.ready(!is_written) => ready?,
            () = process.frames().notified() => {
                is_written = false;
                continue;
            }
        }
        if let Some(input) = stream.read()? {
            process.received(input)?;
            is_written = false;
        }
    }
}
