//! One connection to a next hop: greets, hands over message after message, and says for each
//! recipient what the peer answered.
//!
//! Must never report a recipient as delivered without the peer's own 2yz after the last byte,
//! and never end a body that did not come whole.

use super::body::{BodyOut, Framing};
use super::config::{Config, Dialect};
use super::delivery::{Delivery, Step, outcome};
use super::message::Message;
use super::offers::Offers;
use super::replies::{Garbage, ReplyReader};
use super::scan::Scan;
use crate::framing::Stuffer;
use bytes::Bytes;
use mail::{Enhanced, Instant, Now, Outcome, Reply, Stage};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// While more than this is unwritten, no more of a body is framed.
const UNWRITTEN_BYTES_MAX: usize = 512 * 1024;

/// What the driver has to tell.
#[derive(Debug)]
pub enum Input<'a> {
    /// Bytes from the peer.
    Received(&'a [u8]),
    /// The peer has closed, or the connection broke.
    Lost,
    /// A message to hand over; only while `can_send` or before the greeting, one at a time.
    Send(Box<Message>),
    /// The bytes that `Output::NeedBody` asked for.
    Body(Bytes),
    /// They cannot be had.
    BodyFailed,
    /// A wakeup is due.
    Tick,
    /// No more messages: says goodbye.
    Quit,
}

/// What the driver has to do, beside writing `transmit`.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Give these bytes of the body with `Input::Body`.
    NeedBody {
        /// Where they begin in the message.
        offset: u64,
        /// As many must come.
        bytes: u32,
    },
    /// The message has ended; outcomes in the order of its recipients.
    Done {
        /// The message.
        message: Box<Message>,
        /// One for each recipient.
        outcomes: Vec<Outcome>,
    },
    /// A connection that had been used before was closed by the peer before it answered anything
    /// of this message: to be given to a new connection at once; nothing has failed.
    Unsent(Box<Message>),
    /// Write what is outgoing, then close.
    Close,
}

/// Whose reply is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Await {
    Greeting,
    /// EHLO or LHLO.
    Ehlo,
    Helo,
    Rset,
    Mail,
    /// The recipient at this place in the message.
    Rcpt(usize),
    Data,
    /// The last byte, for all accepted recipients.
    End,
    /// The last byte, for the recipient at this place (RFC 2033 4.2).
    EndOf(usize),
}

/// What we are at.
#[derive(Debug)]
enum Work {
    /// Not yet greeted.
    ExpectHello,
    /// Greeted, nothing to send.
    Idle,
    /// Looking through the bytes before the first command: `offset` of what was asked for.
    ExpectScan { scan: Scan, offset: u64, only_headers: bool },
    /// Commands are written or answered.
    ExpectReplies,
    /// The body is going out.
    ExpectBody(BodyOut),
    /// Nothing is heard any more.
    Closed,
}

/// The client's end of one connection.
#[derive(Debug)]
pub struct Session {
    config: Arc<Config>,
    dialect: Dialect,
    /// `host[address]:port` for reports.
    peer: Box<str>,
    work: Work,
    awaited: VecDeque<Await>,
    reader: ReplyReader,
    offers: Offers,
    delivery: Option<Delivery>,
    /// Transactions begun.
    mails: u32,
    /// A message has gone through before.
    used: bool,
    /// The peer may still have half a transaction.
    reset_due: bool,
    out: Vec<u8>,
    written: usize,
    outputs: VecDeque<Output>,
    /// When what is awaited began to be awaited.
    since: Instant,
}

impl Session {
    /// A connection that has just been opened; `peer` names it in reports.
    pub fn new(config: Arc<Config>, dialect: Dialect, peer: impl Into<Box<str>>, now: Now) -> Self {
        Session {
            config,
            dialect,
            peer: peer.into(),
            work: Work::ExpectHello,
            awaited: VecDeque::from([Await::Greeting]),
            reader: ReplyReader::default(),
            offers: Offers::default(),
            delivery: None,
            mails: 0,
            used: false,
            reset_due: false,
            out: Vec::new(),
            written: 0,
            outputs: VecDeque::new(),
            since: now.monotonic,
        }
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Now) {
        if let Work::Closed = self.work {
            return self.refuse(input);
        }
        match input {
            Input::Received(bytes) => self.receive(bytes, now),
            Input::Lost => {
                self.lose(own(Enhanced(4, 4, 2), "the connection was closed by the peer"))
            }
            Input::Send(message) => self.send(message, now),
            Input::Body(bytes) => self.body(&bytes, now),
            Input::BodyFailed => self.lose(own(Enhanced(4, 3, 0), "the message could not be read")),
            Input::Tick => self.tick(now),
            Input::Quit => self.quit(),
        }
    }

