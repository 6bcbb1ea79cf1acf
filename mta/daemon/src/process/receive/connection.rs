//! One client's connection: its socket and timer around the machine.
//!
//! Must never decide anything: [`receive::InboundSession`] does. Must never hold a read buffer.

use super::events;
use super::shared::Shared;
use crate::io::socket::Socket;
use crate::io::timer::Timer;
use mail::Now;
use receive::{InboundSession, SessionInput, SessionOutput};
use std::future::poll_fn;
use std::io::Result;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use world::Clock;
use world::real::faults::{self, Point};

/// One client's connection.
pub struct Connection {
    shared: Rc<Shared>,
    socket: Socket,
    client: InboundSession,
    /// The name of the client in the log.
    name: Box<str>,
    timer: Timer,
    /// There is a `250` among the replies that are not written yet.
    promised: bool,
}

impl Connection {
    /// Sends the greeting at once. The task sends the rest if the socket does not accept all of it.
    pub fn greet(
        shared: Rc<Shared>,
        socket: Socket,
        mut client: InboundSession,
        address: Option<IpAddr>,
    ) -> Connection {
        if let Ok(sent) = socket.send(client.transmit(), false) {
            client.transmitted(sent);
        }
        let (name, timer) = (events::client_name(address), Timer::new());
        Connection { shared, socket, client, name, timer, promised: false }
    }

    /// Runs until either side ends the connection.
    pub async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
    }

    /// Runs the machine until it waits. The socket, the timer or the gateway wakes the task.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.shared.set_waker(self.client.id(), context.waker());
        let mut now = self.shared.clock.now();
        loop {
            if self.advance(now).is_break() {
                return Poll::Ready(());
            }
            if self.write(context, now) || self.read(context, now) {
                continue;
            }
            if let Some(at) = self.client.next_wakeup() {
                self.timer.fire_by(at, &self.shared.clock);
            }
            if self.timer.poll(context).is_pending() {
                return Poll::Pending;
            }
            now = self.shared.clock.now();
        }
    }

    /// Does what the machine asks for. Returns `Break` if the connection must close.
    fn advance(&mut self, now: Now) -> ControlFlow<()> {
        let shared = self.shared.clone();
        let mut gateway = shared.gateway.borrow_mut();
        while let Some(output) = self.client.poll(&mut gateway, now) {
            match output {
                SessionOutput::CloseWrite => self.socket.shut(),
                SessionOutput::Close => return ControlFlow::Break(()),
                SessionOutput::HandedOver => faults::reach(Point::EndOfData),
                output => {
                    if matches!(output, SessionOutput::Promised(_)) {
                        faults::reach(Point::BeforePromise);
                        self.promised = true;
                    }
                    events::write(&shared.log, &self.name, &self.client, &output);
                }
            }
        }
        shared.advance(&mut gateway, now.monotonic);
        ControlFlow::Continue(())
    }

    /// Writes what the client accepts. Returns true if the machine must be polled again.
    fn write(&mut self, context: &mut Context<'_>, now: Now) -> bool {
        let last = self.client.ends_after_replies();
        let replies = self.client.transmit();
        if replies.is_empty() {
            return false;
        }
        match self.socket.poll_send(context, replies, last) {
            Poll::Pending => return false,
            Poll::Ready(Ok(sent)) => self.client.transmitted(sent),
            Poll::Ready(Err(_)) => self.hear(SessionInput::Lost, now),
        }
        if self.promised && self.client.transmit().is_empty() {
            self.promised = false;
            faults::reach(Point::AfterPromise);
        }
        true
    }

    /// Reads as much as the machine allows. Returns true if anything came.
    fn read(&mut self, context: &mut Context<'_>, now: Now) -> bool {
        let shared = self.shared.clone();
        let bytes_max = self.client.read_bytes_max(&shared.gateway.borrow());
        if bytes_max == 0 {
            return false;
        }
        let mut scratch = shared.scratch.borrow_mut();
        let read: Poll<Result<usize>> = self.socket.poll_read(context, &mut scratch[..bytes_max]);
        let input = match read {
            Poll::Pending => return false,
            Poll::Ready(Ok(0)) => SessionInput::Eof,
            Poll::Ready(Ok(length)) => {
                faults::reach(Point::Parse);
                SessionInput::Received(&scratch[..length])
            }
            Poll::Ready(Err(_)) => SessionInput::Lost,
        };
        self.hear(input, now);
        true
    }

    fn hear(&mut self, input: SessionInput<'_>, now: Now) {
        self.client.handle(input, &mut self.shared.gateway.borrow_mut(), now);
    }
}

/// Releases the session, even after a panic: queue must not keep a message that will not be finished.
impl Drop for Connection {
    fn drop(&mut self) {
        let mut gateway = self.shared.gateway.borrow_mut();
        self.client.release(&mut gateway);
        self.shared.set_waker(self.client.id(), Waker::noop());
        self.shared.advance(&mut gateway, self.shared.clock.now().monotonic);
        self.shared.gone.notify_one();
    }
}
