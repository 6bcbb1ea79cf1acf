//! A client that brings one message: a script with replies to wait for, and trouble by plan.
//!
//! Must never be the mailer's own client: it is written apart, so that an error of one is not
//! shared by the other.

use crate::ledger::{address, body};
use crate::net::{End, Segment, StreamId};
use crate::plan::{Mail, Trouble};
use crate::stage::{Event, World};
use mail::MessageId;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// Connections for one message at most: each but the last ended before anything was ambiguous.
const TRIES_MAX: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Await {
    Greeting,
    Hello,
    Mail,
    Rcpt(usize),
    Data,
    Piece,
    End,
    Quit,
}

/// The client of one message.
#[derive(Debug)]
pub struct Client {
    mail: Mail,
    stream: Option<StreamId>,
    awaited: VecDeque<Await>,
    input: Vec<u8>,
    accepted: Vec<usize>,
    /// Octets written on this connection.
    written: u32,
    /// When the last segment goes out.
    busy: Duration,
    /// It says nothing any more, or cannot.
    mute: bool,
    tries: u32,
    sent: bool,
    /// Nothing is left to do.
    pub done: bool,
}

impl Client {
    /// For this message.
    pub fn new(mail: Mail) -> Client {
        Client {
            mail,
            stream: None,
            awaited: VecDeque::new(),
            input: Vec::new(),
            accepted: Vec::new(),
            written: 0,
            busy: Duration::ZERO,
            mute: false,
            tries: 0,
            sent: false,
            done: false,
        }
    }

    /// Connects; `door` is the receiving process that takes it, if there is one.
    pub fn connect(&mut self, door: Option<u16>, world: &mut World) -> Option<StreamId> {
        if self.done {
            return None;
        }
        self.tries += 1;
        let Some(door) = door else {
            self.try_again(world);
            return None;
        };
        let ends = [End::Client(self.mail.number), End::Session(door)];
        let delay = world.delay(20_000);
        let stream = world.net.open(ends, delay);
        self.stream = Some(stream);
        self.awaited = VecDeque::from([Await::Greeting]);
        self.input.clear();
        self.accepted.clear();
        self.written = 0;
        self.busy = Duration::ZERO;
        self.mute = false;
        Some(stream)
    }

    /// Where it comes from. A client whose recipients are all here needs no right to relay, and is a stranger.
    pub fn address(&self) -> IpAddr {
        let is_local = self.mail.recipients.iter().all(|recipient| recipient.domain.is_none());
        match is_local {
            true => [192, 0, 2, (self.mail.number % 4) as u8].into(),
            false => [10, 9, 9, 9].into(),
        }
    }

    fn try_again(&mut self, world: &mut World) {
        self.stream = None;
        // Trouble is for the first connection: the message is to get through at last.
        self.mail.client.trouble = None;
        if self.tries >= TRIES_MAX && world.is_quiet() {
            self.done = true;
            return;
        }
        let wait = Duration::from_secs(2) + world.delay(20_000_000);
        world.after(wait, Event::Submit(self.mail.number));
    }

    /// Something has arrived.
    pub fn hear(&mut self, segment: Segment, world: &mut World) {
        match segment {
            Segment::Bytes(bytes) => {
                self.input.extend_from_slice(&bytes);
                while let Some(reply) = next_reply(&mut self.input) {
                    self.reply(&reply, world);
                }
            }
            Segment::Fin | Segment::Reset => self.lost(world),
        }
    }

    fn lost(&mut self, world: &mut World) {
        self.hang_up(Segment::Fin, world);
        if self.done {
            return;
        }
        match self.sent {
            // Nobody knows (RFC 1047): a real client would bring it again, as another message.
            true => self.done = true,
            false => self.try_again(world),
        }
    }

    fn hang_up(&mut self, how: Segment, world: &mut World) {
        if let Some(stream) = self.stream.take() {
            world.put(stream, 0, how, Duration::ZERO);
            world.net.let_go(stream, 0);
        }
    }

    fn reply(&mut self, reply: &str, world: &mut World) {
        let good = reply.starts_with('2') || reply.starts_with('3');
        // It has hung up, and hears nothing of what else was said.
        if self.stream.is_none() {
            return;
        }
        let Some(awaited) = self.awaited.pop_front() else { return };
        if reply.starts_with("421") && awaited != Await::End {
            return self.lost(world);
        }
        match awaited {
            Await::Greeting if good => {
                self.say("EHLO client.test\r\n", Await::Hello, world);
            }
            Await::Hello if good => self.envelope(world),
            Await::Mail if good && !self.mail.client.pipelining => self.next_rcpt(0, world),
            Await::Mail if good => {}
            Await::Rcpt(index) => {
                if good {
                    self.accepted.push(index);
                } else {
                    world.ledger.not_accepted(self.mail.number, index);
                }
                if !self.mail.client.pipelining {
                    self.next_rcpt(index + 1, world);
                }
            }
            Await::Data if good => self.data(world),
            Await::Piece => {}
            Await::End => self.end(reply, world),
            Await::Quit => {
                self.done = true;
                self.hang_up(Segment::Fin, world);
            }
            // Not taken, and no byte of the message is under way.
            _ if !self.sent => {
                self.hang_up(Segment::Fin, world);
                self.try_again(world);
            }
            _ => {}
        }
    }

