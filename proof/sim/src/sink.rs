//! A next hop: takes mail, defers, refuses, breaks off, as the plan has it.
//!
//! Must never be the mailer's own server.

use crate::ledger::{Check, parse_address};
use crate::net::{Segment, StreamId};
use crate::plan::{Fate, pick};
use crate::stage::{World, domain_of};
use std::collections::BTreeMap;
use std::time::Duration;
use world::Rng as _;

/// The domain of the senders, to which bounces go.
pub const SENDERS: u8 = 9;

/// Where a conversation breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// At the n-th command: the connection is gone.
    Drop(u32),
    /// At the n-th command: nothing is said any more.
    Silence(u32),
    /// At the n-th command: `421` and the end.
    Goodbye(u32),
    /// At the n-th command: a reply of this kind.
    Temporary(u32),
    /// In the middle of a body.
    InBody,
    /// After the last byte: taken, and no reply comes.
    TakenUnsaid,
    /// After the last byte: not taken, and no reply comes.
    LostUnsaid,
    /// After the last byte: `4yz`.
    Deferred,
    /// The last reply comes this number of seconds late.
    Late(u64),
}

#[derive(Debug, Default)]
struct Transaction {
    recipients: Vec<String>,
}

/// One connection.
#[derive(Debug)]
pub struct Sink {
    domain: u8,
    input: Vec<u8>,
    transaction: Option<Transaction>,
    /// The body so far, with DATA.
    body: Option<Vec<u8>>,
    /// Octets of a piece that are to come, and whether it is the last.
    piece: Option<(usize, bool)>,
    pieces: Vec<u8>,
    commands: u32,
    trouble: Option<Trouble>,
    pipelining: bool,
    chunking: bool,
    mute: bool,
}

/// What all connections of all next hops share.
#[derive(Debug, Default)]
pub struct Sinks {
    open: BTreeMap<StreamId, Sink>,
    /// How often a recipient has been deferred.
    deferred: BTreeMap<(u32, usize), u8>,
}

impl Sinks {
    /// A connection has come.
    pub fn connected(&mut self, stream: StreamId, domain: u8, world: &mut World) {
        let trouble = draw_trouble(world);
        let mut sink = Sink {
            domain,
            input: Vec::new(),
            transaction: None,
            body: None,
            piece: None,
            pieces: Vec::new(),
            commands: 0,
            trouble,
            pipelining: world.chance.below(3) > 0,
            chunking: world.chance.below(2) > 0,
            mute: false,
        };
        if world.plan.settings.send.closed == Some(domain) {
            world.say(stream, 1, "554 5.3.2 no mail here\r\n");
            sink.drop(stream, world);
        } else if sink.command(stream, world) {
            world.say(stream, 1, &format!("220 d{domain}.test ESMTP\r\n"));
        }
        if !sink.mute || matches!(sink.trouble, Some(Trouble::Silence(_))) {
            self.open.insert(stream, sink);
        }
    }

    /// Something has arrived.
    pub fn hear(&mut self, stream: StreamId, segment: Segment, world: &mut World) {
        let Some(mut sink) = self.open.remove(&stream) else { return };
        match segment {
            Segment::Bytes(bytes) => {
                sink.input.extend_from_slice(&bytes);
                while !sink.mute && sink.step(stream, &mut self.deferred, world) {}
                if world.net.get(stream).is_some_and(|found| found.ends[1].is_some()) {
                    self.open.insert(stream, sink);
                }
            }
            Segment::Fin | Segment::Reset => world.hang_up(stream, 1, Segment::Fin),
        }
    }
}

fn draw_trouble(world: &mut World) -> Option<Trouble> {
    if world.is_quiet() || world.chance.below(1000) >= world.plan.settings.sink_trouble {
        return None;
    }
    let n = world.chance.below(7) as u32;
    Some(pick(
        &mut world.chance,
        &[
            Trouble::Drop(n),
            Trouble::Drop(n),
            Trouble::Silence(n),
            Trouble::Goodbye(n),
            Trouble::Temporary(n),
            Trouble::InBody,
            Trouble::TakenUnsaid,
            Trouble::TakenUnsaid,
            Trouble::LostUnsaid,
            Trouble::Deferred,
            Trouble::Late(1),
            Trouble::Late(300),
        ],
    ))
}

impl Sink {
    /// Counts a command. Returns false if the command gets no ordinary reply.
    fn command(&mut self, stream: StreamId, world: &mut World) -> bool {
        let at = self.commands;
        self.commands += 1;
        match self.trouble {
            Some(Trouble::Drop(n)) if n == at => self.drop(stream, world),
            Some(Trouble::Silence(n)) if n == at => self.mute = true,
            Some(Trouble::Goodbye(n)) if n == at => {
                world.say(stream, 1, "421 4.3.2 going down\r\n");
                self.drop(stream, world);
            }
            Some(Trouble::Temporary(n)) if n == at => {
                world.say(stream, 1, "451 4.3.0 not now\r\n");
                return false;
            }
            _ => return true,
        }
        false
    }

    fn drop(&mut self, stream: StreamId, world: &mut World) {
        self.mute = true;
        let how = pick(&mut world.chance, &[false, true]);
        world.hang_up(stream, 1, if how { Segment::Reset } else { Segment::Fin });
    }

