//! The list of canaries: known bugs, where each goes, and which check must find it within how many seeds.
//!
//! Must never accept a canary whose text is no longer in the code.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::Path;

/// Where they are.
pub const FOLDER: &str = "proof/sim/canaries";
/// Enough of them to be a flock.
const CANARIES_MIN: usize = 12;
/// What the simulator can say; `panic` is a debug assertion of the mailer's.
const CHECKS: &[&str] = &[
    "Lost",
    "Damaged",
    "Doubled",
    "Unpromised",
    "Recovery",
    "Stuck",
    "Order",
    "Bounced",
    "Memory",
    "Chance",
    "Astray",
    "panic",
];

/// One known bug.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// The bug in a sentence.
    pub what: String,
    /// The checks of which one must find the bug.
    pub checks: Vec<String>,
    /// The first seed.
    pub first: u64,
    /// The number of seeds within which the bug must be found.
    pub seeds: u64,
    /// The changes of the code that make the bug.
    pub edit: Vec<Edit>,
}

/// One change of one file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// From the top of the tree.
    pub file: String,
    /// Is there exactly once,
    pub find: String,
    /// and is replaced by this.
    pub put: String,
}

/// All, each of which fits the code of this tree; sorted so that what is built for one helps the
/// next.
pub fn all(root: &Path) -> Result<Vec<Canary>> {
    let mut canaries = Vec::new();
    for entry in std::fs::read_dir(root.join(FOLDER)).context(FOLDER)? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let canary: Canary = toml::from_str(&text).with_context(|| name.clone())?;
        canary.check().with_context(|| name.clone())?;
        for edit in &canary.edit {
            let code = std::fs::read_to_string(root.join(&edit.file)).with_context(|| name.clone());
            edit.apply(&code?).with_context(|| name.clone())?;
        }
        canaries.push(Canary { name, ..canary });
    }
    canaries.sort_by(|a, b| (&a.edit[0].file, &a.name).cmp(&(&b.edit[0].file, &b.name)));
    ensure!(canaries.len() >= CANARIES_MIN, "only {} canaries in {FOLDER}", canaries.len());
    Ok(canaries)
}

/// The seeds that a build without any bug must pass: from each first one as many as any needs.
pub fn ranges(canaries: &[Canary]) -> Vec<(u64, u64)> {
    let mut firsts: Vec<u64> = canaries.iter().map(|canary| canary.first).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let most = |first: u64| {
        let same = canaries.iter().filter(|canary| canary.first == first);
        same.map(|canary| canary.seeds).max().unwrap_or(0)
    };
    firsts.into_iter().map(|first| (first, most(first))).collect()
}

impl Canary {
    fn check(&self) -> Result<()> {
        ensure!(!self.edit.is_empty() && self.seeds > 0, "changes nothing or tries nothing");
        ensure!(!self.checks.is_empty(), "nothing may find it");
        for check in &self.checks {
            ensure!(CHECKS.contains(&check.as_str()), "{check} is no check of the simulator");
        }
        Ok(())
    }
}

impl Edit {
    /// The code with the bug in it.
    pub fn apply(&self, code: &str) -> Result<String> {
        let Edit { file, find, put } = self;
        let found = code.matches(find.as_str()).count();
        ensure!(
            found == 1,
            "the canary is out of date, fix it: {file} has this {found} times:\n{find}"
        );
        ensure!(find != put, "changes nothing in {file}");
        Ok(code.replacen(find.as_str(), put, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canary_still_fits_the_code_exactly_once() {
        let root = crate::root().unwrap();
        let canaries = all(&root).unwrap();
        assert!(canaries.iter().all(|canary| canary.what.len() > 20));
    }

    #[test]
    fn a_canary_whose_text_is_gone_or_there_twice_has_rotted() {
        let edit = Edit { file: "a.rs".into(), find: "sync".into(), put: "hope".into() };
        assert_eq!(edit.apply("write; sync;").unwrap(), "write; hope;");
        assert!(edit.apply("write;").is_err());
        assert!(edit.apply("sync; sync;").is_err());
    }

    #[test]
    fn an_unchanged_build_runs_as_many_seeds_as_any_canary_needs() {
        let canary = |first, seeds| Canary {
            name: String::new(),
            what: String::new(),
            checks: Vec::new(),
            first,
            seeds,
            edit: Vec::new(),
        };
        assert_eq!(ranges(&[canary(1, 5), canary(9, 2), canary(1, 7)]), [(1, 7), (9, 2)]);
    }
}
