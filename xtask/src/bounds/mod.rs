//! `docs/bounds.md`, generated from the list of bounds, the settings and the constants in the code.
//!
//! Must never list a bound whose setting, constant or test is not in the tree.

mod constants;
mod list;

use crate::tidy;
use crate::tidy::source::Source;
use anyhow::{Context, Result, ensure};
use constants::Constant;
use list::{Bound, List};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PAGE: &str = "docs/bounds.md";
const SETTINGS: &str = "docs/settings.md";
/// Where measurements lie, and how those of memory end.
const MEASURED: (&str, &str) = ("docs/measurements/", "-bounds-rss.md");

/// Writes the page anew, then complains about what is missing.
pub fn write(root: &Path) -> Result<()> {
    let (page, complaints) = made(root)?;
    std::fs::write(root.join(PAGE), page).context(PAGE)?;
    complaints.iter().for_each(|complaint| println!("error: {complaint}"));
    ensure!(complaints.is_empty(), "{} complaints about the list of bounds", complaints.len());
    Ok(())
}

/// The complaints, one of which is a page that differs from what the tree says.
pub fn current(root: &Path) -> Result<Vec<String>> {
    let (page, mut complaints) = made(root)?;
    if std::fs::read_to_string(root.join(PAGE)).unwrap_or_default() != page {
        complaints.push(format!("{PAGE}: not what the code says; run `cargo xtask bounds`"));
    }
    Ok(complaints)
}

/// What the tree holds: settings with their ranges, constants, and tests by name.
struct Tree {
    settings: BTreeMap<String, Setting>,
    constants: Vec<Constant>,
    tests: BTreeMap<String, String>,
}

/// A row of the page of settings.
struct Setting {
    range: String,
    unit: String,
    what: String,
}

fn made(root: &Path) -> Result<(String, Vec<String>)> {
    let list = List::read()?;
    let tree = Tree::read(root)?;
    let measured = measured(root)?;
    Ok((page(&list, &tree) + &measured, complaints(&list, &tree)))
}

/// What `proof/bounds/rss.py` measured last; its files begin with the date.
fn measured(root: &Path) -> Result<String> {
    let files = tidy::files(root)?;
    let is_measured = |path: &&String| path.starts_with(MEASURED.0) && path.ends_with(MEASURED.1);
    let Some(last) = files.iter().filter(is_measured).max() else { return Ok(String::new()) };
    let text = std::fs::read_to_string(root.join(last)).with_context(|| last.clone())?;
    let name = last.trim_start_matches("docs/");
    Ok(format!("{MEASURED_HEAD}\n[{name}]({name}). {text}"))
}

impl Tree {
    fn read(root: &Path) -> Result<Tree> {
        let mut sources = Vec::new();
        for path in tidy::files(root)?.iter().filter(|path| path.ends_with(".rs")) {
            let text = std::fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
            sources.push(Source::new(path, &text));
        }
        let page = std::fs::read_to_string(root.join(SETTINGS)).context(SETTINGS)?;
        Ok(Tree {
            settings: settings(&page),
            constants: constants::search(&sources),
            tests: tests(&sources),
        })
    }
}

/// Every function that only tests compile, and its file.
fn tests(sources: &[Source]) -> BTreeMap<String, String> {
    let functions = sources.iter().flat_map(|source| {
        let tests = source.functions().into_iter().filter(|f| source.is_test(f.start));
        tests.map(|function| (function.name, source.path.clone()))
    });
    functions.collect()
}

/// The numeric settings of the page, with the names of their tables.
fn settings(page: &str) -> BTreeMap<String, Setting> {
    let (mut head, mut found) = (String::new(), BTreeMap::new());
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let name = title.trim_start_matches(['`', '[']);
            let end = name.find([']', '.', ' ']).unwrap_or(name.len());
            head =
                if title.starts_with('`') { format!("{}.", &name[..end]) } else { String::new() };
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells[0].strip_prefix("| `").and_then(|name| name.strip_suffix('`'));
        if let (Some(name), [_, _, range, unit, what, ..]) = (name, &cells[..])
            && ["number", "bytes", "time"].contains(unit)
        {
            let (range, unit, what) = (range.to_string(), unit.to_string(), what.to_string());
            found.insert(format!("{head}{name}"), Setting { range, unit, what });
        }
    }
    found
}

