//! Exim as a subject: Debian's `exim4-daemon-light` in the foreground, its configuration where it looks for one.
//!
//! Must never name the configuration on the command line: Exim would then give up rights it needs.

use super::{Phase, Site, Subject, Versions, directory, files, write};
use crate::room;
use anyhow::Result;
use std::process::Command;

/// See the module.
pub struct Exim;

impl Subject for Exim {
    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("exim4-daemon-light")
    }

    fn configure(&self, site: &Site) -> Result<()> {
        directory(&site.work.join("exim-log"), Some(room::EXIM))?;
        directory(&site.queue.join("exim"), Some(room::EXIM))?;
        write(site, &site.work.join(room::EXIM_SETTINGS), include_str!("../../subjects/exim.conf"))
    }

    fn command(&self, _: &Site, phase: Phase) -> Command {
        let mut command = Command::new("/usr/sbin/exim4");
        // A queue run tries the messages one by one, so several run side by side, and `ff` tries even the frozen ones.
        command.arg("-bdf").arg(if phase == Phase::Drain { "-qff1s" } else { "-q30m" });
        command
    }

    fn flush(&self, _: &Site) -> Option<Command> {
        None
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        Ok(files(&site.queue.join("exim/input"), 0, &|name, _| name.ends_with("-H")))
    }
}
