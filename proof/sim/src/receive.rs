//! A receiving process: the sessions of clients, and the conversation with queue.
//!
//! Stands where `daemon/src/process/receive` stands and wires the same machines in the same way.
//! Must never say `250` itself: the session does, and it wants a `Durable`.

use crate::net::{End, Segment, StreamId};
use crate::plan::Station;
use crate::stage::{Event, World};
use bytes::BytesMut;
use link::receive::{ReceiverEnd, ReceiverEvent};
use link::streams::Loss;
use mail::{Envelope, Instant, Origin, Recipient, Refusal, Verdict};
use policy::{Policy, Repeats};
use smtp::server::{self, BodyEnd, Mail, Server, Session};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use world::Chance as _;

/// The build that all processes are of.
pub const BUILD: u64 = 1;
/// How long DATA waits for a queue process, as in the daemon.
const QUEUE_WAIT: Duration = Duration::from_secs(10);

/// What a session waits for beside its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    /// Credit before DATA is answered, until then.
    Data(Instant),
    /// Credit before a piece of the body is handed over, or more of it is read.
    Body,
    /// What becomes of the message.
    Answer,
}

struct Transaction {
    number: u64,
    staged: bool,
    mail: Mail,
    recipients: Vec<Recipient>,
    repeats: Repeats,
}

impl Transaction {
    /// One copy for each mailbox, as the real process has it.
    fn take(&mut self, policy: &Policy, recipient: Recipient) {
        let recipient = policy.as_delivered(recipient);
        let (before, address) = (&self.recipients, &recipient.address);
        if !self.repeats.had(policy, address, before.len(), |at| &before[at].address) {
            self.recipients.push(recipient);
        }
    }
}

struct Guest {
    session: Session,
    kept: Vec<u8>,
    fin: bool,
    gone: bool,
    told_fin: bool,
    closing: bool,
    helo: Box<str>,
    transaction: Option<Transaction>,
    waiting_number: u64,
    wait: Wait,
    /// What waits for credit before it is handed over.
    held: Option<Held>,
}

enum Held {
    Piece(Vec<u8>),
    End(Box<BodyEnd>),
}

/// One receiving process.
pub struct Receive {
    /// Which.
    pub station: Station,
    /// Counts its lives.
    pub life: u64,
    instance: u16,
    end: ReceiverEnd,
    server: Arc<Server>,
    guests: BTreeMap<StreamId, Guest>,
    next_number: u64,
    /// The stream to queue.
    pub link: Option<StreamId>,
    input: BytesMut,
    wake_at: Option<Instant>,
}

impl Receive {
    /// Starts one.
    pub fn new(instance: u16, life: u64, world: &mut World) -> Receive {
        let origin = world.chance.u64();
        let hostname = mail::Domain::parse("mx.test").expect("a domain");
        let settings = server::Settings {
            body_chunk_bytes: world.plan.settings.body_chunk_bytes,
            ..server::Settings::for_tests(hostname)
        };
        Receive {
            station: Station::Receive(instance),
            life,
            instance,
            end: ReceiverEnd::new(BUILD, origin),
            server: Server::new(settings),
            guests: BTreeMap::new(),
            next_number: 1,
            link: None,
            input: BytesMut::new(),
            wake_at: None,
        }
    }

    /// A client has connected.
    pub fn greet(&mut self, stream: StreamId, world: &mut World) {
        let guest = Guest {
            session: Session::new(self.server.clone(), world.now()),
            kept: Vec::new(),
            fin: false,
            gone: false,
            told_fin: false,
            closing: false,
            helo: "".into(),
            transaction: None,
            waiting_number: 0,
            wait: Wait::Nothing,
            held: None,
        };
        self.guests.insert(stream, guest);
        self.drive(stream, world);
    }

    /// A stream to a queue process is there.
    pub fn connected(&mut self, stream: StreamId, world: &mut World) {
        self.link = Some(stream);
        self.input.clear();
        self.end.connected(world.now().monotonic);
        self.pump(world);
    }

    /// Something has arrived.
    pub fn hear(&mut self, stream: StreamId, end: End, segment: Segment, world: &mut World) {
        match (end, segment) {
            (End::Session(_), Segment::Bytes(bytes)) => {
                if let Some(guest) = self.guests.get_mut(&stream) {
                    guest.kept.extend_from_slice(&bytes);
                }
                self.drive(stream, world);
            }
            (End::Session(_), how) => {
                if let Some(guest) = self.guests.get_mut(&stream) {
                    guest.fin = true;
                    guest.gone |= how == Segment::Reset;
                }
                self.drive(stream, world);
            }
            (_, Segment::Bytes(bytes)) if self.link == Some(stream) => {
                self.input.extend_from_slice(&bytes);
                if let Err(error) = self.end.handle(&mut self.input) {
                    world.broken(stream, &format!("receive{}", self.instance), error);
                    self.unlink(Loss::Link(error), world);
                }
                self.pump(world);
            }
            (_, _) if self.link == Some(stream) => self.unlink(Loss::Ended, world),
            _ => {}
        }
    }

