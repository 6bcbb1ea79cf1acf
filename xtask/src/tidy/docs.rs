//! The pages: links lead somewhere, and the index of RFCs is whole.
//!
//! Must never need the network: only links inside the tree are followed.

use super::source::Source;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const RFC_PAGE: &str = "docs/rfc.md";

/// Returns complaints about the pages.
pub fn check(root: &Path, files: &[String], sources: &[Source]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
        complaints.extend(links(root, path, &text));
    }
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    complaints.extend(rfcs(&read(RFC_PAGE), sources));
    Ok(complaints)
}

/// Each relative link must lead to a file or a directory.
fn links(root: &Path, path: &str, text: &str) -> Vec<String> {
    let directory = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for target in targets(line) {
            let file = target.split('#').next().unwrap_or("");
            let outside = target.contains("://") || target.starts_with("mailto:");
            if !outside && !file.is_empty() && !root.join(directory).join(file).exists() {
                complaints.push(format!("{path}:{}: {target} leads nowhere", number + 1));
            }
        }
    }
    complaints
}

/// The targets of `[text](target)` in a line, outside of `code`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let in_code = line[..at].matches('`').count() % 2 == 1;
        if let Some(end) = line[at + 2..].find(')').filter(|_| !in_code) {
            found.push(&line[at + 2..at + 2 + end]);
        }
    }
    found
}

/// Each RFC that the mailer's code cites has a row, and each place in a row cites that RFC.
fn rfcs(page: &str, sources: &[Source]) -> Vec<String> {
    let mut cited: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.starts_with("mta/")) {
        for rfc in numbers(&source.text) {
            cited.entry(rfc).or_default().insert(&source.path);
        }
    }
    let mut complaints = Vec::new();
    let rows: BTreeMap<u32, &str> =
        page.lines().filter_map(|line| Some((row(line)?, line))).collect();
    for (rfc, places) in &cited {
        if !rows.contains_key(rfc) {
            let place = places.iter().next().copied().unwrap_or("");
            complaints.push(format!("{RFC_PAGE}: RFC {rfc} has no row; {place} cites it"));
        }
    }
    for (rfc, line) in rows {
        for place in line.split('`').skip(1).step_by(2) {
            let place = place.trim_end_matches('/');
            let cites = |path: &&str| **path == *place || path.starts_with(&format!("{place}/"));
            if !cited.get(&rfc).is_some_and(|paths| paths.iter().any(cites)) {
                complaints.push(format!("{RFC_PAGE}: {place} does not cite RFC {rfc}"));
            }
        }
    }
    complaints
}

/// The number of `| 5321 | … |` or `| [5321](…) | … |`.
fn row(line: &str) -> Option<u32> {
    let cell = line.strip_prefix("| ")?.split('|').next()?.trim();
    let cell = cell.trim_start_matches('[').split(']').next()?;
    cell.parse().ok()
}

/// The numbers of `RFC nnnn` in a text.
fn numbers(text: &str) -> Vec<u32> {
    let after = text.match_indices("RFC ").map(|(at, _)| &text[at + 4..]);
    let digits =
        after.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nowhere_is_named_and_one_in_code_or_to_the_world_is_not() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("README.md"), "").unwrap();
        let text =
            "[a](../README.md#top) [b](gone.md)\n`[c](gone.md)` [d](https://x.test/) [e](#f)";
        let found = links(root.path(), "docs/a.md", text);
        assert_eq!(found, ["docs/a.md:1: gone.md leads nowhere"]);
    }

    #[test]
    fn an_rfc_without_row_and_a_place_that_does_not_cite_are_found() {
        let sources = [Source::new("mta/smtp/src/a.rs", "//! RFC 5321 4.1, RFC 3461.")];
        let row = |rfc: u32, place: &str| format!("| {rfc} | title | whole | `{place}` |\n");
        let whole = row(5321, "mta/smtp/src/a.rs") + &row(3461, "mta/smtp");
        assert_eq!(rfcs(&whole, &sources), Vec::<String>::new());
        assert_eq!(rfcs(&row(5321, "mta/smtp/src"), &sources).len(), 1);
        assert_eq!(rfcs(&(whole + &row(2920, "mta/smtp/src/a.rs")), &sources).len(), 1);
    }
}
