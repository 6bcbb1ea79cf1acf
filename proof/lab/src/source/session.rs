//! One session of the source: the client's side of SMTP (RFC 5321) or LMTP (RFC 2033).
//!
//! Must never send the next message before the last one is answered, or call one accepted early.

use super::Plan;
use super::tally::{Ending, Tally};
use crate::net::Stream;
use bytes::{Buf, BytesMut};
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bodies up to this size go out in one write with their edges.
const JOIN_BYTES_MAX: usize = 256 * 1024;
/// A longer reply line is no reply.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Between two tries of one message.
const RETRY_REST: Duration = Duration::from_millis(20);

/// Sends messages until none are left.
pub async fn run(plan: Arc<Plan>, session: usize) -> Tally {
    let from = &plan.options.source_address;
    let from = (!from.is_empty()).then(|| from[session % from.len()]);
    let mut tally = Tally::default();
    let mut connection = None;
    while let Some((number, due)) = plan.next() {
        if let Some(due) = due {
            tokio::time::sleep_until(due.into()).await;
        }
        // With a rate, waiting for a free session is part of the latency.
        let begun = due.unwrap_or_else(Instant::now);
        let give_up = Instant::now() + Duration::from_secs(plan.options.retry);
        loop {
            let ending = try_once(&plan, &mut connection, from, number, &mut tally).await;
            tally.count(number, &ending, begun.elapsed());
            if matches!(ending, Ending::Accepted(_)) || Instant::now() >= give_up {
                break;
            }
            tokio::time::sleep(RETRY_REST).await;
        }
    }
    if let Some(connection) = connection {
        connection.quit(&plan).await;
    }
    tally
}

/// One try; keeps the connection where it may be used again.
async fn try_once(
    plan: &Plan,
    kept: &mut Option<Connection>,
    from: Option<std::net::IpAddr>,
    number: u64,
    tally: &mut Tally,
) -> Ending {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => match Connection::open(plan, from, tally).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(code)) => return Ending::Refused(code),
            Err(_) => return Ending::Broken,
        },
    };
    match connection.send(plan, number).await {
        Ok(ending) => {
            connection.sent += 1;
            let last = plan.options.per_connection;
            if last != 0 && connection.sent >= last {
                connection.quit(plan).await;
            } else if matches!(ending, Ending::Accepted(_)) || connection.reset().await.is_ok() {
                *kept = Some(connection);
            }
            ending
        }
        Err(_) if connection.ambiguous => Ending::Ambiguous,
        Err(_) => Ending::Broken,
    }
}

struct Connection {
    stream: Stream,
    input: BytesMut,
    timeout: Duration,
    /// Messages tried over it.
    sent: u64,
    /// The last byte of a message is on its way and its reply is not here.
    ambiguous: bool,
}

impl Connection {
    /// Connects and says hello; the inner error is the refusing reply's code.
    async fn open(
        plan: &Plan,
        from: Option<std::net::IpAddr>,
        tally: &mut Tally,
    ) -> io::Result<Result<Connection, u16>> {
        let options = &plan.options;
        let timeout = Duration::from_secs(options.timeout);
        let stream = tokio::time::timeout(timeout, options.target.connect(from)).await??;
        tally.connections += 1;
        let input = BytesMut::with_capacity(4096);
        let mut connection = Connection { stream, input, timeout, sent: 0, ambiguous: false };
        let greeting = connection.reply().await?;
        if greeting != 220 {
            return Ok(Err(greeting));
        }
        let verb = if options.lmtp { "LHLO" } else { "EHLO" };
        connection.write(format!("{verb} {}\r\n", options.hello).as_bytes()).await?;
        match connection.reply().await? {
            250 => Ok(Ok(connection)),
            code => Ok(Err(code)),
        }
    }

    async fn send(&mut self, plan: &Plan, number: u64) -> io::Result<Ending> {
        let options = &plan.options;
        let mut commands = format!("MAIL FROM:<{}>\r\n", options.from);
        if !options.pipelining {
            self.write(commands.as_bytes()).await?;
            commands.clear();
            let code = self.reply().await?;
            if code != 250 {
                return Ok(Ending::Refused(code));
            }
        }
        let mut recipients = 0;
        let mut refusal = None;
        for n in 0..options.recipients {
            let to = options.to.replace("{n}", &n.to_string()).replace("{m}", &number.to_string());
            // Writing to a String cannot fail.
            let _ = write!(commands, "RCPT TO:<{to}>\r\n");
            if !options.pipelining {
                self.write(commands.as_bytes()).await?;
                commands.clear();
                count(self.reply().await?, &mut recipients, &mut refusal);
            }
        }
        if !options.pipelining && recipients == 0 {
            return Ok(Ending::Refused(refusal.unwrap_or(0)));
        }
        if options.bdat {
            self.send_bdat(plan, number, commands, recipients, refusal).await
        } else {
            self.send_data(plan, number, commands, recipients, refusal).await
        }
    }