    fn unlink(&mut self, loss: Loss, world: &mut World) {
        if let Some(stream) = self.link.take() {
            world.lost(self.station, stream, loss);
            world.hang_up(stream, 1, Segment::Fin);
        }
        self.end.disconnected(world.now().monotonic);
        self.pump(world);
    }

    /// A clock has rung.
    pub fn wake(&mut self, world: &mut World) {
        self.wake_at.take_if(|at| *at <= world.now().monotonic);
        let now = world.now();
        self.end.handle_timeout(now.monotonic);
        let due: Vec<StreamId> = self.guests.keys().copied().collect();
        for stream in due {
            let Some(guest) = self.guests.get_mut(&stream) else { continue };
            match guest.wait {
                Wait::Nothing
                    if guest.session.next_wakeup().is_some_and(|at| at <= now.monotonic) =>
                {
                    guest.session.handle_timeout(now);
                    self.drive(stream, world);
                }
                Wait::Data(until) if until <= now.monotonic => {
                    guest.wait = Wait::Nothing;
                    guest.session.answer(Refusal::Broken.into(), now);
                    self.drive(stream, world);
                }
                _ => {}
            }
        }
        self.pump(world);
    }

    /// Carries on what queue said, and writes to it.
    fn pump(&mut self, world: &mut World) {
        while let Some(event) = self.end.poll() {
            match event {
                ReceiverEvent::Promised { number, durable } => {
                    self.answered(number, world, |session, now| session.promise(durable, now));
                }
                ReceiverEvent::Refused { number, refusal } => {
                    self.answered(number, world, |session, now| {
                        session.refuse(&refusal.reply(), now);
                    });
                }
                ReceiverEvent::Abandoned { number } => self.abandon(number, world),
                ReceiverEvent::Credit => self.credit(world),
            }
        }
        if let Some(link) = self.link {
            let frames: Vec<u8> = self.end.output().drain(..).flatten().collect();
            if !frames.is_empty() {
                world.put(link, 1, Segment::Bytes(frames), Duration::ZERO);
            }
        }
        self.sleep(world);
    }

    fn answered(
        &mut self,
        number: u64,
        world: &mut World,
        say: impl FnOnce(&mut Session, mail::Now),
    ) {
        let waits = |guest: &Guest| guest.wait == Wait::Answer && guest.waiting_number == number;
        let found = self.guests.iter_mut().find(|(_, guest)| waits(guest));
        // A session that has gone in the meantime hears nothing.
        let Some((stream, guest)) = found else { return };
        let stream = *stream;
        guest.wait = Wait::Nothing;
        say(&mut guest.session, world.now());
        self.drive(stream, world);
    }

    fn abandon(&mut self, number: u64, world: &mut World) {
        let waits = |guest: &Guest| guest.wait == Wait::Answer && guest.waiting_number == number;
        let found = self.guests.iter().find(|(_, guest)| waits(guest));
        if let Some(stream) = found.map(|(stream, _)| *stream) {
            self.guests.remove(&stream);
            world.hang_up(stream, 1, Segment::Fin);
        }
    }

    fn credit(&mut self, world: &mut World) {
        let waiting: Vec<StreamId> = self
            .guests
            .iter()
            .filter(|(_, guest)| matches!(guest.wait, Wait::Data(_) | Wait::Body))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in waiting {
            let Some(guest) = self.guests.get_mut(&stream) else { continue };
            let Some(number) = guest.transaction.as_ref().map(|t| t.number) else { continue };
            if !self.end.may_stage(number) {
                continue;
            }
            if matches!(guest.wait, Wait::Data(_)) {
                guest.session.answer(Verdict::Accept, world.now());
            }
            guest.wait = Wait::Nothing;
            let mut guest = self.guests.remove(&stream).expect("it was found above");
            match guest.held.take() {
                Some(Held::Piece(bytes)) => self.body(&mut guest, bytes),
                Some(Held::End(end)) => self.end_of_body(&mut guest, *end, world),
                None => {}
            }
            self.guests.insert(stream, guest);
            self.drive(stream, world);
        }
    }

    fn drive(&mut self, stream: StreamId, world: &mut World) {
        let Some(mut guest) = self.guests.remove(&stream) else { return };
        let open = self.converse(&mut guest, stream, world);
        if open {
            self.guests.insert(stream, guest);
        } else {
            give_up(&mut self.end, &mut guest);
            world.hang_up(stream, 1, Segment::Fin);
        }
        if let Some(link) = self.link {
            let frames: Vec<u8> = self.end.output().drain(..).flatten().collect();
            if !frames.is_empty() {
                world.put(link, 1, Segment::Bytes(frames), Duration::ZERO);
            }
        }
        self.sleep(world);
    }

