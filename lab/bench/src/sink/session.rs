//! One connection to the sink: the server's side of SMTP (RFC 5321) or LMTP (RFC 2033).
//!
//! Must never hold a message in memory, and never keep a complete command waiting for more input.

use super::Shared;
use super::body::Body;
use super::fault::{Act, Stage};
use super::ledger::Taken;
use crate::net::Stream;
use crate::unstuff::Unstuff;
use bytes::{Buf, BytesMut};
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Upper bound on the bytes of one read.
const READ_BYTES: usize = 64 * 1024;
/// Upper bound on a command line; a longer one ends the connection.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// The addresses of a command without any.
const NOBODY: &[&str] = &[];

/// Speaks with one client until it leaves or is dropped.
pub async fn serve(stream: Stream, shared: &Shared) {
    shared.ledger().connected();
    let input = BytesMut::with_capacity(READ_BYTES);
    let mut session = Session { stream, shared, input, output: Vec::new(), transaction: None };
    // An error is the client's leaving: nothing more can be said to it.
    let _ = session.run().await;
}

struct Session<'a> {
    stream: Stream,
    shared: &'a Shared,
    input: BytesMut,
    output: Vec<u8>,
    transaction: Option<Transaction>,
}

/// From MAIL to the end of the message.
struct Transaction {
    sender: String,
    recipients: Vec<String>,
    body: Option<Body>,
}

/// Whether the conversation goes on.
#[derive(PartialEq, Eq)]
enum Flow {
    Go,
    Close,
}

