//! Posthaste in ordinary use: each domain has a next hop of its own, found through DNS.
//!
//! Must never have a route that holds: mail must wait as it does while the network is down.

use super::names;
use crate::subject::{self, Phase, Setup, Site, Subject, Versions};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// See the module.
pub struct Deep(Box<dyn Subject>);

impl Deep {
    /// The laboratory's own Posthaste with other settings.
    pub fn new() -> Deep {
        let all = subject::builtin().into_iter();
        let own = all.into_iter().find(|one| one.name() == "posthaste");
        Deep(own.expect("it is one of those that come along"))
    }

    /// Runs a command of the mailer's command line.
    pub fn queue(&self, site: &Site, words: &[&str]) -> Command {
        let mut command = Command::new(&site.posthaste);
        command.arg("queue").args(words).arg("--config").arg(file(site));
        command
    }
}

fn file(site: &Site) -> PathBuf {
    site.work.join("posthaste.toml")
}

fn text(site: &Site) -> String {
    let state = site.queue.join("posthaste");
    include_str!("../../../subjects/posthaste-deep.toml")
        .replace("{state}", &state.display().to_string())
        .replace("{port}", &site.port.to_string())
        .replace("{dns}", names::ADDRESS)
}

impl Subject for Deep {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn version(&self, site: &Site, peers: &Versions) -> Result<String> {
        self.0.version(site, peers)
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        self.0.refuses(setup)
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        let file = file(site);
        std::fs::write(&file, text(site)).with_context(|| file.display().to_string())?;
        Ok(vec![file])
    }

    fn command(&self, site: &Site, phase: Phase) -> Option<Command> {
        self.0.command(site, phase)
    }

    fn recipient(&self, _: &Site) -> String {
        names::RECIPIENT.into()
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        Some(self.queue(site, &["run", "--json", "--order", "fair"]))
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        self.0.queued(site)
    }

    fn orders(&self) -> &'static [&'static str] {
        self.0.orders()
    }
}
