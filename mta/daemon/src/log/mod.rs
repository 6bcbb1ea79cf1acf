//! The event log: one event a line, formatted into a bounded buffer by whoever has one to tell,
//! written by a thread of its own, drops counted and told.
//!
//! Must never make mail wait for whoever reads the log, and never let a stranger's text look like
//! a line or a field of ours.
//!
//! ```text
//! 2026-11-21T01:01:01.000042Z send[812] attempt id=1a2b3c4d5e6 from=<a@b> to=<c@d> relay=… delay=1.204
//!     delays=commit:0.001,attempt:0.201 dsn=2.0.0 status=delivered reply="250 ok"
//! ```

mod line;
mod sum;
mod writer;

use crate::settings::{LogFormat, LogLevel};
use line::Line;
use mail::{Address, Enhanced, MessageId, Reply, ReversePath, Wall};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use writer::Shared;

/// What happened: the stations of a message's way, in their order, then what has no station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// A client connected or left.
    Receive,
    /// The conversation with it.
    Converse,
    /// A verdict of the policy.
    Judge,
    /// A body goes into the spool.
    Stage,
    /// A message is durable.
    Commit,
    /// The client was told 250.
    Promise,
    /// When recipients are tried.
    Schedule,
    /// Where their mail goes.
    Route,
    /// One attempt and its outcome.
    Attempt,
    /// The outcome is kept.
    Record,
    /// A notice was made.
    Bounce,
    /// A message is done.
    Retire,
    /// Something to know: started, reloaded.
    Info,
    /// Something to look at.
    Warn,
    /// Something that does not work.
    Error,
}

impl EventKind {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Receive => "receive",
            EventKind::Converse => "converse",
            EventKind::Judge => "judge",
            EventKind::Stage => "stage",
            EventKind::Commit => "commit",
            EventKind::Promise => "promise",
            EventKind::Schedule => "schedule",
            EventKind::Route => "route",
            EventKind::Attempt => "attempt",
            EventKind::Record => "record",
            EventKind::Bounce => "bounce",
            EventKind::Retire => "retire",
            EventKind::Info => "info",
            EventKind::Warn => "warn",
            EventKind::Error => "error",
        }
    }

    /// The level from which on it is told: the way of each message, or all of each conversation.
    pub const fn level(self) -> LogLevel {
        match self {
            EventKind::Error => LogLevel::Error,
            EventKind::Warn => LogLevel::Warn,
            EventKind::Receive
            | EventKind::Converse
            | EventKind::Stage
            | EventKind::Schedule
            | EventKind::Route => LogLevel::Debug,
            _ => LogLevel::Info,
        }
    }

    /// Whether equal events of a flood are summed up. What is told of a message never is.
    const fn is_summed(self) -> bool {
        matches!(
            self,
            EventKind::Receive
                | EventKind::Converse
                | EventKind::Judge
                | EventKind::Info
                | EventKind::Warn
                | EventKind::Error
        )
    }

    /// The priority that journald reads from the line's first characters.
    const fn priority(self) -> &'static str {
        match self {
            EventKind::Error => "<3>",
            EventKind::Warn => "<4>",
            _ => "<6>",
        }
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Text or JSON.
    pub format: LogFormat,
    /// How much is told.
    pub level: LogLevel,
    /// Journald reads it: it wants a priority in front and knows the time itself.
    pub journal: bool,
}

impl Style {
    /// The style that suits standard error: journald's where `JOURNAL_STREAM` names it.
    pub fn of_stderr(format: LogFormat, level: LogLevel) -> Style {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        Style { format, level, journal: writer::is_journal(&std::io::stderr(), &stream) }
    }
}

/// A handle to the log of this process; cheap to clone.
#[derive(Clone)]
pub struct Log {
    shared: Option<Arc<Shared>>,
    style: Style,
    role: Arc<str>,
}

impl Log {
    /// Starts the log on standard error. To be called before the process is jailed, since it
    /// starts a thread.
    pub fn start(role: &str, style: Style) -> std::io::Result<Log> {
        Log::start_on(role, style, rustix::io::dup(std::io::stderr())?.into())
    }

    /// Starts the log on a file, pipe or socket.
    pub fn start_on(role: &str, style: Style, out: std::fs::File) -> std::io::Result<Log> {
        let role = format!("{role}[{}]", std::process::id());
        let dropped_line = {
            let (role, style) = (role.clone(), style);
            move |count: u64| {
                let mut line = Line::start(style, &role, EventKind::Warn, now());
                line.number("events_dropped", count);
                line.end()
            }
        };
        let shared = writer::start(out, Box::new(dropped_line))?;
        Ok(Log { shared: Some(shared), style, role: role.into() })
    }

    /// A log that keeps nothing.
    pub fn off() -> Log {
        let style = Style { format: LogFormat::Text, level: LogLevel::None, journal: false };
        Log { shared: None, style, role: "".into() }
    }

