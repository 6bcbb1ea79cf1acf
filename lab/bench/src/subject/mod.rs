//! The mailers under test, each behind the same few verbs: configure, start, flush, count what is queued.
//!
//! Must never favour one: each runs by its own guide, synced where it can sync, with no limit in the way.

mod boxes;
mod exim;
mod given;
mod limit;
mod opensmtpd;
mod postfix;
mod posthaste;
mod routes;
mod sendmail;
mod setup;
pub mod trial;
mod versions;

pub use boxes::Boxes;
pub use given::load;
pub use setup::{Duty, Logging, Setup};
pub use versions::Versions;

use crate::room;
use anyhow::{Context, Result};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Depth to which directories below a queue directory are searched.
const DEPTH_MAX: usize = 6;

/// The directories and ports of a mailer during a run.
pub struct Site {
    /// The directory of its queue.
    pub queue: PathBuf,
    /// The directory of its settings, on another file system.
    pub work: PathBuf,
    /// Its SMTP port on 127.0.0.1.
    pub port: u16,
    /// The port on 127.0.0.1 to which it delivers everything.
    pub next_hop: u16,
    /// Posthaste's program.
    pub posthaste: PathBuf,
    /// Mailboxes, on the disk of the queue: of `room::USER`, `mail/USER` as a file, or `mail/home/USER/Maildir`.
    pub mail: PathBuf,
    /// The directory of what the mailer logs.
    pub log: PathBuf,
    /// Its setup.
    pub setup: Setup,
}

/// The purpose for which a mailer is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// To accept mail, and to deliver it at once if it can.
    Serve,
    /// To deliver everything it has queued, also deferred mail.
    Drain,
}

/// One mailer.
pub trait Subject: Sync {
    /// Its name, as on the command line and in the report.
    fn name(&self) -> &str;
    /// Returns its version, from itself or its package.
    fn version(&self, site: &Site, peers: &Versions) -> Result<String>;
    /// Returns why it does not support this setup; `None` if it does.
    fn refuses(&self, setup: &Setup) -> Option<String>;
    /// Writes its configuration and makes what it needs to start. Done before each start. Returns the files that the
    /// record keeps.
    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>>;
    /// Returns the program that stays in the foreground while the mailer runs; `None` if the mailer runs already.
    fn command(&self, site: &Site, phase: Phase) -> Option<Command>;
    /// Returns the address at which it accepts mail.
    fn address(&self, site: &Site) -> String {
        format!("127.0.0.1:{}", site.port)
    }
    /// Returns the recipient of mail that the subject treats as the setup says; `{n}` and `{m}` are the source's.
    fn recipient(&self, site: &Site) -> String;
    /// Has it try everything now, also what it holds; `None` where `Phase::Drain` does that by itself, or
    /// where nothing can. To be started by `Running::inside`, as it may leave processes behind.
    fn flush(&self, site: &Site) -> Option<Command>;
    /// Returns the command to run as soon as it has sent its greeting.
    fn settle(&self, _: &Site, _: Phase) -> Option<Command> {
        None
    }
    /// Returns whether it needs Debian's packages.
    fn is_fetched(&self) -> bool {
        false
    }
    /// Returns whether it can be reached only over the machine's network.
    fn needs_machines_network(&self) -> bool {
        false
    }
    /// Returns the number of messages (or parts of messages) in its queue.
    fn queued(&self, site: &Site) -> Result<u64>;
    /// Returns the orders of a queue run that it supports, by its own names.
    fn orders(&self) -> &'static [&'static str] {
        &[]
    }
    /// Returns whether a client should close after QUIT without waiting for 221, because the mailer waits for the
    /// client.
    fn is_left_without_goodbye(&self) -> bool {
        false
    }
}

/// The built-in mailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mailer {
    /// Ours.
    Posthaste,
    /// Debian's `postfix`.
    Postfix,
    /// Debian's `exim4-daemon-light`.
    Exim,
    /// Debian's `opensmtpd`.
    Opensmtpd,
}

impl Mailer {
    /// Returns the subject.
    pub fn subject(self) -> &'static dyn Subject {
        match self {
            Mailer::Posthaste => &posthaste::Posthaste,
            Mailer::Postfix => &postfix::Postfix,
            Mailer::Exim => &exim::Exim,
            Mailer::Opensmtpd => &opensmtpd::Opensmtpd,
        }
    }
}

/// Returns the built-in mailers, and `limit`, which is none.
pub fn builtin() -> Vec<Box<dyn Subject>> {
    vec![
        Box::new(posthaste::Posthaste),
        Box::new(postfix::Postfix),
        Box::new(sendmail::Sendmail),
        Box::new(exim::Exim),
        Box::new(opensmtpd::Opensmtpd),
        Box::new(limit::Limit),
    ]
}

/// Writes a file and returns its path.
fn write(path: &Path, text: &str) -> Result<PathBuf> {
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(path.into())
}

