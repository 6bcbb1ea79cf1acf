//! The burdens of an overload: clients, mail for a slow sink, a disk that fills, silent connections.
//!
//! Must never outlive the run: its processes are killed, and its file on the disk is deleted.

use super::generator::Sink;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

/// Clients that send to a sink that is too slow.
const SINK_SESSIONS: u32 = 50;
/// Messages that each of them sends over one connection.
const SINK_PER_CONNECTION: &str = "100";
/// Seconds after which a client without a reply gives up.
const REPLY_SECONDS_MAX: &str = "20";
/// Connections that one process holds, since its descriptors may be limited.
const ONE_HOLDS_MAX: u32 = 15_000;
/// While the disk is filled: messages a second that the sink takes, clients that send, and bytes of a message.
const DISK_SINK_RATE: f64 = 20.0;
const DISK_RATE: &str = "1000";
const DISK_MESSAGE_BYTES: &str = "65536";
/// The file that takes the disk's space.
const BALLOON: &str = "balloon";

/// A kind of burden, with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This number of clients send as fast as they are answered.
    Senders(u32),
    /// The sink takes this number of messages a second, and clients send as fast as they are answered.
    Sink(u32),
    /// This number of MiB of the disk is left free, and mail fills it.
    Disk(u32),
    /// This number of silent connections.
    Idle(u32),
    /// This number of messages, each sent at one byte a second.
    Slow(u32),
}

impl FromStr for Kind {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Kind> {
        let (word, number) = text.split_once('-').context("an overload is KIND-NUMBER")?;
        let number = number.parse().with_context(|| format!("overload {text}"))?;
        Ok(match word {
            "senders" => Kind::Senders(number),
            "sink" => Kind::Sink(number),
            "disk" => Kind::Disk(number),
            "idle" => Kind::Idle(number),
            "slow" => Kind::Slow(number),
            _ => bail!("{text}: one of senders sink disk idle slow is expected"),
        })
    }
}

impl Kind {
    /// Returns the messages a second that the sink takes during the burden.
    pub fn sink_rate(self) -> Option<f64> {
        match self {
            Kind::Sink(rate) => Some(f64::from(rate)),
            Kind::Disk(_) => Some(DISK_SINK_RATE),
            _ => None,
        }
    }
}

/// A burden in progress.
pub enum Burden {
    /// A source that ends by itself.
    Source(Child),
    /// Processes that hold connections, and their counts.
    Held(Vec<Child>, Value),
    /// The file that fills the disk, and a source.
    Balloon(PathBuf, Child),
}

impl Burden {
    /// Begins the burden. A source sends for `seconds` and lists its promises in `list`; a disk burden fills the disk of
    /// `queue`.
    pub fn begin(
        kind: Kind,
        address: &str,
        seconds: f64,
        queue: &Path,
        list: &Path,
    ) -> Result<Burden> {
        Ok(match kind {
            Kind::Senders(sessions) => {
                Burden::Source(source(address, sessions, "1", seconds, list, &[])?)
            }
            Kind::Sink(_) => {
                let each = SINK_PER_CONNECTION;
                Burden::Source(source(address, SINK_SESSIONS, each, seconds, list, &[])?)
            }
            Kind::Disk(mib_left) => {
                let path = balloon(queue, u64::from(mib_left) << 20)?;
                let more = ["--rate", DISK_RATE, "--sizes", DISK_MESSAGE_BYTES];
                let each = SINK_PER_CONNECTION;
                Burden::Balloon(path, source(address, SINK_SESSIONS, each, seconds, list, &more)?)
            }
            Kind::Idle(connections) => hold_all(address, connections, &[])?,
            Kind::Slow(connections) => hold_all(address, connections, &["--slow"])?,
        })
    }

    /// Ends the burden and returns the counts of its clients.
    pub fn end(self, sink: &Sink) -> Result<Value> {
        Ok(match self {
            Burden::Source(child) => {
                let said = said(child)?;
                sink.hurry()?;
                said
            }
            Burden::Held(children, said) => {
                for mut child in children {
                    child.kill()?;
                    child.wait()?;
                }
                said
            }
            Burden::Balloon(path, child) => {
                let said = said(child)?;
                std::fs::remove_file(path)?;
                sink.hurry()?;
                said
            }
        })
    }
}

