//! The event log: one line for each event. Events are formatted into a bounded buffer, and a separate thread writes them.
//! Events that do not fit are dropped and counted.
//!
//! Must never make mail wait for a reader of the log, and never let a stranger's text look like a line or a field of
//! ours.
//!
//! ```text
//! 2026-11-21T01:01:01.000042Z send[812] attempt id=1a2b3c4d5e6 from=<a@b> to=<c@d> relay=… delay=1.204
//!     delays=commit:0.001,attempt:0.201 dsn=2.0.0 status=delivered reply="250 ok"
//! ```

mod line;
mod sum;
mod writer;

use line::LogLine;
use mail::{Address, Enhanced, MessageId, Reply, ReversePath, Timestamp};
use settings::{LogFormat, LogLevel};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use writer::LogBuffer;

/// What an event is about: the stations of a message's path in their order, then events that belong to no station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// A client has connected or disconnected.
    Receive,
    /// The conversation with a client.
    Converse,
    /// A verdict of the policy.
    Judge,
    /// A body is written to the spool.
    Stage,
    /// A message has become durable.
    Commit,
    /// A client has been answered 250.
    Promise,
    /// When recipients are tried.
    Schedule,
    /// The next hop of recipients.
    Route,
    /// An attempt and its outcome.
    Attempt,
    /// An outcome has been recorded.
    Record,
    /// A notice has been made.
    Bounce,
    /// Nothing is left to do for a message.
    Retire,
    /// Something to know, such as a start or a reload.
    Info,
    /// Something to look at.
    Warn,
    /// Something that does not work.
    Error,
}

impl EventKind {
    /// Returns the word in the log.
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

    /// Returns the lowest level at which the event is logged. `info` shows the path of each message, and `debug` shows
    /// whole conversations.
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

    /// Returns whether equal events of a flood are summed up. Events about a message never are.
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

    /// Returns the priority that journald reads from the first characters of a line.
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
    /// Which events are logged.
    pub level: LogLevel,
    /// True if journald reads the log. It expects a priority at the start of each line, and adds the time itself.
    pub journal: bool,
}

impl Style {
    /// Returns the style for standard error: that of journald if `JOURNAL_STREAM` names standard error.
    pub fn of_stderr(format: LogFormat, level: LogLevel) -> Style {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        Style { format, level, journal: writer::is_journal(&std::io::stderr(), &stream) }
    }
}

/// A handle to the log of this process; cheap to clone.
#[derive(Clone)]
pub struct Log {
    shared: Option<Arc<LogBuffer>>,
    style: Style,
    role: Arc<str>,
}

impl Log {
    /// Starts the log on standard error. Must be called before the process enters its jail, because it starts a thread.
    pub fn start(role: &str, style: Style) -> std::io::Result<Log> {
        Log::start_on(role, style, rustix::io::dup(std::io::stderr())?.into())
    }

    /// Starts the log on a file, pipe or socket.
    pub fn start_on(role: &str, style: Style, out: std::fs::File) -> std::io::Result<Log> {
        let role = format!("{role}[{}]", std::process::id());
        let dropped_line = {
            let (role, style) = (role.clone(), style);
            move |count: u64| {
                let mut line = LogLine::start(style, &role, EventKind::Warn, now());
                line.number("events_dropped", count);
                line.end()
            }
        };
        let shared = writer::start(out, Box::new(dropped_line))?;
        Ok(Log { shared: Some(shared), style, role: role.into() })
    }

    /// Returns a log that ignores all events.
    pub fn off() -> Log {
        let style = Style { format: LogFormat::Text, level: LogLevel::None, journal: false };
        Log { shared: None, style, role: "".into() }
    }

    /// Begins an event. `emit` logs it.
    pub fn event(&self, kind: EventKind) -> EventBuilder<'_> {
        let is_told = self.shared.is_some() && kind.level() <= self.style.level;
        let line = is_told.then(|| LogLine::start(self.style, &self.role, kind, now()));
        let shared = self.shared.as_ref().filter(|_| is_told && kind.is_summed());
        let sameness = shared.map(|shared| shared.hasher());
        EventBuilder { log: self, line, sameness }.alike(kind)
    }

    /// Logs something to know, in words.
    pub fn info(&self, text: &str) {
        self.event(EventKind::Info).text("msg", text).emit();
    }

    /// Logs something to look at, in words.
    pub fn warn(&self, text: &str) {
        self.event(EventKind::Warn).text("msg", text).emit();
    }

    /// Logs something that does not work, in words.
    pub fn error(&self, text: &str) {
        self.event(EventKind::Error).text("msg", text).emit();
    }

    /// How long a process that ends waits for its last lines to be written.
    pub const LAST_LINES_WAIT_MAX: Duration = Duration::from_millis(500);

    /// Waits until all events so far are written, at most for `longest`. For the end of a process.
    pub fn flush(&self, longest: Duration) {
        if let Some(shared) = &self.shared {
            shared.flush(longest);
        }
    }

    /// Returns the number of events that have been dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.dropped_total())
    }
}