/// Each numeric setting has a row, each constant a proof, and what a row names is in the tree.
fn complaints(list: &List, tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut rows = BTreeSet::new();
    for bound in &list.setting {
        for name in &bound.names {
            if !tree.settings.contains_key(name) {
                complaints.push(format!("{name}: there is no such numeric setting"));
            }
            if !rows.insert(name) {
                complaints.push(format!("{name}: has two rows"));
            }
        }
    }
    let missing = tree.settings.keys().filter(|name| !rows.contains(name));
    complaints.extend(missing.map(|name| format!("{name}: has no row in the list of bounds")));
    for constant in tree.constants.iter().filter(|constant| constant.shown_by.is_empty()) {
        let row = list.constant(&constant.name, &constant.file);
        if row.is_none_or(|row| row.proof.is_empty() && row.reason.is_empty()) {
            let Constant { name, file, .. } = constant;
            complaints.push(format!("{file}: no test names {name}, and its row has no proof"));
        }
    }
    for bound in &list.constant {
        for name in &bound.names {
            let found = tree.constants.iter().any(|c| c.name == *name && c.file == bound.file);
            if !found {
                complaints.push(format!("{}: there is no constant {name}", bound.file));
            }
        }
    }
    let proofs = list.setting.iter().chain(&list.constant).flat_map(|bound| &bound.proof);
    let unknown = proofs.filter(|proof| is_test_name(proof) && !tree.tests.contains_key(*proof));
    complaints.extend(unknown.map(|proof| format!("{proof}: there is no such test")));
    complaints
}

/// A proof that is no test is a `const` assertion or a command, which says so in words.
fn is_test_name(proof: &str) -> bool {
    !proof.contains(' ')
}

fn page(list: &List, tree: &Tree) -> String {
    let mut page = String::from(HEAD);
    page.push_str(SETTINGS_HEAD);
    for bound in &list.setting {
        let rows = bound.names.iter().filter_map(|name| Some((name, tree.settings.get(name)?)));
        for (name, setting) in rows {
            page.push_str(&setting_row(name, setting, bound, tree));
        }
    }
    page.push_str(CONSTANTS_HEAD);
    for constant in &tree.constants {
        let row = list.constant(&constant.name, &constant.file);
        page.push_str(&constant_row(constant, row, tree));
    }
    page
}

fn setting_row(name: &str, setting: &Setting, bound: &Bound, tree: &Tree) -> String {
    let Setting { range, unit, what } = setting;
    let Bound { filled_by, times, takes, kept_by, .. } = bound;
    let proof = proof(bound, tree);
    format!(
        "| `{name}` | {range} | {unit} | {what} | {filled_by} | {times} | {takes} | {kept_by} | {proof} |\n"
    )
}

fn constant_row(constant: &Constant, row: Option<&Bound>, tree: &Tree) -> String {
    let Constant { name, file, value, what, shown_by } = constant;
    let by_list = row.map(|row| proof(row, tree)).filter(|text| !text.is_empty());
    let reason = row.map(|row| row.reason.clone()).filter(|reason| !reason.is_empty());
    let shown: Vec<String> = shown_by.iter().map(|test| format!("`{test}`")).collect();
    let proof = by_list.or(reason).unwrap_or_else(|| shown.join("<br>"));
    format!("| [`{name}`](../{file}) | `{value}` | {what} | {proof} |\n")
}

/// The tests, each with a link to its file, and what else is named.
fn proof(bound: &Bound, tree: &Tree) -> String {
    let cell = |proof: &String| match tree.tests.get(proof) {
        Some(file) => format!("[`{proof}`](../{file})"),
        None => proof.clone(),
    };
    bound.proof.iter().map(cell).collect::<Vec<_>>().join("<br>")
}

