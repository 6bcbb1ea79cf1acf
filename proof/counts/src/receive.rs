//! The receive station: a client's bytes through `smtp`'s session, `policy` and `link`, up to the
//! `250`.
//!
//! Stands where `daemon/src/process/receive/conversation.rs` stands, without its log, sockets and
//! tasks. Must never say `250` without the answer of the queue process.

use crate::house::{BUILD, House, RECEIVER, carry, domain, routes};
use crate::meter::{Meter, Part, outside};
use bytes::BytesMut;
use link::receive::{ReceiverEnd, ReceiverEvent};
use link::recipients::Recipients;
use mail::{Durable, Envelope, Now, Origin, Recipient, Verdict};
use policy::{Accounts, Mailboxes, Names, Policy, Postmaster, Repeats};
use smtp::server::{self, BodyEnd, Event, Mail, Server, Session};
use std::net::IpAddr;
use std::sync::Arc;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7));

/// The receiving process.
pub struct Receive {
    end: ReceiverEnd,
    server: Arc<Server>,
    policy: Policy,
    next_number: u64,
    from_queue: BytesMut,
    to_queue: BytesMut,
}

/// One client's connection.
pub struct Guest {
    session: Session,
    /// What the session has not taken yet.
    kept: Vec<u8>,
    helo: Box<str>,
    transaction: Option<Transaction>,
    /// What was answered, for the eyes of a client that waits.
    heard: Vec<u8>,
}

struct Transaction {
    number: u64,
    mail: Mail,
    recipients: Recipients,
    repeats: Repeats,
    handed_over: bool,
}

impl Receive {
    /// One that has met the queue process.
    pub fn new(house: &mut House) -> Receive {
        let mut receive = Receive {
            end: ReceiverEnd::new(BUILD, 1),
            server: Server::new(server::Settings::for_tests(domain("mx.example.org"))),
            policy: Policy {
                relay_from: vec!["198.51.100.0/24".parse().expect("a network")],
                mailboxes: Mailboxes { names: Names::default(), accounts: Accounts::Any },
                postmaster: Postmaster::for_tests(),
                routes: routes(),
            },
            next_number: 1,
            from_queue: BytesMut::new(),
            to_queue: BytesMut::new(),
        };
        house.queue.receiver_connected(RECEIVER);
        receive.end.connected(house.now.monotonic);
        let meter = Meter::new(Part::Reference);
        receive.hand_over(house, &meter);
        receive.hear(house, &meter);
        assert!(receive.end.is_welcomed());
        receive
    }

    /// A client connects.
    pub fn greet(&self, now: Now) -> Guest {
        Guest {
            session: Session::new(self.server.clone(), now),
            kept: Vec::new(),
            helo: "".into(),
            transaction: None,
            heard: Vec::new(),
        }
    }

    /// The client's bytes have come.
    pub fn take(&mut self, guest: &mut Guest, bytes: &[u8], now: Now) {
        let taken = guest.session.receive(bytes, now);
        guest.kept.extend_from_slice(&bytes[taken..]);
        self.talk(guest, now);
    }

    /// Runs the session until it waits for its client or for a promise.
    pub fn talk(&mut self, guest: &mut Guest, now: Now) {
        loop {
            while let Some(event) = guest.session.poll(now) {
                self.act(guest, event, now);
            }
            outside(|| guest.heard.extend_from_slice(guest.session.output()));
            guest.session.output().clear();
            if guest.kept.is_empty() || guest.session.awaits_answer() {
                return;
            }
            let taken = guest.session.receive(&guest.kept, now);
            guest.kept.drain(..taken);
            if taken == 0 {
                return;
            }
        }
    }

