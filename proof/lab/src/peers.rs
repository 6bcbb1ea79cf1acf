//! Programs from outside: Debian's mailers, unpacked beside each other, and Posthaste's own.
//!
//! Must never install anything, or let two campaigns share one directory.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fetches Debian's packages.
const FETCH: &str = include_str!("../subjects/fetch");

/// Unpacks the packages if that has not been done; needs the network, so it comes before the room.
pub fn fetch(peers: &Path) -> Result<()> {
    if peers.join("versions").exists() {
        return Ok(());
    }
    eprintln!("fetching Debian's mailers into {}", peers.display());
    let status = Command::new("bash").args(["-c", FETCH, "fetch"]).arg(peers).status()?;
    anyhow::ensure!(status.success(), "the packages could not be fetched: {status}");
    Ok(())
}

/// Posthaste's program: the one that is named, or the one beside this program.
pub fn posthaste(named: Option<&Path>) -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("posthaste");
    let path = named.unwrap_or(&beside);
    path.canonicalize()
        .with_context(|| format!("{}: build it, or name it with --posthaste", path.display()))
}

/// Two campaigns in one directory would be in each other's way. Held until the process ends.
pub fn lock(work: &Path) -> Result<()> {
    let file = std::fs::File::create(work.join("lock"))?;
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    if rustix::fs::flock(&file, operation).is_err() {
        bail!("another campaign runs in {}", work.display());
    }
    std::mem::forget(file);
    Ok(())
}
