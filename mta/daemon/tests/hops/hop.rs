//! A next hop that answers by rules and remembers everything that it receives.
//!
//! Must never count a message whose end it has not received.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The reply to EHLO of a hop that offers all extensions.
pub const ALL: &str = "250-hop\r\n250-PIPELINING\r\n250-SIZE 100000000\r\n250-8BITMIME\r\n250-DSN\r\n\
                       250-SMTPUTF8\r\n250-ENHANCEDSTATUSCODES\r\n250 CHUNKING\r\n";
/// The reply to EHLO of a hop that offers PIPELINING but not CHUNKING.
pub const PIPELINING: &str = "250-hop\r\n250-PIPELINING\r\n250 DSN\r\n";
/// The reply to EHLO of a hop that offers nothing.
pub const PLAIN: &str = "250 hop\r\n";

/// Each rule is a verb and the reply to one occurrence of it, in order. `.` is the end of the data, the empty
/// verb is the greeting, and `EHLO` also stands for LHLO.
///
/// A reply that ends in `!` also ends the connection. A reply that begins with `~` is sent byte by byte. `zzz`
/// sends nothing for a long time. `half` reads half a body and ends the connection. Commands without a rule
/// left get a positive reply.
pub type Rules = Vec<(&'static str, String)>;

/// A message whose end was received.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The whole argument of MAIL.
    pub from: String,
    /// The accepted recipients, in order.
    pub to: Vec<String>,
    /// The data as received, with doubled dots.
    pub data: Vec<u8>,
    /// The reply to the end of the data, or all replies in LMTP.
    pub answer: String,
}

/// What a hop has received.
#[derive(Default)]
pub struct Seen {
    /// Messages that ended, with any reply.
    pub taken: Vec<Taken>,
    /// When each connection began.
    pub connections: Vec<Instant>,
    /// The number of open connections, and the largest number so far.
    pub open: usize,
    pub open_max: usize,
    /// Every command line.
    pub lines: Vec<String>,
}

/// A running hop.
#[derive(Clone)]
pub struct Hop {
    pub port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Clone)]
