//! `cargo xtask tidy`: the project's own rules, which neither rustc nor clippy checks.
//!
//! Must never change a file: it reports the place and the rule.

mod arrows;
mod docs;
mod glossary;
mod locks;
mod phrases;
mod rules;
pub mod source;

use anyhow::{Context, Result, ensure};
use source::Source;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Checks everything and prints all complaints.
pub fn run(root: &Path) -> Result<()> {
    let files = files(root)?;
    let mut complaints = arrows::check(root)?;
    complaints.extend(locks::check(root)?);
    let mut sources = Vec::new();
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
        sources.push(Source::new(path, &text));
    }
    let mut warnings = Vec::new();
    for source in &sources {
        complaints.extend(rules::check(source));
        warnings.extend(rules::warn(source));
    }
    complaints.extend(rules::promises(&sources));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    complaints.extend(rules::faults(&sources, &manifest));
    complaints.extend(docs::check(root, &files, &sources)?);
    complaints.extend(glossary::check(root, &sources)?);
    complaints.extend(phrases::check(root, &files)?);
    complaints.extend(crate::decisions::current(root)?);
    complaints.extend(crate::settings::current(root)?);
    complaints.extend(crate::faults::current(root)?);
    complaints.extend(crate::bounds::current(root)?);
    warnings.iter().for_each(|warning| println!("warning: {warning}"));
    complaints.iter().for_each(|complaint| println!("error: {complaint}"));
    ensure!(complaints.is_empty(), "tidy found {} faults", complaints.len());
    println!("tidy: {} source files and the arrows between the crates are in order", sources.len());
    Ok(())
}

/// Returns every file that git tracks or would add, relative to the top. Without git, returns all files.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").current_dir(root).args(arguments).output();
    let mut found: Vec<String> = match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8(output.stdout)?.lines().map(String::from).collect()
        }
        _ => walk(root, root)?,
    };
    found.retain(|path| root.join(path).is_file());
    found.sort();
    Ok(found)
}

fn walk(root: &Path, directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path: PathBuf = entry?.path();
        let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "target" | "var" | ".git") {
                found.extend(walk(root, &path)?);
            }
        } else {
            found.push(name);
        }
    }
    Ok(found)
}
