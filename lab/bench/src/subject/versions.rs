//! The versions of Debian's packages, as they were unpacked.
//!
//! Must never guess one.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

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

    /// Returns the version of one package.
    pub fn of(&self, package: &str) -> Result<String> {
        self.0.get(package).cloned().with_context(|| format!("{package} was not unpacked"))
    }
}
