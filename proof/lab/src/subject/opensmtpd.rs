//! OpenSMTPD as a subject: Debian's package in the foreground.
//!
//! Must never expect it to sync: it has no such setting. Its spool's path is compiled in; the room links it here.

use super::{Duty, Phase, Setup, Site, Subject, Versions, directory, files, write};
use crate::room;
use anyhow::Result;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// See the module.
pub struct Opensmtpd;

fn settings(site: &Site) -> PathBuf {
    site.work.join("smtpd.conf")
}

impl Subject for Opensmtpd {
    fn name(&self) -> &str {
        "opensmtpd"
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        (setup.duty != Duty::Relay).then(|| "not yet".into())
    }

    fn recipient(&self, _: &Site) -> String {
        "user{n}@sink.test".into()
    }

    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("opensmtpd")
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        let spool = site.queue.join(room::OPENSMTPD_SPOOL);
        directory(&spool, None)?;
        std::fs::set_permissions(&spool, std::fs::Permissions::from_mode(0o711))?;
        Ok(vec![write(site, &settings(site), include_str!("../../subjects/smtpd.conf"))?])
    }

    fn command(&self, site: &Site, _: Phase) -> Option<Command> {
        let mut command = Command::new("/usr/sbin/smtpd");
        command.arg("-d").arg("-f").arg(settings(site));
        Some(command)
    }

    fn flush(&self, _: &Site) -> Option<Command> {
        let mut command = Command::new("/usr/sbin/smtpctl");
        command.args(["schedule", "all"]);
        Some(command)
    }

    /// Counts messages that have a body: a cut may leave envelopes of which there is nothing else.
    fn queued(&self, site: &Site) -> Result<u64> {
        let queue = site.queue.join(room::OPENSMTPD_SPOOL).join("queue");
        let body = |name: &str, about: &std::fs::Metadata| name == "message" && about.len() > 0;
        Ok(files(&queue, 0, &body))
    }
}