struct Script {
    lmtp: bool,
    hello: String,
    rules: Arc<Mutex<VecDeque<(&'static str, String)>>>,
}

impl Hop {
    /// Starts a hop with SMTP on a free port.
    pub fn start(hello: &str, rules: &[(&'static str, &str)]) -> Hop {
        Hop::listen("127.0.0.1:0", Script::new(false, hello, rules))
    }

    /// Starts a hop with LMTP on a free port.
    pub fn lmtp(hello: &str, rules: &[(&'static str, &str)]) -> Hop {
        Hop::listen("127.0.0.1:0", Script::new(true, hello, rules))
    }

    /// Starts a hop with SMTP at this address and without rules.
    pub fn at(place: &str, hello: &str) -> Hop {
        Hop::at_with(place, hello, &[])
    }

    /// Starts a hop with SMTP at this address.
    pub fn at_with(place: &str, hello: &str, rules: &[(&'static str, &str)]) -> Hop {
        Hop::listen(place, Script::new(false, hello, rules))
    }

    fn listen(place: &str, script: Script) -> Hop {
        let listener = std::net::TcpListener::bind(place).unwrap();
        let port = listener.local_addr().unwrap().port();
        let hop = Hop { port, seen: Arc::default() };
        hop.serve(script, move || {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            stream.into()
        });
        hop
    }

    /// Starts a hop with LMTP on a new Unix socket.
    pub fn unix(path: &Path) -> Hop {
        let listener = UnixListener::bind(path).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, open).unwrap();
        let hop = Hop { port: 0, seen: Arc::default() };
        let script = Script::new(true, PLAIN, &[]);
        hop.serve(script, move || listener.accept().unwrap().0.into());
        hop
    }

    fn serve(&self, script: Script, mut accept: impl FnMut() -> OwnedFd + Send + 'static) {
        let seen = self.seen.clone();
        std::thread::spawn(move || {
            loop {
                let (stream, script, seen) = (accept(), script.clone(), seen.clone());
                {
                    let mut seen = seen.lock().unwrap();
                    seen.connections.push(Instant::now());
                    seen.open += 1;
                    seen.open_max = seen.open_max.max(seen.open);
                }
                std::thread::spawn(move || {
                    let mut talk = Talk::new(stream, script, seen.clone());
                    // An error is the end of the connection, by the client or by a rule.
                    let _ = talk.run();
                    seen.lock().unwrap().open -= 1;
                });
            }
        });
    }

    /// Reads what was received.
    pub fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }

    /// The number of messages for this recipient whose end got a positive reply.
    pub fn deliveries(&self, recipient: &str) -> usize {
        let well = |taken: &&Taken| {
            let at = taken.to.iter().position(|to| to.contains(recipient));
            let answer = at.and_then(|at| {
                let lines: Vec<&str> = taken.answer.lines().filter(|l| !l.is_empty()).collect();
                lines.get(if lines.len() > 1 { at } else { 0 }).copied().map(str::to_string)
            });
            answer.is_some_and(|answer| answer.trim_start_matches('~').starts_with('2'))
        };
        self.seen(|seen| seen.taken.iter().filter(well).count())
    }
}

impl Script {
    fn new(lmtp: bool, hello: &str, rules: &[(&'static str, &str)]) -> Script {
        let rules = rules.iter().map(|(verb, reply)| (*verb, (*reply).to_string())).collect();
        Script { lmtp, hello: hello.into(), rules: Arc::new(Mutex::new(rules)) }
    }

    fn take(&self, verb: &str) -> Option<String> {
        let mut rules = self.rules.lock().unwrap();
        let at = rules.iter().position(|(ruled, _)| *ruled == verb)?;
        rules.remove(at).map(|(_, reply)| reply)
    }
}

struct Talk {
    input: BufReader<std::fs::File>,
    output: std::fs::File,
    script: Script,
    seen: Arc<Mutex<Seen>>,
    from: String,
    to: Vec<String>,
    data: Vec<u8>,
    /// True if MAIL got a positive reply.
    open: bool,
}

type Result<T = ()> = std::io::Result<T>;

impl Talk {
    fn new(stream: OwnedFd, script: Script, seen: Arc<Mutex<Seen>>) -> Talk {
        let output = std::fs::File::from(stream);
        let input = BufReader::new(output.try_clone().unwrap());
        let (from, to, data) = (String::new(), Vec::new(), Vec::new());
        Talk { input, output, script, seen, from, to, data, open: false }
    }

    fn run(&mut self) -> Result {
        self.answer("", "220 hop\r\n")?;
        loop {
            let line = self.line()?;
            let line = String::from_utf8_lossy(&line).trim_end().to_string();
            self.seen.lock().unwrap().lines.push(line.clone());
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" | "LHLO" => {
                    let hello = self.script.hello.clone();
                    self.answer("EHLO", &hello)?;
                }
                "MAIL" => {
                    (self.from, self.to) = (line[4..].into(), Vec::new());
                    self.data.clear();
                    let reply = self.answer("MAIL", "250 2.1.0 ok\r\n")?;
                    self.open = reply.trim_start_matches('~').starts_with("250");
                }
                "RCPT" if !self.open => self.say("503 5.5.1 no sender\r\n")?,
                "RCPT" => {
                    let reply = self.answer("RCPT", "250 2.1.5 ok\r\n")?;
                    if reply.trim_start_matches('~').starts_with('2') {
                        self.to.push(line[5..].into());
                    }
                }
                "DATA" if self.to.is_empty() => self.say("503 5.5.1 nobody\r\n")?,
                "DATA" => self.body()?,
                "BDAT" => self.chunk(&line)?,
                "QUIT" => {
                    self.answer("QUIT", "221 bye\r\n")?;
                    return Ok(());
                }
                verb => {
                    self.answer(verb, "250 2.0.0 ok\r\n")?;
                }
            }
        }
    }

    fn body(&mut self) -> Result {
        if !self.answer("DATA", "354 go\r\n")?.trim_start_matches('~').starts_with('3') {
            return Ok(());
        }
        while self.data != b".\r\n" && !self.data.ends_with(b"\r\n.\r\n") {
            self.leave_halfway()?;
            let line = self.line()?;
            self.data.extend_from_slice(&line);
        }
        self.end()
    }

    fn chunk(&mut self, line: &str) -> Result {
        let size: u64 = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap();
        if size > 100 {
            (&mut self.input).take(size / 2).read_to_end(&mut self.data)?;
            self.leave_halfway()?;
        }
        let rest = size - self.data.len() as u64;
        (&mut self.input).take(rest).read_to_end(&mut self.data)?;
        if self.data.len() as u64 != size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if self.to.is_empty() {
            return self.say("503 5.5.1 nobody\r\n");
        }
        self.end()
    }

    fn leave_halfway(&mut self) -> Result {
        let leaves = self.data.len() > 100 && self.script.take("half").is_some();
        if leaves { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Sends one reply, or one for each recipient in LMTP. The reply is recorded before the client can read it.
    fn end(&mut self) -> Result {
        let count = if self.script.lmtp { self.to.len() } else { 1 };
        let replies: Vec<String> = (0..count)
            .map(|_| self.script.take(".").unwrap_or("250 2.0.0 kept\r\n".into()))
            .collect();
        let until_drop = replies.iter().position(|reply| reply.ends_with('!'));
        let said = &replies[..until_drop.map_or(count, |at| at + 1)];
        self.seen.lock().unwrap().taken.push(Taken {
            from: self.from.clone(),
            to: self.to.clone(),
            data: self.data.clone(),
            answer: said.concat(),
        });
        said.iter().try_for_each(|reply| self.speak(reply))
    }

    /// Returns the reply of the next rule, or a positive one.
    fn answer(&mut self, verb: &str, well: &str) -> Result<String> {
        let reply = self.script.take(verb).unwrap_or_else(|| well.into());
        self.speak(&reply)?;
        Ok(reply)
    }

    fn speak(&mut self, reply: &str) -> Result {
        if reply.starts_with("zzz") {
            std::thread::sleep(Duration::from_secs(600));
        }
        let text = reply.strip_suffix('!').unwrap_or(reply);
        match text.strip_prefix('~') {
            Some(text) => {
                for byte in text.bytes() {
                    self.output.write_all(&[byte])?;
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            None => self.say(text)?,
        }
        if reply.ends_with('!') { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn say(&mut self, text: &str) -> Result {
        self.output.write_all(text.as_bytes())
    }

    fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if self.input.read_until(b'\n', &mut line)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(line)
    }
}
