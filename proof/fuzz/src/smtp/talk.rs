//! A server session with a driver that keeps what is promised and judges every event.
//!
//! Must never let an event pass that its driver could not have expected.

use crate::input::pieces;
use ::smtp::framing::BareLf;
use ::smtp::server::{BodyEnd, Event, Server, Session, Settings};
use mail::{Domain, Durable, Enhanced, Instant, MessageId, Now, Reply, TransactionId, Verdict};
use std::time::Duration;

/// All that came of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// As they went out.
    pub replies: String,
    /// But for bodies.
    pub events: Vec<String>,
    /// Bodies that were promised.
    pub kept: Vec<Vec<u8>>,
    /// Received fields of the last body.
    pub hops: u32,
}

/// How the driver answers: two bits an answer, again and again; none: all accepted.
#[derive(Clone, Copy)]
pub struct Answers<'a> {
    bits: &'a [u8],
    at: usize,
}

impl<'a> Answers<'a> {
    pub fn all_accepted() -> Answers<'static> {
        Answers { bits: &[], at: 0 }
    }

    pub fn of(bits: &'a [u8]) -> Answers<'a> {
        Answers { bits, at: 0 }
    }

    fn next(&mut self) -> u8 {
        let Some(byte) = self.bits.get(self.at / 4 % self.bits.len().max(1)) else { return 0 };
        self.at += 1;
        byte >> (2 * ((self.at - 1) % 4)) & 3
    }

    fn refusal(&mut self) -> Option<Reply> {
        match self.next() {
            0 | 1 => None,
            2 => Some(Reply::new(450, Enhanced(4, 2, 0), "later")),
            _ => Some(Reply::new(550, Enhanced(5, 1, 1), "no")),
        }
    }
}

/// Limits small enough to be reached.
pub fn settings(flags: u8) -> Settings {
    Settings {
        lmtp: flags & 1 != 0,
        bare_lf: if flags & 64 != 0 { BareLf::Normalize } else { BareLf::Refuse },
        line_bytes_max: (flags & 2 != 0).then_some(100),
        message_bytes_max: if flags & 4 != 0 { 300 } else { 3_000 },
        body_chunk_bytes: if flags & 8 != 0 { 7 } else { 256 },
        header_bytes_max: 2_000,
        hops_max: 4,
        recipients_max: 6,
        lmtp_recipients_max: 4,
        mails_max: (flags & 16 != 0).then_some(3),
        command_bytes_max: 200,
        output_bytes_max: 512,
        bad_commands_max: 12,
        idle_commands_max: 6,
        refusals_max: 8,
        ..Settings::for_tests(Domain::parse("mx.test").expect("it is one"))
    }
}

pub mod script {
    /// The start of every conversation.
    pub fn greeted(lmtp: bool) -> Vec<u8> {
        if lmtp { b"LHLO c.test\r\n".to_vec() } else { b"EHLO c.test\r\n".to_vec() }
    }
}

/// What a driver has been told of the running transaction.
#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Nothing,
    Begun,
    Body,
}

/// A session and all that is known of it.
pub struct Driver<'a> {
    pub session: Session,
    pub log: Log,
    pub now: Now,
    settings: Settings,
    answers: Answers<'a>,
    stage: Stage,
    staged: Vec<u8>,
    waiting: Vec<u8>,
    promised: usize,
    recipients: usize,
    closed: bool,
}

