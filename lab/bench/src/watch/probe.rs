//! A small SMTP client that sends one marked message at a time and notes when it was sent and accepted.
//!
//! Must never begin a message before the last one was answered and a rest has passed.

use crate::mark::{Mark, Token, WARM_UP};
use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time limit for a reply.
const REPLY_TIME_MAX: Duration = Duration::from_secs(60);
/// Time limit for the reply to QUIT, which nothing depends on.
const GOODBYE_TIME_MAX: Duration = Duration::from_millis(200);
const REPLY_LINES_MAX: usize = 100;
/// What a mailer does behind its 250 is over by then, so that it is not taken for the next message's.
const REST_MIN: Duration = Duration::from_millis(80);
/// The rest differs, so that syncs at regular times do not always fall in the same place.
const REST_STEPS: u64 = 8;
const REST_STEP: Duration = Duration::from_millis(10);
const BODY_LINES: usize = 50;

/// One message: both times in seconds since 1970, on the clock that strace reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sent {
    /// Just before its last bytes, the final dot among them, were written.
    pub given: f64,
    /// Just after the 250 was read.
    pub taken: f64,
}

/// Sender and recipient.
pub struct Probe<'a> {
    /// HOST:PORT.
    pub address: &'a str,
    /// MAIL FROM.
    pub from: &'a str,
    /// RCPT TO; `{n}` and `{m}` as the source has them.
    pub to: &'a str,
}

/// A connection that was greeted.
struct Session {
    reader: BufReader<TcpStream>,
}

impl Probe<'_> {
    /// Sends messages that a sink does not count: the first half with a connection each, the others over one.
    pub fn send(&self, messages: u64) -> Result<Vec<Sent>> {
        let run = crate::source::random_name();
        let mut sent = Vec::new();
        let mut kept = None;
        for number in 0..messages {
            let alone = number < messages / 2;
            let mut session = match kept.take() {
                Some(session) => session,
                None => Session::open(self.address)?,
            };
            sent.push(session.send(self, Token { run, number: number | WARM_UP })?);
            if alone {
                session.close();
            } else {
                kept = Some(session);
            }
            std::thread::sleep(REST_MIN + REST_STEP * (number * 3 % REST_STEPS) as u32);
        }
        kept.into_iter().for_each(Session::close);
        Ok(sent)
    }
}

impl Session {
    fn open(address: &str) -> Result<Session> {
        let stream = TcpStream::connect(address).with_context(|| address.to_string())?;
        stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
        stream.set_write_timeout(Some(REPLY_TIME_MAX))?;
        stream.set_nodelay(true)?;
        let mut session = Session { reader: BufReader::new(stream) };
        session.expect(b'2', "the greeting")?;
        session.ask("EHLO lab.test\r\n", b'2')?;
        Ok(session)
    }

    fn send(&mut self, probe: &Probe<'_>, token: Token) -> Result<Sent> {
        let to =
            probe.to.replace("{n}", "0").replace("{m}", &(token.number & !WARM_UP).to_string());
        self.ask(&format!("MAIL FROM:<{}>\r\n", probe.from), b'2')?;
        self.ask(&format!("RCPT TO:<{to}>\r\n"), b'2')?;
        self.ask("DATA\r\n", b'3')?;
        let message = message(token, probe.from) + ".\r\n";
        let given = now();
        self.reader.get_mut().write_all(message.as_bytes())?;
        self.expect(b'2', "the message")?;
        Ok(Sent { given, taken: now() })
    }

    fn ask(&mut self, line: &str, wanted: u8) -> Result<()> {
        self.reader.get_mut().write_all(line.as_bytes())?;
        self.expect(wanted, line.trim_end())
    }

    /// Reads a whole reply, whose code must begin with the digit `wanted`.
    fn expect(&mut self, wanted: u8, what: &str) -> Result<()> {
        for _ in 0..REPLY_LINES_MAX {
            let mut line = String::new();
            let bytes = self.reader.read_line(&mut line)?;
            ensure!(bytes > 0, "the mailer hung up on {what}");
            ensure!(line.as_bytes()[0] == wanted, "the mailer said {} to {what}", line.trim_end());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(());
            }
        }
        bail!("a reply to {what} of more than {REPLY_LINES_MAX} lines")
    }

    /// Sends QUIT and waits briefly for 221: some servers wait for the client to close.
    fn close(mut self) {
        let _ = self.reader.get_ref().set_read_timeout(Some(GOODBYE_TIME_MAX));
        let _ = self.reader.get_mut().write_all(b"QUIT\r\n"); // it may have hung up by itself
        let _ = self.reader.read_line(&mut String::new());
    }
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn message(token: Token, from: &str) -> String {
    let mut below = format!(
        "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\nFrom: <{from}>\r\nTo: posthaste-lab:;\r\n\
        Subject: posthaste-lab {token}\r\n\r\n"
    );
    for line in 0..BODY_LINES {
        below +=
            &format!("Line {line} of a message by which is seen when a mailer syncs: {token}.\r\n");
    }
    let mark = Mark::of(token, below.as_bytes());
    format!("Message-ID: <{token}@posthaste-lab.invalid>\r\n{}{below}", mark.line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::{Finding, Verifier};

    #[test]
    fn its_message_is_whole_to_a_sink() {
        let token = Token { run: 7, number: 3 };
        let mut verifier = Verifier::new();
        verifier.feed(message(token, "a@b.test").as_bytes());
        assert_eq!(verifier.finish(), Finding::Whole(token));
    }

    #[test]
    fn a_refusal_is_an_error_with_the_mailers_words() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"554-go\r\n554 away\r\n").unwrap();
        });
        let probe = Probe { address: &address, from: "a@b.test", to: "c@d.test" };
        let error = probe.send(1).unwrap_err().to_string();
        server.join().unwrap();
        assert!(error.contains("554-go") && error.contains("greeting"), "{error}");
    }
}