    /// What the driver is to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with `Input::Tick`; `None`: it waits for the driver only.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let patience = self.patience()?;
        let due = self.since + patience;
        let total = self.delivery.as_ref().map(|d| d.started + self.config.timeouts.total);
        Some(total.map_or(due, |total| due.min(total)))
    }

    /// Bytes to write to the peer.
    pub fn transmit(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// So many of `transmit` have been written.
    pub fn transmitted(&mut self, bytes: usize, now: Now) {
        self.written = (self.written + bytes).min(self.out.len());
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        if matches!(self.work, Work::ExpectBody(_)) {
            self.since = now.monotonic;
            self.pump(now);
        } else if matches!(self.awaited.front(), Some(Await::End | Await::EndOf(_))) {
            self.since = now.monotonic;
        }
    }

    /// The next message may be given.
    pub fn can_send(&self) -> bool {
        let spent = self.offers.mail_max.is_some_and(|max| self.mails >= max);
        matches!(self.work, Work::Idle) && !self.reader.is_amid() && !spent
    }

    /// Greeted, and no message is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.work, Work::Idle)
    }

    /// Nothing more will come of it.
    pub fn is_closed(&self) -> bool {
        matches!(self.work, Work::Closed)
    }

    /// Transactions begun on this connection.
    pub fn mails(&self) -> u32 {
        self.mails
    }

    /// What the peer's greeting offered.
    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// `host[address]:port` as it was given.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

/// The conversation.
impl Session {
    fn receive(&mut self, mut bytes: &[u8], now: Now) {
        while !bytes.is_empty() && !self.is_closed() {
            match self.reader.take(bytes) {
                Err(garbage) => return self.garbage(garbage),
                Ok((_, None)) => return,
                Ok((taken, Some(reply))) => {
                    bytes = &bytes[taken..];
                    self.since = now.monotonic;
                    self.answer(reply, now);
                }
            }
        }
    }

    fn answer(&mut self, reply: Reply, now: Now) {
        let Some(awaited) = self.awaited.front().copied() else {
            // 421 while nothing is awaited is a goodbye (RFC 5321 3.8), also for a message whose body is being looked at;
            // anything else is nothing we know.
            return match reply.code {
                421 => self.lose((reply, true)),
                _ => self.garbage(Garbage::Unasked),
            };
        };
        if reply.code == 421 {
            return self.lose((reply, true));
        }
        if let Some(delivery) = &mut self.delivery {
            delivery.answered |= !matches!(self.work, Work::ExpectHello) && awaited != Await::Rset;
        }
        let at_end = matches!(awaited, Await::End | Await::EndOf(_));
        let early = at_end && matches!(self.work, Work::ExpectBody(_));
        self.awaited.pop_front();
        if early && reply.code / 100 < 4 {
            return self.unfit(awaited, &reply);
        }
        match awaited {
            Await::Greeting | Await::Ehlo | Await::Helo => self.greeted(awaited, reply, now),
            Await::Rset => self.rset_answered(&reply),
            Await::Mail => self.mail_answered(reply),
            Await::Rcpt(place) => self.rcpt_answered(place, reply),
            Await::Data => self.data_answered(reply, now),
            Await::End => self.end_answered(reply),
            Await::EndOf(place) => self.end_of_answered(place, reply),
        }
        if early {
            // The body was refused half way (not allowed by RFC 5321 3.3, but done): the line is
            // of no more use, and what has no answer yet is tried again.
            self.lose(own(Enhanced(4, 4, 2), "the peer answered before the end of the data"));
        }
        self.advance(now);
    }