    fn act(&mut self, guest: &mut Guest, event: Event, now: Now) {
        match event {
            Event::Hello { name, .. } => {
                guest.helo = name;
                guest.session.answer(Verdict::Accept, now);
            }
            Event::Mail(mail) => {
                let number = self.next_number;
                self.next_number += 1;
                let recipients = Recipients::default();
                let repeats = Repeats::default();
                let transaction =
                    Transaction { number, mail, recipients, repeats, handed_over: false };
                guest.transaction = Some(transaction);
                guest.session.answer(Verdict::Accept, now);
            }
            Event::Rcpt(recipient) => {
                let verdict = self.judge(&recipient);
                if let Some(transaction) = &mut guest.transaction {
                    let recipient = self.policy.as_delivered(recipient);
                    let (before, address) = (&transaction.recipients, &recipient.address);
                    let (next, place) = (before.next_place(&recipient), |at| before.address_at(at));
                    if !transaction.repeats.had(&self.policy, address, next, place) {
                        transaction.recipients.push(&recipient);
                    }
                }
                guest.session.answer(verdict, now);
            }
            Event::Data => {
                let number = guest.transaction.as_ref().map_or(0, |one| one.number);
                assert!(self.end.may_stage(number), "there is credit");
                guest.session.answer(Verdict::Accept, now);
            }
            Event::Body(bytes) => {
                let number = guest.transaction.as_ref().map_or(0, |one| one.number);
                self.end.stage(number, &bytes);
            }
            Event::BodyEnd(end) => self.accept(guest, &end, now),
            Event::Reset | Event::Close { .. } => {}
        }
    }

    fn judge(&self, recipient: &Recipient) -> Verdict {
        match self.policy.recipient(CLIENT, &recipient.address) {
            Verdict::Accept => Verdict::Accept,
            refused => panic!("this client may send there: {refused:?}"),
        }
    }

    fn accept(&mut self, guest: &mut Guest, end: &BodyEnd, now: Now) {
        let transaction = guest.transaction.as_mut().expect("a body has a transaction");
        transaction.handed_over = true;
        let mail = transaction.mail.clone();
        let recipients = std::mem::take(&mut transaction.recipients);
        let origin =
            Origin { client: Some(CLIENT), helo: guest.helo.clone(), protocol: mail.protocol };
        let envelope = Envelope {
            from: mail.from.with_bytes(end.eight_bit),
            origin,
            arrived: now.wall,
            recipients: Vec::new(),
        };
        self.end.accept_encoded(transaction.number, envelope, &recipients, &end.tail);
    }

    /// What has gathered for the queue process reaches it.
    pub fn hand_over(&mut self, house: &mut House, meter: &Meter) {
        carry(Some(self.end.output()), &mut self.to_queue);
        let (queue, now, input) = (&mut house.queue, house.now, &mut self.to_queue);
        let heard = meter.run(Part::Commit, || queue.receiver_input(RECEIVER, input, now));
        heard.expect("the two are of one build");
        house.pump(meter, Part::Commit);
    }

    /// What the queue process has answered reaches us; gives back what it promised.
    pub fn hear(&mut self, house: &mut House, meter: &Meter) -> Vec<(u64, Durable)> {
        carry(house.queue.receiver_output(RECEIVER), &mut self.from_queue);
        let (end, input) = (&mut self.end, &mut self.from_queue);
        let mut promises = Vec::new();
        meter.run(Part::Receive, || {
            end.handle(input).expect("the two are of one build");
            while let Some(event) = end.poll() {
                match event {
                    ReceiverEvent::Promised { number, durable } => {
                        outside(|| promises.push((number, durable)));
                    }
                    ReceiverEvent::Credit => {}
                    other => panic!("nothing is refused here: {other:?}"),
                }
            }
        });
        promises
    }

    /// The guest hears its `250`.
    pub fn promise(&mut self, guest: &mut Guest, durable: Durable, now: Now) {
        guest.transaction = None;
        guest.session.promise(durable, now);
        self.talk(guest, now);
    }
}

impl Guest {
    /// The number of the message that waits for its promise.
    pub fn awaits(&self) -> Option<u64> {
        self.transaction.as_ref().filter(|one| one.handed_over).map(|one| one.number)
    }

    /// The replies since it was asked last.
    pub fn heard(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.heard)).expect("replies are text")
    }
}