impl<'a> Driver<'a> {
    pub fn new(settings: &Settings, answers: Answers<'a>) -> Driver<'a> {
        let now = Now { monotonic: Instant::from_nanos(1), ..Now::default() };
        Driver {
            session: Session::new(Server::new(settings.clone()), now),
            log: Log::default(),
            now,
            settings: settings.clone(),
            answers,
            stage: Stage::Nothing,
            staged: Vec::new(),
            waiting: Vec::new(),
            promised: 0,
            recipients: 0,
            closed: false,
        }
    }

    /// Takes the output, as after a write.
    pub fn drain(&mut self) {
        let output = std::mem::take(self.session.output());
        self.log.replies += std::str::from_utf8(&output).expect("replies are UTF-8");
    }

    /// One arrival of bytes; the output is taken whenever the session waits for that.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        loop {
            let (waiting, now) = (std::mem::take(&mut self.waiting), self.now);
            let used = self.session.receive(&waiting, now);
            assert!(used <= waiting.len());
            self.waiting = waiting[used..].to_vec();
            self.hold_bounds();
            let polled = self.poll();
            if used == 0 && !polled {
                if self.session.output().is_empty() {
                    assert!(self.waiting.is_empty(), "it neither reads nor says why");
                    return;
                }
                self.drain();
            }
        }
    }

    /// Handles all events; true if there was one.
    pub fn poll(&mut self) -> bool {
        let mut polled = false;
        while let Some(event) = self.session.poll(self.now) {
            polled = true;
            assert!(!self.closed, "an event after Close: {event:?}");
            self.handle(event);
        }
        polled
    }

    fn hold_bounds(&self) {
        let chunk = 2 * self.settings.body_chunk_bytes.next_power_of_two();
        let lines = 2 * self.settings.command_bytes_max + 8 * self.settings.output_bytes_max;
        let seen = 2_048 + 200 * self.settings.recipients_max as usize;
        let bound = size_of::<Session>() + chunk.max(64) + lines + seen + 4_096;
        assert!(self.session.memory_bytes() <= bound, "{}", self.session.memory_bytes());
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Body(chunk) => {
                assert_eq!(self.stage, Stage::Body);
                assert!(!chunk.is_empty() && chunk.len() <= self.settings.body_chunk_bytes);
                self.staged.extend(chunk);
            }
            Event::BodyEnd(end) => self.end(end),
            Event::Reset => {
                assert_ne!(self.stage, Stage::Nothing, "Reset of nothing");
                self.note("reset");
                self.forget();
            }
            Event::Close { .. } => {
                assert!(self.session.is_closed() && self.stage == Stage::Nothing);
                self.closed = true;
                self.note("close");
            }
            asked => self.ask(asked),
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        self.log.events.push(text.into());
    }

    fn forget(&mut self) {
        self.stage = Stage::Nothing;
        self.staged.clear();
        self.recipients = 0;
    }

    fn ask(&mut self, event: Event) {
        assert!(self.session.awaits_answer());
        self.note(format!("{event:?}"));
        let refusal = self.answers.refusal();
        match &event {
            Event::Hello { name, .. } => {
                assert_eq!(self.stage, Stage::Nothing);
                assert!(super::words::is_one_word(name));
            }
            Event::Mail(mail) => {
                assert_eq!(self.stage, Stage::Nothing);
                assert!(mail.from.envid.as_deref().is_none_or(super::words::is_one_word));
                if refusal.is_none() {
                    self.stage = Stage::Begun;
                }
            }
            Event::Rcpt(recipient) => {
                assert_eq!(self.stage, Stage::Begun);
                assert!(recipient.orcpt.as_deref().is_none_or(super::words::is_one_word));
                self.recipients += usize::from(refusal.is_none());
            }
            Event::Data => {
                assert!(self.stage == Stage::Begun && self.recipients > 0);
                match refusal {
                    None => self.stage = Stage::Body,
                    Some(_) => self.forget(),
                }
            }
            other => unreachable!("{other:?} does not ask"),
        }
        let verdict = match refusal {
            None => Verdict::Accept,
            Some(reply) if reply.is_transient() => Verdict::Defer(reply),
            Some(reply) => Verdict::Reject(reply),
        };
        self.session.answer(verdict, self.now);
    }

    fn end(&mut self, end: BodyEnd) {
        assert_eq!(self.stage, Stage::Body);
        self.staged.extend(&end.tail);
        assert_eq!(end.bytes, self.staged.len() as u64);
        assert!(end.bytes <= self.settings.message_bytes_max && end.hops < self.settings.hops_max);
        assert_eq!(end.eight_bit, !self.staged.is_ascii());
        self.note(format!("end {} hops {}", end.bytes, end.hops));
        self.log.hops = end.hops;
        if let Some(reply) = self.answers.refusal() {
            self.forget();
            return self.session.refuse(&reply, self.now);
        }
        self.promised += if self.settings.lmtp { self.recipients } else { 1 };
        self.log.kept.push(std::mem::take(&mut self.staged));
        let number = self.log.kept.len() as u64;
        let transaction = TransactionId { incarnation: 1, number };
        self.forget();
        self.session.promise(Durable::attested(MessageId(number), transaction), self.now);
    }

    /// Time passes, and the session is told.
    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.session.handle_timeout(self.now);
    }

    /// The client has closed: what is left ends.
    pub fn eof(&mut self) {
        self.session.eof(self.now);
        self.feed(b"");
        assert!(self.closed && self.session.is_closed());
    }

    /// What must hold at the end: each promise was said, and nothing else looks like one.
    pub fn finish(mut self) -> Log {
        self.drain();
        let said = self.log.replies.matches("250 2.0.0 Ok: queued as ").count();
        assert_eq!(said, self.promised, "{}", self.log.replies);
        let lines = self.log.replies.strip_suffix("\r\n").expect("the greeting at least");
        for line in lines.split("\r\n") {
            assert!(line.len() <= 600 && !line.chars().any(char::is_control), "{line:?}");
            let bytes = line.as_bytes();
            let digits = bytes.len() > 3 && bytes[..3].iter().all(u8::is_ascii_digit);
            assert!(digits && matches!(bytes[3], b' ' | b'-'), "{line:?}");
        }
        self.log
    }
}

/// Where a client has to wait for the reply before it says more (RFC 2920 3.1): after a line with
/// one of these words what was sent before is read and answered first. It may begin anywhere: the
/// end of a BDAT chunk is no line's end.
fn groups(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let word = |four: &[u8]| {
        [b"EHLO", b"HELO", b"LHLO", b"DATA"].iter().any(|name| four.eq_ignore_ascii_case(*name))
    };
    let waits = move |line: &[u8]| line.windows(4).any(word);
    let mut rest = stream;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = 0;
        for line in rest.split_inclusive(|byte| *byte == b'\n') {
            end += line.len();
            if waits(line) {
                break;
            }
        }
        let (group, after) = rest.split_at(end);
        rest = after;
        Some(group)
    })
}

/// Runs a script to its end, each group in pieces of these sizes.
pub fn talk(settings: &Settings, stream: &[u8], cuts: &[u8], answers: Answers<'_>) -> Log {
    let mut driver = Driver::new(settings, answers);
    driver.feed(b"");
    for group in groups(stream) {
        for piece in pieces(group, cuts) {
            driver.feed(piece);
        }
    }
    driver.eof();
    driver.finish()
}
