//! The task that carries bytes between the pool and the queue process: attempts in, results out,
//! many frames in one write.
//!
//! Must never let a lost stream end the connections to next hops: they go on, and the next queue
//! process is told what came of them.

use super::Order;
use super::shared::Shared;
use crate::io::stream::loss;
use bytes::{Buf, BytesMut};
use send::Input;
use std::io;
use std::rc::Rc;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Octets gathered for one write.
const WRITE_BYTES_MAX: usize = 256 * 1024;
/// Room for one read.
const READ_BYTES: usize = 256 * 1024;

/// A stream to a queue process, with what is half read and half written.
struct Conversation {
    /// The stream's name.
    number: u64,
    stream: UnixStream,
    input: BytesMut,
    pending: BytesMut,
}

/// Runs until drained, or until nobody is left to give orders and nothing is under way.
pub async fn serve(shared: Rc<Shared>, mut orders: mpsc::Receiver<Order>) {
    let mut current: Option<Conversation> = None;
    loop {
        let has_told = current.as_ref().is_none_or(|current| current.pending.is_empty());
        let is_alone = orders.is_closed() && current.is_none();
        if (shared.is_drained() && has_told)
            || shared.drain_time_is_over()
            || (is_alone && shared.pool.borrow().connections() == 0)
        {
            return;
        }
        tokio::select! {
            order = orders.recv(), if !orders.is_closed() => match order {
                Some(Order::Queue(number, stream)) => {
                    current = connect(&shared, number, stream).or(current);
                }
                Some(Order::Drain) | None => shared.handle(Input::Drain),
            },
            ended = converse(&shared, &mut current) => match ended {
                Ok(()) => {}
                Err(error) => {
                    let number = current.take().map(|current| current.number);
                    shared.handle(Input::Disconnected);
                    shared.journal().trouble(&format!("the conversation with queue ended: {error}"));
                    number.iter().for_each(|number| shared.journal().lost(*number, loss(&error)));
                }
            },
        }
    }
}

/// Begins to talk over a new stream.
fn connect(
    shared: &Rc<Shared>,
    number: u64,
    stream: std::os::unix::net::UnixStream,
) -> Option<Conversation> {
    let adopted = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
    match adopted {
        Ok(stream) => {
            shared.handle(Input::Connected);
            let (input, pending) = (BytesMut::new(), BytesMut::new());
            Some(Conversation { number, stream, input, pending })
        }
        Err(error) => {
            shared.journal().trouble(&format!("no conversation with queue: {error}"));
            shared.journal().lost(number, loss(&error));
            None
        }
    }
}

/// Until the stream ends, or a drain may be over. Nothing is lost when this future is dropped.
async fn converse(shared: &Rc<Shared>, current: &mut Option<Conversation>) -> io::Result<()> {
    loop {
        let Some(Conversation { stream, input, pending, .. }) = current else {
            shared.to_queue.notified().await;
            return Ok(());
        };
        gather(shared, pending);
        if (pending.is_empty() && shared.is_drained()) || shared.drain_time_is_over() {
            return Ok(());
        }
        tokio::select! {
            biased;
            ready = stream.writable(), if !pending.is_empty() => {
                ready?;
                match stream.try_write(pending) {
                    Ok(written) => pending.advance(written),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            ready = stream.readable() => {
                ready?;
                read(shared, stream, input)?;
            }
            () = shared.to_queue.notified(), if pending.len() < WRITE_BYTES_MAX => {}
        }
    }
}

fn read(shared: &Rc<Shared>, stream: &UnixStream, input: &mut BytesMut) -> io::Result<()> {
    input.reserve(READ_BYTES);
    match stream.try_read_buf(input) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error),
    }
    let received = shared.pool.borrow_mut().receive(input, shared.now());
    shared.carry_out();
    received.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Takes frames up to the bound.
fn gather(shared: &Shared, pending: &mut BytesMut) {
    let mut pool = shared.pool.borrow_mut();
    while pending.len() < WRITE_BYTES_MAX {
        let Some(frame) = pool.transmit() else { break };
        pending.extend_from_slice(&frame);
    }
}
