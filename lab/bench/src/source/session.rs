//! One session of the source: the client's side of SMTP (RFC 5321) or LMTP (RFC 2033).
//!
//! Must never send the next message before the last one is answered, or call one accepted early.

use super::load::{Part, Plan, SharedTally, lock};
use super::message::{Edges, Middle};
use super::tally::{Accepted, Begun, Ending};
use super::wire::{Patience, Wire};
use crate::mark::WARM_UP;
use std::io::{self, ErrorKind, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bodies up to this size go out in one write with their edges.
const JOIN_BYTES_MAX: usize = 256 * 1024;
/// Time between two tries of a message, and after a broken connection.
const RETRY_REST: Duration = Duration::from_millis(20);

/// What the sessions of one thread share.
pub struct Worker {
    /// Shared by all threads.
    pub plan: Arc<Plan>,
    /// Used by one thread.
    pub tally: Arc<SharedTally>,
}

/// Sends messages until none are left to begin.
pub async fn run(worker: Arc<Worker>, session: usize, part: Part) {
    let plan = &worker.plan;
    let from = &plan.options.source_address;
    let mut session = Session {
        worker: &worker,
        from: (!from.is_empty()).then(|| from[session % from.len()]),
        patience: Patience::new(Duration::from_secs(plan.options.timeout)),
        kept: None,
        output: Vec::new(),
        edges: Edges::default(),
    };
    while let Some(next) = plan.next(part) {
        // With a rate, waiting for a free session is part of the latency. How late we wake up is not.
        let begun = Begun::new(Instant::now(), next.due);
        if let Some(due) = next.due {
            tokio::time::sleep_until(due.into()).await;
        }
        lock(&worker.tally).begin(begun);
        session.send(next.number, begun).await;
    }
    if let Some(connection) = session.kept.take() {
        session.quit(connection).await;
    }
}

struct Session<'a> {
    worker: &'a Worker,
    from: Option<IpAddr>,
    patience: Patience,
    /// The connection to reuse.
    kept: Option<Connection>,
    /// The bytes to send next.
    output: Vec<u8>,
    edges: Edges,
}

struct Connection {
    wire: Wire,
    opened: Instant,
    /// Messages tried over it.
    sent: u64,
    /// Whether the last byte of a message was sent and its reply is missing.
    ambiguous: bool,
    /// Whether the server accepts bytes above 127 (RFC 6152).
    eight_bit: bool,
}

/// The replies to the recipients of one message.
#[derive(Default)]
struct Counted {
    accepted: u32,
    refused: u32,
    first_refusal: Option<u16>,
}

impl Counted {
    fn count(&mut self, code: u16) {
        if code / 100 == 2 {
            self.accepted += 1;
        } else {
            self.refused += 1;
            self.first_refusal.get_or_insert(code);
        }
    }

    fn refusal(&self, code: u16) -> Ending {
        Ending::Refused(self.first_refusal.unwrap_or(code))
    }
}

