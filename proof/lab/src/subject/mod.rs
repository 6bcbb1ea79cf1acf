//! The mailers under test, each behind the same few verbs: configure, start, flush, count what is queued.
//!
//! Must never favour one: each runs by its own guide, synced where it can sync, with no limit in the way.

mod exim;
mod opensmtpd;
mod postfix;
mod posthaste;
mod setup;

pub use setup::{Duty, Logging, Setup};

use anyhow::{Context, Result};
use std::collections::BTreeMap;
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
    /// Mailboxes, on the disk of the queue: of `room::USER`, `mail/USER` as a file or `mail/USER/` as a Maildir.
    pub mail: PathBuf,
    /// What the mailer logs.
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
    /// To whom mail goes that is to be treated as the setup says; `{n}` and `{m}` as the source has them.
    fn recipient(&self, site: &Site) -> String;
    /// Has it try everything now; `None` where `Phase::Drain` does that by itself.
    fn flush(&self, site: &Site) -> Option<Command>;
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

/// The versions of the unpacked packages.
#[derive(Default)]
pub struct Versions(BTreeMap<String, String>);

impl Versions {
    /// Reads lines of `PACKAGE VERSION`.
    pub fn read(path: &Path) -> Result<Versions> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let words = text.lines().filter_map(|line| line.split_once(' '));
        Ok(Versions(words.map(|(name, version)| (name.into(), version.into())).collect()))
    }

    /// Of one package.
    pub fn of(&self, package: &str) -> Result<String> {
        self.0.get(package).cloned().with_context(|| format!("{package} was not unpacked"))
    }
}

/// Writes a template with its `{names}` filled in, and says where.
fn write(site: &Site, path: &Path, template: &str) -> Result<PathBuf> {
    let text = template
        .replace("{queue}", &site.queue.display().to_string())
        .replace("{work}", &site.work.display().to_string())
        .replace("{port}", &site.port.to_string())
        .replace("{next_hop}", &site.next_hop.to_string());
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(path.into())
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

    #[test]
    fn each_configuration_has_all_its_names_filled_in() {
        let place = tempfile::tempdir().unwrap();
        let site = Site {
            queue: "/q".into(),
            work: place.path().into(),
            port: 2501,
            next_hop: 2502,
            posthaste: "posthaste".into(),
            mail: "/q/mail".into(),
            log: "/q/log".into(),
            setup: Setup::default(),
        };
        for template in [
            include_str!("../../subjects/posthaste.toml"),
            include_str!("../../subjects/postfix.main.cf"),
            include_str!("../../subjects/exim.conf"),
            include_str!("../../subjects/smtpd.conf"),
        ] {
            let path = place.path().join("configuration");
            write(&site, &path, template).unwrap();
            let text = std::fs::read_to_string(path).unwrap();
            assert!(!text.contains('{') && text.contains("2502"), "{text}");
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