impl Session<'_> {
    async fn run(&mut self) -> io::Result<()> {
        if self.allow(Stage::Connect, NOBODY).await?.is_none() {
            self.flush().await?;
            return Ok(());
        }
        self.reply(220, "posthaste-lab sink");
        while let Some(line) = self.line().await? {
            if self.command(&line).await? == Flow::Close {
                break;
            }
        }
        self.flush().await
    }

    async fn command(&mut self, line: &str) -> io::Result<Flow> {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" | "LHLO" => self.hello(true).await,
            "HELO" => self.hello(false).await,
            "MAIL" => self.mail(path_of(argument)).await,
            "RCPT" => self.rcpt(path_of(argument)).await,
            "DATA" => self.data().await,
            "BDAT" => self.bdat(argument).await,
            "RSET" => {
                self.transaction = None;
                self.ok("2.0.0 Ok")
            }
            "NOOP" => self.ok("2.0.0 Ok"),
            "VRFY" => {
                self.reply(252, "2.0.0 Send some mail");
                Ok(Flow::Go)
            }
            "QUIT" => {
                self.reply(221, "2.0.0 Bye");
                Ok(Flow::Close)
            }
            _ => {
                self.reply(500, "5.5.2 What?");
                Ok(Flow::Go)
            }
        }
    }

    async fn hello(&mut self, extended: bool) -> io::Result<Flow> {
        match self.allow(Stage::Hello, NOBODY).await? {
            None => return Ok(Flow::Close),
            Some(false) => return Ok(Flow::Go),
            Some(true) => self.transaction = None,
        }
        if extended && !self.shared.ehlo.is_empty() {
            self.output.extend_from_slice(b"250-posthaste-lab\r\n");
            for (at, line) in self.shared.ehlo.iter().enumerate() {
                let mark = if at + 1 == self.shared.ehlo.len() { ' ' } else { '-' };
                self.output.extend_from_slice(format!("250{mark}{line}\r\n").as_bytes());
            }
            Ok(Flow::Go)
        } else {
            self.ok("posthaste-lab")
        }
    }

    async fn mail(&mut self, sender: &str) -> io::Result<Flow> {
        match self.allow(Stage::Mail, &[sender]).await? {
            None => return Ok(Flow::Close),
            Some(false) => return Ok(Flow::Go),
            Some(true) => {}
        }
        self.transaction =
            Some(Transaction { sender: sender.into(), recipients: Vec::new(), body: None });
        self.ok("2.1.0 Ok")
    }

    async fn rcpt(&mut self, recipient: &str) -> io::Result<Flow> {
        if self.transaction.is_none() {
            self.reply(503, "5.5.1 MAIL first");
            return Ok(Flow::Go);
        }
        match self.allow(Stage::Rcpt, &[recipient]).await? {
            None => return Ok(Flow::Close),
            Some(false) => return Ok(Flow::Go),
            Some(true) => {}
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.recipients.push(recipient.into());
        }
        self.ok("2.1.5 Ok")
    }

    async fn data(&mut self) -> io::Result<Flow> {
        if !self.has_recipients() {
            self.reply(503, "5.5.1 RCPT first");
            return Ok(Flow::Go);
        }
        let mut transaction = self.transaction.take().expect("it has recipients");
        match self.allow(Stage::Data, &transaction.recipients).await? {
            None => return Ok(Flow::Close),
            Some(false) => {
                self.transaction = Some(transaction);
                return Ok(Flow::Go);
            }
            Some(true) => self.reply(354, "Go on"),
        }
        let mut body =
            Body::open(self.shared.dump.as_deref(), &transaction.sender, &transaction.recipients)?;
        let mut unstuff = Unstuff::new();
        loop {
            if let Some(end) = unstuff.feed(&self.input, &mut |bytes| body.feed(bytes)) {
                self.input.advance(end);
                break;
            }
            self.input.clear();
            if !self.fill().await? || self.drops(Stage::Body, &transaction.recipients) {
                return Ok(Flow::Close);
            }
        }
        body.bare = unstuff.bare;
        transaction.body = Some(body);
        self.end(transaction).await
    }

    async fn bdat(&mut self, argument: &str) -> io::Result<Flow> {
        let mut words = argument.split_ascii_whitespace();
        let Some(mut left) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
            self.reply(501, "5.5.4 BDAT SIZE [LAST]"); // framing is lost
            return Ok(Flow::Close);
        };
        let last = words.next().is_some_and(|word| word.eq_ignore_ascii_case("LAST"));
        let wanted = self.has_recipients();
        let mut transaction = self.transaction.take();
        if let (true, Some(transaction)) = (wanted, &mut transaction)
            && transaction.body.is_none()
        {
            transaction.body = Some(Body::open(
                self.shared.dump.as_deref(),
                &transaction.sender,
                &transaction.recipients,
            )?);
        }
        while left > 0 {
            if self.input.is_empty() {
                let to = transaction.as_ref().map_or(&[][..], |known| &known.recipients);
                if !self.fill().await? || self.drops(Stage::Body, to) {
                    return Ok(Flow::Close);
                }
            }
            let now = self.input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let bytes = self.input.split_to(now);
            if let Some(body) = transaction.as_mut().and_then(|known| known.body.as_mut()) {
                body.feed(&bytes);
            }
            left -= now as u64;
        }
        match transaction {
            Some(transaction) if wanted && last => self.end(transaction).await,
            transaction => {
                self.transaction = transaction;
                let (code, text) =
                    if wanted { (250, "2.0.0 Ok") } else { (503, "5.5.1 RCPT first") };
                self.reply(code, text);
                Ok(Flow::Go)
            }
        }
    }

    /// Handles the end of a message.
    async fn end(&mut self, transaction: Transaction) -> io::Result<Flow> {
        let Transaction { recipients, body, .. } = transaction;
        let body = body.expect("opened before its first byte");
        if body.bytes > self.shared.size_max {
            self.shared.ledger().refused();
            self.reply(552, "5.3.4 Too large");
            return Ok(Flow::Go);
        }
        self.await_turn().await?;
        let accepted = match self.answer(&recipients).await? {
            None => return Ok(Flow::Close),
            Some(accepted) => accepted,
        };
        if !accepted.is_empty() {
            self.take(body, &accepted).await?;
        }
        if self.drops(Stage::After, &recipients) {
            self.flush().await?;
            return Ok(Flow::Close);
        }
        Ok(Flow::Go)
    }

    /// Sends one reply, or with LMTP one for each recipient. Returns the recipients with a 250; `None` drops the connection.
    async fn answer<'r>(
        &mut self,
        recipients: &'r [String],
    ) -> io::Result<Option<Cow<'r, [String]>>> {
        if !self.shared.lmtp {
            return Ok(self.allow(Stage::End, recipients).await?.map(|allowed| match allowed {
                false => Cow::Borrowed(&[][..]),
                true => {
                    self.reply(250, "2.0.0 Ok");
                    Cow::Borrowed(recipients)
                }
            }));
        }
        let mut accepted = Vec::with_capacity(recipients.len());
        for recipient in recipients {
            match self.allow(Stage::End, std::slice::from_ref(recipient)).await? {
                None => return Ok(None),
                Some(false) => continue,
                Some(true) => self.reply(250, &format!("2.0.0 {recipient} Ok")),
            }
            accepted.push(recipient.clone());
        }
        Ok(Some(Cow::Owned(accepted)))
    }

    /// Waits for the message's turn under `--rate`.
    async fn await_turn(&mut self) -> io::Result<()> {
        let wait = self.shared.faults.wait();
        if !wait.is_zero() {
            self.flush().await?;
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// Counts the message, now that its 250 has been written.
    async fn take(&mut self, body: Body, recipients: &[String]) -> io::Result<()> {
        let (bytes, bare) = (body.bytes, body.bare);
        let taken = Taken { finding: body.finish()?, bytes, bare, recipients };
        let complete = {
            let mut ledger = self.shared.ledger();
            ledger.take(&taken, Instant::now());
            self.shared.is_complete(&ledger)
        };
        if complete {
            self.flush().await?;
            self.shared.complete.notify_one();
        }
        Ok(())
    }

    /// `None`: drop the connection. `Some(false)`: it was refused.
    async fn allow(
        &mut self,
        stage: Stage,
        addresses: &[impl AsRef<str>],
    ) -> io::Result<Option<bool>> {
        let delay = self.shared.faults.delay(stage, addresses);
        if !delay.is_zero() {
            self.flush().await?;
            tokio::time::sleep(delay).await;
        }
        match self.shared.faults.act(stage, addresses) {
            Act::Go => Ok(Some(true)),
            Act::Drop => {
                self.shared.ledger().dropped();
                self.output.clear();
                Ok(None)
            }
            Act::Refuse(code) => {
                self.shared.ledger().refused();
                self.reply(code, &format!("{}.7.1 Refused as told", code / 100));
                // RFC 5321 3.8: who says 421 closes.
                Ok((stage != Stage::Connect && code != 421).then_some(false))
            }
        }
    }

    fn drops(&self, stage: Stage, addresses: &[String]) -> bool {
        let drops = self.shared.faults.act(stage, addresses) == Act::Drop;
        if drops {
            self.shared.ledger().dropped();
        }
        drops
    }

    fn has_recipients(&self) -> bool {
        self.transaction.as_ref().is_some_and(|known| !known.recipients.is_empty())
    }

    fn ok(&mut self, text: &str) -> io::Result<Flow> {
        self.reply(250, text);
        Ok(Flow::Go)
    }

    fn reply(&mut self, code: u16, text: &str) {
        // Writing to a Vec cannot fail.
        let _ = write!(self.output, "{code} {text}\r\n");
    }

    /// Returns the next command line; `None` at the end of the connection or after an overlong line.
    async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.input) {
                let line = self.input.split_to(end + 1);
                return Ok(Some(String::from_utf8_lossy(line.trim_ascii_end()).into_owned()));
            }
            if self.input.len() > LINE_BYTES_MAX || !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Writes replies only when all input is used up, so that pipelined commands share a write.
    async fn fill(&mut self) -> io::Result<bool> {
        self.flush().await?;
        self.input.reserve(READ_BYTES);
        Ok(self.stream.read_buf(&mut self.input).await? > 0)
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
        }
        Ok(())
    }
}

/// Returns the address of `FROM:<a@b> PARAMETERS`; a sink accepts any.
fn path_of(argument: &str) -> &str {
    let path = argument.split_once(':').map_or(argument, |(_, path)| path).trim_start();
    let path = path.strip_prefix('<').unwrap_or(path);
    path.split(['>', ' ']).next().unwrap_or("")
}
