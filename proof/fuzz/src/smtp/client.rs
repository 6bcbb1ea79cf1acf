//! Client sessions against a server that says anything.
//!
//! Must never let time pass where two runs are compared.

use crate::input::{Input, pieces};
use ::smtp::client::{
    BODY_CHUNK_BYTES_MAX, Dialect, Input as Told, OutboundMessage, Output, Session, Settings,
};
use bytes::Bytes;
use mail::{
    Address, BodyKind, Instant, MailFrom, Notify, Now, Outcome, Recipient, Ret, ReversePath, Stage,
};
use std::sync::Arc;
use std::time::Duration;

/// The sizes and kinds of message that take different ways.
fn message(kind: u8) -> OutboundMessage {
    let address = |text: &str| Address::parse(text, true).expect("it is one");
    let utf8 = kind & 1 != 0;
    let mut recipients = vec!["x@y.test", "\"q r\"@y.test", "z@w.test"];
    if utf8 {
        recipients.push("é@bücher.test");
    }
    recipients.truncate(1 + usize::from(kind >> 1 & 3));
    let recipient = |text: &&str| Recipient {
        address: address(text),
        notify: if kind & 8 != 0 { Notify::of(true, true, false) } else { Notify::DEFAULT },
        orcpt: (kind & 8 != 0).then(|| "rfc822;x+2By@z.test".into()),
    };
    let body = body(kind);
    OutboundMessage {
        from: MailFrom {
            sender: if kind & 16 != 0 {
                ReversePath::Null
            } else {
                ReversePath::Address(address("a@b.test"))
            },
            ret: (kind & 8 != 0).then_some(Ret::Headers),
            envid: (kind & 8 != 0).then(|| "id+2B1".into()),
            body: if kind & 32 != 0 { BodyKind::EightBit } else { BodyKind::SevenBit },
            smtputf8: utf8,
        },
        recipients: recipients.iter().map(recipient).collect(),
        body_bytes: body.len() as u64,
        content: (kind & 64 != 0).then(|| Bytes::from(body)),
    }
}

fn body(kind: u8) -> Vec<u8> {
    let line: &[u8] = if kind & 32 != 0 {
        "Sübject: x\r\n\r\n.é\r\n".as_bytes()
    } else {
        b"A: b\r\n\r\n.\r\nx\r\n"
    };
    line.repeat(if kind & 128 != 0 { 20_000 } else { 1 })
}

/// A session with a driver that follows each message to its end.
struct Driver {
    session: Session,
    now: Now,
    dialect: Dialect,
    /// The kind of the message that is under way.
    under_way: Option<u8>,
    /// Bytes of its body that were asked for and not yet given: offset and count.
    asked: Option<(u64, u32)>,
    given: u64,
    ends: Vec<Output>,
    closed: bool,
    wire: Vec<u8>,
}

impl Driver {
    fn new(flags: u8) -> Driver {
        let dialect = if flags & 1 != 0 { Dialect::Lmtp } else { Dialect::Smtp };
        let config =
            Settings { helo: "c.test".into(), chunking: flags & 2 != 0, ..Settings::for_tests() };
        let now = Now { monotonic: Instant::from_nanos(1), ..Now::default() };
        Driver {
            session: Session::new(Arc::new(config), dialect, "peer.test[192.0.2.1]:25", now),
            now,
            dialect,
            under_way: None,
            asked: None,
            given: 0,
            ends: Vec::new(),
            closed: false,
            wire: Vec::new(),
        }
    }

    fn tell(&mut self, told: Told<'_>) {
        self.session.handle(told, self.now);
        self.poll();
    }

    fn send(&mut self, kind: u8) {
        if self.under_way.is_some() {
            return;
        }
        self.under_way = Some(kind);
        (self.asked, self.given) = (None, 0);
        self.tell(Told::Send(Box::new(message(kind))));
    }

    fn poll(&mut self) {
        while let Some(output) = self.session.poll() {
            assert!(!self.closed || matches!(output, Output::Unsent(_)), "after Close: {output:?}");
            match output {
                Output::NeedBody { offset, bytes } => {
                    let kind = self.under_way.expect("a body is asked for with a message only");
                    let total = body(kind).len() as u64;
                    assert!(bytes > 0 && bytes <= BODY_CHUNK_BYTES_MAX);
                    assert!(offset + u64::from(bytes) <= total, "{offset} {bytes} of {total}");
                    self.asked = Some((offset, bytes));
                }
                Output::Close => self.closed = true,
                end => self.end(end),
            }
        }
    }

    /// Exactly one end for each message, and an outcome for each recipient.
    fn end(&mut self, end: Output) {
        let kind = self.under_way.take().expect("an end without a message");
        (self.asked, self.given) = (None, 0);
        if let Output::Done { message, outcomes } = &end {
            assert_eq!(outcomes.len(), message.recipients.len());
            assert_eq!(message.recipients, self::message(kind).recipients);
            outcomes.iter().for_each(|outcome| self.outcome(outcome));
        }
        self.ends.push(end);
    }

