//! The client session against a scripted server whose bytes arrive in pieces of every size.

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
fn d147_a_4xx_at_each_stage_defers_and_leaves_the_others_unharmed() {
    check(&[
        (ALL, &[("", "421 busy\r\n")], "T Greeting 421, T Greeting 421, closed"),
        (ALL, &[("", "450 busy\r\n")], "T Greeting 450, T Greeting 450, closed"),
        ("451 later\r\n", &[], "T Hello 451, T Hello 451, closed"),
        (ALL, &[("MAIL", "451 no\r\n")], "T Mail 451, T Mail 451"),
        (PLAIN, &[("MAIL", "451 no\r\n")], "T Mail 451, T Mail 451"),
        (ALL, &[("RCPT", "450 grey\r\n")], "T Rcpt 450, D End 250"),
        (PIPELINING, &[("RCPT", "450 grey\r\n")], "T Rcpt 450, D End 250"),
        (PLAIN, &[("RCPT", "450 grey\r\n")], "T Rcpt 450, D End 250"),
        (PIPELINING, &[("DATA", "451 no\r\n")], "T Data 451, T Data 451"),
        (PLAIN, &[("DATA", "451 no\r\n")], "T Data 451, T Data 451"),
        (ALL, &[(".", "452 full\r\n")], "T End 452, T End 452"),
        (PLAIN, &[(".", "452 full\r\n")], "T End 452, T End 452"),
        (ALL, &[("MAIL", "421 bye\r\n!")], "T Mail 421, T Mail 421, closed"),
        (PLAIN, &[("RCPT", "421 bye\r\n!")], "T Rcpt 421, T Rcpt 421, closed"),
        (PIPELINING, &[("DATA", "421 bye\r\n!")], "T Data 421, T Data 421, closed"),
        (ALL, &[(".", "421 bye\r\n!")], "T End 421, T End 421, closed"),
    ]);
}

#[test]
fn d148_a_5xx_at_each_stage_fails_once_for_each_recipient_and_the_rest_is_delivered() {
    check(&[
        (ALL, &[("", "554 no\r\n")], "F Greeting 554, F Greeting 554, closed"),
        ("502 what\r\n", &[], "D End 250, D End 250"),
        ("502 what\r\n", &[("HELO", "550 no\r\n")], "F Hello 550, F Hello 550, closed"),
        (ALL, &[("MAIL", "550 no\r\n")], "F Mail 550, F Mail 550"),
        (ALL, &[("RCPT", "550 no\r\n")], "F Rcpt 550, D End 250"),
        (ALL, &[("RCPT", "550 a\r\n"), ("RCPT", "551 b\r\n")], "F Rcpt 550, F Rcpt 551"),
        (PLAIN, &[("RCPT", "550 a\r\n"), ("RCPT", "551 b\r\n")], "F Rcpt 550, F Rcpt 551"),
        (PIPELINING, &[("DATA", "554 no\r\n")], "F Data 554, F Data 554"),
        (ALL, &[(".", "554 spam\r\n")], "F End 554, F End 554"),
    ]);
}

/// A server that accepts `max` recipients in the first transaction and refuses the others with
/// this reply.
fn tell_limited(hello: &str, max: usize, refusal: &str, recipients: usize) -> Story {
    let mut rules = vec![("EHLO", hello)];
    rules.extend(vec![("RCPT", "250 2.1.5 ok\r\n"); max]);
    rules.extend(vec![("RCPT", refusal); recipients - max]);
    tell(&rules, &[message(recipients)])
}

#[test]
fn r233_recipients_beyond_the_peers_limit_go_in_the_next_transaction() {
    let refusals =
        ["452 4.5.3 too many\r\n", "452 too many\r\n", "552 5.5.3 too many\r\n", "552 many\r\n"];
    for refusal in refusals {
        for hello in [ALL, PIPELINING, PLAIN] {
            let story = tell_limited(hello, 3, refusal, 8);
            assert_eq!(story.summary(), ["D End 250"; 8].join(", "), "{refusal} {:?}", story.lines);
            let of = |verb: &str| story.lines.iter().filter(|l| l.starts_with(verb)).count();
            // Five recipients were sent twice; then the limit is known.
            assert_eq!((of("MAIL"), of("RCPT"), story.bodies.len()), (3, 13, 3));
        }
    }
}