const HEAD: &str = "\
# The bounds

Written by `cargo xtask bounds` from `xtask/src/bounds/list.toml`, `docs/settings.md` and the constants in the code; change those, not this.

A stranger, a peer or an administrator can fill what a bound limits; a bound has a unit, a counter that refuses, and a test at its maximum.
`posthaste check` refuses only what no counter can keep while the mailer runs, and prints the arithmetic. Every other product of settings may
be larger than the machine: the counter named here refuses when it is reached, and the client hears the reply named beside it.
";
const SETTINGS_HEAD: &str = "
## Settings

| setting | range | unit | what it limits | who fills it | multiplies with | takes | kept by, and what is heard | shown by |
|---|---|---|---|---|---|---|---|---|
";
const MEASURED_HEAD: &str = "
## Memory at the maximum
";
const CONSTANTS_HEAD: &str = "
## Constants

Limits that nobody can move. The last column has the tests and `const` assertions that name the constant, or what shows it otherwise.

| constant | value | what it is | shown by |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "## Top of the file\n\n| `state` | x | a path | text | w | y |\n\
        ## `[limits]`\n| `hops_max` | `50` | 2 to 1000 | number | Received headers | why |\n\
        ## `[destination.default]` and `[destination.\"NAME\"]`\n\
        | `connections` | `100` | 1 to 100000 | number | at once | why |\n";

    fn tree() -> Tree {
        let constant = |name: &str, shown_by: &[&str]| Constant {
            name: name.into(),
            file: "mta/x/src/y.rs".into(),
            value: "1 << 20".into(),
            what: "Bytes.".into(),
            shown_by: shown_by.iter().map(|test| test.to_string()).collect(),
        };
        Tree {
            settings: settings(TABLES),
            constants: vec![constant("A_MAX", &["a_test"]), constant("B_MAX", &[])],
            tests: [("a_test".to_owned(), "mta/x/src/y.rs".to_owned())].into(),
        }
    }

    fn complaints_of(text: &str) -> Vec<String> {
        complaints(&List::parse(text).unwrap(), &tree())
    }

    const WHOLE: &str = "[[setting]]\nnames = [\"limits.hops_max\", \"destination.connections\"]\n\
        filled_by = \"a peer\"\nproof = [\"a_test\"]\n[[constant]]\nnames = [\"B_MAX\"]\n\
        file = \"mta/x/src/y.rs\"\nreason = \"a hint\"\n";

    #[test]
    fn numeric_settings_are_found_with_the_names_of_their_tables() {
        let names: Vec<String> = settings(TABLES).into_keys().collect();
        assert_eq!(names, ["destination.connections", "limits.hops_max"]);
    }

    #[test]
    fn a_list_that_has_everything_has_no_complaint_and_each_gap_is_one() {
        assert_eq!(complaints_of(WHOLE), Vec::<String>::new());
        for (find, put) in [
            ("\"limits.hops_max\", ", ""),
            ("destination.connections", "destination.nothing"),
            ("a_test", "another_test"),
            ("reason = \"a hint\"", "reason = \"\""),
            ("B_MAX", "C_MAX"),
        ] {
            assert!(!complaints_of(&WHOLE.replace(find, put)).is_empty(), "{find} as {put}");
        }
    }

    #[test]
    fn a_row_has_the_range_and_a_link_to_the_test() {
        let page = page(&List::parse(WHOLE).unwrap(), &tree());
        assert!(
            page.contains("| `limits.hops_max` | 2 to 1000 | number | Received headers | a peer |")
        );
        assert!(page.contains("[`a_test`](../mta/x/src/y.rs)"), "{page}");
        assert!(page.contains("| [`B_MAX`](../mta/x/src/y.rs) | `1 << 20` | Bytes. | a hint |"));
    }
}