    /// Delivered only by the peer's own 2yz after the last byte.
    fn outcome(&self, outcome: &Outcome) {
        let (Outcome::Delivered { report, .. }
        | Outcome::Deferred(report)
        | Outcome::Failed(report)) = outcome;
        let class = match outcome {
            Outcome::Delivered { .. } => {
                assert!(report.from_peer && report.stage == Stage::End, "{report:?}");
                2
            }
            Outcome::Deferred(_) => 4,
            Outcome::Failed(_) => 5,
        };
        let real = report.reply.code / 100;
        // 552 to RCPT without an enhanced code may mean too many recipients (RFC 5321 4.5.3.1.10): it is tried again.
        let may_pass = class == 4 && report.stage == Stage::Rcpt && report.reply.code == 552;
        assert!(real == class || class == 4 && real == 3 || may_pass, "{report:?}");
        assert!(report.reply.text.chars().all(|c| c == '\n' || c == ' ' || c.is_ascii_graphic()));
    }

    fn give_body(&mut self) {
        let (Some((offset, bytes)), Some(kind)) = (self.asked.take(), self.under_way) else {
            return;
        };
        let body = body(kind);
        let piece = body[offset as usize..offset as usize + bytes as usize].to_vec();
        self.given = offset + u64::from(bytes);
        self.tell(Told::Body(Bytes::from(piece)));
    }

    fn write(&mut self, bytes: usize) {
        let outgoing = self.session.transmit();
        let bytes = bytes.min(outgoing.len());
        self.wire.extend_from_slice(&outgoing[..bytes]);
        self.wire.drain(..self.wire.len().saturating_sub(1 << 20));
        self.session.transmitted(bytes, self.now);
        self.poll();
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.tell(Told::Tick);
        // What is due has been done: the next wakeup lies ahead.
        assert!(self.session.next_wakeup().is_none_or(|due| due > self.now.monotonic));
    }

    /// The connection breaks: every message that was given has its end.
    fn lose(&mut self) {
        self.tell(Told::Lost);
        let state = (self.closed, self.session.is_closed(), self.under_way);
        assert!(matches!(state, (true, true, None)), "{state:?}");
        assert!(b"QUIT\r\n".ends_with(self.session.transmit()));
        assert_eq!(self.session.next_wakeup(), None);
        self.send(0);
        assert!(matches!(self.ends.last(), Some(Output::Unsent(_))));
        self.commands();
    }

    /// Everything but bodies is lines of harmless characters.
    fn commands(&self) {
        let first = self.wire.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let hello: &[u8] =
            if self.dialect == Dialect::Lmtp { b"LHLO c.test\r" } else { b"EHLO c.test\r" };
        assert!(
            first.is_empty()
                || hello.starts_with(first)
                || b"QUIT\r".starts_with(first)
                || self.wire.len() == 1 << 20
        );
    }
}

/// Any bytes, times and ends, in any order.
pub fn session(data: &[u8]) {
    let mut input = Input(data);
    let mut driver = Driver::new(input.byte());
    while !input.is_over() {
        match input.byte() {
            0 => driver.pass(Duration::from_secs(u64::from(input.byte()))),
            1 => driver.pass(Duration::from_secs(u64::from(input.u16()))),
            2 => driver.tell(Told::BodyFailed),
            3 => driver.tell(Told::Quit),
            4 => driver.tell(Told::Lost),
            5 => {
                let bytes = usize::from(input.byte());
                driver.write(bytes);
            }
            6..=20 => {
                let kind = input.byte();
                // Before the greeting, or while it can: anything else is a bug of the driver.
                if driver.session.can_send() || driver.session.offers() == &Default::default() {
                    driver.send(kind);
                }
            }
            21..=40 => driver.give_body(),
            41..=60 => driver.write(usize::MAX),
            61..=63 => driver.tell(Told::Received(b"250-y\r\n250-PIPELINING\r\n250-CHUNKING\r\n250-DSN\r\n250-SMTPUTF8\r\n250 8BITMIME\r\n")),
            64..=66 => driver.tell(Told::Received(b"250 2.0.0 ok\r\n")),
            67 => driver.tell(Told::Received(b"354 go\r\n")),
            _ => {
                let bytes = input.short();
                driver.tell(Told::Received(bytes));
            }
        }
    }
    driver.lose();
}

/// One message that is at hand whole, and the server's bytes whole, byte by byte and cut in any
/// way.
pub fn cuts(data: &[u8]) {
    let mut input = Input(data);
    let (flags, kind) = (input.byte(), input.byte() & !128 | 64);
    let cuts = input.short();
    let stream = input.rest();
    let run = |cuts: &[u8]| {
        let mut driver = Driver::new(flags);
        driver.send(kind);
        for piece in pieces(stream, cuts) {
            driver.tell(Told::Received(piece));
            driver.write(usize::MAX);
        }
        let before = (driver.ends.len(), driver.closed);
        driver.lose();
        (before, driver.ends)
    };
    let whole = run(&[]);
    assert_eq!(run(&[1]), whole, "byte by byte");
    assert_eq!(run(cuts), whole, "cut by {cuts:?}");
}
