//! The task of one connection: a `delivery::OutboundSession` and the socket, the lookups and the clock that
//! it asks for.
//!
//! Must never decide about mail: it carries out what the line says.

use super::Sockets;
use super::office::{IDLE_GRACE, Job, Office, Slot, Waiting};
use delivery::resolve::{Answer, Question};
use delivery::route::{Target, Where};
use delivery::{Input, OutboundSession, Output};
use mail::{Instant, NextHop, Now, Outcome, Stage};
use smtp::client::{self, Message};
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
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

struct Connection {
    office: Rc<Office>,
    /// As of the beginning of this turn: a turn waits for nothing.
    now: Now,
    hop: NextHop,
    slot: Rc<Slot>,
    line: OutboundSession,
    job: Option<(Job, Now)>,
    asking: Vec<Asking>,
    connecting: Option<Connecting>,
    stream: Option<Stream>,
    /// Since when there is nothing to do.
    idle_since: Option<Instant>,
    messages: u32,
    messages_max: u32,
    greeted: bool,
}

/// Opens a connection for `first`, and carries what waits for the same next hop after it.
pub async fn run(office: Rc<Office>, hop: NextHop, number: u64, slot: Rc<Slot>, first: Waiting) {
    let now = office.now();
    let Waiting { job, message } = first;
    let messages_max = job.attempt.route.messages_per_connection_max.max(1);
    let setup = &office.setup;
    let (rules, config) = (setup.rules.clone(), setup.client.clone());
    let dead = office.dead.clone();
    let line = OutboundSession::new(&hop, message, rules, config, setup.limits, dead, now);
    let mut connection = Connection {
        office: Rc::clone(&office),
        now,
        hop: hop.clone(),
        slot,
        line,
        job: Some((job, now)),
        asking: Vec::new(),
        connecting: None,
        stream: None,
        idle_since: None,
        messages: 1,
        messages_max,
        greeted: false,
    };
    poll_fn(|cx| connection.go_on(cx)).await;
    let greeted = connection.greeted;
    drop(connection);
    office.closed(&hop, number, greeted);
}