#[test]
fn r233_a_refused_recipient_is_quoted_and_judged_as_the_peer_said() {
    let full = "552 5.2.2 Mailbox full\r\n";
    check(&[
        (ALL, &[("RCPT", full)], "F Rcpt 552, D End 250"),
        (PLAIN, &[("RCPT", "250 ok\r\n"), ("RCPT", full)], "D End 250, F Rcpt 552"),
        // No recipient was accepted before it, so the reply cannot mean "too many".
        (ALL, &[("RCPT", "552 full\r\n")], "F Rcpt 552, D End 250"),
        (ALL, &[("RCPT", "552 5.5.3 too many\r\n")], "T Rcpt 552, D End 250"),
        (ALL, &[("RCPT", "452 4.5.3 too many\r\n")], "T Rcpt 452, D End 250"),
        (ALL, &[("RCPT", "250 ok\r\n"), ("RCPT", "452 4.2.2 full\r\n")], "D End 250, T Rcpt 452"),
        (ALL, &[("RCPT", "250 ok\r\n"), ("RCPT", "452 4.3.1 disk\r\n")], "D End 250, T Rcpt 452"),
    ]);
    let bare = ("RCPT", "552 full\r\n");
    let ok = ("RCPT", "250 ok\r\n");
    for hello in [ALL, PIPELINING, PLAIN] {
        let rules = |more: &[(&'static str, &'static str)]| [&[("EHLO", hello)], more].concat();
        // The second recipient is refused again in a transaction of its own: the reply is final.
        let story = tell(&rules(&[ok, bare, bare]), &[message(2)]);
        assert_eq!(story.summary(), "D End 250, F Rcpt 552");
        // If no recipient got the message, none is tried again at once.
        let refused = (".", "554 spam\r\n");
        let story = tell(&rules(&[ok, ("RCPT", "452 many\r\n"), refused]), &[message(2)]);
        assert_eq!(story.summary(), "F End 554, T Rcpt 452");
        let story = tell(&rules(&[ok, ("RCPT", "452 many\r\n"), (".", "!")]), &[message(2)]);
        assert_eq!(story.summary(), "T End own 451, T Rcpt 452, closed");
        // Whether the peer meant "too many" is unknown, so nothing bounces.
        for (end, expected) in [
            ((".", "451 later\r\n"), "T End 451, T Rcpt 552"),
            ((".", "554 spam\r\n"), "F End 554, T Rcpt 552"),
            ((".", "!"), "T End own 451, T Rcpt 552, closed"),
        ] {
            let story = tell(&rules(&[ok, bare, end]), &[message(2)]);
            assert_eq!(story.summary(), expected);
        }
    }
    let story = tell(&[("RCPT", full)], &[message(1)]);
    let said = story.ended[0].as_ref().unwrap()[0].report().reply.to_string();
    assert_eq!(said, "552 5.2.2 Mailbox full");
}

#[test]
fn d149_each_recipient_has_its_own_outcome() {
    let rules = [("RCPT", "250 ok\r\n"), ("RCPT", "451 4.2.1 full\r\n"), ("RCPT", "550 no\r\n")];
    for hello in [ALL, PIPELINING, PLAIN] {
        let story = tell(&[&rules[..], &[("EHLO", hello)]].concat(), &[message(4)]);
        assert_eq!(story.summary(), "D End 250, T Rcpt 451, F Rcpt 550, D End 250");
        assert_eq!(story.bodies.len(), 1);
    }
    for garbage in ["banana\r\n", " \r\n"] {
        let rules = [("RCPT", "550 no\r\n"), ("RCPT", garbage)];
        let story = tell(&rules, &[message(3)]);
        assert_eq!(story.summary(), "F Rcpt 550, T Rcpt own 451, T Rcpt own 451, closed");
    }
}

#[test]
fn d150_a_connection_lost_after_the_dot_is_tried_again() {
    check(&[
        (ALL, &[(".", "!")], "T End own 451, T End own 451, closed"),
        (PIPELINING, &[(".", "!")], "T End own 451, T End own 451, closed"),
        (PLAIN, &[(".", "250!")], "T End own 451, T End own 451, closed"),
        (PLAIN, &[("DATA", "!")], "T Data own 451, T Data own 451, closed"),
    ]);
}

