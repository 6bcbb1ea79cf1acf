//! The task of one connection to a next hop: a socket, lookups and a deadline around the machine.
//!
//! Must never decide about mail: [`send::PooledConnection`] does.

use super::Sockets;
use super::shared::{Shared, TaskWaker};
use crate::io::socket::Socket;
use delivery::resolve::{Answer, Question};
use delivery::route::{Target, Where};
use mail::Now;
use send::{ConnectionInput, ConnectionOutput, PooledConnection};
use std::future::{Future, poll_fn};
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use world::Rng as _;
use world::real::faults::{self, Point};

type Asking = Pin<Box<dyn Future<Output = (Question, Answer)>>>;
type Connecting = Pin<Box<dyn Future<Output = io::Result<Socket>>>>;

struct Task {
    shared: Rc<Shared>,
    waker: Rc<TaskWaker>,
    connection: Box<PooledConnection>,
    /// Time at the beginning of this turn. A turn waits for nothing.
    now: Now,
    asking: Vec<Asking>,
    connecting: Option<Connecting>,
    socket: Option<Socket>,
    /// Number of messages that the connection has begun.
    begun: u32,
}

/// Runs a connection until it has finished.
pub async fn run(shared: Rc<Shared>, waker: Rc<TaskWaker>, connection: Box<PooledConnection>) {
    let now = shared.now();
    let mut task = Task {
        shared: Rc::clone(&shared),
        waker,
        connection,
        now,
        asking: Vec::new(),
        connecting: None,
        socket: None,
        begun: 0,
    };
    poll_fn(|cx| task.turn(cx)).await;
    drop(task);
    shared.advance();
}

/// Takes the connection out of the pool, even after a panic.
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
        self.waker.set(cx.waker());
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
        self.waker.due.set(self.connection.next_wakeup());
        self.shared.advance();
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
            Ok(socket) => {
                self.socket = Some(socket);
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
        let Some(socket) = &self.socket else { return false };
        let mut moved = false;
        while !self.connection.transmit().is_empty() {
            match socket.poll_send(cx, self.connection.transmit(), false) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) if written > 0 => {
                    self.connection.transmitted(written, self.now);
                    moved = true;
                }
                // The peer accepts nothing more. What it sent before it closed is read next.
                Poll::Ready(_) => break,
            }
        }
        moved
    }

    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let shared = Rc::clone(&self.shared);
        let mut room = shared.scratch.borrow_mut();
        while let Some(socket) = &mut self.socket {
            if self.connection.is_closed() {
                break;
            }
            match socket.poll_read(cx, &mut room[..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(length)) if length > 0 => {
                    faults::reach_with(Point::NextHopSpoke, || code(&room[..length]));
                    let input = ConnectionInput::Received(&room[..length]);
                    self.connection.handle(input, self.now);
                }
                Poll::Ready(_) => {
                    self.socket = None;
                    self.connection.handle(ConnectionInput::Lost, self.now);
                }
            }
            moved = true;
        }
        moved
    }

    /// Does what the connection asks for. Returns `Continue(true)` if it did anything, and `Break` when the connection has
    /// finished.
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

    /// Writes QUIT if the socket accepts it at once, and closes without waiting for the reply.
    fn close(&mut self, cx: &mut Context<'_>) {
        self.connecting = None;
        self.write(cx);
        self.socket = None;
    }
}

async fn connect(target: Target, sockets: Arc<Sockets>) -> io::Result<Socket> {
    Ok(match target.place {
        Where::Tcp(at) => {
            let stream = TcpStream::connect(at).await?;
            stream.set_nodelay(true)?;
            Socket::Tcp(stream)
        }
        Where::Unix(path) => Socket::Unix(sockets.connect(&path).await?),
    })
}

/// Returns the code that a reply begins with.
fn code(reply: &[u8]) -> u64 {
    reply.iter().take(3).fold(0, |sum, digit| sum * 10 + u64::from(digit.wrapping_sub(b'0')))
}

/// Returns the system's text of an error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}
