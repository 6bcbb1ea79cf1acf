//! The environment of a campaign: the furnished room, its subjects, and what is known about them.
//!
//! Must never let a run see what an earlier one left: each gets a fresh queue.

use super::options::Options;
use super::schedule::Step;
use crate::subject::Versions;
use crate::subject::{Duty, Site, Subject};
use crate::{machine, peers, room};
use anyhow::{Context, Result};
use report::record::{self, Durability, Line, Machine, Run, Settings};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The port of the subject, in the room's own network.
const PORT: u16 = 2525;
/// The port of the sink.
const NEXT_HOP_PORT: u16 = 2600;

/// Directory of the subjects' settings, below the campaign's directory.
const OWN: &str = "own";
/// Directory of the mail of earlier runs, below the campaign's directory.
const EARLIER: &str = "earlier-mail";

/// The environment.
pub struct Place {
    /// All known subjects.
    pub subjects: Vec<Box<dyn Subject>>,
    /// The campaign's directory.
    pub work: PathBuf,
    versions: Versions,
    posthaste: Result<PathBuf>,
    machine: Machine,
    settings: RefCell<HashSet<String>>,
    durability: RefCell<HashMap<(String, Duty), Durability>>,
}

impl Place {
    /// Prepares the room.
    pub fn furnish(options: &Options) -> Result<Place> {
        std::fs::create_dir_all(&options.work)?;
        let work = options.work.canonicalize()?;
        peers::lock(&work)?;
        let (queue, own) = (work.join("queue"), work.join(OWN));
        let packages = options.needs_packages()?.then(|| options.unpacked().canonicalize());
        let packages = packages.transpose()?;
        std::fs::create_dir_all(&queue)?;
        std::fs::create_dir_all(&own)?;
        room::furnish(&own, &queue, packages.as_deref())?;
        let lines = record::read(&options.out)?;
        let known = lines.iter().filter_map(|line| match line {
            Line::Settings(settings) => Some(settings.id.clone()),
            _ => None,
        });
        let versions = packages.map(|packages| Versions::read(&packages.join("versions")));
        Ok(Place {
            subjects: options.subjects()?,
            versions: versions.transpose()?.unwrap_or_default(),
            posthaste: peers::posthaste(options.posthaste.as_deref()),
            machine: machine::look(&queue)?,
            settings: RefCell::new(known.collect()),
            durability: RefCell::default(),
            work,
        })
    }

    /// Returns the subject with this name.
    pub fn subject(&self, name: &str) -> Result<&dyn Subject> {
        let found = self.subjects.iter().find(|subject| subject.name() == name);
        found.map(AsRef::as_ref).with_context(|| format!("no subject is called {name}"))
    }

    /// Creates an empty site.
    pub fn site(&self, step: &Step) -> Result<Site> {
        let [queue, mail, log] = ["queue", "mail", "log"].map(|name| self.work.join(name));
        put_aside(&mail, &self.work.join(EARLIER))?;
        for path in [&queue, &mail, &log] {
            super::empty(path)?;
        }
        Ok(Site {
            queue,
            work: self.work.join(OWN),
            port: PORT,
            next_hop: NEXT_HOP_PORT,
            posthaste: self.posthaste.as_ref().cloned().unwrap_or_default(),
            mail,
            log,
            setup: step.question.setup.clone(),
        })
    }

    /// Returns the subject's version.
    pub fn version(&self, subject: &dyn Subject, site: &Site) -> Result<String> {
        subject.version(site, &self.versions)
    }

    /// Creates the record of a run that is about to begin.
    pub fn new_run(&self, step: &Step, version: String) -> Run {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Run {
            time: time.as_secs(),
            scenario: step.scenario.name.clone(),
            subject: step.subject.clone(),
            version,
            cell: step.question.cell.clone(),
            ordinal: step.ordinal,
            seed: step.seed,
            figure: step.scenario.figure.clone(),
            value: None,
            values: BTreeMap::new(),
            histograms: BTreeMap::new(),
            samples: BTreeMap::new(),
            series: BTreeMap::new(),
            calls: Vec::new(),
            minutes: Vec::new(),
            durability: None,
            how: BTreeMap::new(),
            warnings: Vec::new(),
            failed: None,
            settings: String::new(),
            machine: Machine { load: machine::load(), ..self.machine.clone() },
            lab: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Returns the id of these settings, and their line if the file does not have it yet.
    pub fn settings(&self, subject: &str, files: &[PathBuf]) -> Result<(String, Option<Line>)> {
        let mut texts = BTreeMap::new();
        for file in files {
            let text = std::fs::read(file).with_context(|| file.display().to_string())?;
            texts.insert(name_of(file), String::from_utf8_lossy(&text).into_owned());
        }
        let hash = Sha256::digest(format!("{subject} {texts:?}"));
        let id: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let is_new = self.settings.borrow_mut().insert(id.clone());
        let line = Settings { id: id.clone(), subject: subject.into(), files: texts };
        Ok((id, is_new.then_some(Line::Settings(line))))
    }

    /// Returns when a subject syncs; `look` finds out the first time.
    pub fn durability(
        &self,
        subject: &str,
        duty: Duty,
        look: impl FnOnce() -> Result<Durability>,
    ) -> Result<Durability> {
        let key = (subject.to_string(), duty);
        if let Some(known) = self.durability.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = look()?;
        self.durability.borrow_mut().insert(key, found.clone());
        Ok(found)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.work.join(EARLIER)); // it may never have been made
    }
}

/// Moves delivered mail away; it is deleted when the campaign ends. ext4 without a journal does not use the inode of a deleted file
/// for five minutes and looks at each such inode whenever it makes a file: a run's thousands of messages, deleted,
/// would cost the next run's mailer more than its own work does.
fn put_aside(mail: &Path, earlier: &Path) -> Result<()> {
    if !mail.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(earlier)?;
    let number = std::fs::read_dir(earlier)?.count();
    std::fs::rename(mail, earlier.join(number.to_string()))
        .with_context(|| mail.display().to_string())
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_run_delivered_is_out_of_the_next_ones_way_and_not_deleted() {
        let work = tempfile::tempdir().unwrap();
        let (mail, earlier) = (work.path().join("mail"), work.path().join(EARLIER));
        put_aside(&mail, &earlier).unwrap();
        for run in 0..2 {
            std::fs::create_dir(&mail).unwrap();
            std::fs::write(mail.join("user"), format!("{run}")).unwrap();
            put_aside(&mail, &earlier).unwrap();
            assert!(!mail.exists());
        }
        for run in 0..2 {
            let kept = earlier.join(run.to_string()).join("user");
            assert_eq!(std::fs::read_to_string(kept).unwrap(), format!("{run}"));
        }
    }
}
