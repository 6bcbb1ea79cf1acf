//! The programs under test: Debian's mailers, unpacked beside each other, and Posthaste.
//!
//! Must never install anything, or let two campaigns share one directory.

use crate::subject::Versions;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fetches Debian's packages.
const FETCH: &str = include_str!("../../subjects/fetch");

/// Unpacks the packages if necessary. It needs the network, so it runs before the room is made.
pub fn fetch(peers: &Path) -> Result<()> {
    let there = Versions::read(&peers.join("versions")).unwrap_or_default();
    if wanted().all(|package| there.of(package).is_ok()) {
        return Ok(());
    }
    eprintln!("fetching Debian's mailers into {}", peers.display());
    let status = Command::new("bash").args(["-c", FETCH, "fetch"]).arg(peers).status()?;
    anyhow::ensure!(status.success(), "the packages could not be fetched: {status}");
    Ok(())
}

/// Returns the packages that the script names.
fn wanted() -> impl Iterator<Item = &'static str> {
    let line = FETCH.lines().find_map(|line| line.strip_prefix("wanted='"));
    line.unwrap_or_default().trim_end_matches('\'').split(' ')
}

/// Returns Posthaste's program: the named one, or the one beside this program.
pub fn posthaste(named: Option<&Path>) -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("posthaste");
    let path = named.unwrap_or(&beside);
    path.canonicalize()
        .with_context(|| format!("{}: build it, or name it with --posthaste", path.display()))
}

/// Locks the directory against a second campaign until the process ends.
pub fn lock(work: &Path) -> Result<()> {
    let file = std::fs::File::create(work.join("lock"))?;
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    if rustix::fs::flock(&file, operation).is_err() {
        bail!("another campaign runs in {}", work.display());
    }
    std::mem::forget(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_fetches_every_mailer_that_is_asked_for_its_version() {
        let wanted: Vec<&str> = wanted().collect();
        for package in ["postfix", "exim4-daemon-light", "opensmtpd", "sendmail-bin", "procmail"] {
            assert!(wanted.contains(&package), "{wanted:?}");
        }
    }

    #[test]
    fn a_directory_with_all_its_versions_is_not_fetched_again() {
        let place = tempfile::tempdir().unwrap();
        let lines: String = wanted().map(|package| format!("{package} 1.0-1\n")).collect();
        std::fs::write(place.path().join("versions"), lines).unwrap();
        fetch(place.path()).unwrap();
        let versions = Versions::read(&place.path().join("versions")).unwrap();
        assert_eq!(versions.of("postfix").unwrap(), "1.0-1");
        assert!(versions.of("qmail").is_err());
    }
}