#[test]
fn d151_a_body_that_breaks_off_is_never_ended() {
    for (hello, input) in
        [(PLAIN, Input::BodyFailed), (ALL, Input::BodyFailed), (PLAIN, Input::Lost)]
    {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", hello)]);
        let mut message = message(1);
        message.content = None;
        message.body_bytes = 70_000;
        talk.session.handle(Input::Send(message), at(0));
        let asked = loop {
            let outgoing = talk.session.transmit().to_vec();
            talk.server.take(&outgoing);
            talk.session.transmitted(outgoing.len(), at(0));
            let some: Vec<u8> = talk.server.output.drain(..).collect();
            talk.session.handle(Input::Received(&some), at(0));
            if let Some(output) = talk.session.poll() {
                break output;
            }
        };
        assert_eq!(asked, Output::NeedBody { offset: 0, bytes: 70_000 });
        talk.session.handle(Input::Body(Bytes::from_static(b"half\r\n")), at(0));
        talk.session.handle(input, at(0));
        talk.run(&[usize::MAX]);
        let story = talk.story();
        assert_eq!(story.summary(), "T Data own 451, closed");
        assert!(story.bodies.is_empty());
    }
}

#[test]
fn d152_a_late_answer_counts_and_a_later_one_does_not() {
    for (seconds, expected) in [(599, "D End 250"), (600, "T End own 451, closed")] {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[(".", "")]);
        talk.send(message(1));
        talk.run(&[usize::MAX]);
        let due = talk.session.next_wakeup().unwrap();
        assert_eq!(due, Instant::ZERO + Duration::from_secs(600));
        talk.session.handle(Input::Tick, at(seconds));
        talk.session.handle(Input::Received(b"25"), at(seconds));
        talk.session.handle(Input::Received(b"0 ok\r\n"), at(seconds));
        talk.run(&[usize::MAX]);
        assert_eq!(talk.story().summary(), expected);
    }
}

#[test]
fn d153_garbage_ends_the_connection_in_bounded_memory() {
    let long = "x".repeat(70_000);
    let endless = "250-more\r\n".repeat(200);
    let megabyte = format!("250 {}", "y".repeat(1 << 20));
    for reply in [
        "000 no\r\n",
        "999 no\r\n",
        "25\r\n",
        "2500 no\r\n",
        "250no\r\n",
        "hello\r\n",
        "\r\n",
        " \r\n",
        "354 go\r\n",
        "250-a\r\n550 b\r\n",
        "250 \0\x01",
        "\u{e9}50 a\r\n",
        &long,
        &endless,
        &megabyte,
        " 250 ok\r\n",
        "250\tok\r\n",
        "-50 a\r\n",
        "199 a\r\n",
        "600 a\r\n",
    ] {
        let dropping = format!("{reply}{DROP}");
        for hello in [ALL, PLAIN] {
            let story = tell(&[("EHLO", hello), ("RCPT", &dropping)], &[message(1)]);
            assert_eq!(story.summary(), "T Rcpt own 451, closed", "{:.40}", reply);
        }
    }
    check(&[
        (PIPELINING, &[("DATA", "250 ok\r\n")], "T Data own 451, T Data own 451, closed"),
        (ALL, &[("MAIL", "354 go\r\n")], "T Mail own 451, T Mail own 451, closed"),
        (ALL, &[(".", "354 go\r\n")], "T End own 451, T End own 451, closed"),
        (ALL, &[("", "354 go\r\n")], "T Greeting own 451, T Greeting own 451, closed"),
        (ALL, &[("RCPT", "250\r\n"), (".", "250\r\n")], "D End 250, D End 250"),
        (ALL, &[("RCPT", "550 no\r\n250 yes\r\n")], "F Rcpt 550, D End 250, closed"),
    ]);
}

