//! One client: bytes to `smtp`'s session and back, facts to `policy`, the message to the queue.
//!
//! Must never decide anything: the machines do. Must never hold a read buffer of its own.

use super::alarm::Alarm;
use super::memory::{Share, session_bytes};
use super::promises::Answer;
use super::socket::Socket;
use super::{SCRATCH_BYTES, Shared};
use crate::log::EventKind;
use link::bounds::recipient_bytes;
use link::recipients::Recipients;
use mail::{Durable, Enhanced, Envelope, Now, Origin, Recipient, Refusal, Reply, Verdict};
use policy::{Client, Policy, Repeats};
use smtp::server::{BodyEnd, DeliveredTo, Event, Mail, Server, Session};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Result};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use world::Clock;
use world::real::faults::{self, Point};

/// How long a client that has been told goodbye may take to close, so that it can read why.
const LINGER: Duration = Duration::from_millis(500);
/// Replies that gather before they are sent: a client that sent thousands of RCPTs at once hears of the first while we
/// are at the others. No flood makes more of them: EHLO must be the last of its packet, and idle commands are counted.
const REPLIES_BYTES_MAX: usize = 8 << 10;
/// The same, and what is read of a client at once, while there is no room for more: a session then stays within the
/// least that it is counted with.
const SHORT_BYTES_MAX: usize = 1 << 10;
/// Counted for each recipient over LMTP: its reply at the end, and the growth of the buffer of all of them.
const LMTP_REPLY_BYTES: usize = 160;
/// A buffer of replies this large is given back when they are out.
const REPLIES_BYTES_KEPT: usize = 4 << 10;
/// Refused recipients of one session that are logged one by one; the rest is one line at its end.
const REFUSALS_LOGGED_MAX: u64 = 100;
/// How long DATA waits for a queue process that is being started again.
const QUEUE_WAIT: Duration = Duration::from_secs(10);

/// One client's connection.
pub struct Conversation {
    shared: Rc<Shared>,
    socket: Socket,
    client: Option<IpAddr>,
    /// Its listener trusts it.
    trusted: bool,
    /// The same for the log.
    whom: Box<str>,
    session: Session,
    /// When it was last looked: after each wait.
    now: Now,
    alarm: Alarm,
    /// What the session has not taken yet, from `kept_from` on; empty, when it has all. A list's thousands of RCPTs
    /// come in one piece: to move the rest of it up after each would cost more than all else.
    kept: Vec<u8>,
    kept_from: usize,
    /// The client has closed its side, or the last reply was to QUIT: no need to linger.
    parted: bool,
    /// We have been told to end.
    stopping: bool,
    /// A `250` is among the replies that have not gone out.
    promised: bool,
    helo: Box<str>,
    transaction: Option<Transaction>,
    /// Recipients that were refused.
    refused: u64,
    memory: Share,
}

struct Transaction {
    number: u64,
    staged: bool,
    mail: Mail,
    recipients: Recipients,
    repeats: Repeats,
}

impl Transaction {
    fn new(number: u64, mail: Mail) -> Transaction {
        let (recipients, repeats) = (Recipients::default(), Repeats::default());
        Transaction { number, staged: false, mail, recipients, repeats }
    }

    /// What its recipients take.
    fn memory_bytes(&self, lmtp: bool) -> usize {
        self.recipients.memory_bytes() + self.recipients.len() * each_bytes(lmtp)
    }

    /// Upper bound on what one recipient more takes.
    fn growth_bytes(&self, recipient: &Recipient, lmtp: bool) -> usize {
        self.recipients.growth_bytes(recipient) + each_bytes(lmtp)
    }

    /// Whether the mailbox of ours that a recipient means is a recipient already, in whatever spelling: it gets
    /// one copy, with the parameters of the first time. If it is none yet, `push` has to follow.
    fn had(&mut self, policy: &Policy, recipient: &Recipient) -> bool {
        let place = self.recipients.next_place(recipient);
        let before = |place| self.recipients.address_at(place);
        self.repeats.had(policy, &recipient.address, place, before)
    }
}

/// What a recipient takes beside itself.
fn each_bytes(lmtp: bool) -> usize {
    Repeats::ENTRY_BYTES_MAX + if lmtp { LMTP_REPLY_BYTES } else { 0 }
}

/// What DATA takes beside the recipients: a full piece of the body, and the recipients once more when they are handed
/// over.
fn data_bytes(frame_bytes: usize) -> usize {
    SCRATCH_BYTES + frame_bytes
}

