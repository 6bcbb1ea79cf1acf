//! The next hop of a run that goes on until the queue is empty: our sink, at every address of the room.
//!
//! Must never be up before the run: what flows earlier is not in any order.

use super::{Plan, RUN_TIME_MAX};
use crate::room;
use crate::subject::Site;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// See the module.
pub struct Taker {
    child: Child,
    messages: u64,
}

/// What it has received.
pub struct Taken {
    /// The time of its last message, in nanoseconds of the monotonic clock.
    pub last_ns: u64,
    /// Connections.
    pub connections: f64,
    /// Duplicate messages.
    pub duplicates: f64,
}

/// The routes of the room's loopback device. A mailer that writes a message's end by itself and leaves Nagle's algorithm
/// on waits there until what it wrote before is acknowledged: 40 ms on Linux, for each message but the first of a
/// connection.
fn acknowledge(at_once: bool) -> Result<()> {
    let at_once = if at_once { "1" } else { "0" };
    for network in ["127.0.0.0/8", "127.0.0.1"] {
        let route = ["route", "replace", "local", network, "dev", "lo", "table", "local"];
        let more = ["proto", "kernel", "scope", "host", "src", "127.0.0.1", "quickack", at_once];
        room::run::<16>("ip", [route, more].concat().try_into().expect("twice eight"))?;
    }
    Ok(())
}

impl Taker {
    /// Starts the sink; its port is open when this returns.
    pub fn start(site: &Site, plan: &Plan) -> Result<Taker> {
        acknowledge(plan.acknowledge_at_once)?;
        let mut command = Command::new(&plan.lab);
        command.args(["sink", "--listen", &format!("0.0.0.0:{}", site.next_hop)]);
        command.args(["--until", &plan.messages.to_string()]);
        command.args(["--seconds", &RUN_TIME_MAX.as_secs().to_string()]);
        if !plan.delay.is_empty() {
            command.args(["--delay", &plan.delay]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("the sink cannot be started")?;
        let mut errors = BufReader::new(child.stderr.take().context("it is piped")?);
        let mut first = String::new();
        errors.read_line(&mut first)?;
        ensure!(first.contains("listens"), "the sink: {}", first.trim());
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
        Ok(Taker { child, messages: plan.messages })
    }

    /// Waits until it has received everything.
    pub fn wait(mut self) -> Result<Taken> {
        let mut text = String::new();
        let mut output = self.child.stdout.take().context("it is piped")?;
        output.read_to_string(&mut text)?;
        let seen_ns = monotonic_ns();
        self.child.wait()?;
        let said: Value = serde_json::from_str(text.trim()).context("what the sink said")?;
        let number = |name: &str| said[name].as_f64().unwrap_or(0.0);
        let (came, all) = (number("distinct"), self.messages);
        ensure!(came >= all as f64, "the sink got {came} of {all} messages");
        let last_ns = said["last_ns"].as_u64().unwrap_or(seen_ns);
        let (connections, duplicates) = (number("connections"), number("duplicates"));
        Ok(Taken { last_ns, connections, duplicates })
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Returns the time of the clock that the library and the sink use as well.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits for a condition, with a time limit.
pub fn wait_until(what: &str, is_done: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + RUN_TIME_MAX;
    while !is_done() {
        ensure!(Instant::now() < end, "{what} takes longer than {} s", RUN_TIME_MAX.as_secs());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(())
}