impl Session<'_> {
    fn plan(&self) -> &Plan {
        &self.worker.plan
    }

    /// Tries until the message is accepted or its time is over.
    async fn send(&mut self, number: u64, begun: Begun) {
        let give_up = Duration::from_secs(self.plan().options.retry);
        let first = Instant::now();
        loop {
            let ending = self.try_once(number).await;
            lock(&self.worker.tally).count(number, &ending, begun);
            let over = matches!(ending, Ending::Accepted(_)) || first.elapsed() >= give_up;
            if !over || ending == Ending::Broken {
                tokio::time::sleep(RETRY_REST).await;
            }
            if over {
                return;
            }
        }
    }

    /// Tries a message once; keeps the connection if it can be reused.
    async fn try_once(&mut self, number: u64) -> Ending {
        let mut connection = match self.kept.take() {
            Some(connection) => connection,
            None => match self.open().await {
                Ok(Ok(connection)) => connection,
                Ok(Err(code)) => return Ending::Refused(code),
                Err(_) => return Ending::Broken,
            },
        };
        match self.transact(&mut connection, number).await {
            Ok(ending) => {
                connection.sent += 1;
                let last = self.plan().options.per_connection;
                if last != 0 && connection.sent >= last {
                    self.quit(connection).await;
                } else if matches!(ending, Ending::Accepted(_))
                    || self.reset(&mut connection).await.is_ok()
                {
                    self.kept = Some(connection);
                }
                ending
            }
            Err(_) if connection.ambiguous => Ending::Ambiguous,
            Err(_) => Ending::Broken,
        }
    }

    /// Connects and sends EHLO. The inner error is the code of the refusal.
    async fn open(&mut self) -> io::Result<Result<Connection, u16>> {
        let worker = self.worker;
        let options = &worker.plan.options;
        let opened = Instant::now();
        let stream = self.patience.wait(options.target.connect(self.from)).await?;
        let mut wire = Wire::new(stream);
        lock(&worker.tally).connected(Instant::now());
        let greeting = wire.reply(&mut self.patience).await?;
        if greeting != 220 {
            return Ok(Err(greeting));
        }
        let verb = if options.lmtp { "LHLO" } else { "EHLO" };
        let hello = format!("{verb} {}\r\n", options.hello);
        wire.write(&mut self.patience, hello.as_bytes()).await?;
        let mut eight_bit = false;
        let look = |line: &[u8]| eight_bit |= line[4.min(line.len())..].starts_with(b"8BITMIME");
        let code = wire.reply_with(&mut self.patience, look).await?;
        if code != 250 {
            return Ok(Err(code));
        }
        Ok(Ok(Connection { wire, opened, sent: 0, ambiguous: false, eight_bit }))
    }

    async fn transact(&mut self, to: &mut Connection, number: u64) -> io::Result<Ending> {
        let plan = &self.worker.plan;
        let options = &plan.options;
        let (middle, bytes) = plan.letters.write(number, &mut self.edges);
        let body = if middle.eight_bit && to.eight_bit { " BODY=8BITMIME" } else { "" };
        self.output.clear();
        // Writing to a Vec cannot fail.
        let _ = write!(self.output, "MAIL FROM:<{}>{body}\r\n", options.from);
        let mut counted = Counted::default();
        if !options.pipelining {
            let code = self.ask(to).await?;
            if code != 250 {
                return Ok(Ending::Refused(code));
            }
        }
        for n in 0..options.recipients {
            self.output.extend_from_slice(b"RCPT TO:<");
            plan.recipients.write(&mut self.output, number & !WARM_UP, n);
            self.output.extend_from_slice(b">\r\n");
            if !options.pipelining {
                counted.count(self.ask(to).await?);
            }
        }
        if !options.pipelining && counted.accepted == 0 {
            return Ok(counted.refusal(0));
        }
        let ending = if options.bdat {
            self.send_bdat(to, middle, &mut counted).await?
        } else {
            self.send_data(to, middle, &mut counted).await?
        };
        match ending {
            Some(ending) => Ok(ending),
            None => self.end(to, &counted, bytes).await,
        }
    }

    /// `output` is what was not sent yet: all commands with pipelining, none without. Returns an ending where it came
    /// before the message's.
    async fn send_data(
        &mut self,
        to: &mut Connection,
        middle: Middle<'_>,
        counted: &mut Counted,
    ) -> io::Result<Option<Ending>> {
        self.output.extend_from_slice(b"DATA\r\n");
        self.write_output(to).await?;
        if self.plan().options.pipelining {
            self.envelope_replies(to, counted).await?;
        }
        let code = to.wire.reply(&mut self.patience).await?;
        if code != 354 {
            return Ok(Some(counted.refusal(code)));
        }
        if counted.accepted == 0 {
            // Only a server that takes DATA without recipients comes here: an empty message.
            to.wire.write(&mut self.patience, b".\r\n").await?;
            let code = to.wire.reply(&mut self.patience).await?;
            return Ok(Some(counted.refusal(code)));
        }
        self.edges.tail.extend_from_slice(b".\r\n");
        self.write_body(to, middle.stuffed).await?;
        Ok(None)
    }

    async fn send_bdat(
        &mut self,
        to: &mut Connection,
        middle: Middle<'_>,
        counted: &mut Counted,
    ) -> io::Result<Option<Ending>> {
        let bytes = self.edges.head.len() + middle.plain.len() + self.edges.tail.len();
        // Writing to a Vec cannot fail.
        let _ = write!(self.output, "BDAT {bytes} LAST\r\n");
        self.write_body(to, middle.plain).await?;
        if self.plan().options.pipelining {
            self.envelope_replies(to, counted).await?;
        }
        if counted.accepted == 0 {
            to.ambiguous = false;
            let code = to.wire.reply(&mut self.patience).await?;
            return Ok(Some(counted.refusal(code)));
        }
        Ok(None)
    }

    async fn envelope_replies(
        &mut self,
        to: &mut Connection,
        counted: &mut Counted,
    ) -> io::Result<()> {
        let mail = to.wire.reply(&mut self.patience).await?;
        if mail != 250 {
            counted.first_refusal = Some(mail);
        }
        for _ in 0..self.plan().options.recipients {
            counted.count(to.wire.reply(&mut self.patience).await?);
        }
        Ok(())
    }

    /// Reads the reply to the message; with LMTP one for each accepted recipient.
    async fn end(
        &mut self,
        to: &mut Connection,
        counted: &Counted,
        bytes: u64,
    ) -> io::Result<Ending> {
        let lmtp = self.plan().options.lmtp;
        let mut replies = Counted::default();
        for _ in 0..if lmtp { counted.accepted } else { 1 } {
            replies.count(to.wire.reply(&mut self.patience).await?);
        }
        to.ambiguous = false;
        if replies.accepted == 0 {
            return Ok(replies.refusal(0));
        }
        let recipients = if lmtp { replies.accepted } else { counted.accepted };
        let refused = counted.refused + replies.refused;
        let (sent, at) = (to.wire.written, Instant::now());
        Ok(Ending::Accepted(Accepted { recipients, refused, bytes, sent, at }))
    }

    /// Sends the rest of `output`, then the message between its edges.
    async fn write_body(&mut self, to: &mut Connection, middle: &[u8]) -> io::Result<()> {
        self.output.extend_from_slice(&self.edges.head);
        if middle.len() <= JOIN_BYTES_MAX {
            self.output.extend_from_slice(middle);
        } else {
            self.write_output(to).await?;
            to.wire.write(&mut self.patience, middle).await?;
        }
        self.output.extend_from_slice(&self.edges.tail);
        to.ambiguous = true;
        self.write_output(to).await
    }

    /// Sends `output` and reads one reply.
    async fn ask(&mut self, to: &mut Connection) -> io::Result<u16> {
        self.write_output(to).await?;
        to.wire.reply(&mut self.patience).await
    }

    async fn write_output(&mut self, to: &mut Connection) -> io::Result<()> {
        to.wire.write(&mut self.patience, &self.output).await?;
        self.output.clear();
        Ok(())
    }

    async fn reset(&mut self, connection: &mut Connection) -> io::Result<()> {
        connection.wire.write(&mut self.patience, b"RSET\r\n").await?;
        match connection.wire.reply(&mut self.patience).await? {
            250 => Ok(()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// Closes the connection. Errors are ignored: every message has ended.
    async fn quit(&mut self, mut connection: Connection) {
        let sent = connection.wire.write(&mut self.patience, b"QUIT\r\n").await;
        if sent.is_ok() && !self.plan().options.no_wait_for_quit {
            let _ = connection.wire.reply(&mut self.patience).await;
        }
        lock(&self.worker.tally).left(connection.opened.elapsed());
    }
}
