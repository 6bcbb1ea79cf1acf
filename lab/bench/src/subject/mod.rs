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

/// Directories below a queue directory are walked to this depth.
const DEPTH_MAX: usize = 6;

/// Where a mailer lives while it is looked at.
pub struct Site {
    /// All that it has to keep lies below.
    pub queue: PathBuf,
    /// Its configuration and logs, on another file system.
    pub work: PathBuf,
    /// Its SMTP port on 127.0.0.1.
    pub port: u16,
    /// The port on 127.0.0.1 to which it sends everything.
    pub next_hop: u16,
    /// Posthaste's program.
    pub posthaste: PathBuf,
    /// Mailboxes, on the disk of the queue: of `room::USER`, `mail/USER` as a file, or `mail/home/USER/Maildir`.
    pub mail: PathBuf,
    /// The directory of what the mailer logs.
    pub log: PathBuf,
    /// What it is to do.
    pub setup: Setup,
}

/// What a mailer is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// To take mail, and to send it on at once if it can.
    Serve,
    /// To get rid of all that it has, also of what it meant to try later.
    Drain,
}

/// One mailer.
pub trait Subject: Sync {
    /// Its name, as on the command line and in the report.
    fn name(&self) -> &str;
    /// Its version, as it or its package says.
    fn version(&self, site: &Site, peers: &Versions) -> Result<String>;
    /// Why it cannot be set up so; `None` if it can.
    fn refuses(&self, setup: &Setup) -> Option<String>;
    /// Writes its configuration and makes what it needs to start. Done before each start. Returns the files that the
    /// record keeps.
    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>>;
    /// The program that stays in the foreground while the mailer runs; `None` where one runs already.
    fn command(&self, site: &Site, phase: Phase) -> Option<Command>;
    /// Where it takes mail.
    fn address(&self, site: &Site) -> String {
        format!("127.0.0.1:{}", site.port)
    }
    /// Returns the recipient of mail that the subject treats as the setup says; `{n}` and `{m}` are the source's.
    fn recipient(&self, site: &Site) -> String;
    /// Has it try everything now, also what it holds; `None` where `Phase::Drain` does that by itself, or
    /// where nothing can. To be started by `Running::inside`, as it may leave processes behind.
    fn flush(&self, site: &Site) -> Option<Command>;
    /// What there is to do as soon as it greets.
    fn settle(&self, _: &Site, _: Phase) -> Option<Command> {
        None
    }
    /// Whether it needs Debian's packages.
    fn is_fetched(&self) -> bool {
        false
    }
    /// Whether it is only to be reached where the room keeps the machine's network.
    fn needs_machines_network(&self) -> bool {
        false
    }
    /// Messages (or parts of messages) in its queue.
    fn queued(&self, site: &Site) -> Result<u64>;
    /// The orders of a queue run that it knows, in its own words.
    fn orders(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether a client shall close after QUIT without waiting for 221, because this one waits for the client.
    fn is_left_without_goodbye(&self) -> bool {
        false
    }
}

/// Which mailer.
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
    /// The verbs.
    pub fn subject(self) -> &'static dyn Subject {
        match self {
            Mailer::Posthaste => &posthaste::Posthaste,
            Mailer::Postfix => &postfix::Postfix,
            Mailer::Exim => &exim::Exim,
            Mailer::Opensmtpd => &opensmtpd::Opensmtpd,
        }
    }
}

/// The mailers that come along, and `limit`, which is none.
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

/// Writes a file and says where.
fn write(path: &Path, text: &str) -> Result<PathBuf> {
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(path.into())
}

/// A template with its `{names}` filled in: those of `more`, then those of the site.
fn fill_in(site: &Site, template: &str, more: &[(&str, &str)]) -> String {
    let put =
        |text: String, (name, value): &(&str, &str)| text.replace(&format!("{{{name}}}"), value);
    // The site's come last, as what is filled in may have them in it.
    fill(site, &more.iter().fold(template.to_string(), put))
}

/// A text with the site's `{names}` filled in.
fn fill(site: &Site, text: &str) -> String {
    text.replace("{queue}", &site.queue.display().to_string())
        .replace("{work}", &site.work.display().to_string())
        .replace("{mail}", &site.mail.display().to_string())
        .replace("{log}", &site.log.display().to_string())
        .replace("{port}", &site.port.to_string())
        .replace("{next_hop}", &site.next_hop.to_string())
}

/// The one recipient for local duties, anybody at the next hop for the others.
fn usual_recipient(site: &Site) -> String {
    if site.setup.duty.is_local() {
        return format!("{}@lab.test", room::USER);
    }
    "user{n}@sink.test".into()
}

/// Makes the directory of the mailboxes as Debian has it, but that everybody may lock in it, and the user's home.
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

/// Makes a directory of this owner.
fn directory(path: &Path, owner: Option<u32>) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    std::os::unix::fs::chown(path, owner, owner).with_context(|| path.display().to_string())
}

/// Files below `path` that please; what vanishes meanwhile does not count.
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