    fn greeted(&mut self, awaited: Await, reply: Reply, now: Now) {
        match (awaited, reply.code / 100) {
            (Await::Greeting, 2) => {
                let verb = if self.dialect == Dialect::Lmtp { "LHLO" } else { "EHLO" };
                self.say_hello(verb, Await::Ehlo);
            }
            (Await::Ehlo, 2) => {
                self.offers = Offers::parse(&reply.text);
                self.ready(now);
            }
            (Await::Helo, 2) => self.ready(now),
            // RFC 5321 3.2: a server without EHLO is greeted with HELO. LMTP has no other.
            (Await::Ehlo, 5) if self.dialect == Dialect::Smtp => {
                self.say_hello("HELO", Await::Helo)
            }
            (_, 4 | 5) => {
                let stage = stage_of(awaited);
                if let Some(mut delivery) = self.delivery.take() {
                    delivery.fill(outcome(reply, stage, &self.peer, true, false));
                    self.done(delivery);
                }
                self.quit();
            }
            _ => self.unfit(awaited, &reply),
        }
    }

    fn say_hello(&mut self, verb: &str, awaited: Await) {
        let helo = &self.config.helo;
        self.out.extend_from_slice(format!("{verb} {helo}\r\n").as_bytes());
        self.awaited.push_back(awaited);
    }

    fn ready(&mut self, now: Now) {
        self.work = Work::Idle;
        if self.delivery.is_some() {
            self.begin(now);
        }
    }

    fn send(&mut self, mut message: Box<Message>, now: Now) {
        if self.delivery.is_some() || self.offers.mail_max.is_some_and(|max| self.mails >= max) {
            return self.outputs.push_back(Output::Unsent(message));
        }
        // A content of another length is not what was announced: it is asked for instead.
        let announced = message.body_bytes;
        message.content = message.content.filter(|content| content.len() as u64 == announced);
        self.delivery = Some(Delivery::new(message, now.monotonic));
        if let Work::Idle = self.work {
            self.since = now.monotonic;
            self.begin(now);
        }
    }

    /// Looks whether the peer can take the message at all.
    fn begin(&mut self, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        let wire_bytes = delivery.message.body_bytes;
        if self.offers.size.is_some_and(|max| max > 0 && wire_bytes > max) {
            let text = format!("the message has {wire_bytes} octets, the next hop takes fewer");
            let reply = Reply::new(552, Enhanced(5, 3, 4), text);
            delivery.fill(outcome(reply, Stage::Here, &self.peer, false, false));
            return self.finish();
        }
        let scan = Scan::default();
        if let Some(only_headers) = delivery.scan_needed(&self.offers) {
            self.work = Work::ExpectScan { scan, offset: 0, only_headers };
            return self.scan(now);
        }
        self.settled(&scan, now);
    }

    /// Looks through the bytes at hand, or asks for the next.
    fn scan(&mut self, now: Now) {
        let Work::ExpectScan { scan, offset, only_headers } = &mut self.work else { return };
        let Some(delivery) = &self.delivery else { return };
        if let Some(content) = &delivery.message.content {
            scan.feed(content);
            *offset = content.len() as u64;
        }
        let left = delivery.message.body_bytes - *offset;
        if left == 0 || scan.is_settled(*only_headers) {
            let scan = std::mem::take(scan);
            return self.settled(&scan, now);
        }
        let bytes = left.min(u64::from(super::BODY_CHUNK_BYTES_MAX)) as u32;
        self.outputs.push_back(Output::NeedBody { offset: *offset, bytes });
    }

    fn settled(&mut self, scan: &Scan, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        delivery.settle(&self.offers, scan, &self.peer);
        self.work = Work::ExpectReplies;
        self.next_transaction(now);
    }

    fn next_transaction(&mut self, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        if !delivery.next_slice(&self.offers) {
            return self.finish();
        }
        if self.offers.mail_max.is_some_and(|max| self.mails >= max) {
            let reply = own(Enhanced(4, 5, 3), "the peer takes no more messages this time").0;
            delivery.fill(outcome(reply, Stage::Mail, &self.peer, false, false));
            return self.finish();
        }
        self.mails += 1;
        self.since = now.monotonic;
        self.begin_transaction();
        self.pump(now);
    }

