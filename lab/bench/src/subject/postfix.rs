//! Postfix as a subject: Debian's package, started by its own `postfix start-fg`, which checks the queue first.
//!
//! Must never touch the queue of a Postfix of this machine: it is told its own directories.

use super::routes;
use super::versions::Versions;
use super::{
    Duty, Logging, Phase, Setup, Site, Subject, directory, files, fill_in, make_mailboxes,
    usual_recipient, write,
};
use crate::room;
use anyhow::Result;
use std::fs::{Metadata, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// See the module.
pub struct Postfix;

/// The queue directories that may hold a message.
const QUEUES: [&str; 5] = ["maildrop", "incoming", "active", "deferred", "hold"];
/// Queue directories that only Postfix's user may read.
const PRIVATE: [&str; 11] = [
    "active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "private",
    "saved", "trace",
];
/// Concurrent deliveries to one mailbox: the default for a file, which is locked, and more for a Maildir.
const MBOX_DELIVERIES: u32 = 2;
const MAILDIR_DELIVERIES: u32 = 20;
/// The age that `main.cf` is given.
const WRITTEN_AGO: Duration = Duration::from_secs(60);
/// Concurrent connections to the next hop.
const CONNECTIONS: u32 = 100;

fn settings(site: &Site) -> PathBuf {
    site.work.join("postfix")
}

fn postfix(site: &Site, verb: &str) -> Command {
    let mut command = Command::new("/usr/sbin/postfix");
    command.arg("-c").arg(settings(site)).arg(verb);
    command
}

/// Creates the queue as `postfix check` would.
fn make_queue(queue: &Path) -> Result<()> {
    directory(queue, None)?;
    directory(&queue.join("pid"), None)?;
    for name in PRIVATE {
        make_directory(&queue.join(name), room::POSTFIX, 0o700)?;
    }
    make_directory(&queue.join("public"), room::POSTDROP, 0o710)?;
    make_directory(&queue.join("maildrop"), room::POSTDROP, 0o730)
}

fn make_directory(path: &Path, group: u32, mode: u32) -> Result<()> {
    std::fs::create_dir_all(path)?;
    chown(path, Some(room::POSTFIX), Some(group))?;
    Ok(std::fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Its `main.cf`.
pub(super) fn text(site: &Site) -> String {
    let setup = &site.setup;
    let recipients = match setup.duty {
        Duty::Hold => "check_recipient_access static:HOLD, permit",
        _ => "permit_mynetworks, reject",
    };
    let mailbox = match setup.duty {
        Duty::Mbox => "mail_spool_directory = {mail}",
        _ => "home_mailbox = Maildir/",
    };
    let deliveries =
        if setup.duty == Duty::Mbox { MBOX_DELIVERIES } else { MAILDIR_DELIVERIES }.to_string();
    let (log, log_prefix) = match setup.logging {
        Logging::None => ("/dev/null", "/dev"),
        Logging::Full | Logging::Slow => ("{log}/postfix.log", "{log}"),
    };
    let share = setup.recipients_per_transaction.to_string();
    let connections = if setup.runners > 0 { setup.runners } else { CONNECTIONS }.to_string();
    let transport = if setup.routes.is_empty() {
        ""
    } else {
        "\ntransport_maps = texthash:{work}/postfix/transport"
    };
    let more = [
        ("transport", transport),
        ("recipients", recipients),
        ("mailbox", mailbox),
        ("deliveries", &deliveries),
        ("maillog", log),
        ("maillog_prefix", log_prefix),
        ("share", &share),
        ("connections", &connections),
    ];
    fill_in(site, include_str!("../../../subjects/postfix.main.cf"), &more)
}

/// Writes the next hops of single domains as a transport table.
fn transport(setup: &Setup) -> Result<String> {
    let line = |route: routes::Route| {
        format!("{} smtp:[{}]:{}\n", route.domain, route.to.ip(), route.to.port())
    };
    Ok(routes::expand(&setup.routes)?.into_iter().map(line).collect())
}

impl Subject for Postfix {
    fn name(&self) -> &str {
        "postfix"
    }

    fn is_fetched(&self) -> bool {
        true
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        setup.beyond(&["runners", "routes"])
    }

    fn recipient(&self, site: &Site) -> String {
        usual_recipient(site)
    }

    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("postfix")
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        directory(&settings(site), None)?;
        directory(&site.work.join("postfix-data"), Some(room::POSTFIX))?;
        make_queue(&site.queue.join("postfix"))?;
        make_mailboxes(site)?;
        let main = write(&settings(site).join("main.cf"), &text(site))?;
        write(&settings(site).join("transport"), &transport(&site.setup)?)?;
        let master = fill_in(site, include_str!("../../../subjects/postfix.master.cf"), &[]);
        let master = write(&settings(site).join("master.cf"), &master)?;
        // While `main.cf` is younger than some seconds, Postfix waits for whoever may still be writing it.
        let long_ago = SystemTime::now() - WRITTEN_AGO;
        std::fs::File::options().write(true).open(&main)?.set_modified(long_ago)?;
        Ok(vec![main, master])
    }

    /// Skips the checks of the queue, which take more than a second and which a new queue does not need.
    fn command(&self, site: &Site, phase: Phase) -> Option<Command> {
        let script = match phase {
            Phase::Serve => "touch \"$2/quick-start\" && exec /usr/sbin/postfix -c \"$1\" start-fg",
            Phase::Drain => "rm -f \"$2/quick-start\"; exec /usr/sbin/postfix -c \"$1\" start-fg",
        };
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(settings(site)).arg(site.queue.join("postfix"));
        Some(command)
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        if site.setup.duty != Duty::Hold {
            return Some(postfix(site, "flush"));
        }
        // What was held counts as put off until the queue is flushed.
        let script = "/usr/sbin/postsuper -c \"$1\" -H ALL && /usr/sbin/postfix -c \"$1\" flush";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(settings(site));
        Some(command)
    }

    /// Counts complete messages: a file that is still being received is not executable.
    fn queued(&self, site: &Site) -> Result<u64> {
        let place = site.queue.join("postfix");
        let whole = |_: &str, about: &Metadata| about.permissions().mode() & 0o100 != 0;
        Ok(QUEUES.iter().map(|name| files(&place.join(name), 0, &whole)).sum())
    }
}
