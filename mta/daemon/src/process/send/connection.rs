//! The task of one connection: a `send::PooledConnection`, and the socket, the lookups and the
//! clock that it asks for.
//!
//! Must never decide about mail: it does what the connection says.

use super::Sockets;
use super::shared::{Shared, Slot};
use delivery::resolve::{Answer, Question};
use delivery::route::{Target, Where};
use mail::Now;
use send::{ConnectionInput, ConnectionOutput, PooledConnection};
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use world::Rng as _;
use world::real::faults::{self, Point};

/// Octets read at once; replies are short.
const READ_BYTES: usize = 4 * 1024;

type Asking = Pin<Box<dyn Future<Output = (Question, Answer)>>>;
type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// A stream to a next hop.
trait Peer: AsyncRead + AsyncWrite + Unpin {}
impl Peer for TcpStream {}
impl Peer for UnixStream {}
type Stream = Box<dyn Peer>;

struct Task {
    shared: Rc<Shared>,
    slot: Rc<Slot>,
    connection: Box<PooledConnection>,
    /// As of the beginning of this turn: a turn waits for nothing.
    now: Now,
    asking: Vec<Asking>,
    connecting: Option<Connecting>,
    stream: Option<Stream>,
    /// Messages that the connection has begun.
    begun: u32,
}

/// Runs a connection until it has finished.
pub async fn run(shared: Rc<Shared>, slot: Rc<Slot>, connection: Box<PooledConnection>) {
    let now = shared.now();
    let mut task = Task {
        shared: Rc::clone(&shared),
        slot,
        connection,
        now,
        asking: Vec::new(),
        connecting: None,
        stream: None,
        begun: 0,
    };
    poll_fn(|cx| task.turn(cx)).await;
    drop(task);
    shared.carry_out();
}

/// The connection leaves the pool, also if its task has met a bug.
impl Drop for Task {
    fn drop(&mut self) {
        self.shared.forget(self.connection.id());
        if let Ok(mut pool) = self.shared.pool.try_borrow_mut() {
            self.connection.close(&mut pool, self.shared.now());
        }
    }
}

impl Task {
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.slot.sleep(cx.waker());
        self.now = self.shared.now();
        if self.connection.next_wakeup().is_some_and(|due| due <= self.now.monotonic) {
            self.connection.handle(ConnectionInput::Timeout, self.now);
        }
        loop {
            let mut moved = self.answers(cx);
            moved |= self.connected(cx);
            moved |= self.read(cx);
            match self.outputs(cx) {
                ControlFlow::Continue(any) => moved |= any,
                ControlFlow::Break(()) => return Poll::Ready(()),
            }
            moved |= self.write(cx);
            if !moved {
                break;
            }
        }
        self.slot.due.set(self.connection.next_wakeup());
        self.shared.carry_out();
        Poll::Pending
    }

    fn answers(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut at = 0;
        while at < self.asking.len() {
            match self.asking[at].as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready((question, answer)) => {
                    drop(self.asking.swap_remove(at));
                    let chance = world::real::Rng.u64();
                    let input = ConnectionInput::Answer { question, answer, chance };
                    self.connection.handle(input, self.now);
                    moved = true;
                }
            }
        }
        moved
    }

    fn connected(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(connecting) = &mut self.connecting else { return false };
        let Poll::Ready(result) = connecting.as_mut().poll(cx) else { return false };
        self.connecting = None;
        match result {
            Ok(stream) => {
                self.stream = Some(stream);
                self.connection.handle(ConnectionInput::Connected, self.now);
            }
            Err(error) => {
                let why = plain(&error);
                self.connection.handle(ConnectionInput::ConnectFailed(&why), self.now);
            }
        }
        true
    }

    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let mut moved = false;
        while !self.connection.transmit().is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, self.connection.transmit()) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) if written > 0 => {
                    self.connection.transmitted(written, self.now);
                    moved = true;
                }
                // The peer takes nothing more; what it said before it closed is still to be read.
                Poll::Ready(_) => break,
            }
        }
        moved
    }

    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut room = [MaybeUninit::uninit(); READ_BYTES];
        while let Some(stream) = &mut self.stream {
            if self.connection.is_closed() {
                break;
            }
            let mut buffer = ReadBuf::uninit(&mut room);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    faults::reach_with(Point::NextHopSpoke, || code(buffer.filled()));
                    let input = ConnectionInput::Received(buffer.filled());
                    self.connection.handle(input, self.now);
                }
                Poll::Ready(_) => {
                    self.stream = None;
                    self.connection.handle(ConnectionInput::Lost, self.now);
                }
            }
            moved = true;
        }
        moved
    }

    /// Does what the connection asks for, and says whether there was anything; breaks when the
    /// connection has finished.
    fn outputs(&mut self, cx: &mut Context<'_>) -> ControlFlow<(), bool> {
        let mut moved = false;
        loop {
            let output = self.connection.poll(&mut self.shared.pool.borrow_mut(), self.now);
            self.reach_attempt();
            match output {
                Some(ConnectionOutput::Ask(question)) => {
                    let shared = Rc::clone(&self.shared);
                    self.asking.push(Box::pin(async move {
                        let answer = shared.resolver.ask(&question).await;
                        (question, answer)
                    }));
                }
                Some(ConnectionOutput::Connect(target)) => {
                    let sockets = Arc::clone(&self.shared.sockets);
                    self.connecting = Some(Box::pin(connect(target, sockets)));
                }
                Some(ConnectionOutput::CloseStream) => self.close(cx),
                Some(ConnectionOutput::Finished) => return ControlFlow::Break(()),
                None => return ControlFlow::Continue(moved),
            }
            moved = true;
        }
    }

    fn reach_attempt(&mut self) {
        if self.begun != self.connection.messages() {
            self.begun = self.connection.messages();
            if let Some((message, _)) = self.connection.current() {
                faults::reach_with(Point::Attempt, || message.0);
            }
        }
    }

    /// QUIT goes out if the socket takes it at once; nobody waits for its answer.
    fn close(&mut self, cx: &mut Context<'_>) {
        self.connecting = None;
        self.write(cx);
        self.stream = None;
    }
}

async fn connect(target: Target, sockets: Arc<Sockets>) -> io::Result<Stream> {
    Ok(match target.place {
        Where::Tcp(at) => {
            let stream = TcpStream::connect(at).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Where::Unix(path) => Box::new(sockets.connect(&path).await?),
    })
}

/// The code that a reply begins with.
fn code(reply: &[u8]) -> u64 {
    reply.iter().take(3).fold(0, |sum, digit| sum * 10 + u64::from(digit.wrapping_sub(b'0')))
}

/// The system's words without the number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}