    fn begin_transaction(&mut self) {
        if std::mem::take(&mut self.reset_due) {
            self.out.extend_from_slice(b"RSET\r\n");
            self.awaited.push_back(Await::Rset);
            if !self.offers.pipelining {
                return;
            }
        }
        self.write_mail();
        if self.offers.pipelining {
            self.pipeline();
        }
    }

    fn write_mail(&mut self) {
        let Some(delivery) = &mut self.delivery else { return };
        delivery.write_mail(&self.offers, &mut self.out);
        delivery.step = Step::Rcpt(delivery.slice.start);
        self.awaited.push_back(Await::Mail);
    }

    /// The rest of the envelope without waiting, and the start of the data (RFC 2920 3.1).
    fn pipeline(&mut self) {
        let Some(delivery) = &mut self.delivery else { return };
        for at in delivery.slice.clone() {
            let place = delivery.target(at);
            delivery.write_rcpt(place, &self.offers, &mut self.out);
            self.awaited.push_back(Await::Rcpt(place));
        }
        // Only where one answer comes whoever was accepted may the data follow blindly.
        let chunking = self.offers.chunking && self.config.chunking;
        delivery.step = Step::Data;
        if !chunking {
            delivery.step = Step::Nothing;
            self.out.extend_from_slice(b"DATA\r\n");
            self.awaited.push_back(Await::Data);
        } else if delivery.message.is_inline() && self.dialect == Dialect::Smtp {
            delivery.step = Step::Nothing;
            self.write_bdat();
        }
    }

    /// All that was written has been answered: what comes next?
    fn advance(&mut self, now: Now) {
        if !self.awaited.is_empty() || !matches!(self.work, Work::ExpectReplies) {
            return;
        }
        let Some(delivery) = &mut self.delivery else { return };
        match delivery.step {
            Step::Mail => self.write_mail(),
            Step::Rcpt(at) if delivery.sender_ok => {
                let place = delivery.target(at);
                delivery.write_rcpt(place, &self.offers, &mut self.out);
                self.awaited.push_back(Await::Rcpt(place));
                let next = at + 1;
                delivery.step =
                    if next < delivery.slice.end { Step::Rcpt(next) } else { Step::Data };
            }
            Step::Data if !delivery.accepted.is_empty() => {
                delivery.step = Step::Nothing;
                if self.offers.chunking && self.config.chunking {
                    self.write_bdat();
                    self.pump(now);
                } else {
                    self.out.extend_from_slice(b"DATA\r\n");
                    self.awaited.push_back(Await::Data);
                }
            }
            _ => {
                self.reset_due = delivery.sender_ok && !delivery.ended;
                self.next_transaction(now);
            }
        }
    }

    /// The whole message as one last chunk (RFC 3030 2).
    fn write_bdat(&mut self) {
        let Some(delivery) = &mut self.delivery else { return };
        delivery.with_bdat = true;
        let line = format!("BDAT {} LAST\r\n", delivery.message.body_bytes);
        self.out.extend_from_slice(line.as_bytes());
        let body = BodyOut::start(Framing::Counted, &delivery.message);
        self.work = Work::ExpectBody(body);
        self.await_end();
    }

    fn await_end(&mut self) {
        let Some(delivery) = &self.delivery else { return };
        match self.dialect {
            Dialect::Smtp => self.awaited.push_back(Await::End),
            Dialect::Lmtp => {
                self.awaited.extend(delivery.accepted.iter().map(|place| Await::EndOf(*place)))
            }
        }
    }

    /// Frames what is at hand of the body, or asks for more.
    fn pump(&mut self, now: Now) {
        let Work::ExpectBody(body) = &mut self.work else { return };
        let Some(delivery) = &self.delivery else { return };
        while !body.is_whole() && self.out.len() - self.written < UNWRITTEN_BYTES_MAX {
            match &delivery.message.content {
                Some(content) => body.add_from(content, &mut self.out),
                None => {
                    if let Some((offset, bytes)) = body.ask() {
                        self.outputs.push_back(Output::NeedBody { offset, bytes });
                    }
                    return;
                }
            }
        }
        if body.is_whole() {
            let Work::ExpectBody(body) = std::mem::replace(&mut self.work, Work::ExpectReplies)
            else {
                return;
            };
            body.end(&mut self.out);
            self.since = now.monotonic;
        }
    }

