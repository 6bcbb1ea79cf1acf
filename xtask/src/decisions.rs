//! The index of decisions in `docs/decisions/README.md` and `lab/docs/decisions/README.md`.
//!
//! Must never hold what its pages do not say: number, date and title are read from them.

use crate::tidy;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The directories of decisions: of the mailer, and of the laboratory.
const DIRECTORIES: &[&str] = &["docs/decisions/", "lab/docs/decisions/"];
const INDEX: &str = "README.md";

/// One page, or what is wrong with it.
#[derive(Debug, PartialEq)]
struct Decision {
    number: String,
    date: String,
    title: String,
    file: String,
}

/// Writes both indexes.
pub fn write(root: &Path) -> Result<()> {
    for directory in DIRECTORIES {
        let (index, _) = read(root, directory)?;
        let path = root.join(directory).join(INDEX);
        std::fs::write(&path, index).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Complaints about pages without a number, date or title of their own, and about indexes that are not current.
pub fn current(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for directory in DIRECTORIES {
        let (index, wrong) = read(root, directory)?;
        complaints.extend(wrong);
        let found = std::fs::read_to_string(root.join(directory).join(INDEX)).unwrap_or_default();
        if found != index {
            let path = format!("{directory}{INDEX}");
            complaints.push(format!("{path}: not what the pages say; run `cargo xtask decisions`"));
        }
    }
    Ok(complaints)
}

/// The index of a directory, and the complaints about its pages.
fn read(root: &Path, directory: &str) -> Result<(String, Vec<String>)> {
    let mut pages = Vec::new();
    for path in tidy::files(root)? {
        let name = path.strip_prefix(directory).filter(|name| *name != INDEX);
        if let Some(name) = name.filter(|name| name.ends_with(".md")) {
            let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
            pages.push((name.to_string(), text));
        }
    }
    let (decisions, complaints) = parse(directory, &pages);
    Ok((index(&decisions), complaints))
}

fn parse(directory: &str, pages: &[(String, String)]) -> (Vec<Decision>, Vec<String>) {
    let (mut decisions, mut complaints) = (Vec::new(), Vec::new());
    let mut seen = BTreeMap::new();
    for (file, text) in pages {
        match decision(file, text) {
            Ok(decision) => {
                if let Some(other) = seen.insert(decision.number.clone(), file) {
                    complaints.push(format!("{directory}{file}: has the number of {other}"));
                }
                decisions.push(decision);
            }
            Err(why) => complaints.push(format!("{directory}{file}: {why}")),
        }
    }
    decisions.sort_by(|one, other| one.number.cmp(&other.number));
    (decisions, complaints)
}

/// A page is `NNNN-title.md`; it begins with `# NNNN: Title`, an empty line and `Date: YYYY-MM-DD`.
fn decision(file: &str, text: &str) -> Result<Decision, String> {
    let number = file.split('-').next().unwrap_or("");
    if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is not named NNNN-title.md".into());
    }
    let mut lines = text.lines();
    let title = lines.next().and_then(|line| line.strip_prefix(&format!("# {number}: ")));
    let title = title.ok_or_else(|| format!("does not begin with `# {number}: title`"))?;
    let date = lines.nth(1).and_then(|line| line.strip_prefix("Date: ")).unwrap_or("");
    if !is_date(date) {
        return Err("has no line `Date: YYYY-MM-DD` below its title".into());
    }
    let (number, date, title) = (number.into(), date.into(), title.into());
    Ok(Decision { number, date, title, file: file.into() })
}

fn is_date(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| {
        if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() }
    };
    text.len() == "2026-01-31".len() && text.bytes().enumerate().all(fits)
}

fn index(decisions: &[Decision]) -> String {
    let mut page = String::from(HEAD);
    for Decision { number, date, title, file } in decisions {
        page += &format!("| [{number}]({file}) | {date} | {title} |\n");
    }
    page
}

const HEAD: &str = "# Decisions

Written by `cargo xtask decisions` from the pages: do not edit. Each page has the question, the options, what was measured, the
decision, and what would change it.

| page | date | decision |
|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pages: &[(&str, &str)]) -> (Vec<Decision>, Vec<String>) {
        let pages: Vec<_> =
            pages.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        parse("d/", &pages)
    }

    #[test]
    fn an_index_has_a_row_for_each_page_in_the_order_of_their_numbers() {
        let (decisions, complaints) = parsed(&[
            ("0002-b.md", "# 0002: Second\n\nDate: 2026-11-22\n\nText."),
            ("0001-a.md", "# 0001: First\n\nDate: 2026-11-21\n"),
        ]);
        assert_eq!(complaints, Vec::<String>::new());
        let rows = "| [0001](0001-a.md) | 2026-11-21 | First |\n| [0002](0002-b.md) | 2026-11-22 | Second |\n";
        assert_eq!(index(&decisions), String::from(HEAD) + rows);
    }

    #[test]
    fn pages_without_number_title_or_date_and_with_anothers_number_are_named() {
        let good = "# 0001: First\n\nDate: 2026-11-21\n";
        let wrong = [
            ("x.md", good),
            ("00-1.md", good),
            ("0002-a.md", good),
            ("0001-a.md", "# 0001 First\n\nDate: 2026-11-21\n"),
            ("0001-a.md", "# 0001: First\nDate: 2026-11-21\n"),
            ("0001-a.md", "# 0001: First\n\nDate: today\n"),
        ];
        for page in wrong {
            assert_eq!(parsed(&[page]).1.len(), 1, "{page:?}");
        }
        let twice = parsed(&[("0001-a.md", good), ("0001-b.md", good)]);
        assert_eq!(twice.1, ["d/0001-b.md: has the number of 0001-a.md"]);
    }
}
