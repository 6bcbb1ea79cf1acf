//! One client's connection: its socket and timer around the machine.
//!
//! Must never decide anything: [`receive::InboundSession`] does. Must never hold a read buffer of its own.

use super::Shared;
use super::alarm::Alarm;
use super::socket::Socket;
use crate::log::EventKind;
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
    /// The client as the log names it.
    name: Box<str>,
    alarm: Alarm,
    /// A `250` is among the replies that have not gone out.
    promised: bool,
}

impl Connection {
    /// Sends the greeting at once: the task that follows sees what keeps it back.
    pub fn greet(
        shared: Rc<Shared>,
        socket: Socket,
        mut client: InboundSession,
        address: Option<IpAddr>,
    ) -> Connection {
        if let Ok(sent) = socket.send(client.transmit(), false) {
            client.transmitted(sent);
        }
        let (name, alarm) = (client_name(address), Alarm::new());
        Connection { shared, socket, client, name, alarm, promised: false }
    }

    /// Talks until one of the two ends the connection.
    pub async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
    }

    /// Runs the machine until it waits. Has the task woken by the socket, the timer or the gateway.
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
                self.alarm.ring_by(at, &self.shared.clock);
            }
            if self.alarm.poll(context).is_pending() {
                return Poll::Pending;
            }
            now = self.shared.clock.now();
        }
    }

    /// Does what the machine asks for. Breaks if the connection is to close.
    fn advance(&mut self, now: Now) -> ControlFlow<()> {
        let shared = self.shared.clone();
        let mut gateway = shared.gateway.borrow_mut();
        while let Some(output) = self.client.poll(&mut gateway, now) {
            match output {
                SessionOutput::CloseWrite => self.socket.shut(),
                SessionOutput::Close => return ControlFlow::Break(()),
                SessionOutput::HandedOver => faults::reach(Point::EndOfData),
                output => self.log(&output),
            }
        }
        shared.advance(&mut gateway, now.monotonic);
        ControlFlow::Continue(())
    }

    /// Writes what the client takes. Returns whether the machine has to hear of it.
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

    /// Reads as much as the machine takes. Returns whether anything came.
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

    fn log(&mut self, output: &SessionOutput) {
        let line = |verb| self.shared.log.event(verb).client(&self.name);
        let line_with_helo = |verb| line(verb).text("helo", self.client.helo());
        match output {
            SessionOutput::RecipientRefused { recipient, reply } => {
                let line = line_with_helo(EventKind::Judge).from(self.client.sender());
                line.to(recipient).reply(reply).status("refused").emit();
            }
            SessionOutput::RecipientsRefused(recipients) => {
                let line = line_with_helo(EventKind::Judge).number("recipients", *recipients);
                line.status("refused").emit();
            }
            SessionOutput::LoopRefused { sender, reply } => {
                line(EventKind::Judge).from(sender).reply(reply).status("refused").emit();
            }
            SessionOutput::Promised(promised) => {
                faults::reach(Point::BeforePromise);
                let line = self.shared.log.event(EventKind::Promise).id(promised.message);
                let line = line.client(&self.name).text("helo", self.client.helo());
                let line = line.from(&promised.sender).bytes(promised.bytes);
                let line = line.number("recipients", promised.recipients as u64);
                line.delays(&[(EventKind::Commit, promised.commit_time)]).status("queued").emit();
                self.promised = true;
            }
            SessionOutput::Refused { sender, reply } => {
                line(EventKind::Promise).from(sender).reply(reply).status("refused").emit();
            }
            SessionOutput::Abandoned { sender } => {
                line(EventKind::Promise).from(sender).status("abandoned").emit();
            }
            SessionOutput::HandedOver | SessionOutput::CloseWrite | SessionOutput::Close => {}
        }
    }
}

/// However the connection ends, also by a bug: queue must not keep what nobody will finish.
impl Drop for Connection {
    fn drop(&mut self) {
        let mut gateway = self.shared.gateway.borrow_mut();
        self.client.release(&mut gateway);
        self.shared.set_waker(self.client.id(), Waker::noop());
        self.shared.advance(&mut gateway, self.shared.clock.now().monotonic);
        self.shared.gone.notify_one();
    }
}

/// A client as the log names it.
pub fn client_name(address: Option<IpAddr>) -> Box<str> {
    address.map_or_else(|| "local".into(), |address| address.to_string().into())
}