#[test]
fn r229_an_unknown_code_counts_by_its_first_digit() {
    for go_on in
        ["300 go\r\n", "334 more\r\n", "345\r\n", "350-a\r\n350 b\r\n", "352 c\r\n", "399 d\r\n"]
    {
        for hello in [PIPELINING, PLAIN] {
            let story = tell(&[("EHLO", hello), ("DATA", go_on)], &[message(2)]);
            assert_eq!(story.summary(), "D End 250, D End 250", "{go_on:?}");
            assert_eq!(story.bodies.len(), 1);
        }
    }
    check(&[
        (PIPELINING, &[("", "299 hi\r\n")], "D End 250, D End 250"),
        ("267-sink\r\n267 PIPELINING\r\n", &[], "D End 250, D End 250"),
        ("599 what\r\n", &[("HELO", "222 hi\r\n")], "D End 250, D End 250"),
        ("555 what\r\n", &[("HELO", "444 no\r\n")], "T Hello 444, T Hello 444, closed"),
        (PLAIN, &[("MAIL", "200 ok\r\n"), ("RCPT", "278 ok\r\n")], "D End 250, D End 250"),
        (PLAIN, &[("MAIL", "499 no\r\n")], "T Mail 499, T Mail 499"),
        (ALL, &[("MAIL", "577 no\r\n")], "F Mail 577, F Mail 577"),
        (ALL, &[("RCPT", "432 no\r\n"), ("RCPT", "532 no\r\n")], "T Rcpt 432, F Rcpt 532"),
        (PLAIN, &[("DATA", "477 no\r\n")], "T Data 477, T Data 477"),
        (PIPELINING, &[("DATA", "577 no\r\n")], "F Data 577, F Data 577"),
        (PLAIN, &[(".", "201 kept\r\n")], "D End 201, D End 201"),
        (ALL, &[(".", "277 kept\r\n")], "D End 277, D End 277"),
        (ALL, &[(".", "433 no\r\n")], "T End 433, T End 433"),
        (PLAIN, &[(".", "533 no\r\n")], "F End 533, F End 533"),
        (ALL, &[("", "521 no\r\n")], "F Greeting 521, F Greeting 521, closed"),
    ]);
    let nobody = [("RCPT", "550 no\r\n"), ("DATA", "333 go\r\n"), (".", "555 empty\r\n")];
    let story = tell(&[&nobody[..], &[("EHLO", PIPELINING)]].concat(), &[message(1), message(1)]);
    assert_eq!(story.summary(), "F Rcpt 550, D End 250");
}

#[test]
fn a_reply_that_fits_nowhere_is_quoted_and_a_refused_rset_is_not_held_against_the_message() {
    let story = tell(&[("EHLO", PLAIN), ("DATA", "250 2.0.0 done?\r\n")], &[message(1)]);
    let reply = story.ended[0].as_ref().unwrap()[0].report().reply.text.clone();
    assert!(reply.ends_with("does not fit the command: 250 2.0.0 done?"), "{reply}");
    for hello in [ALL, PLAIN] {
        let rules = [("EHLO", hello), ("RCPT", "550 no\r\n"), ("RSET", "500 what\r\n")];
        let story = tell(&rules, &[message(1), message(1)]);
        assert_eq!(story.summary(), "F Rcpt 550, unsent, closed", "{:?}", story.lines);
    }
}

#[test]
fn r230_a_long_reply_line_decides_as_a_short_one_would() {
    for bytes in [2_049, 5_789, 65_535] {
        let long = |code| format!("{code} {:x<1$}\r\n", "", bytes - 4);
        let (no, ok) = (long("550"), long("250"));
        check(&[
            (PLAIN, &[("", &ok), ("RCPT", &no)], "F Rcpt 550, D End 250"),
            (ALL, &[("RCPT", &no), (".", &no)], "F Rcpt 550, F End 550"),
            (PIPELINING, &[("MAIL", &ok), (".", &ok)], "D End 250, D End 250"),
        ]);
    }
    let endless = "550 ".to_string() + &"x".repeat(65_533);
    check(&[(PLAIN, &[("RCPT", &endless)], "T Rcpt own 451, T Rcpt own 451, closed")]);
}

#[test]
fn r234_a_reply_with_different_codes_of_one_class_decides_and_one_of_two_classes_does_not() {
    let moved = "550-5.1.1 no\r\n551 5.1.6 moved\r\n";
    check(&[
        (PLAIN, &[("RCPT", moved), ("RCPT", "\r\n250 ok\r\n")], "F Rcpt 551, D End 250"),
        (ALL, &[("", "\r\n\r\n220 hi\r\n"), (".", "\r\n250 ok\r\n")], "D End 250, D End 250"),
        (ALL, &[("RCPT", "450-a\r\n550 b\r\n")], "T Rcpt own 451, T Rcpt own 451, closed"),
    ]);
}

#[test]
fn d154_and_d155_a_reply_is_made_harmless() {
    for (reply, enhanced, text) in [
        ("550 5.7.2\r\n", Some("5.7.2"), ""),
        ("550 5.7.2 no\r\n", Some("5.7.2"), "no"),
        ("550-5.7.2 no\r\n550 5.7.2 way\r\n", Some("5.7.2"), "no\nway"),
        ("550 4.7.2 odd\r\n", None, "4.7.2 odd"),
        ("550-a\r\n550-250 MAIL FROM:<x>\r\n550 R\r\n", None, "a\n250 MAIL FROM:<x>\nR"),
        ("550 a\0b\x1b[31m\tc\x7f\r\r\n", None, "a?b?[31m c??"),
        ("550 caf\u{e9}\r\n", None, "caf??"),
    ] {
        let story = tell(&[("RCPT", reply)], &[message(1)]);
        let Ok(outcomes) = &story.ended[0] else { panic!() };
        let given = outcomes[0].report().reply.enhanced.map(|code| code.to_string());
        assert_eq!((given.as_deref(), story.text()), (enhanced, text));
    }
    let long = format!("{}550 end\r\n", format!("550-{}\r\n", "z".repeat(1000)).repeat(100));
    let story = tell(&[("RCPT", &long)], &[message(1)]);
    assert_eq!(story.summary(), "F Rcpt 550");
    assert!(story.text().len() <= 8 * 1024);
}

