//! OpenSMTPD as a subject: Debian's package in the foreground.
//!
//! Must never expect it to sync: it has no such setting. Its spool's path is compiled in; the room links it here.

use super::versions::Versions;
use super::{
    Duty, Logging, Phase, Setup, Site, Subject, directory, files, fill_in, make_mailboxes,
    usual_recipient, write,
};
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

/// Concurrent connections to the next hop.
const CONNECTIONS: u32 = 100;

fn control(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Its configuration.
pub(super) fn text(site: &Site) -> String {
    let local = match site.setup.duty {
        Duty::Mbox => "mbox",
        _ => "maildir \"{mail}/home/%{user.username}/Maildir\"",
    };
    let runners = site.setup.runners;
    let connections = if runners > 0 { runners } else { CONNECTIONS }.to_string();
    let more = [("local", local), ("connections", &connections)];
    fill_in(site, include_str!("../../../subjects/smtpd.conf"), &more)
}

impl Subject for Opensmtpd {
    fn name(&self) -> &str {
        "opensmtpd"
    }

    fn is_fetched(&self) -> bool {
        true
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        if setup.recipients_per_transaction != Setup::default().recipients_per_transaction {
            return Some("it has no setting for the recipients of one transaction".into());
        }
        setup.beyond(&["runners"])
    }

    fn recipient(&self, site: &Site) -> String {
        usual_recipient(site)
    }

    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("opensmtpd")
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        let spool = site.queue.join(room::OPENSMTPD_SPOOL);
        directory(&spool, None)?;
        std::fs::set_permissions(&spool, std::fs::Permissions::from_mode(0o711))?;
        make_mailboxes(site)?;
        Ok(vec![write(&settings(site), &text(site))?])
    }

    /// It logs to syslog. For a run without a log it logs to its standard error, which is discarded.
    fn command(&self, site: &Site, _: Phase) -> Option<Command> {
        let script = match site.setup.logging {
            Logging::None => "exec /usr/sbin/smtpd -d -f \"$1\" 2>/dev/null",
            Logging::Full | Logging::Slow => "exec /usr/sbin/smtpd -F -f \"$1\"",
        };
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(settings(site));
        Some(command)
    }

    /// It has no hold. With its sending side paused it accepts and queues mail and delivers nothing.
    fn settle(&self, site: &Site, phase: Phase) -> Option<Command> {
        let holds = site.setup.duty == Duty::Hold && phase == Phase::Serve;
        holds.then(|| control("/usr/sbin/smtpctl pause mta"))
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        let resume = "/usr/sbin/smtpctl resume mta && /usr/sbin/smtpctl schedule all";
        let holds = site.setup.duty == Duty::Hold;
        Some(control(if holds { resume } else { "/usr/sbin/smtpctl schedule all" }))
    }

    /// Counts messages that have a body: a power cut may leave envelopes without one.
    fn queued(&self, site: &Site) -> Result<u64> {
        let queue = site.queue.join(room::OPENSMTPD_SPOOL).join("queue");
        let body = |name: &str, about: &std::fs::Metadata| name == "message" && about.len() > 0;
        Ok(files(&queue, 0, &body))
    }
}