/// Why a recipient is not added.
enum NoRoom {
    /// Too much is held at this moment.
    Now,
    /// The transaction has as many as fit into the memory that its client may have.
    InOneMessage,
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
        server: Arc<Server>,
        socket: Socket,
        client: Client,
        memory: Share,
    ) -> Conversation {
        let now = shared.clock.now();
        let session = Session::new(server, now);
        Conversation {
            shared,
            socket,
            client: client.address,
            trusted: client.trusted,
            whom: whom(client.address),
            session,
            now,
            alarm: Alarm::new(),
            kept: Vec::new(),
            kept_from: 0,
            parted: false,
            stopping: false,
            promised: false,
            helo: "".into(),
            transaction: None,
            refused: 0,
            memory,
        }
    }

    /// Talks until one of the two ends it.
    pub async fn run(mut self) {
        let ended = self.talk().await;
        self.give_up();
        self.log_refused();
        if ended.is_ok() {
            self.linger().await;
        }
    }

    async fn talk(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        let mut stop = pin!(shared.stopping.wait());
        loop {
            while let Some(event) = self.session.poll(self.now) {
                if matches!(self.act(event).await?, Next::Close) {
                    return self.flush(true).await;
                }
            }
            // The replies to commands that came together go together (RFC 2920 3.2).
            if self.session.output().len() < self.replies_bytes_max() && self.offer_kept() {
                continue;
            }
            self.flush(false).await?;
            if self.kept.is_empty() && self.wait(stop.as_mut()).await? {
                stop.set(shared.stopping.wait());
            }
        }
    }

    /// Tells the sum of all sessions what this one holds.
    fn count(&mut self) {
        let buffers = self.session.buffer_bytes() + self.kept.capacity();
        self.memory.is_now(session_bytes(buffers, self.bytes_beside_buffers()));
    }

    fn bytes_beside_buffers(&self) -> usize {
        let lmtp = self.session.server().settings().lmtp;
        let recipients = self.transaction.as_ref().map_or(0, |one| one.memory_bytes(lmtp));
        self.session.memory_bytes() - self.session.buffer_bytes() + recipients
    }

    /// Whether this session may hold `bytes` more.
    fn has_room(&self, bytes: usize) -> bool {
        self.memory.has_room(bytes, self.shared.promises.held_bytes())
    }

    /// Answers that there is no room for what was asked.
    fn answer_full(&mut self) {
        self.memory.refused();
        self.answer(Refusal::Full.into());
    }

    fn replies_bytes_max(&self) -> usize {
        if self.has_room(0) { REPLIES_BYTES_MAX } else { SHORT_BYTES_MAX }
    }

    fn look_at_clock(&mut self) {
        self.now = self.shared.clock.now();
    }

    /// Offers what was read before; `true` if the session took any of it.
    fn offer_kept(&mut self) -> bool {
        if self.kept.is_empty() {
            return false;
        }
        let taken = self.session.receive(&self.kept[self.kept_from..], self.now);
        self.kept_from += taken;
        if self.kept_from == self.kept.len() {
            (self.kept, self.kept_from) = (Vec::new(), 0);
        }
        taken > 0
    }

    /// Waits for bytes, for the end of the client's time, or for our own end. `true` if `stop` came back and the end
    /// was not ordered: it is to be waited for anew.
    async fn wait<F>(&mut self, mut stop: Pin<&mut F>) -> Result<bool>
    where
        F: Future<Output = ()>,
    {
        self.count();
        self.session.stress(self.memory.is_stressed());
        // Also a client that always has more to say comes to the end of its time.
        self.session.handle_timeout(self.now);
        if self.session.is_closed() {
            return Ok(false);
        }
        if let Some(at) = self.session.next_wakeup() {
            self.alarm.ring_by(at, &self.shared.clock);
        }
        poll_fn(|context| {
            if let Poll::Ready(read) = self.poll_read(context) {
                return Poll::Ready(read.map(|()| false));
            }
            if !self.stopping && stop.as_mut().poll(context).is_ready() {
                self.look_at_clock();
                self.stopping = self.shared.stopping.has_begun();
                if self.stopping {
                    self.session.shutdown(self.now);
                }
                return Poll::Ready(Ok(!self.stopping));
            }
            // If the alarm rings early, the session does nothing. There may be room again by now.
            self.alarm.poll(context).map(|()| {
                self.look_at_clock();
                self.session.stress(self.memory.is_stressed());
                self.session.handle_timeout(self.now);
                Ok(false)
            })
        })
        .await
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let room = self.has_room(SCRATCH_BYTES);
        let most = if room { SCRATCH_BYTES } else { SHORT_BYTES_MAX };
        let mut scratch = self.shared.scratch.borrow_mut();
        let length = ready!(self.socket.poll_read(context, &mut scratch[..most]))?;
        if !self.has_room(0) && self.session.drop_body(&Refusal::Full.reply()) {
            self.memory.refused();
        }
        self.now = self.shared.clock.now();
        if length == 0 {
            self.parted = true;
            self.session.eof(self.now);
        } else {
            faults::reach(Point::Parse);
            let taken = self.session.receive(&scratch[..length], self.now);
            self.kept.extend_from_slice(&scratch[taken..length]);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all replies; the client's patience and ours are the session's to count. `last`: the
    /// connection ends after them.
    async fn flush(&mut self, last: bool) -> Result<()> {
        if self.session.output().is_empty() {
            return Ok(());
        }
        self.send(last && self.parted && self.kept.is_empty())?;
        if !self.session.output().is_empty() {
            self.flush_patiently().await?;
        }
        if self.session.output().capacity() > REPLIES_BYTES_KEPT {
            *self.session.output() = Vec::new();
        }
        if std::mem::take(&mut self.promised) {
            faults::reach(Point::AfterPromise);
        }
        Ok(())
    }

    /// Writes what the client takes at once.
    pub fn send(&mut self, last: bool) -> Result<()> {
        let output = self.session.output();
        if !output.is_empty() {
            let sent = self.socket.send(output, last)?;
            output.drain(..sent);
        }
        Ok(())
    }

    /// Writes what the client takes its time to read: for as long as the session gives it. A session that is closed
    /// gives no time any more; its last replies have the command timeout, and once we are to end no more than a
    /// goodbye has.
    async fn flush_patiently(&mut self) -> Result<()> {
        self.count();
        let shared = self.shared.clone();
        let mut stop = pin!(shared.stopping.wait());
        let mut stopping = false;
        self.look_at_clock();
        let wait_max = self.session.server().settings().command_wait_max;
        let mut closed_by = self.now.monotonic + wait_max;
        while !self.session.output().is_empty() {
            self.session.stress(self.memory.is_stressed());
            match self.socket.try_write(self.session.output()) {
                Ok(written) => drop(self.session.output().drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.look_at_clock();
                    let by = self.session.next_wakeup().unwrap_or(closed_by);
                    tokio::select! {
                        ready = self.socket.writable() => ready?,
                        () = tokio::time::sleep(by.since(self.now.monotonic)) => {
                            return Err(ErrorKind::TimedOut.into());
                        }
                        () = stop.as_mut(), if !stopping => {
                            stopping = shared.stopping.has_begun();
                            if stopping {
                                closed_by = closed_by.min(self.now.monotonic + LINGER);
                            } else {
                                stop.set(shared.stopping.wait());
                            }
                        }
                    }
                    self.look_at_clock();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A goodbye with unread input behind it would be lost by the reset that a close sends.
    async fn linger(&mut self) {
        if self.parted && self.kept.is_empty() {
            return;
        }
        // Its transaction is gone: others have that room meanwhile.
        self.count();
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

    async fn act(&mut self, event: Event) -> Result<Next> {
        match event {
            Event::Hello { name, .. } => {
                self.helo = name;
                self.answer(Verdict::Accept);
            }
            Event::Mail(mail) => self.mail(mail),
            Event::Rcpt(recipient) => self.rcpt(recipient),
            Event::Data => self.data().await?,
            Event::Body(bytes) => self.body(bytes).await?,
            Event::BodyEnd(end) => return self.end(end).await,
            Event::Reset => self.give_up(),
            Event::Close { after_quit } => {
                self.parted |= after_quit;
                return Ok(Next::Close);
            }
        }
        Ok(Next::GoOn)
    }

    fn answer(&mut self, verdict: Verdict) {
        self.session.answer(verdict, self.now);
    }

    fn mail(&mut self, mail: Mail) {
        if !self.has_room(0) {
            return self.answer_full();
        }
        if self.shared.promises.is_stuck() {
            return self.answer(Refusal::Broken.into());
        }
        let number = self.shared.promises.begin();
        self.transaction = Some(Transaction::new(number, mail));
        self.answer(Verdict::Accept);
    }

    fn rcpt(&mut self, recipient: Recipient) {
        let encoded_bytes = recipient_bytes(&recipient);
        let before = self.transaction.as_ref().map_or(0, |one| one.recipients.frame_bytes());
        if before + encoded_bytes > self.shared.recipients_bytes_max.get() {
            return self.answer(Verdict::Defer(recipients_too_long()));
        }
        let client = Client { address: self.client, trusted: self.trusted };
        let verdict = self.shared.judge(client, &recipient.address);
        if let Some(reply) = verdict.reply() {
            self.log_refusal(&recipient, reply);
        } else if let Err(no_room) = self.keep(recipient) {
            return match no_room {
                NoRoom::Now => self.answer_full(),
                NoRoom::InOneMessage => self.answer(Verdict::Defer(recipients_too_long())),
            };
        }
        self.answer(verdict);
    }

    fn log_refusal(&mut self, recipient: &Recipient, reply: &Reply) {
        self.refused += 1;
        if self.refused <= REFUSALS_LOGGED_MAX {
            let log = self.shared.log.event(EventKind::Judge).client(&self.whom);
            let log = log.text("helo", &self.helo).from(self.sender()).to(&recipient.address);
            log.reply(reply).status("refused").emit();
        }
    }

    /// One line for all refused recipients that had none of their own.
    fn log_refused(&self) {
        let more = self.refused.saturating_sub(REFUSALS_LOGGED_MAX);
        if more > 0 {
            let log = self.shared.log.event(EventKind::Judge).client(&self.whom);
            let log = log.text("helo", &self.helo).number("recipients", more);
            log.status("refused").emit();
        }
    }

    /// Adds a recipient to the transaction, if there is room for it, and would be for DATA, too: a client that is
    /// refused DATA for the recipients that it named comes back with the same ones, until it gives up.
    fn keep(&mut self, recipient: Recipient) -> std::result::Result<(), NoRoom> {
        self.count();
        let beside_buffers = self.bytes_beside_buffers();
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        let policy = self.shared.policy.borrow();
        let recipient = policy.as_delivered(recipient);
        let bytes = transaction.growth_bytes(&recipient, self.session.server().settings().lmtp);
        let frame_bytes = transaction.recipients.frame_bytes() + recipient_bytes(&recipient);
        let at_data = beside_buffers + bytes + data_bytes(frame_bytes);
        if !self.memory.has_room_alone(session_bytes(0, at_data)) {
            return Err(NoRoom::InOneMessage);
        }
        if !self.memory.has_room(bytes, self.shared.promises.held_bytes()) {
            return Err(NoRoom::Now);
        }
        if !transaction.had(&policy, &recipient) {
            transaction.recipients.push(&recipient);
        }
        Ok(())
    }

    fn sender(&self) -> &mail::ReversePath {
        self.transaction.as_ref().map_or(&mail::ReversePath::Null, |t| &t.mail.from.sender)
    }

    /// No body is asked for while there is nobody to keep it.
    async fn data(&mut self) -> Result<()> {
        self.count();
        let Some(transaction) = &self.transaction else { return Ok(()) };
        if !self.has_room(data_bytes(transaction.recipients.frame_bytes())) {
            self.answer_full();
            return Ok(());
        }
        let may = self.credit(transaction.number, QUEUE_WAIT).await?;
        let verdict = match may && !self.shared.promises.is_stuck() {
            true => Verdict::Accept,
            false => Refusal::Broken.into(),
        };
        self.answer(verdict);
        Ok(())
    }

    async fn body(&mut self, bytes: Vec<u8>) -> Result<()> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        transaction.staged = true;
        let number = transaction.number;
        // Others may have spent the credit since this session was told to read on.
        if !self.credit(number, self.shared.promises.patience()).await? {
            self.hang_up();
            return Ok(());
        }
        self.shared.promises.stage(number, &bytes);
        drop(bytes);
        // The session is asked for more only when there is credit for it.
        if !self.credit(number, self.shared.promises.patience()).await? {
            self.hang_up();
        }
        Ok(())
    }

    fn hang_up(&mut self) {
        let text = "Queue trouble, closing; try again later";
        self.session.hang_up(&Reply::new(421, Enhanced(4, 3, 0), text), self.now);
    }

    /// Waits until more may be handed over; `false` when that took too long.
    async fn credit(&mut self, number: u64, patience: Duration) -> Result<bool> {
        if self.shared.promises.has_credit(number) {
            return Ok(true);
        }
        self.count();
        self.send(false)?;
        let may = self.shared.promises.credit_within(number, patience).await;
        self.look_at_clock();
        Ok(may)
    }

    async fn end(&mut self, end: BodyEnd) -> Result<Next> {
        self.send(false)?;
        let Some(number) = self.transaction.as_ref().map(|transaction| transaction.number) else {
            return Ok(Next::Close);
        };
        faults::reach(Point::EndOfData);
        if !self.credit(number, self.shared.promises.patience()).await? {
            self.give_up();
            self.session.refuse(&Refusal::Broken.reply(), self.now);
            return Ok(Next::GoOn);
        }
        let Some(transaction) = self.transaction.take() else { return Ok(Next::Close) };
        if self.has_gone_in_a_circle(&transaction, &end.delivered_to) {
            self.refuse_loop(&transaction);
            return Ok(Next::GoOn);
        }
        let arrival = Arrival::of(&transaction, end.bytes);
        let (envelope, recipients) = self.envelope(transaction, end.eight_bit);
        let waiting = self.shared.promises.accept(number, envelope, &recipients, &end.tail);
        drop((recipients, end));
        self.count();
        let began = self.now.monotonic;
        let answer = poll_fn(|context| waiting.poll(context)).await;
        self.look_at_clock();
        match answer {
            Answer::Promised(durable) => {
                self.promise(durable, &arrival, self.now.monotonic.since(began));
            }
            Answer::Refused(refusal) => {
                let reply = refusal.reply();
                let log = self.shared.log.event(EventKind::Promise);
                log.client(&self.whom).from(&arrival.sender).reply(&reply).status("refused").emit();
                self.session.refuse(&reply, self.now);
            }
            Answer::Abandoned => {
                let log = self.shared.log.event(EventKind::Promise);
                log.client(&self.whom).from(&arrival.sender).status("abandoned").emit();
                return Ok(Next::Close);
            }
        }
        Ok(Next::GoOn)
    }

    fn has_gone_in_a_circle(&self, transaction: &Transaction, seen: &DeliveredTo) -> bool {
        let policy = self.shared.policy.borrow();
        !seen.is_empty()
            && policy.is_loop(transaction.recipients.iter(), |address| seen.names(address))
    }

    /// Refuses a message that its recipient has had: nobody else hears of it.
    fn refuse_loop(&mut self, transaction: &Transaction) {
        if transaction.staged {
            self.shared.promises.unstage(transaction.number);
        }
        let text = "Error: mail loop, delivered to this recipient before";
        let reply = Reply::new(554, Enhanced(5, 4, 6), text);
        let log = self.shared.log.event(EventKind::Judge).client(&self.whom);
        log.from(&transaction.mail.from.sender).reply(&reply).status("refused").emit();
        self.session.refuse(&reply, self.now);
    }

    /// Says the final `250`: the proof is spent here.
    fn promise(&mut self, durable: Durable, arrival: &Arrival, took: Duration) {
        faults::reach(Point::BeforePromise);
        self.shared
            .log
            .event(EventKind::Promise)
            .id(durable.message())
            .client(&self.whom)
            .text("helo", &self.helo)
            .from(&arrival.sender)
            .bytes(arrival.bytes)
            .number("recipients", arrival.recipients as u64)
            .delays(&[(EventKind::Commit, took)])
            .status("queued")
            .emit();
        self.session.promise(durable, self.now);
        self.promised = true;
    }

    /// The envelope without its recipients, and these.
    fn envelope(&self, transaction: Transaction, eight_bit: bool) -> (Envelope, Recipients) {
        let Transaction { mail, recipients, .. } = transaction;
        let envelope = Envelope {
            from: mail.from.with_bytes(eight_bit),
            origin: Origin {
                client: self.client,
                helo: self.helo.clone(),
                protocol: mail.protocol,
            },
            arrived: self.now.wall,
            recipients: Vec::new(),
        };
        (envelope, recipients)
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
        let sender = transaction.mail.from.sender.clone();
        Arrival { sender, recipients: transaction.recipients.len(), bytes }
    }
}

/// A client as the log names it.
pub fn whom(client: Option<IpAddr>) -> Box<str> {
    client.map_or_else(|| "local".into(), |client| client.to_string().into())
}

/// No more recipients fit into this message: the client sends it again to the others
/// (RFC 5321 4.5.3.1.10).
fn recipients_too_long() -> Reply {
    Reply::new(
        452,
        Enhanced(4, 5, 3),
        "Too many recipients for one message, send it again to the rest",
    )
}
