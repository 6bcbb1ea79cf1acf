//! Exim as a subject: Debian's `exim4-daemon-light` in the foreground, its configuration where it looks for one.
//!
//! Must never name the configuration on the command line: Exim would then give up rights it needs.

use super::{Duty, Phase, Setup, Site, Subject, Versions, directory, files, write};
use crate::room;
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// See the module.
pub struct Exim;

impl Subject for Exim {
    fn name(&self) -> &str {
        "exim"
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        (setup.duty != Duty::Relay).then(|| "not yet".into())
    }

    fn recipient(&self, _: &Site) -> String {
        "user{n}@sink.test".into()
    }

    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("exim4-daemon-light")
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        directory(&site.work.join("exim-log"), Some(room::EXIM))?;
        directory(&site.queue.join("exim"), Some(room::EXIM))?;
        let path = site.work.join(room::EXIM_SETTINGS);
        Ok(vec![write(site, &path, include_str!("../../subjects/exim.conf"))?])
    }

    fn command(&self, _: &Site, phase: Phase) -> Option<Command> {
        let mut command = Command::new("/usr/sbin/exim4");
        // A queue run tries the messages one by one, so several run side by side, and `ff` tries even the frozen ones.
        command.arg("-bdf").arg(if phase == Phase::Drain { "-qff1s" } else { "-q30m" });
        Some(command)
    }

    fn flush(&self, _: &Site) -> Option<Command> {
        None
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        Ok(files(&site.queue.join("exim/input"), 0, &|name, _| name.ends_with("-H")))
    }
}
