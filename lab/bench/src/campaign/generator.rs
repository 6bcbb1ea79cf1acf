//! Source and sink as processes of their own, ours or Postfix's.
//!
//! Must never share a process with the subject, or wait for a process without a limit.

use crate::scenario::{Load, Sink as Faults, Tool};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time beyond the load's own after which a source is stuck.
const SOURCE_TIME_MAX: Duration = Duration::from_secs(120);
/// Time within which the sink answers.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// Time between two looks at a child.
const LOOK_PERIOD: Duration = Duration::from_millis(2);
/// Length of smtp-sink's accept queue.
const BACKLOG: &str = "4096";
/// Messages of Postfix's smtp-source for each second of load: it has no time limit.
const POSTFIX_MESSAGES_PER_SECOND: f64 = 8000.0;

/// A running sink.
pub struct Sink {
    child: Child,
    lines: Receiver<String>,
    tool: Tool,
}

/// The server and the recipient of a load.
pub struct Target<'a> {
    /// ADDRESS:PORT.
    pub address: &'a str,
    /// The recipient, unless the load names others.
    pub recipient: &'a str,
    /// Whether the source does not wait for the 221 after QUIT.
    pub without_goodbye: bool,
}

fn lab(tool: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(tool).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

impl Sink {
    /// Starts a sink; its port is open when this returns. It reads `expect` when it counts.
    pub fn start(port: u16, load: &Load, faults: &Faults, expect: &Path) -> Result<Sink> {
        Sink::listen("127.0.0.1", port, load, faults, expect)
    }

    /// Starts a sink at another address.
    pub fn listen(
        address: &str,
        port: u16,
        load: &Load,
        faults: &Faults,
        expect: &Path,
    ) -> Result<Sink> {
        let place = format!("{address}:{port}");
        if load.sink == Tool::Postfix {
            return Sink::of_postfix(&place);
        }
        Sink::open(&place, faults, None, expect)
    }

    /// Starts our sink at any address, with at most `rate` messages a second.
    pub fn open(place: &str, faults: &Faults, rate: Option<f64>, expect: &Path) -> Result<Sink> {
        let mut command = lab("sink")?;
        command.args(["--listen", place, "--chunking", "--expect"]).arg(expect);
        if let Some(rate) = rate {
            command.args(["--rate", &rate.to_string()]);
        }
        for (name, rules) in
            [("--delay", &faults.delay), ("--refuse", &faults.refuse), ("--drop", &faults.drop)]
        {
            rules.iter().for_each(|rule| {
                command.args([name, rule]);
            });
        }
        let mut child = command.spawn().context("the sink cannot be started")?;
        let mut first = String::new();
        let mut errors = BufReader::new(child.stderr.take().context("it is piped")?);
        errors.read_line(&mut first)?;
        ensure!(first.contains("listens"), "the sink: {}", first.trim());
        // What else it complains about goes where we complain.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().context("it is piped")?);
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| {
                let _ = sender.send(line); // nobody listens any more
            });
        });
        Ok(Sink { child, lines, tool: Tool::Lab })
    }

    fn of_postfix(place: &str) -> Result<Sink> {
        let mut command = Command::new("smtp-sink");
        command.args(["-u", "nobody", place, BACKLOG]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let child = command.stdin(Stdio::null()).spawn().context("smtp-sink cannot be started")?;
        let end = Instant::now() + ANSWER_TIME_MAX;
        while std::net::TcpStream::connect(place).is_err() {
            ensure!(Instant::now() < end, "smtp-sink does not listen");
            std::thread::sleep(LOOK_PERIOD);
        }
        Ok(Sink { child, lines: channel().1, tool: Tool::Postfix })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn line(&self) -> Result<Value> {
        let line = self.lines.recv_timeout(ANSWER_TIME_MAX).context("the sink does not answer")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Returns the counts so far; `Null` from a sink that does not count.
    pub fn counts(&self) -> Result<Value> {
        if self.tool == Tool::Postfix {
            return Ok(Value::Null);
        }
        self.signal(Signal::USR1)?;
        self.line()
    }

    /// Returns the counts so far, and those of expected messages that are missing.
    pub fn counts_and_lacks(&self) -> Result<Value> {
        self.signal(Signal::USR2)?;
        self.line()
    }

    /// Ends the sink's delays.
    pub fn hurry(&self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// Ends the sink and returns its counts; `Null` from a sink that does not count.
    pub fn stop(mut self) -> Result<Value> {
        if self.tool == Tool::Postfix {
            return Ok(Value::Null);
        }
        self.signal(Signal::TERM)?;
        let counts = self.line()?;
        self.child.wait()?;
        Ok(counts)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Sends the load, waits for its end and returns the source's counts. Refusals are counts, not errors.
pub fn send(target: &Target, load: &Load, seed: u64, accepted: &Path) -> Result<Value> {
    if load.source == Tool::Postfix {
        return send_by_postfix(target, load);
    }
    let mut command = lab("source")?;
    command.arg(target.address).arg("--accepted").arg(accepted);
    command.args(["--seed", &seed.to_string(), "--timeout", &load.patience.to_string()]);
    command.args(["--retry", &load.retry.to_string()]);
    command.args(["--sessions", &load.sessions.to_string()]);
    command.args(["--per-connection", &load.per_connection.to_string()]);
    command.args(["--recipients", &load.recipients.to_string()]);
    if load.messages > 0 {
        command.args(["--messages", &load.messages.to_string()]);
    }
    if load.seconds > 0.0 {
        command.args(["--seconds", &load.seconds.to_string()]);
    }
    if load.messages_from.is_empty() {
        command.args(["--sizes", &load.sizes]);
    } else {
        command.args(["--messages-from", &load.messages_from]);
    }
    let every = if load.every > 0.0 { load.every } else { (load.seconds / 10.0).max(0.1) };
    command.args(["--every", &every.to_string()]);
    if load.rate > 0.0 {
        command.args(["--rate", &load.rate.to_string()]);
    }
    if !load.from.is_empty() {
        command.args(["--from", &load.from]);
    }
    if load.to.is_empty() {
        command.args(["--to", target.recipient]);
    }
    load.to.iter().for_each(|to| {
        command.args(["--to", to]);
    });
    if load.spread > 0 {
        command.args(["--spread", &load.spread.to_string()]);
    }
    let flags = [
        (load.bdat, "--bdat"),
        (load.pipelining, "--pipelining"),
        (target.without_goodbye, "--no-wait-for-quit"),
    ];
    command.args(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag));
    let (output, error) = finish(command, SOURCE_TIME_MAX + Duration::from_secs_f64(load.seconds))?;
    serde_json::from_str(output.trim()).with_context(|| format!("the source: {}", error.trim()))
}

/// Runs Postfix's smtp-source, which takes a number of messages and prints no JSON.
fn send_by_postfix(target: &Target, load: &Load) -> Result<Value> {
    let messages = match load.messages {
        0 => (load.seconds * POSTFIX_MESSAGES_PER_SECOND) as u64,
        messages => messages,
    };
    let mut command = Command::new("smtp-source");
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(["-s", &load.sessions.to_string(), "-m", &messages.to_string()]);
    command.args(["-l", &load.sizes, "-f", "source@lab.test", "-t", "user@sink.test"]);
    if load.per_connection == 0 {
        command.arg("-d");
    }
    command.arg(target.address);
    let begun = Instant::now();
    let (_, error) = finish(command, SOURCE_TIME_MAX)?;
    ensure!(error.trim().is_empty(), "smtp-source: {}", error.trim());
    let seconds = begun.elapsed().as_secs_f64();
    Ok(serde_json::json!({
        "accepted": messages, "recipients": messages, "not_accepted": 0, "start_ns": 0,
        "end_ns": (seconds * 1e9) as u64, "seconds": seconds,
    }))
}

/// Runs a command to its end and returns its output and its errors.
fn finish(mut command: Command, time_max: Duration) -> Result<(String, String)> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let read = |from: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            from.map(|mut from| from.read_to_string(&mut text));
            text
        })
    };
    let out = read(out.take().map(|out| Box::new(out) as _));
    let err = read(err.take().map(|err| Box::new(err) as _));
    let end = Instant::now() + time_max;
    while child.try_wait()?.is_none() {
        if Instant::now() >= end {
            let _ = child.kill(); // it may have ended just now
            let _ = child.wait();
            bail!("{name} has not ended after {} s", time_max.as_secs());
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok((text(out), text(err)))
}
