//! What is too much: clients, mail for a slow sink, a disk that fills, connections that say nothing.
//!
//! Must never outlive its end: what it started is killed, what it took of the disk is given back.

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

/// Clients of a sink that is too slow.
const SINK_SESSIONS: u32 = 50;
/// Messages over one of their connections.
const SINK_PER_CONNECTION: &str = "100";
/// Clients that are not answered give up after so many seconds.
const REPLY_SECONDS_MAX: &str = "20";
/// Connections that one process may hold: descriptors may be bounded.
const ONE_HOLDS_MAX: u32 = 15_000;
/// While the disk is filled the sink takes so many messages a second, and so many come, of so many bytes.
const DISK_SINK_RATE: f64 = 20.0;
const DISK_RATE: &str = "1000";
const DISK_MESSAGE_BYTES: &str = "65536";
/// What takes the disk's room.
const BALLOON: &str = "balloon";

/// Which burden, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many clients who send as fast as they are answered.
    Senders(u32),
    /// The sink takes so many messages a second, and clients send as fast as they are answered.
    Sink(u32),
    /// All but so many MiB of the disk are taken, and mail comes that fills what is left.
    Disk(u32),
    /// So many connections that say nothing.
    Idle(u32),
    /// So many messages of which a byte comes every second.
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
    /// Messages a second that the sink takes while the burden is on.
    pub fn sink_rate(self) -> Option<f64> {
        match self {
            Kind::Sink(rate) => Some(f64::from(rate)),
            Kind::Disk(_) => Some(DISK_SINK_RATE),
            _ => None,
        }
    }
}

/// A burden under way.
pub enum Burden {
    /// A source, which ends by itself.
    Source(Child),
    /// Those who hold connections, and what they said of them.
    Held(Vec<Child>, Value),
    /// A file that is in the way, and a source.
    Balloon(PathBuf, Child),
}

impl Burden {
    /// Begins it; a source sends for so many `seconds`. Its promises go to `list`, the disk to fill is that of `queue`.
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

    /// Ends it; what its clients counted.
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

/// Of all that a source says, what the table needs.
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

/// What a source says at its end.
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

/// Returns when each connection has been tried. As many processes as it takes, each from addresses of its own.
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

/// Adds counts up; those of replies are one level below.
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

/// Leaves so many bytes of the disk.
fn balloon(queue: &Path, left: u64) -> Result<PathBuf> {
    let path = queue.join(BALLOON);
    let about = statvfs(queue)?;
    let free = about.f_bavail * about.f_frsize;
    ensure!(free > left, "{free} bytes are free, {left} are to be left");
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
