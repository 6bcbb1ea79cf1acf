//! One client: bytes to `smtp`'s session and back, facts to `policy`, the message to the queue.
//!
//! Must never decide anything: the machines do. Must never hold a read buffer of its own.

use super::alarm::Alarm;
use super::memory::Share;
use super::promises::Answer;
use super::socket::Socket;
use super::{Listening, Shared};
use crate::log::Verb;
use link::receive::Refusal;
use mail::{Durable, Enhanced, Envelope, Now, Origin, Recipient, Reply};
use smtp::server::{BodyEnd, Event, Mail, Session, Verdict};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Result};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use world::Clock;
use world::real::faults::{self, Point};

/// How long a client that has been told goodbye may take to close, so that it can read why.
const LINGER: Duration = Duration::from_millis(500);
/// How long DATA waits for a queue process that is being started again.
const QUEUE_WAIT: Duration = Duration::from_secs(10);

/// One client's connection.
pub struct Conversation {
    shared: Rc<Shared>,
    socket: Socket,
    client: Option<IpAddr>,
    /// The same for the log.
    whom: Box<str>,
    session: Session,
    /// What the session has not taken yet.
    kept: Vec<u8>,
    /// The client has closed its side, or the last reply was to QUIT: no need to linger.
    parted: bool,
    /// We have been told to end.
    stopping: bool,
    /// A `250` is among the replies that have not gone out.
    promised: bool,
    helo: Box<str>,
    transaction: Option<Transaction>,
    memory: Share,
}

struct Transaction {
    number: u64,
    staged: bool,
    mail: Mail,
    recipients: Vec<Recipient>,
    /// What they take.
    recipients_bytes: usize,
}

enum Next {
    /// Look for more to do at once.
    GoOn,
    /// Close.
    Close,
}

impl Conversation {
    /// Begins with the greeting.
    pub fn new(
        shared: Rc<Shared>,
        listening: &Listening,
        socket: Socket,
        client: Option<IpAddr>,
    ) -> Conversation {
        let session = Session::new(listening.server.clone(), shared.clock.now());
        let memory = shared.memory.share();
        Conversation {
            shared,
            socket,
            client,
            whom: whom(client),
            session,
            kept: Vec::new(),
            parted: false,
            stopping: false,
            promised: false,
            helo: "".into(),
            transaction: None,
            memory,
        }
    }

    /// Talks until one of the two ends it.
    pub async fn run(mut self) {
        let ended = self.talk().await;
        self.give_up();
        if ended.is_ok() {
            self.linger().await;
        }
    }

    async fn talk(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        let mut stop = pin!(shared.stopping.wait());
        let mut alarm = Alarm::new();
        loop {
            while let Some(event) = self.session.poll(self.now()) {
                self.count();
                if matches!(self.act(event).await, Next::Close) {
                    return self.flush().await;
                }
            }
            self.count();
            self.flush().await?;
            if self.offer_kept() {
                continue;
            }
            self.count();
            self.wait(&mut alarm, stop.as_mut()).await?;
        }
    }

    /// Tells the sum of all sessions what this one holds.
    fn count(&mut self) {
        let recipients = self.transaction.as_ref().map_or(0, |t| t.recipients_bytes);
        let held = self.session.memory_bytes() + self.kept.capacity() + recipients;
        self.memory.is_now(held);
    }

    fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// Offers what was read before; `true` if the session took any of it.
    fn offer_kept(&mut self) -> bool {
        if self.kept.is_empty() {
            return false;
        }
        let now = self.now();
        let taken = self.session.receive(&self.kept, now);
        if taken == self.kept.len() {
            self.kept = Vec::new();
        } else {
            self.kept.drain(..taken);
        }
        taken > 0
    }

