//! Fills a mailer's queue with marked messages that it does not deliver.
//!
//! Must never be used as a measurement: it only makes the content of an archive.

use super::Plan;
use super::variant::Variant;
use crate::running::Running;
use crate::subject::{Phase, Site, Subject};
use anyhow::{Context, Result, ensure};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Sessions if all messages go to one host.
const SESSIONS: u32 = 10;
/// Sources that send at the same time if there are several hosts, so that their messages mix.
const SOURCES_MAX: u32 = 50;
/// Time within which the mailer must count all accepted messages.
const COUNT_TIME_MAX: Duration = Duration::from_secs(60);
/// The first of the runs' names.
const FIRST_RUN: u64 = 0x0d0e_2006_0000_0000;

/// Starts the mailer, fills its queue, kills it: what it has promised is on the disk.
pub fn fill(site: &Site, subject: &Variant, plan: &Plan) -> Result<()> {
    let mut running = Running::start(subject, site, Phase::Serve, None)?;
    running.await_greeting()?;
    let hosts: Vec<u32> = (0..plan.hosts.max(1)).collect();
    for some in hosts.chunks(SOURCES_MAX as usize) {
        let sources: Result<Vec<Child>> =
            some.iter().map(|host| source(site, subject, plan, *host)).collect();
        for source in sources? {
            let output = source.wait_with_output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            ensure!(output.status.success(), "the source: {}", said.trim());
        }
    }
    let end = Instant::now() + COUNT_TIME_MAX;
    while subject.queued(site)? != plan.messages {
        ensure!(Instant::now() < end, "{} messages are queued", subject.queued(site)?);
        std::thread::sleep(Duration::from_millis(100));
    }
    running.kill()
}

fn source(site: &Site, subject: &Variant, plan: &Plan, host: u32) -> Result<Child> {
    let sessions = if plan.hosts > 1 { 1 } else { SESSIONS };
    let mut command = Command::new(&plan.lab);
    command.arg("source").arg(subject.address(site));
    command.args(["--to", &subject.recipient_at(site, host)]);
    command.args(["--sessions", &sessions.to_string(), "--per-connection", "0"]);
    command.args(["--messages", &share(plan, host).to_string()]);
    command.args(["--size", &plan.size_bytes.to_string()]);
    command.args(["--run", &format!("{:016x}", FIRST_RUN + u64::from(host))]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().context("the source cannot be started")
}

/// Returns the number of messages to one host.
fn share(plan: &Plan, host: u32) -> u64 {
    let hosts = u64::from(plan.hosts.max(1));
    plan.messages / hosts + u64::from(u64::from(host) < plan.messages % hosts)
}