#[test]
fn d156_and_d157_lmtp_answers_for_each_recipient_and_only_missing_ones_are_tried_again() {
    let three = "250-l\r\n250-PIPELINING\r\n250 8BITMIME\r\n";
    let chunking = "250-l\r\n250-PIPELINING\r\n250 CHUNKING\r\n";
    let table: &[(Rules<'_>, &str)] = &[
        (&[], "D End 250, D End 250, D End 250"),
        (
            &[(".", "250 a\r\n"), (".", "452 full\r\n"), (".", "550 no\r\n")],
            "D End 250, T End 452, F End 550",
        ),
        (
            &[("RCPT", "550 no\r\n"), (".", "250 a\r\n!")],
            "F Rcpt 550, D End 250, T End own 451, closed",
        ),
        (&[(".", "250 a\r\n"), (".", "!")], "D End 250, T End own 451, T End own 451, closed"),
        (
            &[(".", "250 a\r\n250 b\r\n250 c\r\n250 d\r\n")],
            "D End 250, D End 250, D End 250, closed",
        ),
        (
            &[
                ("RCPT", "550 a\r\n"),
                ("RCPT", "550 b\r\n"),
                ("RCPT", "550 c\r\n"),
                ("DATA", "503 none\r\n"),
            ],
            "F Rcpt 550, F Rcpt 550, F Rcpt 550",
        ),
    ];
    for hello in [three, chunking, "250 l\r\n"] {
        for (rules, expected) in table {
            let rules = [&rules[..], &[("LHLO", hello)]].concat();
            for cut in [1, usize::MAX] {
                let story = tell_cut(Dialect::Lmtp, &rules, &[message(3)], &[cut]);
                assert_eq!(story.summary(), *expected, "{rules:?} {:?}", story.lines);
            }
        }
    }
    let story = tell_cut(Dialect::Lmtp, &[("LHLO", "500 what\r\n")], &[message(1)], &[9]);
    assert_eq!(story.summary(), "F Hello 500, closed");
}

#[test]
fn d159_a_peer_that_trickles_or_does_not_read_is_given_up_in_time() {
    // One byte in 30 seconds does not move the deadline of the answer.
    let mut talk =
        Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", PLAIN), ("MAIL", "")]);
    talk.send(message(1));
    talk.run(&[usize::MAX]);
    let mut now = 0;
    while talk.session.next_wakeup().is_some() {
        now += 30;
        talk.session.handle(Input::Received(b"2"), at(now));
        talk.session.handle(Input::Tick, at(now));
        assert!(now <= 300, "the answer to MAIL is awaited for five minutes");
    }
    talk.run(&[usize::MAX]);
    assert_eq!(talk.story().summary(), "T Mail own 451, closed");

    // A peer that reads single bytes has an hour for the whole message.
    let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", PLAIN)]);
    let mut large = message(1);
    large.content = None;
    large.body_bytes = 10 << 20;
    talk.session.handle(Input::Send(large), at(0));
    let mut now = 0;
    let outcome = loop {
        let outgoing = talk.session.transmit().len();
        let commands = if outgoing > 1000 { 1 } else { outgoing };
        let bytes = talk.session.transmit()[..commands].to_vec();
        talk.server.take(&bytes);
        if outgoing > 1000 {
            now += 100;
        }
        talk.session.transmitted(commands, at(now));
        let some: Vec<u8> = talk.server.output.drain(..).collect();
        talk.session.handle(Input::Received(&some), at(now));
        talk.session.handle(Input::Tick, at(now));
        match talk.session.poll() {
            Some(Output::NeedBody { bytes, .. }) => {
                let body = Bytes::from(vec![b'x'; bytes as usize]);
                talk.session.handle(Input::Body(body), at(now));
            }
            Some(Output::Done { outcomes, .. }) => break outcomes[0].clone(),
            _ => {}
        }
        assert!(talk.session.transmit().len() <= 1 << 20, "what is framed ahead is bounded");
        assert!(now <= 3600);
    };
    assert!(matches!(outcome, Outcome::Deferred(report) if report.stage == Stage::Data));
}

#[test]
fn d172_what_the_next_hop_does_not_offer_is_left_out_or_bounced() {
    let mut dsn = message(1);
    dsn.from.ret = Some(Ret::Headers);
    dsn.from.envid = Some("id+3D".into());
    dsn.recipients[0].notify = Notify::of(true, true, false);
    dsn.recipients[0].orcpt = Some("rfc822;r+2B0@sink.test".into());
    dsn.from.body = BodyKind::EightBit;
    let story = tell(&[], &[dsn.clone()]);
    assert_eq!(
        &story.lines[1..],
        [
            "MAIL FROM:<s@source.test> SIZE=45 BODY=8BITMIME RET=HDRS ENVID=id+3D",
            "RCPT TO:<r0@sink.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;r+2B0@sink.test",
            "BDAT 45 LAST",
        ]
    );
    assert!(matches!(
        &story.ended[0].as_ref().unwrap()[0],
        Outcome::Delivered { relayed: false, .. }
    ));
    let story = tell(&[("EHLO", PLAIN)], &[dsn]);
    let plain = ["MAIL FROM:<s@source.test>", "RCPT TO:<r0@sink.test>", "DATA"];
    assert_eq!(&story.lines[1..], plain);
    assert!(matches!(
        &story.ended[0].as_ref().unwrap()[0],
        Outcome::Delivered { relayed: true, .. }
    ));
    assert_eq!(
        story.bodies[0],
        b"Received: here\r\nSubject: x\r\n\r\n..dot\r\n...\r\nend\r\n.\r\n"
    );
}

#[test]
fn m073_eight_bits_for_a_hop_without_8bitmime_bounce_with_5_6_3_and_are_not_sent() {
    for (body, content, expected) in [
        (BodyKind::EightBit, "A: b\r\n\r\n\u{e9}\r\n", "F Here own 554"),
        (BodyKind::EightBit, "A: b\r\n\r\ne\r\n", "D End 250"),
    ] {
        let story = tell(&[("EHLO", PIPELINING)], &[with_content(body, content)]);
        assert_eq!(story.summary(), expected);
        assert_eq!(story.bodies.is_empty(), expected.starts_with('F'));
    }
}

#[test]
fn r228_eight_bits_that_nobody_declared_go_as_they_came_to_a_hop_without_8bitmime() {
    for (body, content) in [
        (BodyKind::UndeclaredEightBit, "A: b\r\n\r\n\u{e9}\r\n"),
        (BodyKind::UndeclaredEightBit, "A: \u{e9}\r\n\r\ne\r\n"),
        // 8BITMIME declares the body, not the header section.
        (BodyKind::EightBit, "A: \u{e9}\r\n\r\ne\r\n"),
    ] {
        let as_it_came = content.as_bytes();
        for (offers, parameter) in [(PIPELINING, ""), (PLAIN, ""), (ALL, " BODY=8BITMIME")] {
            let story = tell(&[("EHLO", offers)], &[with_content(body, content)]);
            assert_eq!(story.summary(), "D End 250", "{body:?} {content:?}");
            assert!(story.lines[1].ends_with(parameter), "{:?}", story.lines);
            assert_eq!(story.lines[1].contains("BODY="), !parameter.is_empty());
            assert!(story.bodies[0].starts_with(as_it_came), "{body:?}");
        }
    }
}

#[test]
fn p049_utf8_for_a_hop_without_smtputf8_is_put_in_ascii_or_bounces_with_5_6_7() {
    let mut mixed = message(0);
    mixed.from.smtputf8 = true;
    mixed.recipients =
        ["a@b\u{fc}cher.example", "j\u{fc}rgen@sink.test", "c@sink.test"].map(recipient).into();
    let story = tell(&[("EHLO", PIPELINING)], &[mixed.clone()]);
    assert_eq!(story.summary(), "D End 250, F Here own 554, D End 250");
    assert_eq!(story.lines[2], "RCPT TO:<a@xn--bcher-kva.example>");
    let failed = story.ended[0].as_ref().unwrap()[1].report().reply.to_string();
    assert!(failed.starts_with("554 5.6.7 "), "{failed}");

    let story = tell(&[], &[mixed.clone()]);
    assert_eq!(story.summary(), "D End 250, D End 250, D End 250");
    assert!(story.lines[1].ends_with(" SMTPUTF8"), "{:?}", story.lines);
    assert_eq!(story.lines[3], "RCPT TO:<j\u{fc}rgen@sink.test>");

    let mut sender = mixed.clone();
    sender.from.sender = ReversePath::Address(Address::parse("\u{fc}@source.test", true).unwrap());
    let story = tell(&[("EHLO", PIPELINING)], &[sender]);
    assert_eq!(story.summary(), "F Here own 554, F Here own 554, F Here own 554");

    let mut header = mixed;
    let content = "Subject: \u{fc}\r\n\r\n";
    header.body_bytes = content.len() as u64;
    header.content = Some(Bytes::from_static(content.as_bytes()));
    let story = tell(&[("EHLO", PIPELINING)], &[header]);
    assert_eq!(story.summary(), "F Here own 554, F Here own 554, F Here own 554");
    assert!(story.bodies.is_empty());
}

#[test]
fn d173_a_message_too_large_for_the_next_hop_is_not_sent() {
    for (size, expected) in [
        ("250-s\r\n250 SIZE 44\r\n", "F Here own 552"),
        ("250-s\r\n250 SIZE 45\r\n", "D End 250"),
        ("250-s\r\n250 SIZE\r\n", "D End 250"),
        ("250-s\r\n250 SIZE 0\r\n", "D End 250"),
    ] {
        let story = tell(&[("EHLO", size)], &[message(1)]);
        assert_eq!(story.summary(), expected);
        assert_eq!(story.bodies.is_empty(), expected.starts_with('F'));
    }
    let story = tell(&[("EHLO", "250-s\r\n250 SIZE 44\r\n")], &[message(1)]);
    assert!(
        story.ended[0].as_ref().unwrap()[0].report().reply.to_string().starts_with("552 5.3.4")
    );
}

#[test]
fn d176_an_idle_connection_that_the_peer_closed_gives_the_message_back_unsent() {
    for (hello, rules, expected) in [
        (ALL, [("MAIL", "250 ok\r\n"), ("MAIL", "!")], "D End 250, unsent, closed"),
        (PLAIN, [("MAIL", "250 ok\r\n"), ("MAIL", "!")], "D End 250, unsent, closed"),
        // Once the peer has answered a command of this message, the message is deferred.
        (PLAIN, [("RCPT", "250 ok\r\n"), ("RCPT", "!")], "D End 250, T Rcpt own 451, closed"),
        (ALL, [("MAIL", "250 ok\r\n"), ("MAIL", "2!")], "D End 250, T Mail own 451, closed"),
        // On a new connection the message is deferred.
        (ALL, [("MAIL", "!"), ("MAIL", "")], "T Mail own 451, unsent, closed"),
    ] {
        let rules = [&rules[..], &[("EHLO", hello)]].concat();
        let story = tell(&rules, &[message(1), message(1)]);
        assert_eq!(story.summary(), expected, "{rules:?}");
    }
    let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[]);
    talk.send(message(1));
    talk.run(&[usize::MAX]);
    talk.session.handle(Input::Received(b"421 4.4.2 idle\r\n"), at(9));
    assert!(talk.session.is_closed() && !talk.session.can_send());
    assert_eq!(talk.session.poll(), Some(Output::Close));
    talk.session.handle(Input::Send(message(1)), at(9));
    assert!(matches!(talk.session.poll(), Some(Output::Unsent(_))));
}