    /// False: the connection is over.
    fn converse(&mut self, guest: &mut Guest, stream: StreamId, world: &mut World) -> bool {
        loop {
            while guest.wait == Wait::Nothing {
                let Some(event) = guest.session.poll(world.now()) else { break };
                self.act(guest, event, stream, world);
            }
            if guest.gone && guest.wait == Wait::Nothing {
                return false;
            }
            let output = std::mem::take(guest.session.output());
            if !output.is_empty() {
                world.put(stream, 1, Segment::Bytes(output), Duration::ZERO);
            }
            if guest.closing {
                return false;
            }
            if guest.wait != Wait::Nothing {
                return true;
            }
            if !guest.kept.is_empty() {
                let taken = guest.session.receive(&guest.kept, world.now());
                guest.kept.drain(..taken);
                if taken > 0 {
                    continue;
                }
            }
            if guest.fin && !guest.told_fin && guest.kept.is_empty() {
                guest.told_fin = true;
                guest.session.eof(world.now());
                continue;
            }
            return true;
        }
    }

    fn act(
        &mut self,
        guest: &mut Guest,
        event: server::Event,
        stream: StreamId,
        world: &mut World,
    ) {
        let now = world.now();
        match event {
            server::Event::Hello { name, .. } => {
                guest.helo = name;
                guest.session.answer(Verdict::Accept, now);
            }
            server::Event::Mail(mail) => {
                let number = self.next_number;
                self.next_number += 1;
                let (recipients, repeats) = (Vec::new(), Repeats::default());
                let transaction = Transaction { number, staged: false, mail, recipients, repeats };
                guest.transaction = Some(transaction);
                guest.session.answer(Verdict::Accept, now);
            }
            server::Event::Rcpt(recipient) => {
                let verdict = world.policy.recipient(client(), &recipient.address);
                if let (Verdict::Accept, Some(transaction)) = (&verdict, &mut guest.transaction) {
                    transaction.take(&world.policy, recipient);
                }
                guest.session.answer(verdict, now);
            }
            server::Event::Data => {
                let Some(transaction) = &guest.transaction else { return };
                match self.end.may_stage(transaction.number) {
                    true => guest.session.answer(Verdict::Accept, now),
                    false => guest.wait = Wait::Data(now.monotonic + QUEUE_WAIT),
                }
            }
            server::Event::Body(bytes) => {
                self.body(guest, bytes);
            }
            server::Event::BodyEnd(end) => self.end_of_body(guest, end, world),
            server::Event::Reset => give_up(&mut self.end, guest),
            server::Event::Close { .. } => {
                world.log(|| format!("receive: stream {stream} is closed by us"));
                guest.closing = true;
            }
        }
    }

    fn body(&mut self, guest: &mut Guest, bytes: Vec<u8>) {
        let Some(transaction) = &mut guest.transaction else { return };
        transaction.staged = true;
        if !self.end.may_stage(transaction.number) {
            (guest.wait, guest.held) = (Wait::Body, Some(Held::Piece(bytes)));
            return;
        }
        self.end.stage(transaction.number, &bytes);
        if !self.end.may_stage(transaction.number) {
            guest.wait = Wait::Body;
        }
    }

    fn end_of_body(&mut self, guest: &mut Guest, end: BodyEnd, world: &mut World) {
        if let Some(transaction) = &guest.transaction
            && !self.end.may_stage(transaction.number)
        {
            (guest.wait, guest.held) = (Wait::Body, Some(Held::End(end.into())));
            return;
        }
        let Some(transaction) = guest.transaction.take() else {
            guest.closing = true;
            return;
        };
        let Transaction { number, mail, recipients, .. } = transaction;
        let envelope = Envelope {
            from: mail.from.with_bytes(end.eight_bit),
            origin: Origin {
                client: Some(client()),
                helo: guest.helo.clone(),
                protocol: mail.protocol,
            },
            arrived: world.now().wall,
            recipients,
        };
        guest.wait = Wait::Answer;
        guest.waiting_number = number;
        self.end.accept(number, envelope, &end.tail);
        // A refusal may be there at once; it is heard at this process's next turn.
        world.after(Duration::ZERO, Event::Wake(self.station, self.life));
    }

    fn sleep(&mut self, world: &mut World) {
        let waits = self.guests.values().filter_map(|guest| match guest.wait {
            Wait::Nothing => guest.session.next_wakeup(),
            Wait::Data(until) => Some(until),
            _ => None,
        });
        let Some(at) = waits.chain(self.end.next_wakeup()).min() else { return };
        let at = at.max(world.now().monotonic + Duration::from_micros(1));
        if self.wake_at.is_none_or(|before| at < before) {
            self.wake_at = Some(at);
            world.at(at, Event::Wake(self.station, self.life));
        }
    }
}

fn give_up(end: &mut ReceiverEnd, guest: &mut Guest) {
    if let Some(transaction) = guest.transaction.take()
        && transaction.staged
    {
        end.unstage(transaction.number);
    }
}

/// Where all clients come from.
fn client() -> IpAddr {
    [10, 9, 9, 9].into()
}
