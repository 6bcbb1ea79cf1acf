//! Sendmail as a subject: Debian's package, its configuration made by m4 from the `.mc` file beside the others.
//!
//! Must never start before its configuration was made anew: it may be set up otherwise than the last time.

use super::versions::Versions;
use super::{
    Duty, Logging, Phase, Setup, Site, Subject, at_once, directory, files, fill_in, make_mailboxes,
    usual_recipient, write,
};
use crate::room;
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// See the module.
pub struct Sendmail;

const PROGRAM: &str = "/usr/libexec/sendmail/sendmail";
/// The m4 macros that make a `sendmail.cf` of a `.mc` file.
const MACROS: &str = "/usr/share/sendmail/cf/";
/// The values of `QueueSortOrder`; the first is its default.
const ORDERS: [&str; 7] =
    ["priority", "filename", "host", "modification", "random", "time", "none"];
/// Queue runners by default.
const RUNNERS: u32 = 20;
/// Upper bound on queue directories, each of which is searched.
const DIRECTORIES_MAX: u32 = 1_000;
/// An mbox by mail.local: procmail would have the deliveries wait for its lock until they are put off.
const MBOX: &str = "FEATURE(`local_lmtp', `/usr/libexec/sendmail/mail.local')dnl";
/// mail.local knows no Maildir; procmail does, and its room-wide file says where.
const MAILDIR: &str =
    "define(`PROCMAIL_MAILER_PATH',`/usr/bin/procmail')dnl\nFEATURE(`local_procmail')dnl";

fn settings(site: &Site) -> PathBuf {
    site.work.join("sendmail/sendmail.cf")
}

/// One queue run takes the messages one by one, so several run side by side.
fn runners(site: &Site) -> u32 {
    if site.setup.runners > 0 { site.setup.runners } else { RUNNERS }
}

/// Returns the paths of the queue directories.
fn directories(site: &Site) -> Vec<(PathBuf, PathBuf)> {
    let names = (0..site.setup.directories.max(1)).map(|number| (number, format!("q{number}")));
    let place = |(number, name): (u32, String)| {
        let named = site.queue.join("sendmail").join(&name);
        match site.setup.disks {
            0 => (named.clone(), named),
            disks => (named, site.queue.join(format!("disk{}", number % disks)).join(name)),
        }
    };
    names.map(place).collect()
}

fn make_queue(site: &Site) -> Result<()> {
    directory(&site.queue.join("sendmail"), Some(room::SENDMAIL))?;
    for (named, real) in directories(site) {
        directory(&real, Some(room::SENDMAIL))?;
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o700))?;
        if named != real && !named.exists() {
            symlink(&real, &named).with_context(|| named.display().to_string())?;
        }
    }
    Ok(())
}

/// Runs m4 over the `.mc` file.
fn make_settings(mc: &Path, cf: &Path) -> Result<()> {
    let macros = Path::new(MACROS).join("m4/cf.m4");
    let mut m4 = Command::new("/usr/bin/m4");
    let output = m4.arg(format!("-D_CF_DIR_={MACROS}")).arg(macros).arg(mc).output();
    let output = output.context("/usr/bin/m4")?;
    let error = String::from_utf8_lossy(&output.stderr);
    // It warns of an open relay, which this is.
    ensure!(output.status.success() && !output.stdout.is_empty(), "m4: {}", error.trim());
    let text = without_date(&String::from_utf8_lossy(&output.stdout));
    std::fs::write(cf, text).with_context(|| cf.display().to_string())
}

/// Removes the comments with date and place, so that equal settings are equal files.
fn without_date(cf: &str) -> String {
    let dated = |line: &&str| !line.starts_with("##### built by") && !line.starts_with("##### in ");
    cf.lines().filter(dated).map(|line| format!("{line}\n")).collect()
}

/// Its configuration.
pub(super) fn text(site: &Site) -> String {
    let setup = &site.setup;
    let share = setup.recipients_per_transaction.to_string();
    let runners = runners(site).to_string();
    let more = [
        ("mode", if setup.duty == Duty::Hold { "queueonly" } else { "background" }),
        ("log_level", if setup.logging == Logging::None { "0" } else { "9" }),
        ("local", if setup.duty == Duty::Maildir { MAILDIR } else { MBOX }),
        ("order", if setup.order.is_empty() { ORDERS[0] } else { &setup.order }),
        ("share", &share),
        ("runners", &runners),
    ];
    fill_in(site, include_str!("../../../subjects/sendmail.mc"), &more)
}

impl Subject for Sendmail {
    fn name(&self) -> &str {
        "sendmail"
    }

    fn is_fetched(&self) -> bool {
        true
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        let order = setup.order.as_str();
        if !order.is_empty() && !self.orders().contains(&order) {
            return Some(format!("it has no order {order}"));
        }
        if setup.directories > DIRECTORIES_MAX {
            return Some(format!("more than {DIRECTORIES_MAX} queue directories"));
        }
        setup.beyond(&["directories", "disks", "order", "runners"])
    }

    fn orders(&self) -> &'static [&'static str] {
        &ORDERS
    }

    fn recipient(&self, site: &Site) -> String {
        usual_recipient(site)
    }

    fn version(&self, _: &Site, peers: &Versions) -> Result<String> {
        peers.of("sendmail-bin")
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        let work = site.work.join("sendmail");
        directory(&work, None)?;
        make_queue(site)?;
        make_mailboxes(site)?;
        std::fs::write(work.join("service.switch"), "hosts files\npasswd files\naliases files\n")?;
        let mc = write(&work.join("sendmail.mc"), &text(site))?;
        make_settings(&mc, &settings(site))?;
        Ok(vec![mc, settings(site)])
    }

    fn command(&self, site: &Site, phase: Phase) -> Option<Command> {
        let mut command = Command::new(PROGRAM);
        command.arg("-bD").arg("-C").arg(settings(site));
        match (phase, site.setup.duty) {
            (Phase::Drain, _) => drop(command.arg("-q1s")),
            (Phase::Serve, Duty::Hold) => {}
            (Phase::Serve, _) => drop(command.arg("-q30m")),
        }
        Some(command)
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        let settings = settings(site).display().to_string();
        Some(at_once(runners(site), PROGRAM, &["-C", &settings, "-q"]))
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        let messages =
            |(_, real): &(PathBuf, PathBuf)| files(real, 0, &|name, _| name.starts_with("qf"));
        Ok(directories(site).iter().map(messages).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_settings_are_the_same_file_whenever_they_are_made() {
        let made =
            |when: &str| format!("#####\n##### built by root@x on {when}\n##### in /here\nO A=b\n");
        assert_eq!(without_date(&made("Mon")), without_date(&made("Tue")));
        assert_eq!(without_date(&made("Mon")), "#####\nO A=b\n");
    }
}