/// Fills in a template's `{names}`: those of `more`, then those of the site.
fn fill_in(site: &Site, template: &str, more: &[(&str, &str)]) -> String {
    let put =
        |text: String, (name, value): &(&str, &str)| text.replace(&format!("{{{name}}}"), value);
    // The site's come last, as what is filled in may have them in it.
    fill(site, &more.iter().fold(template.to_string(), put))
}

/// Fills in the site's `{names}` in a text.
fn fill(site: &Site, text: &str) -> String {
    text.replace("{queue}", &site.queue.display().to_string())
        .replace("{work}", &site.work.display().to_string())
        .replace("{mail}", &site.mail.display().to_string())
        .replace("{log}", &site.log.display().to_string())
        .replace("{port}", &site.port.to_string())
        .replace("{next_hop}", &site.next_hop.to_string())
}

/// Returns the one recipient of local duties; for others, any recipient at the next hop.
fn usual_recipient(site: &Site) -> String {
    if site.setup.duty.is_local() {
        return format!("{}@lab.test", room::USER);
    }
    "user{n}@sink.test".into()
}

/// Makes the user's home and the directory of the mailboxes, as on Debian but writable for all, who need locks there.
fn make_mailboxes(site: &Site) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if !site.setup.duty.is_local() {
        return Ok(());
    }
    let home = site.mail.join(room::USER_HOME);
    directory(&site.mail.join("home"), None)?;
    directory(&home, Some(room::USER_ID))?;
    std::fs::set_permissions(&site.mail, std::fs::Permissions::from_mode(0o1777))?;
    if site.setup.duty == Duty::Maildir {
        for name in ["Maildir", "Maildir/cur", "Maildir/new", "Maildir/tmp"] {
            directory(&home.join(name), Some(room::USER_ID))?;
        }
    }
    Ok(())
}

/// Runs several processes of one program at once, and waits for all of them.
fn at_once(number: u32, program: &str, arguments: &[&str]) -> Command {
    let script =
        "number=$1; shift; while [ $number -gt 0 ]; do \"$@\" & number=$((number-1)); done; wait";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", &number.to_string(), program]).args(arguments);
    command
}

/// Makes a directory with this owner.
fn directory(path: &Path, owner: Option<u32>) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    std::os::unix::fs::chown(path, owner, owner).with_context(|| path.display().to_string())
}

/// Counts the files below `path` that match. Files that vanish during the count are left out.
fn files(path: &Path, depth: usize, pleases: &dyn Fn(&str, &Metadata) -> bool) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let mut count = 0;
    for entry in entries.flatten() {
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() && depth < DEPTH_MAX {
            count += files(&entry.path(), depth + 1, pleases);
        } else if about.is_file() {
            let pleases = |name: &str| pleases(name, &about);
            count += u64::from(entry.file_name().to_str().is_some_and(pleases));
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(duty: Duty, logging: Logging) -> Site {
        Site {
            queue: "/q".into(),
            work: "/w".into(),
            port: 2501,
            next_hop: 2502,
            posthaste: "posthaste".into(),
            mail: "/q/mail".into(),
            log: "/q/log".into(),
            setup: Setup { duty, logging, ..Setup::default() },
        }
    }

    #[test]
    fn each_configuration_has_all_its_names_filled_in() {
        for duty in [Duty::Hold, Duty::Relay, Duty::Mbox, Duty::Maildir] {
            for logging in [Logging::Full, Logging::None] {
                let site = site(duty, logging);
                for text in [
                    posthaste::text(&site),
                    postfix::text(&site),
                    exim::text(&site),
                    opensmtpd::text(&site),
                    sendmail::text(&site),
                ] {
                    let names = ["{queue}", "{log}", "{mail}", "{work}", "{local}", "{share}"];
                    assert!(names.iter().all(|name| !text.contains(name)), "{text}");
                    assert!(text.contains("2501") || text.contains("postfix"), "{text}");
                    let away = text.contains("2502") || text.contains("\"hold\"");
                    assert!(away && text.contains("lab.test"), "{text}");
                }
            }
        }
    }

    #[test]
    fn no_subject_takes_an_order_that_it_does_not_know() {
        for subject in builtin() {
            let with = |order: &str| Setup { order: order.into(), ..Setup::default() };
            assert!(subject.refuses(&with("by moon")).is_some(), "{}", subject.name());
            assert!(subject.refuses(&Setup::default()).is_none(), "{}", subject.name());
            for order in subject.orders() {
                assert!(subject.refuses(&with(order)).is_none(), "{}: {order}", subject.name());
            }
        }
    }

    #[test]
    fn files_are_counted_by_name_in_all_directories_below() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("a/b")).unwrap();
        for name in ["a/1-H", "a/1-D", "a/b/2-H", "3-H"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        assert_eq!(files(place.path(), 0, &|name, _| name.ends_with("-H")), 3);
        assert_eq!(files(&place.path().join("nowhere"), 0, &|_, _| true), 0);
    }
}