/// No reply is awaited while the body is searched for 8-bit octets.
#[test]
fn a_goodbye_while_a_body_is_looked_at_leaves_no_message_without_an_end() {
    let eight_bit = |used| {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", PIPELINING)]);
        talk.run(&[usize::MAX]);
        if used {
            talk.send(message(1));
            talk.run(&[usize::MAX]);
        }
        let mut message = OutboundMessage { content: None, ..*message(2) };
        message.from.body = BodyKind::EightBit;
        talk.session.handle(Input::Send(Box::new(message)), at(1));
        assert!(matches!(talk.session.poll(), Some(Output::NeedBody { .. })));
        talk.session.handle(Input::Received(b"421 4.3.2 shutting down\r\n"), at(1));
        while let Some(output) = talk.session.poll() {
            talk.output(output);
        }
        talk.story().summary()
    };
    assert_eq!(eight_bit(false), "T Mail 421, T Mail 421, closed");
    assert_eq!(eight_bit(true), "D End 250, unsent, closed");
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
fn an_answer_before_the_end_of_the_body_delivers_nothing() {
    for (early, expected) in
        [("250 kept\r\n", "T Data own 451, closed"), ("550 no\r\n", "F Data 550, closed")]
    {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", ALL)]);
        talk.send(Box::new(OutboundMessage { content: None, body_bytes: 70_000, ..*message(1) }));
        while talk.session.poll().is_none() {
            let outgoing = talk.session.transmit().to_vec();
            talk.server.take(&outgoing);
            talk.session.transmitted(outgoing.len(), at(0));
            let some: Vec<u8> = talk.server.output.drain(..).collect();
            talk.session.handle(Input::Received(&some), at(0));
        }
        talk.session.handle(Input::Received(early.as_bytes()), at(0));
        talk.run(&[usize::MAX]);
        assert_eq!(talk.story().summary(), expected, "{early}");
    }
}

#[test]
fn a_connection_takes_as_many_messages_as_the_peer_allows() {
    for (hello, expected) in [("250 LIMITS MAILMAX=2\r\n", 2), (PLAIN, 5)] {
        let hello = format!("250-s\r\n{hello}");
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", &hello)]);
        talk.run(&[usize::MAX]);
        let sent = (0..5).take_while(|_| {
            let can_send = talk.session.can_send();
            if can_send {
                talk.send(message(1));
                talk.run(&[usize::MAX]);
            }
            can_send
        });
        assert_eq!(sent.count(), expected, "{hello}");
    }
}

#[test]
fn limits_of_the_peer_are_kept() {
    let hello = "250-s\r\n250-PIPELINING\r\n250 LIMITS RCPTMAX=2 MAILMAX=2\r\n";
    let story = tell(&[("EHLO", hello)], &[message(5)]);
    assert_eq!(story.summary(), "D End 250, D End 250, D End 250, D End 250, T Mail own 451");
    assert_eq!(story.bodies.len(), 2);
    let hello = "250-s\r\n250 LIMITS RCPTDOMAINMAX=1\r\n";
    let mut two = message(0);
    two.recipients = ["a@x.test", "b@x.test", "c@y.test"].map(recipient).into();
    let story = tell(&[("EHLO", hello)], &[two]);
    assert_eq!(story.summary(), "D End 250, D End 250, D End 250");
    assert_eq!(story.bodies.len(), 2);
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

proptest! {
    #[test]
    fn d177_replies_mean_the_same_however_they_are_cut(
        cuts in proptest::collection::vec(1usize..40, 1..20),
        picks in proptest::collection::vec(0usize..6, 8),
        hello in 0usize..3,
    ) {
        let replies = ["250 ok\r\n", "250-a\r\n250 b\r\n", "450 4.1.1 no\r\n", "550 no\r\n", "x\r\n", "421 b\r\n!"];
        let verbs = ["MAIL", "RCPT", "RCPT", "RCPT", ".", "MAIL", "RCPT", "."];
        let mut rules: Vec<_> =
            verbs.iter().zip(&picks).map(|(verb, pick)| (*verb, replies[*pick])).collect();
        rules.push(("EHLO", [ALL, PIPELINING, PLAIN][hello]));
        let messages = [message(3), message(2)];
        let whole = tell_cut(Dialect::Smtp, &rules, &messages, &[usize::MAX]);
        let cut = tell_cut(Dialect::Smtp, &rules, &messages, &cuts);
        prop_assert_eq!(&whole.summary(), &cut.summary());
        prop_assert_eq!(whole.ended, cut.ended);
    }

    #[test]
    fn any_bytes_of_a_peer_end_with_an_outcome_for_each(
        junk in proptest::collection::vec(any::<u8>(), 0..400),
        good in 0usize..200,
    ) {
        let script = format!("220 a\r\n{ALL}250 a\r\n250 b\r\n250 c\r\n250 d\r\n");
        let mut session =
            Session::new(Arc::new(Settings::for_tests()), Dialect::Smtp, "p", at(0));
        session.handle(Input::Send(message(2)), at(0));
        session.handle(Input::Received(&script.as_bytes()[..good.min(script.len())]), at(0));
        session.handle(Input::Received(&junk), at(0));
        session.handle(Input::Lost, at(0));
        let mut outcomes = 0;
        while let Some(output) = session.poll() {
            match output {
                Output::Done { outcomes: told, .. } => outcomes += told.len(),
                Output::Close => prop_assert!(session.is_closed()),
                Output::NeedBody { .. } | Output::Unsent(_) => prop_assert!(false, "{output:?}"),
            }
        }
        prop_assert_eq!(outcomes, 2);
    }
}