    fn body(&mut self, bytes: &[u8], now: Now) {
        match &mut self.work {
            Work::ExpectScan { scan, offset, .. } => {
                scan.feed(bytes);
                *offset += bytes.len() as u64;
                self.scan(now);
            }
            Work::ExpectBody(body) => {
                body.add(bytes, &mut self.out);
                self.pump(now);
            }
            _ => {}
        }
    }
}

/// Answers within a transaction.
impl Session {
    /// A peer that refuses RSET is in a state that nobody knows, so its connection is of no more
    /// use. It has said nothing about this message yet.
    fn rset_answered(&mut self, reply: &Reply) {
        if !reply.is_positive() {
            let text = format!("the peer refused RSET: {reply}");
            self.lose((Reply::new(451, Enhanced(4, 5, 0), text), false));
        }
    }

    fn mail_answered(&mut self, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        match reply.code / 100 {
            2 => delivery.sender_ok = true,
            4 | 5 => delivery.judge_slice(&outcome(reply, Stage::Mail, &self.peer, true, false)),
            _ => self.unfit(Await::Mail, &reply),
        }
    }

    fn rcpt_answered(&mut self, place: usize, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        match reply.code / 100 {
            2 if delivery.sender_ok => delivery.accepted.push(place),
            2 => {}
            4 | 5 => delivery.rcpt_refused(place, reply, &self.peer),
            _ => self.unfit(Await::Rcpt(place), &reply),
        }
    }

    fn data_answered(&mut self, reply: Reply, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        // RFC 5321 4.2: an unknown code counts by its first digit.
        match (reply.code / 100, delivery.accepted.is_empty()) {
            (3, false) => {
                let dots = Framing::Dots(Stuffer::default());
                let body = BodyOut::start(dots, &delivery.message);
                self.work = Work::ExpectBody(body);
                self.await_end();
                self.pump(now);
            }
            // It wants the message though it took nobody: an empty one (RFC 2920 3.1).
            (3, true) if self.dialect == Dialect::Smtp => {
                self.out.extend_from_slice(b".\r\n");
                self.awaited.push_back(Await::End);
            }
            (4 | 5, _) => {
                delivery.judge_accepted(&outcome(reply, Stage::Data, &self.peer, true, false));
            }
            _ => self.unfit(Await::Data, &reply),
        }
    }

    fn end_answered(&mut self, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        if reply.code / 100 == 3 {
            return self.unfit(Await::End, &reply);
        }
        // After a refused BDAT only RSET brings back a known state (RFC 3030 2).
        delivery.ended = reply.is_positive() || !delivery.with_bdat;
        delivery.disposed |= reply.is_positive();
        let stage = if matches!(self.work, Work::ExpectBody(_)) { Stage::Data } else { Stage::End };
        let relayed = !self.offers.dsn;
        delivery.judge_accepted(&outcome(reply, stage, &self.peer, true, relayed));
    }

    fn end_of_answered(&mut self, place: usize, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        if reply.code / 100 == 3 {
            return self.unfit(Await::EndOf(place), &reply);
        }
        delivery.ended = true;
        delivery.disposed |= reply.is_positive();
        let stage = if matches!(self.work, Work::ExpectBody(_)) { Stage::Data } else { Stage::End };
        delivery.judge(place, outcome(reply, stage, &self.peer, true, !self.offers.dsn));
    }
}

/// Ends.
impl Session {
    /// The message is through; the connection lives.
    fn finish(&mut self) {
        if let Some(delivery) = self.delivery.take() {
            self.work = Work::Idle;
            self.used = true;
            self.done(delivery);
        }
    }

    fn done(&mut self, delivery: Delivery) {
        let (message, outcomes) = delivery.finish();
        self.outputs.push_back(Output::Done { message, outcomes });
    }

    /// A good reply of a class that means nothing here; it is quoted.
    fn unfit(&mut self, awaited: Await, reply: &Reply) {
        self.awaited.push_front(awaited);
        self.broke_the_protocol(&format!("{}: {reply}", Garbage::Unfit));
    }

