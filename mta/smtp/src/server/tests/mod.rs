//! The session with a driver that accepts every message. Each script is fed whole, byte by byte and at random cuts, and
//! must give the same replies, events and bodies each time.
//!
//! Must never use the session except through its public methods.

mod chunks;
mod commands;
mod cuts;
mod data;
mod envelope;
mod limits;
mod oracle;
mod waits;

use super::*;
use ::mail::{
    Domain, Durable, Enhanced, Instant, MessageId, Now, Reply, ReversePath, TransactionId, Verdict,
};
use std::sync::Arc;
use std::time::Duration;

pub(super) const EHLO: &[u8] = b"EHLO c.test\r\n";
/// The commands up to DATA, pipelined as RFC 2920 allows.
pub(super) const ENVELOPE: &[u8] = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<x@y.test>\r\nDATA\r\n";
/// The commands up to RCPT.
pub(super) const PATHS: &[u8] = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<x@y.test>\r\n";

/// The result of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The replies, including the greeting.
    pub replies: String,
    /// The events except bodies, as text.
    pub events: Vec<String>,
    /// The bodies of the accepted messages.
    pub kept: Vec<Vec<u8>>,
    /// The number of `250` replies to data, which must equal the number of accepted messages.
    pub closed: bool,
}

impl Outcome {
    /// The codes of all final reply lines, without the greeting and the reply to the first EHLO.
    pub fn codes(&self) -> Vec<u16> {
        let last = |line: &&str| line.as_bytes().get(3) == Some(&b' ');
        let codes = self.replies.lines().filter(last).map(|line| line[..3].parse().unwrap());
        codes.skip(2).collect()
    }

    /// The last reply line.
    pub fn last(&self) -> &str {
        self.replies.lines().last().unwrap_or("")
    }
}

/// A session with a driver that answers at once.
pub(super) struct Driver {
    pub session: Session,
    pub outcome: Outcome,
    staged: Vec<u8>,
    pub now: Now,
    /// The bytes that the session has not taken yet.
    pub waiting: Vec<u8>,
    /// True if the output is removed after each step.
    pub drains: bool,
}

impl Driver {
    pub fn new(settings: &Settings) -> Driver {
        let now = Now { monotonic: Instant::from_nanos(1), ..Now::default() };
        Driver {
            session: Session::new(Server::new(settings.clone()), now),
            outcome: Outcome::default(),
            staged: Vec::new(),
            now,
            waiting: Vec::new(),
            drains: true,
        }
    }

    /// Removes the output, as after a write.
    pub fn drain(&mut self) {
        let output = std::mem::take(self.session.output());
        self.outcome.replies += std::str::from_utf8(&output).unwrap();
    }

    /// Feeds the bytes that the client sent in one piece, until the session waits for more.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        loop {
            let used = self.session.receive(&self.waiting, self.now);
            self.waiting.drain(..used);
            let mut polled = false;
            while let Some(event) = self.session.poll(self.now) {
                polled = true;
                self.handle(event);
            }
            if used == 0 && !polled {
                if !self.drains || self.session.output().is_empty() {
                    return;
                }
                self.drain();
            }
        }
    }

    pub fn eof(&mut self) {
        self.session.eof(self.now);
        self.feed(b"");
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.session.handle_timeout(self.now);
        self.feed(b"");
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Body(chunk) => {
                assert!(chunk.len() <= self.session.server.settings().body_chunk_bytes.max(3));
                self.staged.extend(chunk);
            }
            Event::BodyEnd(end) => self.end(end),
            Event::Reset => {
                self.staged.clear();
                self.outcome.events.push("reset".into());
            }
            Event::Close { .. } => {
                self.outcome.closed = true;
                self.outcome.events.push("close".into());
            }
            other => {
                self.outcome.events.push(shown(&other));
                self.session.answer(verdict(&other), self.now);
            }
        }
    }

    fn end(&mut self, end: BodyEnd) {
        self.staged.extend(&end.tail);
        assert_eq!(end.bytes, self.staged.len() as u64);
        self.outcome.events.push(format!("end {} hops {}", end.bytes, end.hops));
        self.outcome.kept.push(std::mem::take(&mut self.staged));
        let transaction = TransactionId { incarnation: 1, number: self.outcome.kept.len() as u64 };
        let message = MessageId(self.outcome.kept.len() as u64);
        self.session.promise(Durable::attested(message, transaction), self.now);
    }
}

/// Refuses the commands whose arguments ask for it.
fn verdict(event: &Event) -> Verdict {
    let text = shown(event);
    if text.contains("refused@") {
        Verdict::Reject(Reply::new(550, Enhanced(5, 1, 1), "no such user"))
    } else if text.contains("later@") {
        Verdict::Defer(Reply::new(451, Enhanced(4, 3, 0), "later"))
    } else {
        Verdict::Accept
    }
}

fn shown(event: &Event) -> String {
    match event {
        Event::Hello { name, protocol } => format!("hello {name} {protocol:?}"),
        Event::Mail(mail) => {
            let null = if mail.from.sender == ReversePath::Null { "null" } else { "" };
            format!(
                "mail {null}{} {:?} {:?} {:?}",
                mail.from.sender, mail.size, mail.from.ret, mail.from.envid
            )
        }
        Event::Rcpt(rcpt) => {
            let orcpt = rcpt.orcpt.as_deref().unwrap_or("");
            format!("rcpt {} {:?} {orcpt}", rcpt.address, rcpt.notify.parameter())
        }
        other => format!("{other:?}").to_lowercase(),
    }
}

pub(super) fn settings() -> Settings {
    Settings::for_tests(Domain::parse("mx.test").unwrap())
}

/// Runs a script. Each group is sent after all replies to the previous group have been read.
pub(super) fn talk(
    settings: &Settings,
    groups: &[&[u8]],
    mut cut: impl FnMut(usize) -> usize,
) -> Outcome {
    let mut driver = Driver::new(settings);
    driver.feed(b"");
    for group in groups {
        let mut at = 0;
        while at < group.len() {
            let size = cut(group.len() - at).clamp(1, group.len() - at);
            driver.feed(&group[at..at + size]);
            at += size;
        }
    }
    driver.eof();
    driver.drain();
    driver.outcome
}

/// Runs a script in several ways of cutting, and asserts that they have the same result.
pub(super) fn check_with(settings: &Settings, groups: &[&[u8]]) -> Outcome {
    let whole = talk(settings, groups, |left| left);
    assert_eq!(talk(settings, groups, |_| 1), whole, "byte by byte");
    for seed in 1..=8u64 {
        let mut state = seed;
        let cut = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            [1, 2, 3, 5, 17, 80, 1_000, 4_096][(state >> 61) as usize]
        };
        assert_eq!(talk(settings, groups, cut), whole, "seed {seed}");
    }
    whole
}

pub(super) fn check(groups: &[&[u8]]) -> Outcome {
    check_with(&settings(), groups)
}

/// Sends each line after the reply to the previous one. Returns the code of the last reply.
pub(super) fn code_of(lines: &[&str]) -> u16 {
    let lines: Vec<String> = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let groups: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
    let outcome = check(&groups);
    outcome.last()[..3].parse().unwrap()
}

pub(super) fn server() -> Arc<Server> {
    Server::new(settings())
}
