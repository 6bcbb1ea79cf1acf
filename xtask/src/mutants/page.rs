//! `docs/mutants.md`: the table of all crates, and each survivor with its reason.
//!
//! Must never omit a survivor without a reason.

use super::results::{self, Outcome, Sum};
use super::{SAMPLES, VERSION};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Why a survivor is let live: by crate, then by key.
type Reasons = BTreeMap<String, BTreeMap<String, String>>;

/// Writes the page from the results and `docs/mutants/reasons.toml`.
pub fn write(root: &Path) -> Result<()> {
    let path = results::folder(root).join("reasons.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let reasons: Reasons = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let page = root.join("docs/mutants.md");
    std::fs::write(&page, made(root, &reasons)?).with_context(|| page.display().to_string())
}

fn made(root: &Path, reasons: &Reasons) -> Result<String> {
    let mut page = format!(
        "# Mutants\n\nMade by `cargo xtask mutants CRATE`: do not edit. cargo-mutants {VERSION} changes one thing at a time in a crate, and a test \
         must fail: one of the crate's, or else one of the simulator's. The sample is chosen by a fixed seed and not by line \
         numbers. Results, a line each: `docs/mutants/CRATE.jsonl`; why a survivor is let live: `docs/mutants/reasons.toml`.\n\n\
         | crate | tried | caught by its tests | by the simulator | timeout | unviable | missed | caught |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    let mut survivors = String::new();
    for (name, sample) in SAMPLES {
        let lines = results::read(root, name)?;
        if lines.is_empty() {
            writeln!(page, "| {name} | not yet tried | | | | | | |")?;
            continue;
        }
        let sum = Sum::of(&lines);
        let Sum { by_crate, by_simulator, timeout, unviable, missed } = sum;
        let percent = (sum.caught() * 100).checked_div(sum.viable()).unwrap_or(100);
        let all = lines.len();
        writeln!(
            page,
            "| {name} | {all} of {sample} | {by_crate} | {by_simulator} | {timeout} | {unviable} | {missed} | {percent} % |"
        )?;
        for line in lines.iter().filter(|line| line.outcome == Outcome::Missed) {
            let reason = reasons.get(*name).and_then(|reasons| reasons.get(&line.key));
            let reason = reason.map_or("open", String::as_str);
            writeln!(survivors, "| {name} | `{}` | {reason} |", line.key.replace('|', "\\|"))?;
        }
    }
    if !survivors.is_empty() {
        write!(
            page,
            "\n## Survivors\n\n| crate | change | why it lives |\n|---|---|---|\n{survivors}"
        )?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::super::list::Mutant;
    use super::super::results::Line;
    use super::*;

    #[test]
    fn a_survivor_without_a_reason_is_listed_as_open() {
        let place = tempfile::tempdir().unwrap();
        let line = |key: &str| Line::new(&Mutant { name: key.into(), key: key.into() }, "0123456");
        results::write(place.path(), "spool", &[line("a.rs: x"), line("a.rs: y || z")]).unwrap();
        let reasons = "[spool]\n\"a.rs: x\" = \"it is equal\"\n";
        let page = made(place.path(), &toml::from_str(reasons).unwrap()).unwrap();
        assert!(page.contains("| spool | `a.rs: x` | it is equal |"), "{page}");
        assert!(page.contains("| spool | `a.rs: y \\|\\| z` | open |"), "{page}");
        assert!(page.contains("| spool | 2 of 80 | 0 | 0 | 0 | 0 | 2 | 0 % |"), "{page}");
        assert!(page.contains("| link | not yet tried |"), "{page}");
    }
}
