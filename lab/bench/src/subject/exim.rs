//! Exim as a subject: Debian's `exim4-daemon-light` in the foreground, its configuration where it looks for one.
//!
//! Must never name the configuration on the command line: Exim would then give up rights it needs.

use super::versions::Versions;
use super::{
    Duty, Logging, Phase, Setup, Site, Subject, at_once, directory, files, fill_in, make_mailboxes,
    usual_recipient, write,
};
use crate::room;
use anyhow::Result;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// See the module.
pub struct Exim;

/// Directories of a split queue, one for each letter and digit.
const SPLIT: u32 = 62;
/// Queue runners by default.
const RUNNERS: u32 = 20;

fn runners(site: &Site) -> u32 {
    if site.setup.runners > 0 { site.setup.runners } else { RUNNERS }
}

/// Makes log files that are links to `/dev/null`: Exim cannot be told to log nothing.
fn make_silence(silence: &Path) -> Result<()> {
    directory(silence, Some(room::EXIM))?;
    for name in ["main", "reject", "panic"] {
        let link = silence.join(format!("{name}log"));
        if !link.is_symlink() {
            symlink("/dev/null", link)?;
        }
    }
    Ok(())
}

/// Its configuration.
pub(super) fn text(site: &Site) -> String {
    let setup = &site.setup;
    let mailbox = match setup.duty {
        Duty::Mbox => {
            // A dotlock or a lock that is taken would have it sleep for three seconds; so it waits for fcntl's.
            "file = {mail}/$local_part_data\n  group = mail\n  mode = 0660\n  \
             use_lockfile = false\n  lock_fcntl_timeout = 60s"
        }
        _ => "directory = {mail}/home/$local_part_data/Maildir\n  maildir_format",
    };
    let (log, selector) = match setup.logging {
        Logging::None => ("{work}/exim-silence/%slog", "-all"),
        Logging::Full | Logging::Slow => ("{log}/exim/%slog", ""),
    };
    let (share, runners) = (setup.recipients_per_transaction.to_string(), runners(site));
    let more = [
        ("queue_only", if setup.duty == Duty::Hold { "true" } else { "false" }),
        ("split", if setup.directories == 1 { "false" } else { "true" }),
        ("mailbox", mailbox),
        ("exim_log", log),
        ("selector", selector),
        ("share", &share),
        ("runners", &runners.to_string()),
    ];
    fill_in(site, include_str!("../../../subjects/exim.conf"), &more)
}

impl Subject for Exim {
    fn name(&self) -> &str {
        "exim"
    }

    fn is_fetched(&self) -> bool {
        true
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        if !matches!(setup.directories, 0 | 1 | SPLIT) {
            return Some(format!("its queue is either one directory or {SPLIT}"));
        }
        setup.beyond(&["directories", "runners"])
    }

    fn recipient(&self, site: &Site) -> String {
        usual_recipient(site)
    }

    /// It waits up to 200 ms for the client to close first.
    fn is_left_without_goodbye(&self) -> bool {
        true
    }

    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("exim4-daemon-light")
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        directory(&site.log.join("exim"), Some(room::EXIM))?;
        directory(&site.queue.join("exim"), Some(room::EXIM))?;
        make_silence(&site.work.join("exim-silence"))?;
        make_mailboxes(site)?;
        Ok(vec![write(&site.work.join(room::EXIM_SETTINGS), &text(site))?])
    }

    fn command(&self, site: &Site, phase: Phase) -> Option<Command> {
        let mut command = Command::new("/usr/sbin/exim4");
        command.arg("-bdf");
        // A queue run tries the messages one by one, so several run side by side, and `ff` tries even the frozen ones.
        match (phase, site.setup.duty) {
            (Phase::Drain, _) => drop(command.arg("-qff1s")),
            (Phase::Serve, Duty::Hold) => {}
            (Phase::Serve, _) => drop(command.arg("-q30m")),
        }
        Some(command)
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        if site.setup.duty != Duty::Hold {
            return None;
        }
        Some(at_once(runners(site), "/usr/sbin/exim4", &["-qff"]))
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        Ok(files(&site.queue.join("exim/input"), 0, &|name, _| name.ends_with("-H")))
    }
}