impl Connection {
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.slot.sleep(cx.waker());
        self.now = self.office.now();
        self.take_chunk();
        self.take_time();
        loop {
            let mut moved = self.answers(cx);
            moved |= self.connected(cx);
            moved |= self.write(cx);
            moved |= self.read(cx);
            moved |= self.outputs(cx);
            moved |= self.next_message();
            if self.line.is_closed() && !moved {
                return Poll::Ready(());
            }
            if !moved {
                break;
            }
        }
        let idle = self.idle_since.map(|since| since + self.office.setup.idle);
        self.slot.due.set(self.line.next_wakeup().or(idle));
        Poll::Pending
    }

    fn session(&mut self, input: client::Input<'_>) {
        self.line.handle(Input::Session(input), self.now);
    }

    fn take_chunk(&mut self) {
        let Some((attempt, bytes)) = self.slot.chunk.take() else { return };
        if self.job.as_ref().is_some_and(|(job, _)| job.attempt.id == attempt) {
            self.session(match bytes {
                Some(bytes) => client::Input::Body(bytes),
                None => client::Input::BodyFailed,
            });
        }
    }

    fn take_time(&mut self) {
        if self.line.next_wakeup().is_some_and(|due| due <= self.now.monotonic) {
            self.session(client::Input::Tick);
        }
    }

    fn answers(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut at = 0;
        while at < self.asking.len() {
            match self.asking[at].as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready((question, answer)) => {
                    drop(self.asking.swap_remove(at));
                    let chance = self.office.chance();
                    self.line.handle(Input::Answer { question, answer, chance }, self.now);
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
                self.line.handle(Input::Connected, self.now);
            }
            Err(error) => {
                self.line.handle(Input::ConnectFailed(&plain(&error)), self.now);
            }
        }
        true
    }

    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let mut moved = false;
        while !self.line.transmit().is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, self.line.transmit()) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) if written > 0 => {
                    self.line.transmitted(written, self.now);
                    moved = true;
                }
                // The peer does not take it; what it said before it closed is still to be read.
                Poll::Ready(_) => break,
            }
        }
        moved
    }

    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut room = [MaybeUninit::uninit(); READ_BYTES];
        while let Some(stream) = &mut self.stream {
            if self.line.is_closed() {
                break;
            }
            let mut buffer = ReadBuf::uninit(&mut room);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    faults::reach_with(Point::NextHopSpoke, || code(buffer.filled()));
                    let input = client::Input::Received(buffer.filled());
                    self.line.handle(Input::Session(input), self.now);
                }
                Poll::Ready(_) => {
                    self.stream = None;
                    self.session(client::Input::Lost);
                }
            }
            moved = true;
        }
        moved
    }

    fn outputs(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some(output) = self.line.poll() {
            moved = true;
            match output {
                Output::Ask(question) => {
                    let office = Rc::clone(&self.office);
                    self.asking.push(Box::pin(async move {
                        let answer = office.setup.resolver.ask(&question).await;
                        (question, answer)
                    }));
                }
                Output::Connect(target) => {
                    let sockets = self.office.setup.sockets.clone();
                    self.connecting = Some(Box::pin(connect(target, sockets)));
                }
                Output::Session(client::Output::NeedBody { offset, bytes }) => {
                    if let Some((job, _)) = &self.job {
                        self.office.fetch(&self.slot, &job.attempt, offset, bytes);
                    }
                }
                Output::Session(client::Output::Done { message, outcomes }) => {
                    self.done(&message, outcomes)
                }
                Output::Session(client::Output::Unsent(message)) => self.unsent(message),
                Output::Session(client::Output::Close) => self.close(cx),
            }
        }
        if !self.greeted && self.line.session().is_some_and(|session| session.mails() > 0) {
            self.greeted = true;
            self.office.greeted(&self.hop);
        }
        moved
    }

    fn done(&mut self, message: &Message, outcomes: Vec<Outcome>) {
        let Some((job, begun)) = self.job.take() else { return };
        let unreached = outcomes.first().filter(|outcome| {
            !self.greeted
                && matches!(
                    outcome.report().stage,
                    Stage::Resolve | Stage::Connect | Stage::Greeting
                )
        });
        if let Some(outcome) = unreached {
            self.office.fail_waiting(&self.hop, outcome);
        }
        self.office.result(job, message, outcomes, begun);
    }

    fn unsent(&mut self, message: Box<Message>) {
        if let Some((job, _)) = self.job.take() {
            self.office.put_back(&self.hop, Waiting { job, message });
        }
    }

    /// QUIT goes out if the socket takes it at once; nobody waits for its answer.
    fn close(&mut self, cx: &mut Context<'_>) {
        self.connecting = None;
        self.write(cx);
        self.stream = None;
    }

    /// More work, or goodbye.
    fn next_message(&mut self) -> bool {
        if self.line.is_closed() || self.job.is_some() {
            return false;
        }
        let spent = self.messages >= self.messages_max || !self.line.can_send();
        if !spent && let Some(Waiting { job, message }) = self.office.next(&self.hop) {
            self.office.not_idle(&self.hop, &self.slot);
            self.idle_since = None;
            self.messages += 1;
            self.job = Some((job, self.now));
            self.session(client::Input::Send(message));
            return true;
        }
        let now = self.now.monotonic;
        let since = *self.idle_since.get_or_insert(now);
        let tired = now.since(since) >= self.office.setup.idle;
        let starved = self.office.is_starved() && now.since(since) >= IDLE_GRACE;
        let unwanted = self.slot.must_end.get() || starved;
        if spent || tired || unwanted || self.office.draining.get() {
            self.office.not_idle(&self.hop, &self.slot);
            self.session(client::Input::Quit);
            return true;
        }
        self.office.idle(&self.hop, &self.slot, since);
        false
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