    fn mail_line(&self) -> String {
        match self.mail.null_sender {
            true => "MAIL FROM:<>\r\n".into(),
            false => format!("MAIL FROM:<s{}@src.test>\r\n", self.mail.number),
        }
    }

    fn rcpt_line(&self, index: usize) -> String {
        let never = if self.mail.recipients[index].never_notify { " NOTIFY=NEVER" } else { "" };
        format!("RCPT TO:<{}>{never}\r\n", address(&self.mail, index))
    }

    fn envelope(&mut self, world: &mut World) {
        if !self.mail.client.pipelining {
            let line = self.mail_line();
            return self.say(&line, Await::Mail, world);
        }
        let mut lines = self.mail_line();
        self.awaited.push_back(Await::Mail);
        for index in 0..self.mail.recipients.len() {
            lines += &self.rcpt_line(index);
            self.awaited.push_back(Await::Rcpt(index));
        }
        if self.mail.client.bdat.is_none() {
            lines += "DATA\r\n";
            self.awaited.push_back(Await::Data);
            return self.write(lines.as_bytes(), world);
        }
        self.write(lines.as_bytes(), world);
        // The last byte goes out before the replies to RCPT are here: all may be accepted.
        self.accepted = (0..self.mail.recipients.len()).collect();
        self.pieces(world);
    }

    fn next_rcpt(&mut self, index: usize, world: &mut World) {
        if index < self.mail.recipients.len() {
            let line = self.rcpt_line(index);
            return self.say(&line, Await::Rcpt(index), world);
        }
        if self.accepted.is_empty() {
            self.hang_up(Segment::Fin, world);
            return self.try_again(world);
        }
        match self.mail.client.bdat {
            Some(_) => self.pieces(world),
            None => self.say("DATA\r\n", Await::Data, world),
        }
    }

    fn pieces(&mut self, world: &mut World) {
        let body = body(&self.mail);
        let size = self.mail.client.bdat.unwrap_or(1 << 20) as usize;
        let mut out = Vec::new();
        let count = body.chunks(size).len();
        for (at, piece) in body.chunks(size).enumerate() {
            let last = at + 1 == count;
            let word = if last { " LAST" } else { "" };
            out.extend_from_slice(format!("BDAT {}{word}\r\n", piece.len()).as_bytes());
            out.extend_from_slice(piece);
            self.awaited.push_back(if last { Await::End } else { Await::Piece });
        }
        self.body(&out, world);
    }

    fn data(&mut self, world: &mut World) {
        let mut out = Vec::new();
        for line in body(&self.mail).split_inclusive(|byte| *byte == b'\n') {
            if line.first() == Some(&b'.') {
                out.push(b'.');
            }
            out.extend_from_slice(line);
        }
        out.extend_from_slice(b".\r\n");
        self.awaited.push_back(Await::End);
        self.body(&out, world);
    }

    /// The message itself; from its last byte on everything is ambiguous.
    fn body(&mut self, out: &[u8], world: &mut World) {
        self.write(out, world);
        if !self.mute {
            self.sent = true;
            world.ledger.sent(self.mail.number, &self.accepted);
        }
    }

    fn end(&mut self, reply: &str, world: &mut World) {
        let now = world.now().monotonic;
        if reply.starts_with("250") {
            let id = reply.rsplit(' ').next().and_then(|id| id.parse::<MessageId>().ok());
            world.log(|| format!("client m{} was promised {reply}", self.mail.number));
            world.ledger.promised(self.mail.number, id, now);
        } else {
            world.log(|| format!("client m{} was refused: {reply}", self.mail.number));
            world.ledger.refused(self.mail.number);
        }
        self.done = true;
        self.say("QUIT\r\n", Await::Quit, world);
    }

    fn say(&mut self, line: &str, then: Await, world: &mut World) {
        self.awaited.push_back(then);
        self.write(line.as_bytes(), world);
    }

    /// Sends in segments. The trouble of the plan begins after its number of octets.
    fn write(&mut self, bytes: &[u8], world: &mut World) {
        let Some(stream) = self.stream else { return };
        for segment in bytes.chunks(self.mail.client.segment.max(1)) {
            if self.mute {
                return;
            }
            let mut segment = segment;
            let trouble = self.mail.client.trouble;
            let due = trouble.filter(|(at, _)| self.written + segment.len() as u32 > *at);
            if let Some((at, _)) = due {
                segment = &segment[..at.saturating_sub(self.written) as usize];
            }
            self.written += segment.len() as u32;
            self.busy += self.mail.client.pause;
            world.put(stream, 0, Segment::Bytes(segment.to_vec()), self.busy);
            match due.map(|(_, trouble)| trouble) {
                Some(Trouble::Reset) => {
                    self.mute = true;
                    self.hang_up(Segment::Reset, world);
                    return self.try_again(world);
                }
                Some(Trouble::HalfClose) => {
                    self.mute = true;
                    world.put(stream, 0, Segment::Fin, self.busy);
                }
                Some(Trouble::Silence) => self.mute = true,
                None => {}
            }
        }
        self.busy = Duration::ZERO;
    }
}

/// The last line of the next whole reply.
pub fn next_reply(input: &mut Vec<u8>) -> Option<String> {
    loop {
        let end = input.windows(2).position(|pair| pair == b"\r\n")?;
        let line: Vec<u8> = input.drain(..end + 2).collect();
        let line = String::from_utf8_lossy(&line[..end]).into_owned();
        if line.as_bytes().get(3) != Some(&b'-') {
            return Some(line);
        }
    }
}