    /// `commands` are those not yet sent: all with pipelining, none without.
    async fn send_data(
        &mut self,
        plan: &Plan,
        number: u64,
        mut commands: String,
        mut recipients: u32,
        mut refusal: Option<u16>,
    ) -> io::Result<Ending> {
        commands.push_str("DATA\r\n");
        self.write(commands.as_bytes()).await?;
        if plan.options.pipelining {
            self.envelope_replies(plan, &mut recipients, &mut refusal).await?;
        }
        let code = self.reply().await?;
        if code != 354 {
            return Ok(Ending::Refused(refusal.unwrap_or(code)));
        }
        if recipients == 0 {
            // Only a server that takes DATA without recipients comes here: an empty message.
            self.write(b".\r\n").await?;
            let code = self.reply().await?;
            return Ok(Ending::Refused(refusal.unwrap_or(code)));
        }
        let edges = plan.template.edges(number);
        let tail = edges.tail + ".\r\n";
        self.write_body(edges.head.as_bytes(), plan.template.middle(true), tail.as_bytes()).await?;
        self.end(plan, recipients).await
    }

    async fn send_bdat(
        &mut self,
        plan: &Plan,
        number: u64,
        mut commands: String,
        mut recipients: u32,
        mut refusal: Option<u16>,
    ) -> io::Result<Ending> {
        let edges = plan.template.edges(number);
        let middle = plan.template.middle(false);
        let bytes = edges.head.len() + middle.len() + edges.tail.len();
        // Writing to a String cannot fail.
        let _ = write!(commands, "BDAT {bytes} LAST\r\n{}", edges.head);
        self.write_body(commands.as_bytes(), middle, edges.tail.as_bytes()).await?;
        if plan.options.pipelining {
            self.envelope_replies(plan, &mut recipients, &mut refusal).await?;
        }
        if recipients == 0 {
            self.ambiguous = false;
            let code = self.reply().await?;
            return Ok(Ending::Refused(refusal.unwrap_or(code)));
        }
        self.end(plan, recipients).await
    }

    async fn envelope_replies(
        &mut self,
        plan: &Plan,
        recipients: &mut u32,
        refusal: &mut Option<u16>,
    ) -> io::Result<()> {
        let mail = self.reply().await?;
        if mail != 250 {
            *refusal = Some(mail);
        }
        for _ in 0..plan.options.recipients {
            count(self.reply().await?, recipients, refusal);
        }
        Ok(())
    }

    /// The reply to the message; with LMTP one for each accepted recipient.
    async fn end(&mut self, plan: &Plan, recipients: u32) -> io::Result<Ending> {
        let replies = if plan.options.lmtp { recipients } else { 1 };
        let (mut accepted, mut refusal) = (0, None);
        for _ in 0..replies {
            count(self.reply().await?, &mut accepted, &mut refusal);
        }
        self.ambiguous = false;
        if accepted == 0 {
            return Ok(Ending::Refused(refusal.unwrap_or(0)));
        }
        Ok(Ending::Accepted(if plan.options.lmtp { accepted } else { recipients }))
    }

    async fn write_body(&mut self, head: &[u8], middle: &[u8], tail: &[u8]) -> io::Result<()> {
        if middle.len() <= JOIN_BYTES_MAX {
            let whole = [head, middle, tail].concat();
            self.ambiguous = true;
            return self.write(&whole).await;
        }
        self.write(head).await?;
        self.write(middle).await?;
        self.ambiguous = true;
        self.write(tail).await
    }

    async fn reset(&mut self) -> io::Result<()> {
        self.write(b"RSET\r\n").await?;
        match self.reply().await? {
            250 => Ok(()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// Errors do not matter any more: every message has its ending.
    async fn quit(mut self, plan: &Plan) {
        let sent = self.write(b"QUIT\r\n").await;
        if sent.is_ok() && !plan.options.no_wait_for_quit {
            let _ = self.reply().await;
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        tokio::time::timeout(self.timeout, self.stream.write_all(bytes)).await?
    }

    /// The code of the next reply, all its lines read (RFC 5321 4.2).
    async fn reply(&mut self) -> io::Result<u16> {
        loop {
            while let Some(end) = memchr::memchr(b'\n', &self.input) {
                let line = &self.input[..end];
                let code = line.get(..3).and_then(|code| std::str::from_utf8(code).ok());
                let code = code.and_then(|code| code.parse().ok()).ok_or(ErrorKind::InvalidData)?;
                let more = line.get(3) == Some(&b'-');
                self.input.advance(end + 1);
                if !more {
                    return Ok(code);
                }
            }
            if self.input.len() > REPLY_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            let read = self.stream.read_buf(&mut self.input);
            if tokio::time::timeout(self.timeout, read).await?? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn count(code: u16, accepted: &mut u32, refusal: &mut Option<u16>) {
    if code / 100 == 2 {
        *accepted += 1;
    } else {
        refusal.get_or_insert(code);
    }
}
