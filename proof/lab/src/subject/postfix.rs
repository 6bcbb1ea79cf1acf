//! Postfix as a subject: Debian's package, started by its own `postfix start-fg`, which checks the queue first.
//!
//! Must never touch the queue of a Postfix of this machine: it is told its own directories.

use super::{Duty, Phase, Setup, Site, Subject, Versions, directory, files, write};
use crate::room;
use anyhow::Result;
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// See the module.
pub struct Postfix;

/// Where a message can be.
const QUEUES: [&str; 4] = ["maildrop", "incoming", "active", "deferred"];

fn settings(site: &Site) -> PathBuf {
    site.work.join("postfix")
}

fn postfix(site: &Site, verb: &str) -> Command {
    let mut command = Command::new("/usr/sbin/postfix");
    command.arg("-c").arg(settings(site)).arg(verb);
    command
}

impl Subject for Postfix {
    fn name(&self) -> &str {
        "postfix"
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        (setup.duty != Duty::Relay).then(|| "not yet".into())
    }

    fn recipient(&self, _: &Site) -> String {
        "user{n}@sink.test".into()
    }

    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("postfix")
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        directory(&settings(site), None)?;
        directory(&site.work.join("postfix-data"), Some(room::POSTFIX))?;
        directory(&site.queue.join("postfix"), None)?;
        let main = settings(site).join("main.cf");
        let main = write(site, &main, include_str!("../../subjects/postfix.main.cf"))?;
        let master = settings(site).join("master.cf");
        Ok(vec![main, write(site, &master, include_str!("../../subjects/postfix.master.cf"))?])
    }

    fn command(&self, site: &Site, _: Phase) -> Option<Command> {
        Some(postfix(site, "start-fg"))
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        Some(postfix(site, "flush"))
    }

    /// A file without the right to be executed is one that was still being received.
    fn queued(&self, site: &Site) -> Result<u64> {
        let place = site.queue.join("postfix");
        let whole = |_: &str, about: &Metadata| about.permissions().mode() & 0o100 != 0;
        Ok(QUEUES.iter().map(|name| files(&place.join(name), 0, &whole)).sum())
    }
}
