//! The arrows between the crates, read from the manifests.
//!
//! Must never be widened without a decision page: they are the architecture.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Each crate and the workspace crates it may depend on, in code and in tests.
const ARROWS: &[(&str, &[&str])] = &[
    // What makes the evidence of a sync: nobody else may reach it.
    ("synced", &[]),
    ("mail", &["synced"]),
    ("world", &["mail", "synced"]),
    ("view", &["mail"]),
    ("link", &["mail", "view"]),
    ("smtp", &["mail"]),
    ("policy", &["mail"]),
    ("scheduler", &["mail", "view"]),
    ("spool", &["mail", "world"]),
    ("delivery", &["mail", "smtp"]),
    ("local", &["mail", "link", "policy"]),
    ("send", &["mail", "link", "smtp", "delivery"]),
    ("queue", &["mail", "link", "policy", "scheduler", "spool", "world"]),
    ("receive", &["mail", "link", "policy", "smtp"]),
    ("needs", &[]),
    ("orders", &["mail", "policy", "queue", "scheduler", "spool", "world"]),
    ("stats", &[]),
    ("report", &["stats"]),
    ("bench", &["needs", "report", "stats"]),
    ("xtask", &[]),
];

/// The machines and what they are made of.
const MACHINES: &[&str] = &[
    "mail",
    "view",
    "link",
    "local",
    "smtp",
    "policy",
    "scheduler",
    "spool",
    "delivery",
    "send",
    "queue",
    "receive",
];

/// The crates that may depend on `world` and all [`MACHINES`], and what else each may depend on. The drivers wire the
/// machines together, `settings` makes the settings of each, and the fuzz targets reach all parsers.
const ON_ALL_MACHINES: &[(&str, &[&str])] = &[
    ("settings", &[]),
    ("daemon", &["settings", "needs"]),
    ("sim", &[]),
    ("counts", &[]),
    ("fuzz", &["settings", "daemon"]),
];

/// Returns whether code of this crate must never reach the system, a clock or randomness.
pub fn is_without_io(name: &str) -> bool {
    MACHINES.contains(&name) || ["synced", "settings"].contains(&name)
}

/// Returns whether the first crate may depend on the second, or `None` if the first has no row.
fn may_depend(name: &str, on: &str) -> Option<bool> {
    let row = |rows: &[(&str, &'static [&'static str])]| {
        rows.iter().find(|(known, _)| *known == name).map(|(_, allowed)| allowed.contains(&on))
    };
    let on_machine = || on == "world" || MACHINES.contains(&on);
    row(ARROWS).or_else(|| row(ON_ALL_MACHINES).map(|allowed| allowed || on_machine()))
}

/// Crates through which a crate without I/O could reach the system.
const IO_CRATES: &[&str] = &[
    "tokio",
    "mio",
    "rustix",
    "libc",
    "nix",
    "socket2",
    "hickory-resolver",
    "getrandom",
    "chrono",
];

/// Returns complaints about the manifests.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let crates = manifests(root)?;
    let names: Vec<&str> = crates.keys().map(String::as_str).collect();
    Ok(crates.iter().flat_map(|(name, manifest)| complaints(name, manifest, &names)).collect())
}

/// Returns the manifests of the workspace's crates by name.
pub fn manifests(root: &Path) -> Result<BTreeMap<String, toml::Table>> {
    let workspace = manifest(&root.join("Cargo.toml"))?;
    let members = workspace["workspace"]["members"].as_array().context("workspace.members")?;
    let mut crates = BTreeMap::new();
    for member in members.iter().filter_map(|member| member.as_str()) {
        let manifest = manifest(&root.join(member).join("Cargo.toml"))?;
        let name = manifest["package"]["name"].as_str().context("package.name")?.to_string();
        crates.insert(name, manifest);
    }
    Ok(crates)
}

fn manifest(path: &Path) -> Result<toml::Table> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

fn complaints(name: &str, manifest: &toml::Table, crates: &[&str]) -> Vec<String> {
    if may_depend(name, "").is_none() {
        return vec![format!("crate {name}: has no row in xtask/src/tidy/arrows.rs")];
    }
    let mut complaints = Vec::new();
    for dependency in dependencies(manifest, &["dependencies", "build-dependencies"]) {
        if is_without_io(name) && IO_CRATES.contains(&dependency) {
            complaints
                .push(format!("crate {name}: must not reach the system through {dependency}"));
        }
    }
    let all = ["dependencies", "build-dependencies", "dev-dependencies"];
    for dependency in dependencies(manifest, &all) {
        if crates.contains(&dependency) && may_depend(name, dependency) != Some(true) {
            complaints.push(format!("crate {name}: must not depend on {dependency}"));
        }
    }
    complaints
}

/// Returns the names in these tables of a manifest, including dependencies for certain targets only.
pub fn dependencies<'a>(manifest: &'a toml::Table, tables: &[&str]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for kind in tables {
        if let Some(table) = manifest.get(*kind).and_then(|found| found.as_table()) {
            names.extend(table.keys().map(String::as_str));
        }
        // [target.'cfg(…)'.dependencies]
        let targets = manifest.get("target").and_then(|found| found.as_table());
        for target in targets.into_iter().flat_map(|targets| targets.values()) {
            if let Some(table) = target.as_table().and_then(|found| found.get(*kind)?.as_table()) {
                names.extend(table.keys().map(String::as_str));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, manifest: &str) -> Vec<String> {
        let crates = ["mail", "smtp", "spool", "world", "daemon", "bench"];
        complaints(name, &manifest.parse().unwrap(), &crates)
    }

    #[test]
    fn a_forbidden_arrow_is_named_wherever_in_the_manifest_it_stands() {
        assert!(check("smtp", "[dependencies]\nmail.workspace = true\nbytes = \"1\"").is_empty());
        let forbidden = [
            "[dependencies]\nspool.workspace = true",
            "[dev-dependencies]\nspool = { path = \"../spool\" }",
            "[target.'cfg(unix)'.dependencies]\nspool.workspace = true",
        ];
        for manifest in forbidden {
            assert_eq!(check("smtp", manifest), ["crate smtp: must not depend on spool"]);
        }
        assert_eq!(check("bench", "[dependencies]\nmail.workspace = true").len(), 1);
        assert_eq!(check("smtp", "[dependencies]\ntokio = \"1\"").len(), 1);
        assert!(
            check("daemon", "[dependencies]\ntokio = \"1\"\nspool.workspace = true").is_empty()
        );
        assert_eq!(check("new", "").len(), 1);
    }

    #[test]
    fn only_the_disks_and_the_type_of_the_promise_reach_what_makes_the_evidence_of_a_sync() {
        let crates: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
        let manifest = "[dev-dependencies]\nsynced.workspace = true".parse().unwrap();
        let allowed = |name: &&&str| complaints(name, &manifest, &crates).is_empty();
        let allowed: Vec<_> = crates.iter().filter(allowed).collect();
        assert_eq!(allowed, [&"mail", &"world"]);
    }
}