    /// Uses up some input; false: there is not enough.
    fn step(
        &mut self,
        stream: StreamId,
        deferred: &mut BTreeMap<(u32, usize), u8>,
        world: &mut World,
    ) -> bool {
        if let Some((length, last)) = self.piece {
            return self.take_piece(stream, length, last, world);
        }
        let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") else {
            return false;
        };
        let line: Vec<u8> = self.input.drain(..end + 2).collect();
        if self.body.is_some() {
            self.data_line(stream, &line, world);
            return true;
        }
        let line = String::from_utf8_lossy(&line[..end]).into_owned();
        self.command_line(stream, &line, deferred, world);
        true
    }

    fn data_line(&mut self, stream: StreamId, line: &[u8], world: &mut World) {
        let Some(body) = &mut self.body else { return };
        if line == b".\r\n" {
            let body = self.body.take().unwrap_or_default();
            return self.ended(stream, &body, world);
        }
        body.extend_from_slice(line.strip_prefix(b".").unwrap_or(line));
        if self.trouble == Some(Trouble::InBody) && body.len() > 100 {
            self.drop(stream, world);
        }
    }

    fn take_piece(
        &mut self,
        stream: StreamId,
        length: usize,
        last: bool,
        world: &mut World,
    ) -> bool {
        if self.input.len() < length {
            return false;
        }
        self.pieces.extend(self.input.drain(..length));
        self.piece = None;
        if self.transaction.is_none() {
            world.say(stream, 1, "503 5.5.1 no transaction\r\n");
        } else if last {
            let body = std::mem::take(&mut self.pieces);
            self.ended(stream, &body, world);
        } else {
            world.say(stream, 1, "250 2.0.0 more\r\n");
        }
        true
    }

    fn command_line(
        &mut self,
        stream: StreamId,
        line: &str,
        deferred: &mut BTreeMap<(u32, usize), u8>,
        world: &mut World,
    ) {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        if verb == "BDAT" {
            let mut words = line.split(' ').skip(1);
            let length = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            self.piece = Some((length, words.next().is_some()));
            return;
        }
        if !self.command(stream, world) {
            return;
        }
        match verb.as_str() {
            "EHLO" => {
                let mut reply = format!("250-d{}.test\r\n", self.domain);
                for (offered, word) in
                    [(self.pipelining, "PIPELINING"), (self.chunking, "CHUNKING")]
                {
                    if offered {
                        reply += &format!("250-{word}\r\n");
                    }
                }
                world.say(stream, 1, &(reply + "250 8BITMIME\r\n"));
            }
            "MAIL" => {
                self.transaction = Some(Transaction::default());
                self.pieces.clear();
                world.say(stream, 1, "250 2.1.0 ok\r\n");
            }
            "RCPT" => self.rcpt(stream, line, deferred, world),
            "DATA" if self.transaction.as_ref().is_some_and(|t| !t.recipients.is_empty()) => {
                self.body = Some(Vec::new());
                world.say(stream, 1, "354 go on\r\n");
            }
            "DATA" => world.say(stream, 1, "503 5.5.1 no valid recipients\r\n"),
            "RSET" => {
                self.transaction = None;
                world.say(stream, 1, "250 2.0.0 ok\r\n");
            }
            "QUIT" => {
                world.say(stream, 1, "221 2.0.0 bye\r\n");
                self.mute = true;
                world.hang_up(stream, 1, Segment::Fin);
            }
            _ => world.say(stream, 1, "250 2.0.0 ok\r\n"),
        }
    }

    fn rcpt(
        &mut self,
        stream: StreamId,
        line: &str,
        deferred: &mut BTreeMap<(u32, usize), u8>,
        world: &mut World,
    ) {
        let address = line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        if !self.is_for_us(&address) {
            let text = format!("the next hop of d{} is given mail for {address}", self.domain);
            world.ledger.find(Check::Astray, text);
        }
        let fate = parse_address(&address).and_then(|key| Some((key, world.fate(key)?)));
        let reply = match fate {
            Some((_, Fate::Refused)) => "550 5.1.1 nobody of that name",
            Some((_, Fate::Never)) => "450 4.2.1 never now",
            Some((key, Fate::Deferred(times))) if *deferred.entry(key).or_insert(0) < times => {
                *deferred.entry(key).or_insert(0) += 1;
                "450 4.2.1 later"
            }
            _ => {
                if let Some(transaction) = &mut self.transaction {
                    transaction.recipients.push(address);
                }
                "250 2.1.5 ok"
            }
        };
        // Each recipient hears words of its own.
        let words = match (world.plan.settings.reply_bytes, fate) {
            (0, _) | (_, None) => String::new(),
            (bytes, Some(((mail, index), _))) => format!(" m{mail}r{index} {}", "-".repeat(bytes)),
        };
        world.say(stream, 1, &format!("{reply}{words}\r\n"));
    }

    /// Whether mail for this address goes to this next hop.
    fn is_for_us(&self, address: &str) -> bool {
        let domain = address.rsplit_once('@').map(|(_, domain)| domain);
        match self.domain {
            SENDERS => domain == Some("src.test"),
            number => domain.and_then(domain_of) == Some(number),
        }
    }

    /// The last byte is here.
    fn ended(&mut self, stream: StreamId, body: &[u8], world: &mut World) {
        let Some(transaction) = self.transaction.take() else { return };
        match self.trouble {
            Some(Trouble::LostUnsaid) => return self.drop(stream, world),
            Some(Trouble::Deferred) => {
                return world.say(stream, 1, "452 4.3.1 full for now\r\n");
            }
            _ if transaction.recipients.is_empty() => {
                return world.say(stream, 1, "554 5.5.1 no valid recipients\r\n");
            }
            _ => {}
        }
        for recipient in &transaction.recipients {
            world.arrived(stream, recipient, body);
        }
        match self.trouble {
            Some(Trouble::TakenUnsaid) => self.drop(stream, world),
            Some(Trouble::Late(seconds)) => {
                let late = Duration::from_secs(seconds);
                world.put(stream, 1, Segment::Bytes(b"250 2.0.0 taken\r\n".to_vec()), late);
            }
            _ => world.say(stream, 1, "250 2.0.0 taken\r\n"),
        }
    }
}
