//! Posthaste as a subject: its program, run with a settings file like anybody's.
//!
//! Must never use what a stranger to its code could not.

use super::{Duty, Phase, Setup, Site, Subject, Versions, write};
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// See the module.
pub struct Posthaste;

fn settings(site: &Site) -> PathBuf {
    site.work.join("posthaste.toml")
}

fn queue(site: &Site, verb: &str) -> Command {
    let mut command = Command::new(&site.posthaste);
    command.args(["queue", verb, "--config"]).arg(settings(site));
    command
}

impl Subject for Posthaste {
    fn name(&self) -> &str {
        "posthaste"
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        (setup.duty != Duty::Relay).then(|| "not yet".into())
    }

    fn recipient(&self, _: &Site) -> String {
        "user{n}@sink.test".into()
    }

    fn version(&self, site: &Site, _: &Versions) -> Result<String> {
        let output = Command::new(&site.posthaste).arg("--version").output();
        let output = output.with_context(|| site.posthaste.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.trim().trim_start_matches("posthaste ").to_string())
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        Ok(vec![write(site, &settings(site), include_str!("../../subjects/posthaste.toml"))?])
    }

    fn command(&self, site: &Site, _: Phase) -> Option<Command> {
        let mut command = Command::new(&site.posthaste);
        command.args(["run", "--config"]).arg(settings(site));
        Some(command)
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        Some(queue(site, "flush"))
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        let output = queue(site, "summary").arg("--json").output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "posthaste queue summary: {error}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        summary["messages"].as_u64().context("no count of messages in `queue summary --json`")
    }
}