    /// Waits for bytes, for the end of the client's time, or for our own end.
    async fn wait<F>(&mut self, alarm: &mut Alarm, mut stop: Pin<&mut F>) -> Result<()>
    where
        F: Future<Output = ()>,
    {
        if let Some(at) = self.session.next_wakeup() {
            alarm.ring_by(at, self.now().monotonic);
        }
        poll_fn(|context| {
            if let Poll::Ready(read) = self.poll_read(context) {
                return Poll::Ready(read);
            }
            if !self.stopping && stop.as_mut().poll(context).is_ready() {
                self.stopping = true;
                self.session.shutdown(self.now());
                return Poll::Ready(Ok(()));
            }
            // Where it rings early, the session knows.
            alarm.poll(context).map(|()| {
                self.session.handle_timeout(self.now());
                Ok(())
            })
        })
        .await
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let now = || self.shared.clock.now();
        let mut scratch = self.shared.scratch.borrow_mut();
        let length = ready!(self.socket.poll_read(context, &mut scratch))?;
        if length == 0 {
            self.parted = true;
            self.session.eof(now());
        } else {
            faults::reach(Point::Parse);
            let taken = self.session.receive(&scratch[..length], now());
            self.kept.extend_from_slice(&scratch[taken..length]);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all replies; the client's patience and ours are the session's to count.
    async fn flush(&mut self) -> Result<()> {
        let mut written = 0;
        while written < self.session.output().len() {
            match self.socket.try_write(&self.session.output()[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let now = self.now().monotonic;
                    let patience = self.session.next_wakeup().map(|at| at.since(now));
                    tokio::select! {
                        ready = self.socket.writable() => ready?,
                        () = sleep(patience) => return Err(ErrorKind::TimedOut.into()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if std::mem::take(&mut self.promised) {
            faults::reach(Point::AfterPromise);
        }
        self.parted |= is_goodbye(self.session.output());
        self.session.output().clear();
        Ok(())
    }

    /// A goodbye with unread input behind it would be lost by the reset that a close sends.
    async fn linger(&mut self) {
        if self.parted && self.kept.is_empty() {
            return;
        }
        self.socket.shut();
        let Conversation { shared, socket, .. } = self;
        let ended = poll_fn(|context| {
            loop {
                let read = socket.poll_read(context, &mut shared.scratch.borrow_mut());
                if let Ok(0) | Err(_) = ready!(read) {
                    return Poll::Ready(());
                }
            }
        });
        let _ = tokio::time::timeout(LINGER, ended).await;
    }

    async fn act(&mut self, event: Event) -> Next {
        match event {
            Event::Hello { name, .. } => {
                self.helo = name;
                self.answer(Verdict::Accept);
            }
            Event::Mail(mail) => self.mail(mail),
            Event::Rcpt(recipient) => self.rcpt(recipient),
            Event::Data => self.data().await,
            Event::Body(bytes) => self.body(&bytes).await,
            Event::BodyEnd(end) => return self.end(end).await,
            Event::Reset => self.give_up(),
            Event::Close => return Next::Close,
        }
        Next::GoOn
    }

    fn answer(&mut self, verdict: Verdict) {
        let now = self.now();
        self.session.answer(verdict, now);
    }

    fn mail(&mut self, mail: Mail) {
        if self.shared.memory.is_full() {
            return self.answer(Verdict::Defer(refusal_reply(Refusal::Full)));
        }
        if self.shared.promises.is_stuck() {
            return self.answer(Verdict::Defer(refusal_reply(Refusal::Trouble)));
        }
        let number = self.shared.promises.begin();
        self.transaction = Some(Transaction {
            number,
            staged: false,
            mail,
            recipients: Vec::new(),
            recipients_bytes: 0,
        });
        self.answer(Verdict::Accept);
    }

    fn rcpt(&mut self, recipient: Recipient) {
        let verdict = self.shared.judge(self.client, &recipient.address);
        if let Some(reply) = verdict_reply(&verdict) {
            self.shared
                .log
                .event(Verb::Judge)
                .client(&self.whom)
                .text("helo", &self.helo)
                .from(self.sender())
                .to(&recipient.address)
                .reply(reply)
                .status("refused")
                .emit();
        } else if let Some(transaction) = &mut self.transaction {
            transaction.recipients_bytes +=
                size_of::<Recipient>() + recipient.address.as_str().len();
            transaction.recipients.push(recipient);
        }
        self.answer(verdict);
    }

    fn sender(&self) -> &mail::ReversePath {
        self.transaction.as_ref().map_or(&mail::ReversePath::Null, |t| &t.mail.sender)
    }

    /// No body is asked for while there is nobody to keep it.
    async fn data(&mut self) {
        let Some(transaction) = &self.transaction else { return };
        let credit = self.shared.promises.credit(transaction.number);
        let verdict = match tokio::time::timeout(QUEUE_WAIT, credit).await {
            Ok(()) if !self.shared.promises.is_stuck() => Verdict::Accept,
            Ok(()) | Err(_) => Verdict::Defer(refusal_reply(Refusal::Trouble)),
        };
        self.answer(verdict);
    }

    async fn body(&mut self, bytes: &[u8]) {
        let Some(transaction) = &mut self.transaction else { return };
        transaction.staged = true;
        self.shared.promises.stage(transaction.number, bytes);
        // The session is asked for more only when there is credit for it.
        if !self.shared.promises.credit_in_time(transaction.number).await {
            let text = "Queue trouble, closing; try again later";
            let now = self.now();
            self.session.hang_up(&Reply::new(421, Enhanced(4, 3, 0), text), now);
        }
    }

    async fn end(&mut self, end: BodyEnd) -> Next {
        let Some(transaction) = self.transaction.take() else { return Next::Close };
        faults::reach(Point::EndOfData);
        let number = transaction.number;
        let bytes = end.bytes;
        let began = self.now().monotonic;
        let arrival = Arrival::of(&transaction, bytes);
        let envelope = self.envelope(transaction, end.eight_bit);
        let answer = self.shared.promises.accept(number, envelope, &end.tail).await;
        let took = self.now().monotonic.since(began);
        match answer {
            Answer::Promised(durable) => self.promise(durable, &arrival, took),
            Answer::Refused(refusal) => {
                let reply = refusal_reply(refusal);
                let log = self.shared.log.event(Verb::Promise);
                log.client(&self.whom).from(&arrival.sender).reply(&reply).status("refused").emit();
                let now = self.now();
                self.session.refuse(&reply, now);
            }
            Answer::Abandoned => {
                let log = self.shared.log.event(Verb::Promise);
                log.client(&self.whom).from(&arrival.sender).status("abandoned").emit();
                return Next::Close;
            }
        }
        Next::GoOn
    }

    /// Says the final `250`: the proof is spent here.
    fn promise(&mut self, durable: Durable, arrival: &Arrival, took: Duration) {
        faults::reach(Point::BeforePromise);
        self.shared
            .log
            .event(Verb::Promise)
            .id(durable.message())
            .client(&self.whom)
            .text("helo", &self.helo)
            .from(&arrival.sender)
            .bytes(arrival.bytes)
            .number("recipients", arrival.recipients as u64)
            .delays(&[(Verb::Commit, took)])
            .status("queued")
            .emit();
        let now = self.now();
        self.session.promise(durable, now);
        self.promised = true;
    }

    fn envelope(&self, transaction: Transaction, eight_bit: bool) -> Envelope {
        let Transaction { mail, recipients, .. } = transaction;
        let body = if eight_bit { mail::BodyKind::EightBit } else { mail.body };
        Envelope {
            sender: mail.sender,
            ret: mail.ret,
            envid: mail.envid,
            body,
            smtputf8: mail.smtputf8,
            origin: Origin {
                client: self.client,
                helo: self.helo.clone(),
                protocol: mail.protocol,
            },
            arrived: self.now().wall,
            recipients,
        }
    }

    fn give_up(&mut self) {
        if let Some(transaction) = self.transaction.take()
            && transaction.staged
        {
            self.shared.promises.unstage(transaction.number);
        }
    }
}

/// Also when a bug ends the session: queue must not keep what nobody will finish.
impl Drop for Conversation {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// What the log says of a message once its envelope is handed over.
struct Arrival {
    sender: mail::ReversePath,
    recipients: usize,
    bytes: u64,
}

impl Arrival {
    fn of(transaction: &Transaction, bytes: u64) -> Arrival {
        let sender = transaction.mail.sender.clone();
        Arrival { sender, recipients: transaction.recipients.len(), bytes }
    }
}

/// A client as the log names it.
pub fn whom(client: Option<IpAddr>) -> Box<str> {
    client.map_or_else(|| "local".into(), |client| client.to_string().into())
}

fn verdict_reply(verdict: &Verdict) -> Option<&Reply> {
    match verdict {
        Verdict::Accept => None,
        Verdict::Defer(reply) | Verdict::Reject(reply) => Some(reply),
    }
}

/// What a client is told when the queue did not take its message.
fn refusal_reply(refusal: Refusal) -> Reply {
    match refusal {
        Refusal::Full => Reply::new(452, Enhanced(4, 3, 1), "Insufficient system storage"),
        Refusal::Trouble => Reply::new(451, Enhanced(4, 3, 0), "Queue trouble, try again later"),
        Refusal::TooLarge => Reply::new(552, Enhanced(5, 3, 4), "Message too big for this system"),
    }
}

/// The last line is the answer to QUIT.
fn is_goodbye(output: &[u8]) -> bool {
    let lines = output.strip_suffix(b"\r\n").unwrap_or(output);
    let last = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    lines[last..].starts_with(b"221 ")
}

async fn sleep(patience: Option<Duration>) {
    match patience {
        Some(patience) => tokio::time::sleep(patience).await,
        None => std::future::pending().await,
    }
}
