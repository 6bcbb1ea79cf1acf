//! The client session against a scripted server whose bytes arrive in pieces of every size.

mod ends;
mod extensions;
mod refusals;
mod replies;

use super::*;
use bytes::Bytes;
use mail::{
    Address, BodyKind, Instant, MailFrom, Notify, Now, Outcome, Recipient, Ret, ReversePath, Stage,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const ALL: &str = "250-sink\r\n250-PIPELINING\r\n250-SIZE 1000000\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n\
                   250-DSN\r\n250-ENHANCEDSTATUSCODES\r\n250 CHUNKING\r\n";
const PIPELINING: &str = "250-sink\r\n250-PIPELINING\r\n250 DSN\r\n";
const PLAIN: &str = "250 sink\r\n";

/// In a script: the server closes the connection here.
const DROP: char = '!';

/// A server that answers each command by the first unused rule for its verb, and positively if there
/// is none. `.` is the rule for the end of the data, after DATA or BDAT.
struct Server {
    rules: Vec<(&'static str, String)>,
    input: Vec<u8>,
    output: VecDeque<u8>,
    mode: Mode,
    lines: Vec<String>,
    bodies: Vec<Vec<u8>>,
    accepted: usize,
    lmtp: bool,
    dropped: bool,
}

enum Mode {
    Command,
    Data,
    Chunk(usize),
}

impl Server {
    fn new(rules: &[(&'static str, &str)]) -> Server {
        let rules = rules.iter().map(|(verb, reply)| (*verb, (*reply).to_string())).collect();
        let mut server = Server {
            rules,
            input: Vec::new(),
            output: VecDeque::new(),
            mode: Mode::Command,
            lines: Vec::new(),
            bodies: Vec::new(),
            accepted: 0,
            lmtp: false,
            dropped: false,
        };
        server.reply("", "220 sink\r\n");
        server
    }

    fn reply(&mut self, verb: &str, otherwise: &str) -> String {
        let at = self.rules.iter().position(|(ruled, _)| *ruled == verb);
        let reply = at.map_or(otherwise.to_string(), |at| self.rules.remove(at).1);
        let (said, dropped) = match reply.strip_suffix(DROP) {
            Some(said) => (said, true),
            None => (&*reply, false),
        };
        if !self.dropped {
            self.output.extend(said.as_bytes());
            self.dropped = dropped;
        }
        reply
    }

    fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        match self.mode {
            Mode::Command => {
                let Some(end) = find(&self.input, b"\r\n") else { return false };
                let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
                self.input.drain(..end + 2);
                self.command(line);
                true
            }
            Mode::Data => {
                let end = if self.input.starts_with(b".\r\n") {
                    3
                } else {
                    let Some(end) = find(&self.input, b"\r\n.\r\n") else { return false };
                    end + 5
                };
                let body = self.input.drain(..end).collect();
                self.body(body);
                true
            }
            Mode::Chunk(bytes) if self.input.len() >= bytes => {
                let body = self.input.drain(..bytes).collect();
                self.body(body);
                true
            }
            Mode::Chunk(_) => false,
        }
    }

    fn command(&mut self, line: String) {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_string();
        self.lines.push(line.clone());
        match verb.as_str() {
            "EHLO" | "LHLO" => {
                self.reply(&verb, ALL);
            }
            "RCPT" => {
                let reply = self.reply("RCPT", "250 2.1.5 ok\r\n");
                self.accepted += usize::from(reply.starts_with('2'));
            }
            "DATA" => {
                if self.reply("DATA", "354 go\r\n").starts_with('3') {
                    self.mode = Mode::Data;
                }
            }
            "BDAT" => {
                let bytes = line.split(' ').nth(1).unwrap().parse().unwrap();
                self.mode = Mode::Chunk(bytes);
            }
            "MAIL" | "RSET" => {
                self.accepted = 0;
                self.reply(&verb, "250 2.0.0 ok\r\n");
            }
            _ => {
                self.reply(&verb, "250 2.0.0 ok\r\n");
            }
        }
    }

    fn body(&mut self, body: Vec<u8>) {
        let chunk = matches!(self.mode, Mode::Chunk(_));
        self.mode = Mode::Command;
        self.bodies.push(body);
        if chunk && self.accepted == 0 {
            self.reply(".", "503 5.5.1 nobody to give it to\r\n");
            return;
        }
        for _ in 0..if self.lmtp { self.accepted } else { 1 } {
            self.reply(".", "250 2.0.0 kept\r\n");
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn at(seconds: u64) -> Now {
    let monotonic = Instant::ZERO + Duration::from_secs(seconds);
    Now { monotonic, ..Now::default() }
}

fn recipient(address: &str) -> Recipient {
    let address = Address::parse(address, true).unwrap();
    Recipient { address, notify: Notify::DEFAULT, orcpt: None }
}

const BODY: &str = "Received: here\r\nSubject: x\r\n\r\n.dot\r\n..\r\nend\r\n";

fn message(recipients: usize) -> Box<OutboundMessage> {
    let addresses = (0..recipients).map(|n| recipient(&format!("r{n}@sink.test")));
    Box::new(OutboundMessage {
        from: MailFrom::new(ReversePath::Address(Address::parse("s@source.test", false).unwrap())),
        recipients: addresses.collect(),
        body_bytes: BODY.len() as u64,
        content: Some(Bytes::from_static(BODY.as_bytes())),
    })
}

fn with_content(body: BodyKind, content: &'static str) -> Box<OutboundMessage> {
    let content = Bytes::from_static(content.as_bytes());
    let body_bytes = content.len() as u64;
    Box::new(OutboundMessage {
        from: MailFrom { body, ..message(1).from },
        body_bytes,
        content: Some(content),
        ..*message(1)
    })
}

/// What a test compares: all that must not depend on how the bytes are cut.
#[derive(Debug, PartialEq, Eq)]
struct Story {
    ended: Vec<Result<Vec<Outcome>, usize>>,
    lines: Vec<String>,
    bodies: Vec<Vec<u8>>,
    closed: bool,
}

impl Story {
    /// For each recipient `D`, `F` or `T` (tried again), the stage and the code.
    fn summary(&self) -> String {
        let mut words = Vec::new();
        for ended in &self.ended {
            let Ok(outcomes) = ended else {
                words.push("unsent".to_string());
                continue;
            };
            words.extend(outcomes.iter().map(|outcome| {
                let kind = match outcome {
                    Outcome::Delivered { .. } => 'D',
                    Outcome::Deferred(_) => 'T',
                    Outcome::Failed(_) => 'F',
                };
                let report = outcome.report();
                let whose = if report.from_peer { "" } else { "own " };
                format!("{kind} {:?} {whose}{}", report.stage, report.reply.code)
            }));
        }
        if self.closed {
            words.push("closed".to_string());
        }
        words.join(", ")
    }

    fn text(&self) -> &str {
        &self.ended[0].as_ref().unwrap()[0].report().reply.text
    }
}

struct Talk {
    server: Server,
    session: Session,
    whole: Vec<u8>,
    ended: Vec<Result<Vec<Outcome>, usize>>,
    closed: bool,
}

impl Talk {
    fn new(dialect: Dialect, settings: Settings, rules: &[(&'static str, &str)]) -> Talk {
        let mut server = Server::new(rules);
        server.lmtp = dialect == Dialect::Lmtp;
        let session = Session::new(Arc::new(settings), dialect, "sink[192.0.2.1]:25", at(0));
        Talk { server, session, whole: Vec::new(), ended: Vec::new(), closed: false }
    }

    fn send(&mut self, message: Box<OutboundMessage>) {
        self.whole = BODY.into();
        self.session.handle(Input::Send(message), at(0));
    }

    /// Runs until nothing moves. The bytes of the server arrive in pieces of these sizes, in turn.
    fn run(&mut self, cuts: &[usize]) {
        let mut cuts = cuts.iter().cycle();
        loop {
            let outgoing = self.session.transmit().to_vec();
            let mut moved = !outgoing.is_empty();
            self.server.take(&outgoing);
            self.session.transmitted(outgoing.len(), at(0));
            let cut = (*cuts.next().unwrap()).clamp(1, self.server.output.len().max(1));
            let some: Vec<u8> =
                self.server.output.drain(..cut.min(self.server.output.len())).collect();
            moved |= !some.is_empty();
            self.session.handle(Input::Received(&some), at(0));
            if self.server.dropped && self.server.output.is_empty() && !self.closed {
                self.session.handle(Input::Lost, at(0));
            }
            while let Some(output) = self.session.poll() {
                moved = true;
                self.output(output);
            }
            if !moved {
                return;
            }
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::NeedBody { offset, bytes } => {
                let from = offset as usize;
                let body = &BODY.as_bytes()[from..from + (bytes as usize).min(7)];
                self.session.handle(Input::Body(Bytes::copy_from_slice(body)), at(0));
            }
            Output::Done { outcomes, .. } => self.ended.push(Ok(outcomes)),
            Output::Unsent(message) => self.ended.push(Err(message.recipients.len())),
            Output::Close => self.closed = true,
        }
    }

    fn story(self) -> Story {
        Story {
            ended: self.ended,
            lines: self.server.lines,
            bodies: self.server.bodies,
            closed: self.closed,
        }
    }
}

fn tell_cut(
    dialect: Dialect,
    rules: &[(&'static str, &str)],
    messages: &[Box<OutboundMessage>],
    cuts: &[usize],
) -> Story {
    let mut talk = Talk::new(dialect, Settings::for_tests(), rules);
    for message in messages {
        talk.send(message.clone());
        talk.run(cuts);
    }
    talk.story()
}

/// Returns the story with whole replies, and asserts that it is the same byte by byte.
fn tell(rules: &[(&'static str, &str)], messages: &[Box<OutboundMessage>]) -> Story {
    let whole = tell_cut(Dialect::Smtp, rules, messages, &[usize::MAX]);
    assert_eq!(whole, tell_cut(Dialect::Smtp, rules, messages, &[1]), "{rules:?}");
    whole
}

type Rules<'a> = &'a [(&'static str, &'a str)];

/// The answer to EHLO, further rules, and the expected summary.
type Case<'a> = (&'a str, &'a [(&'static str, &'a str)], &'a str);

fn check(table: &[Case<'_>]) {
    for (hello, rules, expected) in table {
        let mut rules = rules.to_vec();
        rules.push(("EHLO", hello));
        let story = tell(&rules, &[message(2)]);
        assert_eq!(story.summary(), *expected, "{rules:?}\n{:?}", story.lines);
    }
}

#[test]
fn messages_follow_each_other_and_rset_comes_only_after_half_a_transaction() {
    let three = [message(1), message(1), message(1)];
    for hello in [ALL, PIPELINING, PLAIN] {
        let story = tell(&[("EHLO", hello)], &three);
        assert_eq!(story.summary(), "D End 250, D End 250, D End 250");
        assert_eq!(story.bodies.len(), 3);
        assert!(!story.lines.iter().any(|line| line == "RSET"));
        let mut rules = vec![("EHLO", hello), ("RCPT", "550 no\r\n")];
        if hello == PIPELINING {
            rules.push(("DATA", "503 no\r\n"));
        }
        let story = tell(&rules, &three);
        assert_eq!(story.summary(), "F Rcpt 550, D End 250, D End 250");
        let resets = story.lines.iter().filter(|line| *line == "RSET").count();
        assert_eq!(resets, 1, "{:?}", story.lines);
        // 354 although no recipient was accepted: an empty message ends it (RFC 2920 3.1).
        let story = tell(&[("EHLO", hello), ("RCPT", "550 no\r\n")], &three);
        assert_eq!(story.summary(), "F Rcpt 550, D End 250, D End 250");
    }
}

#[test]
fn after_a_refused_mail_a_peer_without_pipelining_hears_no_recipient() {
    let story = tell(&[("EHLO", PLAIN), ("MAIL", "550 no\r\n")], &[message(2), message(1)]);
    assert_eq!(story.summary(), "F Mail 550, F Mail 550, D End 250");
    let verbs = story.lines.iter().map(|line| &line[..4]);
    assert_eq!(verbs.collect::<Vec<_>>(), ["EHLO", "MAIL", "MAIL", "RCPT", "DATA"]);
}

#[test]
fn a_small_message_with_its_envelope_is_one_write() {
    let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[]);
    talk.send(message(3));
    talk.session.handle(Input::Received(b"220 a\r\n"), at(0));
    let hello = talk.session.transmit().len();
    talk.session.transmitted(hello, at(0));
    talk.session.handle(Input::Received(ALL.as_bytes()), at(0));
    let sent = String::from_utf8(talk.session.transmit().to_vec()).unwrap();
    assert!(sent.starts_with("MAIL FROM") && sent.ends_with(BODY), "{sent}");
}

#[test]
fn the_body_is_pulled_when_it_is_not_at_hand() {
    for hello in [ALL, PIPELINING, PLAIN] {
        let mut pulled = message(1);
        pulled.content = None;
        let here = tell(&[("EHLO", hello)], &[message(1)]);
        let story = tell(&[("EHLO", hello)], &[pulled]);
        assert_eq!(story.summary(), "D End 250");
        assert_eq!(story.bodies, here.bodies);
    }
}
