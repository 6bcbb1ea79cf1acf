//! The task that talks to the queue process: attempts in, results out, many in one write.
//!
//! Must never let a lost stream end the connections to next hops: they go on, and what they find
//! is told to the next queue process.

use super::Order;
use super::office::Office;
use crate::io::stream::loss;
use bytes::{Buf, BytesMut};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Octets gathered for one write.
const WRITE_BYTES_MAX: usize = 256 * 1024;
/// Room for one read.
const READ_BYTES: usize = 256 * 1024;

/// How long a drain waits for what is under way; what is not done then is tried again later.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);

/// A stream to a queue process, with what is half read and half written of it.
struct Conversation {
    /// The stream's name.
    number: u64,
    stream: UnixStream,
    input: BytesMut,
    pending: BytesMut,
}

impl Conversation {
    fn new(number: u64, stream: UnixStream) -> Self {
        Conversation { number, stream, input: BytesMut::new(), pending: BytesMut::new() }
    }
}

/// Runs until drained, or until nobody is left to give orders and nothing is under way.
pub async fn serve(office: Rc<Office>, mut orders: mpsc::Receiver<Order>) {
    let mut current: Option<Conversation> = None;
    loop {
        let order = match &mut current {
            None => orders.recv().await,
            Some(conversation) => tokio::select! {
                order = orders.recv() => order,
                ended = converse(&office, conversation) => {
                    lost(&office, conversation.number, ended);
                    current = None;
                    continue;
                }
            },
        };
        match order {
            Some(Order::Queue(number, stream)) => {
                current = connect(&office, number, stream).or(current);
            }
            Some(Order::Drain) | None => {
                let drained = drain(&office, &mut orders, current);
                let _ = tokio::time::timeout(DRAIN_TIME_MAX, drained).await;
                return;
            }
        }
    }
}

/// Begins to talk over a new stream.
fn connect(
    office: &Office,
    number: u64,
    stream: std::os::unix::net::UnixStream,
) -> Option<Conversation> {
    match adopt(stream) {
        Ok(stream) => {
            office.end.borrow_mut().connected();
            office.fetch_again();
            Some(Conversation::new(number, stream))
        }
        Err(error) => {
            office.trouble(&format!("no conversation with queue: {error}"));
            office.lost(number, loss(&error));
            None
        }
    }
}

fn lost(office: &Office, number: u64, ended: io::Result<()>) {
    if let Err(error) = ended {
        office.trouble(&format!("the conversation with queue ended: {error}"));
        office.lost(number, loss(&error));
    }
}

fn adopt(stream: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Lets the connections end what they have begun. Results still go out, over the next stream if this
/// one is lost: what is not told is delivered again.
async fn drain(
    office: &Rc<Office>,
    orders: &mut mpsc::Receiver<Order>,
    mut current: Option<Conversation>,
) {
    office.draining.set(true);
    office.end.borrow_mut().drain();
    office.wake_all();
    loop {
        if office.is_empty() {
            match &mut current {
                Some(conversation) => match say_all(office, conversation).await {
                    Ok(()) => return,
                    ended => lost(office, conversation.number, ended),
                },
                None if orders.is_closed() || !office.end.borrow().has_results() => return,
                None => {}
            }
            current = None;
        }
        let talk = async {
            match &mut current {
                Some(conversation) => (conversation.number, converse(office, conversation).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (number, ended) = talk => {
                lost(office, number, ended);
                current = None;
            }
            order = orders.recv(), if !orders.is_closed() => {
                if let Some(Order::Queue(number, stream)) = order {
                    current = connect(office, number, stream).or(current);
                }
            }
            () = office.ended.notified() => {}
        }
    }
}

async fn say_all(office: &Office, conversation: &mut Conversation) -> io::Result<()> {
    while gather(office, &mut conversation.pending) {
        write_all(&conversation.stream, &mut conversation.pending).await?;
    }
    Ok(())
}

async fn write_all(stream: &UnixStream, pending: &mut BytesMut) -> io::Result<()> {
    while !pending.is_empty() {
        stream.writable().await?;
        match stream.try_write(pending) {
            Ok(written) => pending.advance(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Until the stream ends. Nothing is lost when this future is dropped.
async fn converse(office: &Rc<Office>, conversation: &mut Conversation) -> io::Result<()> {
    let Conversation { stream, input, pending, .. } = conversation;
    loop {
        gather(office, pending);
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
                read(office, stream, input)?;
            }
            () = office.to_queue.notified(), if pending.len() < WRITE_BYTES_MAX => {}
        }
    }
}

fn read(office: &Rc<Office>, stream: &UnixStream, input: &mut BytesMut) -> io::Result<()> {
    input.reserve(READ_BYTES);
    match stream.try_read_buf(input) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error),
    }
    let handled = office.end.borrow_mut().handle(input);
    handled.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    loop {
        let event = office.end.borrow_mut().poll();
        match event {
            Some(event) => office.event(event),
            None => return Ok(()),
        }
    }
}

/// Takes frames up to the bound; says whether there is anything to write.
fn gather(office: &Office, pending: &mut BytesMut) -> bool {
    let mut end = office.end.borrow_mut();
    while pending.len() < WRITE_BYTES_MAX {
        let Some(frame) = end.output().pop_front() else { break };
        pending.extend_from_slice(&frame);
    }
    !pending.is_empty()
}
