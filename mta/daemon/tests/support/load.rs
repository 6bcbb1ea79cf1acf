//! Mail that is sent as fast as it is accepted, whatever happens to the daemon.
//!
//! Must never count a message as promised unless its 250 was read completely.

use super::token;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Error, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A reply that takes longer counts as no reply.
const REPLY_TIME_MAX: Duration = Duration::from_secs(30);
/// Length of a body, unless the test sets another.
const BODY_BYTES: usize = 2_000;
/// The pause between a failure and the next attempt.
const REST: Duration = Duration::from_millis(20);

/// A message that got its 250.
#[derive(Clone, Debug)]
pub struct Promised {
    /// Its subject.
    pub token: String,
    /// A moment before its MAIL was sent.
    pub began: Instant,
    /// When its 250 was read.
    pub at: Instant,
}

/// Threads that send until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    promised: Arc<Mutex<Vec<Promised>>>,
    failed: Arc<AtomicU64>,
    failures: Arc<Mutex<BTreeSet<String>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    /// Starts `threads` threads that send to `recipient`, each with ten messages on a connection.
    pub fn start(threads: usize, port: u16, recipient: &str) -> Load {
        Load::start_paced(threads, port, recipient, Duration::ZERO)
    }

    /// The same with a pause before each message.
    pub fn start_paced(threads: usize, port: u16, recipient: &str, rest: Duration) -> Load {
        Load::start_sized(threads, port, recipient, rest, BODY_BYTES)
    }

    /// The same with bodies of this length.
    pub fn start_sized(
        threads: usize,
        port: u16,
        recipient: &str,
        rest: Duration,
        bytes: usize,
    ) -> Load {
        let stop: Arc<AtomicBool> = Arc::default();
        let (promised, failed): (Arc<Mutex<_>>, Arc<AtomicU64>) = Default::default();
        let failures: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let threads = (0..threads)
            .map(|_| {
                let (stop, promised, failed) = (stop.clone(), promised.clone(), failed.clone());
                let (recipient, failures) = (recipient.to_string(), failures.clone());
                let text = "x".repeat(bytes);
                std::thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        if let Err(error) =
                            connection(port, &recipient, rest, &text, &stop, &promised)
                        {
                            failures.lock().unwrap().insert(error.to_string());
                            failed.fetch_add(1, Relaxed);
                            std::thread::sleep(REST);
                        }
                    }
                })
            })
            .collect();
        Load { stop, promised, failed, failures, threads }
    }

    /// The replies and the errors that ended a connection otherwise than by QUIT.
    pub fn failures(&self) -> BTreeSet<String> {
        self.failures.lock().unwrap().clone()
    }

    /// The number of messages that got 250 so far.
    pub fn promised(&self) -> usize {
        self.promised.lock().unwrap().len()
    }

    /// The number of connections that ended otherwise than by QUIT.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// The messages that were begun after this moment and got 250.
    pub fn begun_since(&self, moment: Instant) -> Vec<Promised> {
        let promised = self.promised.lock().unwrap();
        promised.iter().filter(|promised| promised.began >= moment).cloned().collect()
    }

    /// Waits until `count` more messages were promised. Returns how long that took.
    pub fn wait_for_more(&self, count: usize) -> Duration {
        let (start, wanted) = (Instant::now(), self.promised() + count);
        super::until("more promises", || (self.promised() >= wanted).then_some(()));
        start.elapsed()
    }

    /// Ends the load. Returns the tokens of all promised messages.
    pub fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let mut promised = self.promised.lock().unwrap();
        promised.drain(..).map(|promised| promised.token).collect()
    }
}

/// Sends on one connection, ten messages or until the load ends.
fn connection(
    port: u16,
    recipient: &str,
    rest: Duration,
    text: &str,
    stop: &AtomicBool,
    promised: &Mutex<Vec<Promised>>,
) -> std::io::Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    expect(&mut input, 220)?;
    write!(output, "EHLO load.test\r\n")?;
    expect(&mut input, 250)?;
    for _ in 0..10 {
        if stop.load(Relaxed) {
            break;
        }
        std::thread::sleep(rest);
        let (token, began) = (token("load"), Instant::now());
        let envelope =
            format!("MAIL FROM:<{token}@load.test>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n");
        output.write_all(envelope.as_bytes())?;
        for code in [250, 250, 354] {
            expect(&mut input, code)?;
        }
        write!(output, "Subject: {token};\r\n\r\n{text}\r\n.\r\n")?;
        expect(&mut input, 250)?;
        let (token, at) = (format!("{token};"), Instant::now());
        promised.lock().unwrap().push(Promised { token, began, at });
    }
    write!(output, "QUIT\r\n")?;
    expect(&mut input, 221)
}

fn expect(input: &mut impl BufRead, code: u16) -> std::io::Result<()> {
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if !line.ends_with("\r\n") || !line.starts_with(&code.to_string()) {
            return Err(Error::other(line.trim_end().to_owned()));
        }
        if line.as_bytes().get(3) != Some(&b'-') {
            return Ok(());
        }
    }
}