/// Picks from a source's counts those that the table needs.
fn counts(said: &Value) -> Value {
    let names = ["accepted", "not_accepted", "refusals", "broken", "ambiguous"];
    names.iter().map(|name| ((*name).to_string(), said[*name].clone())).collect()
}

fn lab(tool: &str, address: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([tool, address]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    Ok(command)
}

/// Returns the counts that a source prints at its end.
fn said(mut child: Child) -> Result<Value> {
    let mut text = String::new();
    child.stdout.take().context("it is piped")?.read_to_string(&mut text)?;
    child.wait()?; // that some were refused is what we came for
    Ok(counts(&serde_json::from_str(text.trim()).context("the burden's source")?))
}

fn source(
    address: &str,
    sessions: u32,
    per_connection: &str,
    seconds: f64,
    list: &Path,
    more: &[&str],
) -> Result<Child> {
    let mut command = lab("source", address)?;
    command.args(["--sessions", &sessions.to_string(), "--per-connection", per_connection]);
    command.args(["--seconds", &seconds.to_string(), "--timeout", REPLY_SECONDS_MAX]);
    command.args(["--from", "flood@lab.test", "--to", "user{n}@sink.test", "--accepted"]);
    Ok(command.arg(list).args(more).spawn()?)
}

/// Starts as many processes as needed, each with addresses of its own. Returns when each connection has been tried.
fn hold_all(address: &str, connections: u32, more: &[&str]) -> Result<Burden> {
    let (mut children, mut left, mut all) = (Vec::new(), connections, BTreeMap::new());
    while left > 0 {
        let part = left.min(ONE_HOLDS_MAX);
        left -= part;
        let mut command = lab("hold", address)?;
        command.args(["--connections", &part.to_string()]).args(more);
        command.args(["--from", &format!("127.1.{}.1", children.len())]);
        children.push(command.stderr(Stdio::inherit()).spawn()?);
    }
    for child in &mut children {
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it is piped")?).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).context("who holds connections")?;
        add(&mut all, &said);
    }
    Ok(Burden::Held(children, nested(&all)))
}

/// Adds counts to a sum; those of reply codes are nested one level deeper.
fn add(all: &mut BTreeMap<String, f64>, said: &Value) {
    for (name, value) in said.as_object().into_iter().flatten() {
        if let Some(count) = value.as_f64() {
            *all.entry(name.clone()).or_default() += count;
        }
        for (code, count) in value.as_object().into_iter().flatten() {
            *all.entry(format!("refused.{code}")).or_default() += count.as_f64().unwrap_or(0.0);
        }
    }
}

fn nested(all: &BTreeMap<String, f64>) -> Value {
    let (mut said, mut refused) = (serde_json::Map::new(), serde_json::Map::new());
    for (name, count) in all {
        match name.strip_prefix("refused.") {
            Some(code) => refused.insert(code.into(), (*count).into()),
            None => said.insert(name.clone(), (*count).into()),
        };
    }
    said.insert("refused".into(), refused.into());
    Value::Object(said)
}

/// Fills the disk until `left` bytes are free.
fn balloon(queue: &Path, left: u64) -> Result<PathBuf> {
    let path = queue.join(BALLOON);
    let about = statvfs(queue)?;
    let free = about.f_bavail * about.f_frsize;
    ensure!(free > left, "{free} bytes are free, {left} must be left");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    fallocate(&file, FallocateFlags::empty(), 0, free - left)?;
    file.sync_all()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_said_is_added_up() {
        let mut all = BTreeMap::new();
        let said = serde_json::json!({"held": 5, "refused": {"421": 2}});
        (0..3).for_each(|_| add(&mut all, &said));
        assert_eq!(nested(&all), serde_json::json!({"held": 15.0, "refused": {"421": 6.0}}));
    }

    #[test]
    fn a_burden_is_a_kind_and_a_number() {
        assert_eq!("idle-50000".parse::<Kind>().unwrap(), Kind::Idle(50_000));
        assert_eq!("sink-500".parse::<Kind>().unwrap().sink_rate(), Some(500.0));
        for text in ["idle", "idle-", "rain-5", "slow-x"] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