/// A builder of an event. The fields are logged in the order of the calls.
#[must_use = "`emit` logs an event"]
pub struct EventBuilder<'a> {
    log: &'a Log,
    line: Option<LogLine>,
    /// The hash of what equal events of a flood have in common: their kind, the client, the codes of the reply, and all
    /// texts except those that a stranger can choose. `None` if the event is never summed up.
    sameness: Option<DefaultHasher>,
}

impl EventBuilder<'_> {
    /// The queue id.
    pub fn id(mut self, id: MessageId) -> Self {
        self.sameness = None;
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

    /// RCPT TO of each recipient. `emit_to` supplies the recipients.
    pub fn to_each(self) -> Self {
        self.with(LogLine::leave_gap)
    }

    /// The other side of an attempt: `host[address]:port`, or a mailbox.
    pub fn relay(self, peer: &str) -> Self {
        self.alike(peer).with(|line| line.text("relay", peer))
    }

    /// The client that a message comes from.
    pub fn client(self, client: &str) -> Self {
        self.alike(client).with(|line| line.text("client", client))
    }

    /// The size of the message in octets.
    pub fn bytes(self, bytes: u64) -> Self {
        self.number("bytes", bytes)
    }

    /// The time since the message arrived.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|line| line.seconds("delay", delay))
    }

    /// The time that the message spent at each station.
    pub fn delays(self, delays: &[(EventKind, Duration)]) -> Self {
        self.with(|line| line.delays(delays))
    }

    /// The enhanced status code, as a bounce would report it.
    pub fn dsn(self, code: Enhanced) -> Self {
        self.with(|line| line.word("dsn", code))
    }

    /// `delivered`, `deferred`, `failed`, `accepted`, `refused`...
    pub fn status(self, status: &'static str) -> Self {
        self.alike(status).with(|line| line.word("status", status))
    }

    /// The reply.
    pub fn reply(self, reply: &Reply) -> Self {
        let codes = (reply.code, reply.enhanced);
        self.alike(codes).with(|line| line.text("reply", &reply.to_string()))
    }

    /// Any other number. An event with a number is never summed up, because the number would be lost.
    pub fn number(mut self, key: &'static str, value: u64) -> Self {
        self.sameness = None;
        self.with(|line| line.number(key, value))
    }

    /// Any other text, possibly by a stranger. Events that differ only in the name in EHLO still count as equal.
    pub fn text(self, key: &'static str, value: &str) -> Self {
        let known = if key == "helo" { "" } else { value };
        self.alike((key, known)).with(|line| line.text(key, value))
    }

    /// Logs the event. Never waits for the disk or the reader. If the buffer is full, the event is dropped and counted.
    pub fn emit(self) {
        let (Some(line), Some(shared)) = (self.line, &self.log.shared) else { return };
        match self.sameness {
            Some(sameness) => shared.put_equal(sameness.finish(), line),
            None => shared.put(&line.end()),
        }
    }

    /// Logs the event once for each recipient, which is shown where `to_each` was called. A list of thousands of
    /// recipients has thousands of lines, so this formats the rest of the line only once.
    pub fn emit_to<'a>(self, recipients: impl Iterator<Item = &'a Address>) {
        if let (Some(line), Some(shared)) = (self.line, &self.log.shared) {
            let addresses = recipients.map(|to| ["<", to.as_str(), ">"].concat());
            shared.put(&line.end_each("to", addresses));
        }
    }

    fn alike(mut self, value: impl Hash) -> Self {
        if let Some(sameness) = &mut self.sameness {
            value.hash(sameness);
        }
        self
    }

    fn with(mut self, add: impl FnOnce(&mut LogLine)) -> Self {
        if let Some(line) = &mut self.line {
            add(line);
        }
        self
    }
}

fn now() -> Timestamp {
    let micros = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |m| -m),
    };
    Timestamp::from_micros(micros)
}

/// Writes about a problem to standard error, for the time before there is a log. Ignores a closed standard error.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "posthaste: {text}");
}

#[cfg(test)]
mod tests;
