//! A next hop that remembers every message and answers as its script says.
//!
//! Must never accept anything but CRLF.CRLF as the end of DATA, because it checks what the mailer sends.

use super::until;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One message as it arrived.
#[derive(Clone, Debug, Default)]
pub struct Mail {
    /// The whole argument of MAIL.
    pub from: String,
    /// The whole argument of each accepted RCPT.
    pub to: Vec<String>,
    /// The message without dot-stuffing.
    pub data: Vec<u8>,
    /// True if the message arrived by BDAT.
    pub chunked: bool,
    /// The number of the connection.
    pub connection: usize,
    /// When the message had arrived.
    pub at: Option<Instant>,
}

impl Mail {
    /// The part of the message below the first empty line.
    pub fn body(&self) -> &[u8] {
        let at = find(&self.data, b"\r\n\r\n").expect("a header and a body");
        &self.data[at + 4..]
    }

    /// The message as a text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }
}

/// The position of `needle`.
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// The behaviour of a sink. Replies are whole lines without CRLF.
#[derive(Clone)]
pub struct Script {
    /// The extensions that EHLO offers.
    pub offers: Vec<&'static str>,
    /// The reply to each RCPT, from its argument.
    pub rcpt: fn(&str) -> String,
    /// The reply to each message, from the message.
    pub end: fn(&Mail) -> String,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            offers: vec!["PIPELINING", "8BITMIME", "SMTPUTF8", "DSN", "SIZE 100000000"],
            rcpt: |_| "250 2.1.5 Ok".into(),
            end: |_| "250 2.0.0 Ok".into(),
        }
    }
}

/// A running sink.
#[derive(Clone)]
pub struct Sink {
    pub port: u16,
    mails: Arc<Mutex<Vec<Mail>>>,
}

impl Sink {
    pub fn start(script: Script) -> Sink {
        Sink::over(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// Starts a sink at this listener.
    pub fn over(listener: TcpListener, script: Script) -> Sink {
        let sink = Sink { port: listener.local_addr().unwrap().port(), mails: Arc::default() };
        let mails = sink.mails.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (script, mails) = (script.clone(), mails.clone());
                std::thread::spawn(move || {
                    // An error means that the client has closed.
                    let _ = Session::new(stream, script, mails, number).run();
                });
            }
        });
        sink
    }

    /// All messages so far.
    pub fn mails(&self) -> Vec<Mail> {
        self.mails.lock().unwrap().clone()
    }

    /// All messages so far that contain this word or have it in their envelope.
    pub fn with(&self, token: &str) -> Vec<Mail> {
        let has = |mail: &&Mail| {
            find(&mail.data, token.as_bytes()).is_some()
                || mail.from.contains(token)
                || mail.to.iter().any(|to| to.contains(token))
        };
        self.mails.lock().unwrap().iter().filter(has).cloned().collect()
    }

    /// Waits for the message that contains this word.
    pub fn wait(&self, token: &str) -> Mail {
        until(&format!("{token} at the sink"), || self.with(token).pop())
    }
}

/// A port that refuses connections until a sink is opened at it.
pub struct Closed {
    pub port: u16,
    socket: OwnedFd,
}

impl Closed {
    pub fn bind() -> Closed {
        use rustix::net::{AddressFamily, SocketType, bind, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let bound = TcpListener::from(socket);
        let port = bound.local_addr().unwrap().port();
        Closed { port, socket: bound.into() }
    }

    pub fn open(self, script: Script) -> Sink {
        rustix::net::listen(&self.socket, 128).unwrap();
        Sink::over(TcpListener::from(self.socket), script)
    }
}

struct Session {
    input: BufReader<TcpStream>,
    output: TcpStream,
    script: Script,
    mails: Arc<Mutex<Vec<Mail>>>,
    mail: Mail,
    number: usize,
}

impl Session {
    fn new(
        stream: TcpStream,
        script: Script,
        mails: Arc<Mutex<Vec<Mail>>>,
        number: usize,
    ) -> Session {
        let output = stream.try_clone().unwrap();
        output.set_nodelay(true).unwrap();
        let input = BufReader::new(stream);
        Session { input, output, script, mails, mail: Mail::default(), number }
    }

    fn run(&mut self) -> std::io::Result<()> {
        self.say("220 sink")?;
        loop {
            let line = self.line()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            match verb.to_ascii_uppercase().as_str() {
                "EHLO" | "LHLO" => self.hello()?,
                "MAIL" => {
                    self.mail = Mail { from: argument.into(), ..Mail::default() };
                    self.mail.connection = self.number;
                    self.say("250 2.1.0 Ok")?;
                }
                "RCPT" => {
                    let reply = (self.script.rcpt)(argument);
                    if reply.starts_with('2') {
                        self.mail.to.push(argument.into());
                    }
                    self.say(&reply)?;
                }
                "DATA" => self.data()?,
                "BDAT" => self.bdat(argument)?,
                "QUIT" => return self.say("221 2.0.0 Bye"),
                _ => self.say("250 2.0.0 Ok")?,
            }
        }
    }

    fn hello(&mut self) -> std::io::Result<()> {
        let mut lines = vec!["sink"];
        lines.extend(&self.script.offers);
        let last = lines.len() - 1;
        let mark = |at| if at == last { ' ' } else { '-' };
        let text: Vec<String> =
            lines.iter().enumerate().map(|(at, line)| format!("250{}{line}", mark(at))).collect();
        self.say(&text.join("\r\n"))
    }

    fn data(&mut self) -> std::io::Result<()> {
        if self.mail.to.is_empty() {
            return self.say("554 5.5.1 No valid recipients");
        }
        self.say("354 Go on")?;
        loop {
            let line = self.raw_line()?;
            if line == b".\r\n" {
                return self.end();
            }
            let line = line.strip_prefix(b".").unwrap_or(&line);
            self.mail.data.extend_from_slice(line);
        }
    }

    fn bdat(&mut self, argument: &str) -> std::io::Result<()> {
        let mut words = argument.split(' ');
        let size: usize = words.next().and_then(|word| word.parse().ok()).expect("BDAT SIZE");
        let mut bytes = vec![0; size];
        self.input.read_exact(&mut bytes)?;
        self.mail.data.extend_from_slice(&bytes);
        self.mail.chunked = true;
        match words.next() {
            Some("LAST") => self.end(),
            _ => self.say("250 2.0.0 Ok"),
        }
    }

    fn end(&mut self) -> std::io::Result<()> {
        let mut mail = std::mem::take(&mut self.mail);
        mail.at = Some(Instant::now());
        let reply = (self.script.end)(&mail);
        if reply.starts_with('2') {
            self.mails.lock().unwrap().push(mail);
        }
        self.say(&reply)
    }

    fn say(&mut self, text: &str) -> std::io::Result<()> {
        self.output.write_all(format!("{text}\r\n").as_bytes())
    }

    fn line(&mut self) -> std::io::Result<Vec<u8>> {
        let mut line = self.raw_line()?;
        line.truncate(line.len() - 2);
        Ok(line)
    }

    /// Reads up to CRLF. A bare LF is a part of the line.
    fn raw_line(&mut self) -> std::io::Result<Vec<u8>> {
        use std::io::BufRead;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if self.input.read_until(b'\n', &mut line)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(line)
    }
}