    /// Begins an event; `emit` ends it.
    pub fn event(&self, verb: EventKind) -> Event<'_> {
        let is_told = self.shared.is_some() && verb.level() <= self.style.level;
        let line = is_told.then(|| Line::start(self.style, &self.role, verb, now()));
        let shared = self.shared.as_ref().filter(|_| is_told && verb.is_summed());
        let kind = shared.map(|shared| shared.hasher());
        Event { log: self, line, kind }.alike(verb)
    }

    /// Something to know, in words.
    pub fn info(&self, text: &str) {
        self.event(EventKind::Info).text("msg", text).emit();
    }

    /// Something to look at, in words.
    pub fn warn(&self, text: &str) {
        self.event(EventKind::Warn).text("msg", text).emit();
    }

    /// Something that does not work, in words.
    pub fn error(&self, text: &str) {
        self.event(EventKind::Error).text("msg", text).emit();
    }

    /// How long the end of a process waits for its last lines.
    pub const LAST_LINES_WAIT_MAX: Duration = Duration::from_millis(500);

    /// Waits until what was told so far is written, at most so long; before the process ends.
    pub fn flush(&self, longest: Duration) {
        if let Some(shared) = &self.shared {
            shared.flush(longest);
        }
    }

    /// Events that found the buffer full, since the start.
    pub fn dropped(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.dropped_total())
    }
}

/// An event in the making. Fields stand in the order of the calls.
#[must_use = "an event is told by `emit`"]
pub struct Event<'a> {
    log: &'a Log,
    line: Option<Line>,
    /// What two events of a flood have in common: the verb, the client, the reply's codes, and each text but those that
    /// a stranger makes up. None if the event is told whatever happens.
    kind: Option<DefaultHasher>,
}

impl Event<'_> {
    /// The queue id.
    pub fn id(mut self, id: MessageId) -> Self {
        self.kind = None;
        self.with(|line| line.word("id", id))
    }

    /// MAIL FROM.
    pub fn from(self, sender: &ReversePath) -> Self {
        let address = match sender {
            ReversePath::Null => "",
            ReversePath::Address(address) => address.as_str(),
        };
        self.with(|line| line.text("from", &["<", address, ">"].concat()))
    }

    /// RCPT TO.
    pub fn to(self, recipient: &Address) -> Self {
        self.with(|line| line.text("to", &["<", recipient.as_str(), ">"].concat()))
    }

    /// RCPT TO of each recipient, whom `emit_to` names.
    pub fn to_each(self) -> Self {
        self.with(Line::leave_gap)
    }

    /// The other side of an attempt: `host[address]:port`, or a mailbox.
    pub fn relay(self, peer: &str) -> Self {
        self.alike(peer).with(|line| line.text("relay", peer))
    }

    /// The client that a message comes from.
    pub fn client(self, client: &str) -> Self {
        self.alike(client).with(|line| line.text("client", client))
    }

    /// Octets of the message.
    pub fn bytes(self, bytes: u64) -> Self {
        self.number("bytes", bytes)
    }

    /// The time since the message came.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|line| line.seconds("delay", delay))
    }

    /// How that time was spent, station by station.
    pub fn delays(self, delays: &[(EventKind, Duration)]) -> Self {
        self.with(|line| line.delays(delays))
    }

    /// The enhanced status code, as a bounce would have it.
    pub fn dsn(self, code: Enhanced) -> Self {
        self.with(|line| line.word("dsn", code))
    }

    /// `delivered`, `deferred`, `failed`, `accepted`, `refused`...
    pub fn status(self, status: &'static str) -> Self {
        self.alike(status).with(|line| line.word("status", status))
    }

    /// What was said.
    pub fn reply(self, reply: &Reply) -> Self {
        let codes = (reply.code, reply.enhanced);
        self.alike(codes).with(|line| line.text("reply", &reply.to_string()))
    }

    /// Any other number. An event with a number is never summed up: the number would be lost.
    pub fn number(mut self, key: &'static str, value: u64) -> Self {
        self.kind = None;
        self.with(|line| line.number(key, value))
    }

    /// Any other text, whoever wrote it. A flood in which each client calls itself something else in EHLO is still one.
    pub fn text(self, key: &'static str, value: &str) -> Self {
        let known = if key == "helo" { "" } else { value };
        self.alike((key, known)).with(|line| line.text(key, value))
    }

    /// Tells it. Never waits for the disk or the reader; a full buffer drops and counts it.
    pub fn emit(self) {
        let (Some(line), Some(shared)) = (self.line, &self.log.shared) else { return };
        match self.kind {
            Some(kind) => shared.put_equal(kind.finish(), line),
            None => shared.put(&line.end()),
        }
    }

    /// Tells it once for each recipient, where `to_each` stands; all else is the same. A list of thousands has as many
    /// lines, and this is what they cost.
    pub fn emit_to<'a>(self, recipients: impl Iterator<Item = &'a Address>) {
        if let (Some(line), Some(shared)) = (self.line, &self.log.shared) {
            let addresses = recipients.map(|to| ["<", to.as_str(), ">"].concat());
            shared.put(&line.end_each("to", addresses));
        }
    }

    fn alike(mut self, value: impl Hash) -> Self {
        if let Some(kind) = &mut self.kind {
            value.hash(kind);
        }
        self
    }

    fn with(mut self, add: impl FnOnce(&mut Line)) -> Self {
        if let Some(line) = &mut self.line {
            add(line);
        }
        self
    }
}

fn now() -> Wall {
    let micros = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |m| -m),
    };
    Wall::from_micros(micros)
}

/// Tells people about a problem before there is a log. A closed standard error changes nothing.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "posthaste: {text}");
}

#[cfg(test)]
mod tests;
