//! A filled queue in an archive, restored before each run, so that all runs find the same queue.
//!
//! Must never be taken where the mailer, its settings or the load have changed since: the note beside it says for what
//! it was made.

use super::variant::Variant;
use super::{Plan, fill};
use crate::room;
use crate::subject::{Site, Subject};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// What an archive was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    subject: String,
    version: String,
    messages: u64,
    hosts: u32,
    size_bytes: u64,
    /// SHA-256 over the settings, without the paths and ports of one run.
    settings: String,
    lab: String,
}

/// See the module.
pub struct Archive {
    tar: PathBuf,
}

impl Archive {
    /// Takes the existing archive, or fills a queue and makes one.
    pub fn of(site: &Site, subject: &Variant, plan: &Plan) -> Result<Archive> {
        std::fs::create_dir_all(&plan.archives)?;
        let name = format!("{}-{}-{}", subject.name(), plan.messages, plan.hosts.max(1));
        let [tar, note] = ["tar", "json"].map(|end| plan.archives.join(format!("{name}.{end}")));
        let wanted = wanted(site, subject, plan)?;
        let kept = std::fs::read(&note).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if kept.as_ref() != Some(&wanted) || !tar.exists() {
            let _ = std::fs::remove_file(&note); // until the new one is whole
            empty(&site.queue)?;
            fill::fill(site, subject, plan).context("filling a queue for the archive")?;
            pack(&site.queue, &tar)?;
            std::fs::write(&note, serde_json::to_string(&wanted)?)?;
        }
        Ok(Archive { tar })
    }

    /// Restores the queue and waits until it is on the disk.
    pub fn restore(&self, queue: &Path) -> Result<()> {
        empty(queue)?;
        unpack(&self.tar, queue)?;
        rustix::fs::sync();
        Ok(())
    }
}

fn wanted(site: &Site, subject: &Variant, plan: &Plan) -> Result<Note> {
    let mut hasher = Sha256::new();
    for path in subject.configure(site)? {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        hasher.update(lasting(&text, site));
    }
    Ok(Note {
        subject: subject.name().into(),
        version: plan.version.clone(),
        messages: plan.messages,
        hosts: plan.hosts.max(1),
        size_bytes: plan.size_bytes,
        settings: hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        lab: env!("CARGO_PKG_VERSION").into(),
    })
}

/// Returns the settings without comments, which may hold the time, and without a run's paths and ports.
fn lasting(text: &str, site: &Site) -> String {
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    let paths = [(&site.queue, "{queue}"), (&site.work, "{work}"), (&site.mail, "{mail}")];
    let named = paths
        .iter()
        .fold(text, |text, (path, name)| text.replace(&path.display().to_string(), name));
    named
        .replace(&site.next_hop.to_string(), "{next_hop}")
        .replace(&site.port.to_string(), "{port}")
}

/// Packs a directory in a format that keeps fractions of seconds of file times.
fn pack(queue: &Path, tar: &Path) -> Result<()> {
    let [queue, tar] = [queue, tar].map(|path| path.display().to_string());
    room::run("tar", ["--format=posix", "--numeric-owner", "-C", &queue, "-cf", &tar, "."])?;
    Ok(())
}

fn unpack(tar: &Path, queue: &Path) -> Result<()> {
    let [tar, queue] = [tar, queue].map(|path| path.display().to_string());
    room::run("tar", ["--numeric-owner", "-p", "-C", &queue, "-xf", &tar])?;
    Ok(())
}

fn empty(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    for entry in std::fs::read_dir(directory)?.flatten() {
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// Mode, time of change and bytes.
    type Kept = (u32, i64, i64, Option<Vec<u8>>);

    fn all(directory: &Path) -> BTreeMap<PathBuf, Kept> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let about = entry.metadata().unwrap();
            let bytes = about.is_file().then(|| std::fs::read(entry.path()).unwrap());
            let times = (about.mtime(), about.mtime_nsec());
            found.insert(entry.path(), (about.mode(), times.0, times.1, bytes));
            if about.is_dir() {
                found.extend(all(&entry.path()));
            }
        }
        found
    }

    #[test]
    fn a_queue_is_restored_byte_for_byte_with_modes_and_times_and_without_what_came_later() {
        let place = tempfile::tempdir().unwrap();
        let (queue, tar) = (place.path().join("queue"), place.path().join("tar"));
        std::fs::create_dir_all(queue.join("q1/qf")).unwrap();
        for number in 0..50u8 {
            let path = queue.join("q1/qf").join(format!("qf{number}"));
            std::fs::write(&path, vec![number; usize::from(number) * 100]).unwrap();
            let mode = if number % 2 == 0 { 0o600 } else { 0o640 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let before = all(&queue);
        pack(&queue, &tar).unwrap();
        std::fs::remove_file(queue.join("q1/qf/qf7")).unwrap();
        std::fs::write(queue.join("q1/qf/qf8"), "other").unwrap();
        std::fs::write(queue.join("later"), "").unwrap();
        Archive { tar }.restore(&queue).unwrap();
        assert_eq!(all(&queue), before);
        assert_eq!(before.len(), 52);
    }

    #[test]
    fn settings_of_two_runs_are_the_same_whatever_their_places_and_ports() {
        let site = |queue: &str, port| Site {
            queue: queue.into(),
            work: "/w".into(),
            port,
            next_hop: port + 1,
            posthaste: "posthaste".into(),
            mail: "/m".into(),
            log: "/l".into(),
            setup: crate::subject::Setup::default(),
        };
        let one = lasting("# Monday\nqueue=/q/1 port=2501 to=2502\n", &site("/q/1", 2501));
        let two = lasting("# Friday\nqueue=/q/2 port=2601 to=2602\n", &site("/q/2", 2601));
        assert_eq!(one, two);
        let three = lasting("queue=/q/2 port=2601 to=2602 hold\n", &site("/q/2", 2601));
        assert_ne!(one, three);
    }
}