    fn garbage(&mut self, garbage: Garbage) {
        self.broke_the_protocol(&garbage.to_string());
    }

    fn broke_the_protocol(&mut self, how: &str) {
        let text = format!("the peer broke the protocol: {how}");
        if let Some(delivery) = &mut self.delivery {
            // What broke it was an answer: the message has been seen.
            delivery.answered |= !self.awaited.is_empty();
        }
        self.lose((Reply::new(451, Enhanced(4, 5, 0), text), false));
    }

    /// The connection is of no more use: whoever has no outcome is tried again.
    fn lose(&mut self, (reply, from_peer): (Reply, bool)) {
        let stage = self.stage();
        if let Some(mut delivery) = self.delivery.take() {
            if self.used && !delivery.answered && !self.reader.is_amid() {
                self.outputs.push_back(Output::Unsent(delivery.message));
            } else {
                delivery.fill(outcome(reply, stage, &self.peer, from_peer, false));
                self.done(delivery);
            }
        }
        self.close();
    }

    fn close(&mut self) {
        self.out.clear();
        self.written = 0;
        self.awaited.clear();
        self.work = Work::Closed;
        self.outputs.push_back(Output::Close);
    }

    /// QUIT is not answered to us: nothing would depend on it.
    fn quit(&mut self) {
        if self.delivery.is_some() {
            self.lose(own(Enhanced(4, 3, 2), "the delivery was stopped"));
            return;
        }
        self.close();
        self.out.extend_from_slice(b"QUIT\r\n");
    }

    fn tick(&mut self, now: Now) {
        if self.next_wakeup().is_some_and(|due| due <= now.monotonic) {
            let text = format!("no progress in time while {}", doing(self.stage()));
            if let Some(delivery) = &mut self.delivery {
                delivery.answered = true;
            }
            self.lose((Reply::new(451, Enhanced(4, 4, 2), text), false));
        }
    }

    /// A closed session hands everything back.
    fn refuse(&mut self, input: Input<'_>) {
        if let Input::Send(message) = input {
            self.outputs.push_back(Output::Unsent(message));
        }
    }

    fn patience(&self) -> Option<Duration> {
        let timeouts = &self.config.timeouts;
        if let Work::ExpectBody(_) | Work::ExpectScan { .. } = self.work {
            return Some(timeouts.block);
        }
        let patience = match self.awaited.front()? {
            Await::Greeting => timeouts.greeting,
            Await::Ehlo | Await::Helo | Await::Rset => timeouts.hello,
            Await::Mail => timeouts.mail,
            Await::Rcpt(_) => timeouts.rcpt,
            Await::Data => timeouts.data,
            Await::End | Await::EndOf(_) => timeouts.end,
        };
        Some(patience)
    }

    fn stage(&self) -> Stage {
        match (self.awaited.front(), &self.work) {
            (Some(Await::End | Await::EndOf(_)), Work::ExpectBody(_)) => Stage::Data,
            (Some(awaited), _) => stage_of(*awaited),
            (None, Work::ExpectHello) => Stage::Hello,
            (None, _) => Stage::Mail,
        }
    }
}

fn stage_of(awaited: Await) -> Stage {
    match awaited {
        Await::Greeting => Stage::Greeting,
        Await::Ehlo | Await::Helo => Stage::Hello,
        Await::Rset | Await::Mail => Stage::Mail,
        Await::Rcpt(_) => Stage::Rcpt,
        Await::Data => Stage::Data,
        Await::End | Await::EndOf(_) => Stage::End,
    }
}

fn doing(stage: Stage) -> &'static str {
    match stage {
        Stage::Greeting => "waiting for the greeting",
        Stage::Hello => "saying hello",
        Stage::Mail => "giving the sender",
        Stage::Rcpt => "giving the recipients",
        Stage::Data => "sending the message",
        _ => "waiting for the answer to the message",
    }
}

/// Our own words for what the peer did not say.
fn own(code: Enhanced, text: &str) -> (Reply, bool) {
    (Reply::new(451, code, text), false)
}
